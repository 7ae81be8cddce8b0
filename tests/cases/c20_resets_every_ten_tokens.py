"""Case 20: a graph that never settles.

ggml-org/llama.cpp#28652, am17an/llama.cpp#45. With speculative decoding the number of drafted
tokens changes, and with it the shape of the graph under one key. In 256 tokens its warm-up ended
26 times and was reset 25 times, once in about ten tokens, and each time a pass ran kernel by kernel
before the graph was captured again.

The recording shows bursts of single launches between replays, each followed by a new graph.
"""

from cases.program import US, Program
from cases.story import Story

#: Replays after each warm-up: with the 26 passes of the warm-ups themselves, 256 tokens.
WARM_UPS, REPLAYS = 26, [9] * 22 + [8] * 4
NODES, KERNEL, EAGER_LAUNCH = 24, 4_000, 10_000  # made up, as are the times below
INSTANTIATE, LAUNCH, GRAPH = 40_000, 5_000, 24 * 4_000


def recorded():
    run = Program()
    for number, replays in enumerate(REPLAYS):
        for _ in range(NODES):
            run.launch(EAGER_LAUNCH, KERNEL)
        run.wait(5 * US)
        run.capture(NODES, US)
        run.instantiate(INSTANTIATE, graph_exec=100 + number)
        for _ in range(replays):
            run.replay(LAUNCH, GRAPH, graph_exec=100 + number)
            run.wait(5 * US)
    return run.rows


TOKENS = sum(REPLAYS)
#: Kernels behind their launch, but for the very first.
EAGER = WARM_UPS * NODES - 1

STORIES = {
    "as reported": Story(
        recorded(),
        findings=("eager_bursts:rebuilt", "graph_build", "host_sync", "launch_call:graph"),
        verdict="not_a_chunk_problem",
        cause="eager_bursts:rebuilt",
        causes={
            "launch_call": WARM_UPS * (NODES - 1) * (EAGER_LAUNCH - KERNEL)
            + (WARM_UPS - 1) * EAGER_LAUNCH
            + TOKENS * LAUNCH,
            "host_sync": (TOKENS + WARM_UPS - 1) * 5 * US,
            "graph_build": WARM_UPS * (NODES * US + 2 * US + INSTANTIATE),
        },
        evidence={
            "eager_bursts:rebuilt": {
                "bursts": WARM_UPS - 1,
                "single_launches": (WARM_UPS - 1) * NODES,
            }
        },
        says=("keep a graph for each shape instead of one that every change of shape resets",),
    )
}


def model():
    assert WARM_UPS + TOKENS == 256
