"""Case 28: 345 us of host for 72 us of kernels.

pytorch/pytorch#150488. One call of a small compiled function: 176 us in the wrapper of
torch.compile, 128 us in the bookkeeping of CUDA graph trees, 41 us in cudaGraphLaunch, 72 us of
kernels.

This is the framework's overhead. The launch is a tenth of the call, and chunks would add launches.
"""

from cases.program import Program
from cases.story import Story
from gaptrace.cost import ChunkModel, HostCost
from gaptrace.schedules import plateau, uniform

CALLS, WRAPPER, TREES, LAUNCH, GRAPH = 21, 176_000, 128_000, 41_000, 72_000


def recorded():
    run = Program()
    for _ in range(CALLS):
        run.host(WRAPPER)
        run.host(TREES)
        run.replay(LAUNCH, GRAPH)
        run.host(run.free[7] - run.now)
    return run.rows


GAPS = CALLS - 1

STORIES = {
    "as reported": Story(
        recorded(),
        findings=("host_code:before_graphs", "launch_call:graph"),
        verdict="not_a_chunk_problem",
        cause="host_code:before_graphs",
        causes={"host_code": GAPS * (WRAPPER + TREES), "launch_call": GAPS * LAUNCH},
        recommendation={"gain_cap_ns": GAPS * LAUNCH},
    )
}


def model():
    call = WRAPPER + TREES + LAUNCH + GRAPH
    assert call == 417_000
    assert round(100 * LAUNCH / call) == 10
    nodes = 20  # made up; each chunk costs a launch
    chunks = uniform(ChunkModel(HostCost.linear(LAUNCH, 0), nodes, GRAPH / nodes))
    assert plateau(chunks).recommended == nodes
