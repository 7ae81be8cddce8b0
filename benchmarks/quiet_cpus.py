"""Keeps a benchmark to the quietest CPUs: on a shared host others slow some down twofold."""

import os
import statistics
import time

_EVERY = os.sched_getaffinity(0)
#: Noisy is a CPU that takes so many times as long as the fastest loop that was ever seen.
_NOISY = 1.15
_fastest_ns = float("inf")


def run_on_quiet_cpus(count=4):
    """Keep to the CPUs that run a short loop fastest now; programs that are started do as well."""
    times = {cpu: [] for cpu in _EVERY}
    for _ in range(5):
        for cpu in _EVERY:
            os.sched_setaffinity(0, {cpu})
            times[cpu].append(_loop_ns())
    os.sched_setaffinity(0, sorted(_EVERY, key=lambda cpu: statistics.median(times[cpu]))[:count])


def leave_noisy_cpus():
    """Choose anew where the CPU at hand has become noisy: that lasts for seconds."""
    if min(_loop_ns() for _ in range(3)) > _NOISY * _fastest_ns:
        run_on_quiet_cpus()


def _loop_ns():
    global _fastest_ns
    begin = time.perf_counter_ns()
    for _ in range(20_000):
        pass
    ns = time.perf_counter_ns() - begin
    _fastest_ns = min(_fastest_ns, ns)
    return ns
