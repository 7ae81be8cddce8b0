"""Case 27: collectives in the graph, and updates before each launch.

openxla/xla#35360, #35315. With collectives in its command buffers ten iterations of a model took
1,050 instead of 750 ms. Buffers that move from one iteration to the next have to be set anew in the
graph, and collectives always are, since all ranks must take part.

Leave collectives out, or keep addresses stable. Which nodes the updates are for is not in a trace:
that they come before each launch, one by one, is.
"""

from cases.program import MS, US, Program
from cases.story import Story

ITERATIONS, SETS, SET = 10, 20, 1_500_000  # how many updates make up the 30 ms is made up
LAUNCH, GRAPH = 100_000, 75 * MS - 100_000 - 5 * US


def recorded(updates):
    run = Program()
    for _ in range(ITERATIONS):
        for _ in range(updates):
            run.call("cuGraphExecChildGraphNodeSetParams", SET)
        run.replay(LAUNCH, GRAPH)
        run.wait(5 * US)
    return run.rows


GAPS = ITERATIONS - 1
CALLS = {"launch_call": GAPS * LAUNCH, "host_sync": GAPS * 5 * US}

STORIES = {
    "with collectives": Story(
        recorded(SETS),
        findings=("graph_build:node_by_node",),
        verdict="not_a_chunk_problem",
        cause="graph_build:node_by_node",
        regime="update",
        causes={"graph_build": GAPS * SETS * SET} | CALLS,
        evidence={"graph_build:node_by_node": {"launches": GAPS, "updated": GAPS * SETS}},
        says=("such as collectives",),
    ),
    "without": Story(recorded(0), findings=(), verdict="no_difference_shown", causes=CALLS),
}


def model():
    iteration = LAUNCH + GRAPH + 5 * US
    assert ITERATIONS * iteration == 750 * MS
    assert ITERATIONS * (iteration + SETS * SET) == 1050 * MS
