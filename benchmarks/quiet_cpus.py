"""Keeps a benchmark to the quietest CPUs: on a shared host others slow some down twofold."""

import os
import statistics
import time

_EVERY = os.sched_getaffinity(0)


def run_on_quiet_cpus(count=4):
    """Keep to the CPUs that run a short loop fastest now; programs that are started do as well."""
    times = {cpu: [] for cpu in _EVERY}
    for _ in range(5):
        for cpu in _EVERY:
            os.sched_setaffinity(0, {cpu})
            times[cpu].append(_loop_ns())
    os.sched_setaffinity(0, sorted(_EVERY, key=lambda cpu: statistics.median(times[cpu]))[:count])


def _loop_ns():
    begin = time.perf_counter_ns()
    for _ in range(50_000):
        pass
    return time.perf_counter_ns() - begin
