"""Case 23: nine instantiations where an update would do.

kekzl/imp#1647, #1895. Each burst of a decoder builds its graph from scratch, 13.7 ms, of which
instantiating takes 8.35 ms; nine times 8.35 ms in one benchmark. The topology never changes, only
parameters do, and cudaGraphExecUpdate patches the exec in 0.1 ms: 13.6 ms a burst less.

The recording shows captures of one size, each followed by an instantiation and one launch.
"""

from cases.program import MS, US, Program
from cases.story import Story

BURSTS, NODES = 9, 200
#: 5.35 ms of capturing (its parts are made up) and 8.35 ms of instantiating.
NODE_LAUNCH, BETWEEN, INSTANTIATE, UPDATE = 5_000, 21_740, 8_350_000, 100_000
LAUNCH, GRAPH = 20_000, 50 * MS  # made up


def recorded():
    run = Program()
    for burst in range(BURSTS):
        run.capture(NODES, NODE_LAUNCH, between_ns=BETWEEN)
        run.instantiate(INSTANTIATE, graph_exec=100 + burst)
        run.replay(LAUNCH, GRAPH, graph_exec=100 + burst)
        run.wait(5 * US)
    return run.rows


def patched():
    run = Program()
    for _ in range(BURSTS):
        run.call("cudaGraphExecUpdate_v10020", UPDATE)
        run.replay(LAUNCH, GRAPH)
        run.wait(5 * US)
    return run.rows


GAPS = BURSTS - 1
BUILD = NODES * (NODE_LAUNCH + BETWEEN) + 2 * US + INSTANTIATE

STORIES = {
    "as reported": Story(
        recorded(),
        findings=("graph_build:instantiated_alike",),
        verdict="not_a_chunk_problem",
        cause="graph_build:instantiated_alike",
        regime="instantiate",
        causes={
            # Code between the calls of a capture is the host's, and counted as building.
            "host_code": GAPS * NODES * BETWEEN,
            "graph_build": GAPS * (NODES * NODE_LAUNCH + 2 * US + INSTANTIATE),
            "launch_call": GAPS * LAUNCH,
            "host_sync": GAPS * 5 * US,
        },
        evidence={
            "graph_build:instantiated_alike": {
                "idle_ns": GAPS * BUILD,
                "instantiated": GAPS,
                "shapes": 1,
                "updated": 0,
            }
        },
        says=("cudaGraphExecUpdate",),
    ),
    "patched in place": Story(
        patched(),
        findings=(),
        verdict="no_difference_shown",
        regime="update",
        causes={
            "graph_build": GAPS * UPDATE,
            "launch_call": GAPS * LAUNCH,
            "host_sync": GAPS * 5 * US,
        },
    ),
}


def model():
    assert BUILD == 13_700_000
    assert BUILD - UPDATE == 13_600_000
