"""Case 13: a loop whose condition is read by the host.

A public note on a `lax.while_loop`. One call runs as 13 small graphs of 50, 31 (eleven times) and
about 17 us, 410 us altogether; after each of them the host reads the predicate and only then
launches the next. Of a call 354.5 us, 46.4 %, lie between the graphs, 45.9 % inside them, and
59 us, 7.7 %, are kernels. (The note counts 33 waits a call; here each iteration has one.)

This is a loop that depends on data. A conditional while node, a fixed number of iterations or
unrolling removes the gaps; smaller chunks add more of them.
"""

from cases.program import Program, even_nodes
from cases.story import Story

#: Busy and idle ns of each graph: 59 and 351 us altogether.
GRAPHS = [(5_000, 45_000), *[(4_500, 26_500)] * 11, (4_500, 14_500)]
GAPS = [29_540] * 11 + [29_560]
QUEUED, COPY, RETURN, LAUNCH = 1_000, 1_000, 5_000, 8_000


def recorded():
    run = Program()
    for number, (busy, idle) in enumerate(GRAPHS):
        run.replay_nodes(LAUNCH, even_nodes(3, busy, idle), graph_exec=10 + number)
        if number == len(GAPS):
            break
        next_starts = run.free[7] + GAPS[number]
        run.copy("DtoH pinned", 2_000, COPY, size=1, gap_ns=QUEUED)
        run.wait(RETURN)
        run.host(next_starts - LAUNCH - run.now)
    return run.rows


IN_GRAPHS, BETWEEN = sum(idle for _, idle in GRAPHS), sum(GAPS)
HOST_CODE = BETWEEN - 12 * (QUEUED + COPY + RETURN + LAUNCH)

STORIES = {
    "as reported": Story(
        recorded(),
        granularity="node",
        findings=("device_queued:in_graph", "value_loop"),
        verdict="not_a_chunk_problem",
        cause="value_loop",
        causes={
            "device_queued": IN_GRAPHS + 12 * QUEUED,
            "host_sync": 12 * RETURN,
            "host_code": HOST_CODE,
            "launch_call": 12 * LAUNCH,
        },
        evidence={
            "value_loop": {
                "idle_ns": HOST_CODE + 12 * (RETURN + LAUNCH),
                "iterations": 12,
                "gap_ns": 29_540,
                "duration_ns": 31_000,
            }
        },
        says=("12 graphs of 31.0 us, each 29.5 us after the one before", "smaller chunks would"),
    )
}


def model():
    call = sum(busy for busy, _ in GRAPHS) + IN_GRAPHS + BETWEEN
    assert (IN_GRAPHS, BETWEEN, call) == (351_000, 354_500, 764_500)
    shares = [round(100 * part / call, 1) for part in (BETWEEN, IN_GRAPHS, 59_000)]
    assert shares == [46.4, 45.9, 7.7]
