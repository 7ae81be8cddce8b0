"""Case 24: four and a half milliseconds of no CUDA call at all.

A public note. A token takes about 90 graphs; before each of them the host compares a value that it
finds in its own memory. 22.31 ms a token became 17.85 ms when the comparison moved to the device.

No API row lies in those gaps. They are host time between calls, 4.46 ms a token, whatever it may
be spent on, and must never be called the cost of launches.
"""

from cases.program import Program
from cases.story import Story

TOKENS, GRAPHS, COMPARE, LAUNCH = 3, 90, 49_556, 3_000
GRAPH = 17_850_000 // GRAPHS - LAUNCH


def recorded():
    run = Program()
    for _ in range(TOKENS * GRAPHS):
        run.replay(LAUNCH, GRAPH)
        run.host(run.free[7] + COMPARE - run.now)
    return run.rows


GAPS = TOKENS * GRAPHS - 1

STORIES = {
    "as reported": Story(
        recorded(),
        findings=("host_code:before_graphs",),
        verdict="not_a_chunk_problem",
        cause="host_code:before_graphs",
        causes={"host_code": GAPS * COMPARE, "launch_call": GAPS * LAUNCH},
        evidence={"host_code:before_graphs": {"idle_ns": GAPS * COMPARE}},
        says=("host_code (no CUDA call: Python, framework, operating system)",),
        never=("the device waits for graph launches",),
    )
}


def model():
    assert round(GRAPHS * COMPARE / 1e6, 2) == round(22.31 - 17.85, 2) == 4.46
