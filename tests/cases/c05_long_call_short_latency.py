"""Case 5: a launch call of 3.8 ms that costs the device 30 us.

A public note on vLLM. The launch of the target graph takes 3,776 us, but the device begins 30 us
after the call did and then runs for 55.86 ms: the call goes on while the device works.

Do not cut this graph. Whoever takes the duration of the call for lost time reports 3.7 ms a step;
the device loses 30 us.
"""

import pytest

from cases.program import Program
from cases.story import Story
from gaptrace.cost import ChunkModel, HostCost, makespan
from gaptrace.schedules import plateau, uniform

STEPS, LAUNCH, EXPOSED, GRAPH = 5, 3_776_000, 30_000, 55_860_000


def recorded():
    run = Program()
    for _ in range(STEPS):
        run.replay(LAUNCH, GRAPH, begins_ns=EXPOSED)
        run.host(run.free[7] - run.now)
    return run.rows


STORIES = {
    "as reported": Story(
        recorded(),
        findings=(),
        verdict="no_difference_shown",
        causes={"launch_call": (STEPS - 1) * EXPOSED},
        recommendation={"gain_cap_ns": (STEPS - 1) * EXPOSED},
        says=("launch calls of a step 3.78 ms, exposed latency 30.0 us",),
        never=("3.7 ms",),
    )
}


def model():
    nodes = 4096  # made up: the note does not say
    step = {"nodes": nodes, "node_ns": GRAPH / nodes, "cut_gap_ns": 3_000}
    host = HostCost.linear(0, LAUNCH / nodes)
    exposed = ChunkModel(host, **step, ready=HostCost.linear(EXPOSED, 0))
    assert makespan(exposed, [nodes]) == pytest.approx(EXPOSED + GRAPH)
    assert plateau(uniform(exposed)).recommended == nodes

    as_if_all_were_exposed = uniform(ChunkModel(host, **step))
    assert as_if_all_were_exposed[-1] - as_if_all_were_exposed.min() > 3_000_000
