"""Case 12: four bytes on their way to the device hold everything up.

A public note on speculative decoding. A step runs as four graphs of 55.86, 0.90, 0.70 and 0.52 ms;
between them the device stands idle for 357.7, 786.1, 786.1 and 2,616.8 us. Before each graph four
bytes go from pageable memory to the device, and the host waits for them: one cudaStreamSynchronize
lasts 50,692 us.

That long wait costs nothing by itself, since the target graph runs meanwhile. Lost is the code
that the host has yet to run when it returns to an empty device: at most 4.5 of 62.5 ms. Chunk size
has no part in it. After the copies were made asynchronous from pinned memory the host ran 100 ms
ahead, and 607.4 us of a step were left.
"""

from cases.program import Program
from cases.story import Story

STEPS = 4
#: Graph; gap after it; its launch call, and how long after the call began the device did. The
#: median lead, from the end of the call to the start of the graph, is 37.5 us; other calls made up.
STEP = (
    (55_860_000, 357_700, 3_776_000, 30_000),
    (900_000, 786_100, 20_000, 57_500),
    (700_000, 786_100, 20_000, 57_500),
    (520_000, 2_616_800, 20_000, 57_500),
)
QUEUED, COPY, RETURN = 1_000, 1_000, 15_000


def recorded():
    run = Program()
    for _ in range(STEPS):
        for number, (graph, gap, call, begins) in enumerate(STEP):
            run.replay(call, graph, graph_exec=10 + number, begins_ns=begins)
            next_starts = run.free[7] + gap
            if number == 0:  # the wait for this copy lasts 50,692 us
                run.host(run.free[7] + QUEUED + COPY + RETURN - 50_692_000 - 4_000 - run.now)
            run.copy("HtoD pageable", 4_000, COPY, gap_ns=QUEUED)
            run.wait(RETURN)
            run.host(next_starts - STEP[(number + 1) % 4][3] - run.now)
    run.replay(STEP[0][2], STEP[0][0], graph_exec=10, begins_ns=STEP[0][3])
    return run.rows


def fixed():
    run = Program()
    for _ in range(STEPS):
        for number, (graph, *_) in enumerate(STEP):
            run.host(300_000)
            run.replay(20_000, graph, graph_exec=10 + number, gap_ns=607_400 // 4)
    return run.rows


GAPS = sum(gap for _, gap, *_ in STEP)
HOST_CODE = GAPS - 4 * (QUEUED + COPY + RETURN) - 3 * 57_500 - 30_000

STORIES = {
    "as reported": Story(
        recorded(),
        findings=("host_code:after_wait",),
        verdict="not_a_chunk_problem",
        cause="host_code:after_wait",
        causes={
            "host_code": STEPS * HOST_CODE,
            "host_sync": STEPS * 4 * RETURN,
            "launch_call": STEPS * (3 * 20_000 + 30_000),
            "device_queued": STEPS * (4 * QUEUED + 3 * 37_500),
        },
        evidence={
            "host_code:after_wait": {
                "largest": "cudaStreamSynchronize for copy HtoD pageable, 4 bytes",
                "idle_ns": STEPS * HOST_CODE,
            }
        },
        says=("Chunk size is not the problem", "for copy HtoD pageable, 4 bytes"),
        never=("50.7 ms",),
    ),
    "after the fix": Story(
        fixed(),
        findings=(),
        verdict="no_difference_shown",
        causes={"device_queued": (4 * STEPS - 1) * (607_400 // 4)},
    ),
}


def model():
    assert GAPS == 4_546_700
    assert HOST_CODE < GAPS < 4_550_000
    assert sum(graph for graph, *_ in STEP) + GAPS == 62_526_700
