"""Marks in a recording how fast the host runs the program, as others may slow it down meanwhile.

What the host takes between launches cannot be told from what it takes on a slow host, but by the
side of something whose time at full pace is known: a loop as the one that `gaptrace calibrate`
times (`host_loop_ns`).
"""

from time import perf_counter_ns
from typing import Any

from gaptrace.live.host_pace import fastest_loop_ns

#: What the marks are called, in the domain `gaptrace`; the payload is the ns of the loop.
NAME = "host pace"
#: The last of the 5,000 passes of the calibrated loop: some 6 us, twice. Small integers exist
#: already and take half the time, so it does not begin at 0.
PASSES = range(4_500, 5_000)
#: How often the pace is looked at, at most: 0.6 % of the time. Own choice, for steps of a
#: millisecond, and a pace that may last for a few.
_EVERY_NS = 2_000_000

_due_ns = 0


def mark_pace(domain: Any) -> None:
    """Leave a mark if the last one is some time ago."""
    global _due_ns
    if perf_counter_ns() < _due_ns:
        return
    domain.mark(domain.get_event_attributes(NAME, payload=fastest_loop_ns(PASSES)))
    _due_ns = perf_counter_ns() + _EVERY_NS
