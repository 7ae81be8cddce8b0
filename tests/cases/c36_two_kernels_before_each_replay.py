"""Case 36: two kernels that nobody launched.

pytorch/pytorch#143572. Every replay of a graph is preceded by two small fill kernels: PyTorch sets
the seed and the offset of its random numbers, which a graph with random numbers needs.

They belong to the replay. There is nothing to find.
"""

from cases.program import US, Program
from cases.story import Story

REPLAYS, FILL, FILL_LAUNCH, GRAPH, LAUNCH = 20, 1_200, 4_000, 600_000, 8_000  # made up


def recorded():
    run = Program()
    for _ in range(REPLAYS):
        for _ in ("seed", "offset"):
            run.launch(FILL_LAUNCH, FILL, name="FillFunctor")
        run.replay(LAUNCH, GRAPH)
    return run.rows


#: Of the first replay the device catches up with the host: a launch call, less the kernel before.
FIRST = FILL_LAUNCH - FILL + LAUNCH - FILL

STORIES = {
    "as reported": Story(
        recorded(),
        findings=(),
        verdict="no_difference_shown",
        causes={"launch_call": FIRST, "device_queued": (REPLAYS - 1) * 3 * US},
    )
}
