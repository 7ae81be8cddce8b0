"""Case 11: a launch that does not grow with the graph.

Measured in public notes since CUDA 12.6: launching a straight line of 128 nodes again takes 1.06 us
of the host, about 1 ns a node and a microsecond or two before the first.

One graph is best however many nodes it has: there is nothing to hide, and each cut costs a gap.
"""

import pytest

from cases.program import US, Program
from cases.story import Story
from gaptrace.cost import ChunkModel, HostCost, makespan
from gaptrace.schedules import plateau, uniform

STEPS, NODES, FIXED, PER_NODE, NODE = 6, 4096, 2_500, 1, 3_000
LAUNCH = FIXED + PER_NODE * NODES


def recorded():
    run = Program()
    run.capture(NODES, 2 * US)
    run.instantiate(6_000 * US)
    for _ in range(STEPS):
        run.replay(LAUNCH, NODE * NODES)
        run.wait(5 * US)
    return run.rows


STORIES = {
    "straight line": Story(
        recorded(),
        findings=(),
        verdict="no_difference_shown",
        causes={
            "launch_call": (STEPS - 1) * LAUNCH,
            "host_sync": (STEPS - 1) * 5 * US,
        },
        recommendation={"nodes": NODES, "chunk": None},
    )
}


def model():
    # What a cut costs is not reported; 2.5 us yield the 14 us that the collection computes.
    step = ChunkModel(HostCost.linear(FIXED, PER_NODE), NODES, NODE, cut_gap_ns=2_500)
    loss = makespan(step, [512] * 8) - makespan(step, [NODES])
    assert loss == pytest.approx(14_000, abs=100)
    found = plateau(uniform(step))
    assert (found.recommended, found.hi) == (NODES, NODES)
