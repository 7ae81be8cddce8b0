"""Case 7: 40.744 instead of 40.564 tokens a second.

Measured for llama.cpp by a maintainer: 24.652 ms a token before a change to how graphs are
launched, 24.543 ms after it. That is 0.44 %, or 109 us.

Repeated runs differ by as much, so that no difference is shown. A recording in which graph launches
leave the device idle for 109 us a token must say so, too, and not advise a chunk size. (Whether two
runs differ is a matter of timing both often enough, which no recording of one of them replaces.)
"""

from cases.program import Program
from cases.story import Story

TOKENS, BEFORE, AFTER = 6, 24_652_000, 24_543_000


def recorded():
    run = Program()
    for _ in range(TOKENS):
        run.replay(BEFORE - AFTER, AFTER)
        run.host(run.free[7] - run.now)
    return run.rows


STORIES = {
    "as reported": Story(
        recorded(),
        findings=(),
        verdict="no_difference_shown",
        causes={"launch_call": (TOKENS - 1) * 109_000},
        recommendation={"chunk": None, "gain_ns": None},
        says=("less than 0.5 % of the time",),
    )
}


def model():
    assert round(100 * (BEFORE - AFTER) / BEFORE, 2) == 0.44
