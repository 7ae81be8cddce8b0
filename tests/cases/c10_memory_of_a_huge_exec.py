"""Case 10: eight GiB for a graph.

JBjoernskov/Twin4Build#134. A rollout of 360 steps, unrolled into one graph, replays in 2.0 s and
leaves 8.6 GiB of an A100 in use, of which the tensors are 0.2 GiB: the rest is the executable of
the graph, and grows with its nodes.

Cut it and launch one exec again and again, for its memory and not for its time. No trace shows that
memory. What a trace shows is a graph of very many nodes whose launch costs nothing, and that there
is something to look at.
"""

from cases.program import MS, Program
from cases.story import Story

#: The issue gives no number of nodes; 30 kernels a step are made up.
NODES, REPLAYS, LAUNCH, GRAPH = 360 * 30, 4, 5 * MS, 2_000 * MS


def recorded():
    run = Program()
    run.capture(NODES, 2_000)
    run.instantiate(20 * MS)
    for _ in range(REPLAYS):
        run.replay(LAUNCH, GRAPH)
        run.host(run.free[7] - run.now)
    return run.rows


STORIES = {
    "as reported": Story(
        recorded(),
        findings=(),
        verdict="no_difference_shown",
        causes={"launch_call": (REPLAYS - 1) * LAUNCH},
        recommendation={"nodes": NODES},
        says=("a graph has 10,800 nodes; its exec holds memory for each of them",),
    )
}
