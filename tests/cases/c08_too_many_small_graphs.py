"""Case 8: fifty-two graphs a step, each launched in time, with a pause before each.

A public note. A step runs as 52 graphs; the host is far ahead, and yet the device pauses for about
23 us at each of the 51 boundaries. Its author expects that without the recorder they cost 0.2 to
0.4 ms a step altogether.

These are too many cuts: merge. As traced the pauses add up to 1.17 ms a step, which is an upper
bound, since recording stretches gaps between graphs, and has to be named so.
"""

from cases.program import US, Program
from cases.story import Story

STEPS, GRAPHS, GAP = 4, 52, 23_000
LAUNCH, GRAPH = 10_000, 300_000  # made up; the device's work is far longer than the launches


def recorded():
    run = Program()
    for _ in range(STEPS):
        for number in range(GRAPHS):
            run.replay(LAUNCH, GRAPH, graph_exec=100 + number, gap_ns=GAP if number else US)
        run.wait(5 * US)
    return run.rows


STORIES = {
    "as reported": Story(
        recorded(),
        findings=("device_queued:between_graphs",),
        verdict="merge",
        causes={
            "device_queued": STEPS * (GRAPHS - 1) * GAP,
            "host_sync": (STEPS - 1) * 5 * US,
            "launch_call": (STEPS - 1) * LAUNCH,
        },
        # Recorded in graph granularity such a gap was 2.2 times what it is without a recorder.
        recommendation={
            "gain_ns": round((GRAPHS - 1) * GAP / 2.2),
            "gain_cap_ns": STEPS * (GRAPHS - 1) * GAP,
        },
        says=(
            "merging cannot gain more than 4.69 ms in this window: the pauses between queued "
            "graphs as traced, which the recorder lengthens",
        ),
    )
}


def model():
    assert (GRAPHS - 1) * GAP == 1_173_000
