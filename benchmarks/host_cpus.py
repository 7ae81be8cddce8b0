"""Which CPUs of a shared host are left alone.

    python benchmarks/host_cpus.py

Needs no GPU. Short loops, of which those that take at most 15 % longer than the fastest of all are
at full pace: their share for a process that goes to another CPU after every other loop; twice for
one that stays on each CPU for 0.35 s, by CPU, without the first 50 ms; and for one that is where
the system puts it.
"""

import os
import random
import sys
import time

from gaptrace.live.host_pace import PASSES, fastest_loop_ns, loop_ns

FULL, STAY_S, SETTLED_S, HOPPING_S, FREE_S = 1.15, 0.35, 0.05, 4, 2


def repeated(seconds, work):
    end, found = time.monotonic() + seconds, []
    while time.monotonic() < end:
        found.append(work())
    return found


def hop(cpus):
    os.sched_setaffinity(0, [random.choice(cpus)])
    return fastest_loop_ns(PASSES)


def stay(cpu):
    os.sched_setaffinity(0, [cpu])
    repeated(SETTLED_S, stays)
    return repeated(STAY_S - SETTLED_S, stays)


def stays():
    return loop_ns(PASSES)


def main():
    cpus = sorted(os.sched_getaffinity(0))
    found = {"hopping": repeated(HOPPING_S, lambda: hop(cpus))}
    for number in (1, 2):
        for cpu in random.sample(cpus, len(cpus)):
            found[f"staying {number}, CPU {cpu:2}"] = stay(cpu)
    os.sched_setaffinity(0, cpus)
    found["free"] = repeated(FREE_S, stays)
    fastest_ns = min(map(min, found.values()))
    print(f"fastest loop {fastest_ns / 1e3:.1f} us")
    for name, times in sorted(found.items()):
        print(f"{name}: {sum(ns <= FULL * fastest_ns for ns in times) / len(times):.0%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
