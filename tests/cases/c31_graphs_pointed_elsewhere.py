"""Case 31: eight graphs, pointed to other buffers in each frame.

beehive-lab/TornadoVM#1006. A pipeline of eight graphs, which hand buffers to each other, runs at
4.5 instead of about 450 frames a second. As collected: setting the nodes of the graphs to the
buffers of each frame costs a hundred times as much as the frame. Build the variants in advance.

The report itself says more. Graphs captured before the buffers were known replay with stale
addresses: cuGraphLaunch returns error 700, nobody looks, each frame fails and is tried again.
"""

from cases.program import US, Program
from cases.story import Story

FRAMES, GRAPHS, NODES = 4, 8, 10
LAUNCH, GRAPH = 10_000, 262_500  # with one pause of a microsecond between graphs, 2.2 ms a frame
SET = 2_750_000  # 220 ms a frame; one of the two is made up


def recorded(*, repointed):
    run = Program()
    for _ in range(FRAMES):
        for graph in range(GRAPHS):
            for _ in range(NODES * repointed):
                run.call("cuGraphExecKernelNodeSetParams_v2", SET)
            run.replay(LAUNCH, GRAPH, graph_exec=10 + graph)
    return run.rows


def failing():
    run = Program()
    for _ in range(40):  # the first frame runs kernel by kernel
        run.launch(5_000, 500_000)
    for _ in range(FRAMES):
        for _ in range(GRAPHS):
            run.call("cuGraphLaunch", 15 * US, error=700)
    return run.rows


LAUNCHES = FRAMES * GRAPHS

STORIES = {
    "as collected": Story(
        recorded(repointed=True),
        findings=("graph_build:node_by_node",),
        verdict="not_a_chunk_problem",
        cause="graph_build:node_by_node",
        regime="update",
        causes={
            # The device works while the first node of the next graph is set.
            "graph_build": (LAUNCHES - 1) * (NODES * SET - GRAPH),
            "launch_call": (LAUNCHES - 1) * LAUNCH,
        },
        evidence={
            "graph_build:node_by_node": {
                "launches": LAUNCHES - 1,
                "updated": (LAUNCHES - 1) * NODES,
            }
        },
        says=("build a graph for each set of buffers in advance",),
    ),
    "variants built in advance": Story(
        recorded(repointed=False),
        findings=(),
        verdict="no_difference_shown",
        causes={"device_queued": (LAUNCHES - 1) * US},
    ),
    "as reported": Story(
        failing(),
        findings=("launch_failed",),
        verdict="do_not_graph",
        regime=None,
        causes={"device_queued": 39 * US},
        evidence={
            "launch_failed": {"call": "cuGraphLaunch", "return_code": 700, "calls": LAUNCHES}
        },
        says=("[high] launches failed, and their work was never done",),
    ),
}
