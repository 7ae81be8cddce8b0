"""Case 3: two milliseconds of nothing before each replay.

sgl-project/sglang#5593. Qwen2.5-32B on four GPUs at batch 64: before the first kernel of every
replay the device stands idle for about 2 ms, although nothing synchronises. The launch call takes
that long, and the device begins only near its end.

The idle time is that of graph launches. Cutting the graph may hide it, so may launching it earlier.
The nodes of the graph are not in this recording, so that no size can be named: record them.
"""

from cases.program import Program
from cases.story import Story

STEPS, LAUNCH, EXPOSED, GRAPH = 5, 2_000_000, 1_990_000, 20_000_000  # the last one is made up


def recorded():
    run = Program()
    for _ in range(STEPS):
        run.replay(LAUNCH, GRAPH, begins_ns=EXPOSED)
        run.host(run.free[7] - run.now)
    return run.rows


STORIES = {
    "as reported": Story(
        recorded(),
        findings=("launch_call:graph",),
        verdict="needs_calibration",
        cause="nodes",
        causes={"launch_call": (STEPS - 1) * EXPOSED},
        recommendation={"gain_cap_ns": (STEPS - 1) * EXPOSED, "chunk": None},
        says=("the device waits for graph launches: 7.96 ms (7.4% of the span)",),
    )
}
