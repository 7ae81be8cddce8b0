"""Keeps a benchmark to the quietest CPUs: on a shared host others slow some down twofold."""

import os
import statistics
from contextlib import contextmanager

from gaptrace.live.host_pace import fastest_loop_ns

#: Of the loop: 0.6 ms, longer than a CPU takes to wake.
PASSES = range(50_000)


@contextmanager
def quiet_cpus(count=4):
    """Keep to the CPUs that run a short loop fastest now; programs that are started do as well."""
    every = os.sched_getaffinity(0)
    times = {cpu: [] for cpu in every}
    for _ in range(5):
        for cpu in every:
            os.sched_setaffinity(0, {cpu})
            times[cpu].append(fastest_loop_ns(PASSES))
    os.sched_setaffinity(0, sorted(every, key=lambda cpu: statistics.median(times[cpu]))[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, every)
