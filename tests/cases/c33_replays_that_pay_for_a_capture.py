"""Case 33: how many replays pay for a capture.

pytorch/executorch#18809. The decoder of a language model takes about 11.5 ms a token launched
kernel by kernel (three tokens of warm-up), 21.4 ms for the one token in which its graph is
captured, and 7.60 ms a token replayed.

After ceil((21.4 - 11.5) / (11.5 - 7.6)) = 3 replays the graph has paid for itself. A recording
shows tokens of all three kinds, but not that they are the same work: its break-even stays unknown.
"""

from cases.program import MS, US, Program
from cases.story import Story
from gaptrace.cost import break_even_replays

WARM, REPLAYS, KERNELS = 3, 12, 100
EAGER, CAPTURING, REPLAYED = 11_500_000, 21_400_000, 7_600_000
LAUNCH, KERNEL, GRAPH_LAUNCH, RETURN = 10_000, 70_000, 20_000, 5 * US
#: A kernel every 114.95 us, and the return from the wait: an eager token.
BETWEEN = (EAGER - RETURN) // KERNELS - LAUNCH - KERNEL
GRAPH = REPLAYED - GRAPH_LAUNCH - RETURN
#: Capturing and instantiating, and then the first launch.
NODE_LAUNCH, IN_CAPTURE, INSTANTIATE = 20_000, 78_000, 4_000_000 - 2 * US


def recorded():
    run = Program()
    for _ in range(WARM):
        for _ in range(KERNELS):
            run.launch(LAUNCH, KERNEL)
            run.host(run.free[7] + BETWEEN - run.now)
        run.wait(RETURN)
    run.capture(KERNELS, NODE_LAUNCH, between_ns=IN_CAPTURE)
    run.instantiate(INSTANTIATE)
    for _ in range(1 + REPLAYS):
        run.replay(GRAPH_LAUNCH, GRAPH)
        run.wait(RETURN)
    return run.rows


STORIES = {
    "as reported": Story(
        recorded(),
        findings=("graph_build", "host_code", "launch_call:single"),
        verdict="one_graph",
        causes={
            "host_code": WARM * KERNELS * BETWEEN + KERNELS * IN_CAPTURE,
            "graph_build": KERNELS * NODE_LAUNCH + 2 * US + INSTANTIATE,
            "launch_call": (WARM * KERNELS - 1) * LAUNCH + (1 + REPLAYS) * GRAPH_LAUNCH,
            "host_sync": (WARM + REPLAYS) * RETURN,
        },
        recommendation={"break_even_replays": None, "nodes": KERNELS},
    )
}


def model():
    assert break_even_replays(CAPTURING - EAGER, EAGER, REPLAYED) == 3
    build = KERNELS * (NODE_LAUNCH + IN_CAPTURE) + 2 * US + INSTANTIATE
    assert build + REPLAYED == CAPTURING
    assert KERNELS * (LAUNCH + KERNEL + BETWEEN) + RETURN == EAGER < 12 * MS
