"""Case 19: two kinds of batch share one graph, and each undoes the other.

ggml-org/llama.cpp#28549. With multi-token prediction two kinds of batch alternate, and both look up
their graph under one key. Each finds the other's graph there, whose shape differs: the update is
refused, and the graph is captured and instantiated anew in every step. Separate keys made it 4 to
5 % faster.

The recording holds an instantiation per launch, refused updates, and two sizes that come and go.
"""

from cases.program import US, Program
from cases.story import Story

STEPS, SIZES = 10, (260, 180)
NODE_LAUNCH, REFUSED, DESTROY, INSTANTIATE, LAUNCH = 300, 20_000, 5_000, 85_000, 12_000
GRAPH = 4_000_000  # times are made up to yield the gain reported


def recorded():
    run = Program()
    for step in range(STEPS):
        run.capture(SIZES[step % 2], NODE_LAUNCH)
        if step:
            run.call("cudaGraphExecUpdate_v10020", REFUSED, error=910)
            run.call("cudaGraphExecDestroy_v10000", DESTROY)
        run.instantiate(INSTANTIATE, graph_exec=100 + step)
        run.replay(LAUNCH, GRAPH, graph_exec=100 + step)
        run.wait(5 * US)
    return run.rows


CAPTURES = sum(SIZES[step % 2] * NODE_LAUNCH + 2 * US for step in range(1, STEPS))
BUILDS = CAPTURES + (STEPS - 1) * (REFUSED + DESTROY + INSTANTIATE)

STORIES = {
    "as reported": Story(
        recorded(),
        findings=("graph_build:alternating_shapes",),
        verdict="not_a_chunk_problem",
        cause="graph_build:alternating_shapes",
        regime="instantiate",
        causes={
            "graph_build": BUILDS,
            "launch_call": (STEPS - 1) * LAUNCH,
            "host_sync": (STEPS - 1) * 5 * US,
        },
        evidence={
            "graph_build:alternating_shapes": {
                "instantiated": STEPS - 1,
                "refused": STEPS - 1,
                "shapes": 2,
            }
        },
        says=("make the shape part of the key",),
    )
}


def model():
    share = BUILDS / (BUILDS + (STEPS - 1) * (LAUNCH + 5 * US + GRAPH))
    assert 0.04 < share < 0.05
