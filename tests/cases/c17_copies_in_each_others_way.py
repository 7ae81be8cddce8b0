"""Case 17: reading eight bytes takes a millisecond and a half.

A public note. While an optimiser's state goes to the host in large copies, the gaps between graphs
last 3.045 ms; without these copies 1.533 ms, and later in the same run 1.555 ms. Each gap holds a
tiny read-back, which waits until the copy engine has finished a large chunk.

In 153 gaps that is 231.3 ms more. It must not be extrapolated to iterations without large copies.
The rest of each gap is the host's, which reads a value and goes on.
"""

from cases.program import MS, Program
from cases.story import Story

SLOW, FAST, WITH_COPIES, WITHOUT = 153, 40, 3_045_000, 1_533_000
GRAPH, CHUNK = 10 * MS, 3 * MS  # made up
QUEUED, READ, RETURN, LAUNCH = 1_000, 2_000, 5_000, 10_000
DELAY = WITH_COPIES - WITHOUT


def recorded():
    run = Program()
    for number in range(SLOW + FAST):
        run.replay(LAUNCH, GRAPH)
        ended = run.free[7]
        if number < SLOW:
            begins = ended + DELAY - CHUNK - run.now
            run.copy("DtoH pinned", 5_000, CHUNK, size=1 << 26, stream=9, begins_ns=begins)
        late = DELAY if number < SLOW else 0
        run.copy("DtoH pinned", 4_000, READ, size=8, begins_ns=ended + late + QUEUED - run.now)
        run.wait(RETURN)
        run.host(ended + WITHOUT + late - LAUNCH - run.now)
    run.replay(LAUNCH, GRAPH)
    return run.rows


HOST_CODE = WITHOUT - QUEUED - READ - RETURN - LAUNCH

STORIES = {
    "as reported": Story(
        recorded(),
        findings=("host_code:after_wait", "copy_contention"),
        verdict="not_a_chunk_problem",
        cause="host_code:after_wait",
        causes={
            "host_code": (SLOW + FAST) * HOST_CODE,
            "host_sync": (SLOW + FAST) * RETURN,
            "launch_call": (SLOW + FAST) * LAUNCH,
            "device_queued": (SLOW + FAST) * QUEUED,
        },
        evidence={"copy_contention": {"copies": SLOW, "delayed_ns": SLOW * DELAY}},
        says=("231 ms", "the figure holds for this window only"),
    )
}


def model():
    assert round(SLOW * DELAY / MS, 1) == 231.3
