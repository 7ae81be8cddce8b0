"""Case 15: seven milliseconds inside the graphs, and next to nothing between them.

A public note on a decoder on gfx1030. Of a step of 65.4 ms the device pauses for 7.42 ms between
the nodes of its graphs and for 0.024 ms between the graphs, which are all launched in time.

Whatever the chunk size, it moves at most 0.04 % of the step. The nodes are what to look at: fewer,
larger kernels, or launches that overlap.
"""

from cases.program import Program, even_nodes
from cases.story import Story

STEP, INSIDE, BETWEEN = 65_400_000, 7_420_000, 24_000
GRAPHS, NODES = 5, 188  # made up


def recorded():
    busy = STEP - INSIDE - BETWEEN
    run = Program()
    for number in range(GRAPHS):
        nodes = even_nodes(NODES, busy // GRAPHS, INSIDE // GRAPHS)
        gap = BETWEEN // (GRAPHS - 1)
        run.replay_nodes(100_000, nodes, graph_exec=10 + number, gap_ns=gap)
    return run.rows


STORIES = {
    "as reported": Story(
        recorded(),
        granularity="node",
        findings=("device_queued:in_graph",),
        verdict="not_a_chunk_problem",
        cause="device_queued:in_graph",
        causes={"device_queued": INSIDE + BETWEEN},
        evidence={"device_queued:in_graph": {"idle_ns": INSIDE}},
        recommendation={"gain_cap_ns": 0},
        says=("chunk size cannot change this",),
    )
}


def model():
    assert round(100 * BETWEEN / STEP, 2) == 0.04
