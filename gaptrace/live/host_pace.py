"""Keeps timing to moments in which the host runs this process at its full pace.

On a machine that is shared others can halve the pace of a CPU, for a tenth of a second or for
several. Seen on the host of an H200: a loop in Python takes 0.51 ms instead of 0.25, a launch 5.6
us instead of 3.9, a capture twice as long; all at the same moments. So a short loop tells. Some
CPUs are left alone for a while and others are not: of 16, with 0.35 s spent on each, two to seven
had more than 0.7 of their loops at full pace, and two to six had none.
"""

import os
import random
from collections.abc import Callable
from time import perf_counter_ns
from typing import TypeVar

Result = TypeVar("Result")

#: Passes of the loop: some 60 us. Own choice, short against a phase.
PASSES = range(5_000)
#: At full pace are loops that take at most so many times as long as the best pace seen. Own choice:
#: that of CPUs left alone went from 55 to 66 us with the clock of a busy processor, within minutes;
#: of others it is 1.5 to 2 times as long.
FULL = 1.25
#: A CPU is as good as left alone if that share of so many loops is at full pace there: 3 ms. Own
#: choice: a share of 0.8 to 0.9 was the best seen, and its slow moments come every few ms.
_MOSTLY, _LOOPS = 0.75, 50
#: CPUs that are looked at in turn, at most: 0.1 s. Own choice.
_MOST_CPUS = 16
#: How long one pace looks or waits for a better host in all, and how often it has work done again.
#: Own choice.
PATIENCE_NS, TRIES = 5_000_000_000, 3


class HostPace:
    """The pace of the CPU at hand, and ways to a better one.

    The thread is moved between the CPUs on which it may run, and never held on one: where others
    want that as well, the system shall move it, and threads that it starts may run anywhere.

    Attributes:
        fastest_ns: the short loop at the best pace seen, which one in four loops on a CPU had: a
            single one may be too fast to be true.
        loops_ns: how long it took when work was begun, each time.
        was_full: whether the pace was full when `undisturbed` began its work last, and at its end.
    """

    def __init__(self, fastest_ns: float | None = None, patience_ns: int | None = None) -> None:
        """See how fast every CPU is now.

        Args:
            fastest_ns: what is known of that from another process.
            patience_ns: to look and wait for a better host in all; `PATIENCE_NS` if not given.
        """
        self.fastest_ns = float("inf") if fastest_ns is None else fastest_ns
        self.loops_ns: list[int] = []
        self.was_full = False
        self._patience_ns = PATIENCE_NS if patience_ns is None else patience_ns
        self._cpus: list[int] = []
        if hasattr(os, "sched_getaffinity"):  # Linux
            self._cpus = sorted(os.sched_getaffinity(0))
        for cpu in self._some_cpus():
            self._is_mostly_full(cpu)

    def settle(self, meanwhile: Callable[[], object]) -> None:
        """Return once the pace is full, here, on another CPU or later; or when patience is over.

        Args:
            meanwhile: done again and again while waiting, so that the GPU keeps its clocks.
        """
        while not (self._is_full() or self._finds_better_cpu()) and self._patience_ns > 0:
            begin = perf_counter_ns()
            meanwhile()
            self._patience_ns -= perf_counter_ns() - begin
        self.loops_ns.append(fastest_loop_ns(PASSES))

    def undisturbed(self, work: Callable[[], Result]) -> Result:
        """Do work at full pace, and again if that was lost before its end; return the last result.

        It is done while waiting as well, and that forgotten.
        """
        for _ in range(TRIES):
            self.settle(work)
            result = work()
            self.was_full = self._is_full() and self.loops_ns[-1] <= FULL * self.fastest_ns
            if self.was_full:
                break
            self._finds_better_cpu()
        return result

    def _is_full(self) -> bool:
        ns = fastest_loop_ns(PASSES)
        if FULL * ns < self.fastest_ns:  # full pace was never seen before
            self._is_mostly_full()
        return ns <= FULL * self.fastest_ns

    def _finds_better_cpu(self) -> bool:
        """Go to a CPU that is as good as left alone, and say whether one was found."""
        if self._patience_ns <= 0:
            return False
        begin = perf_counter_ns()
        found = any(map(self._is_mostly_full, self._some_cpus()))
        self._patience_ns -= perf_counter_ns() - begin
        return found

    def _some_cpus(self) -> list[int]:
        return random.sample(self._cpus, min(_MOST_CPUS, len(self._cpus)))

    def _is_mostly_full(self, cpu: int | None = None) -> bool:
        """Say whether a CPU is as good as left alone; a look at its first moments would not."""
        if cpu is not None:
            self._move_to(cpu)
        loop_ns(PASSES)  # where nothing ran the first is slow
        loops = sorted(loop_ns(PASSES) for _ in range(_LOOPS))
        self.fastest_ns = min(self.fastest_ns, loops[_LOOPS // 4])
        return loops[int(_MOSTLY * _LOOPS)] <= FULL * self.fastest_ns

    def _move_to(self, cpu: int) -> None:
        try:
            os.sched_setaffinity(0, [cpu])
            os.sched_setaffinity(0, self._cpus)
        except OSError:  # that CPU was taken from us, or moving is not allowed
            self._cpus = []


def fastest_loop_ns(passes: range) -> int:
    """The faster of two loops: anything may come between, and its code be gone from the caches."""
    return min(loop_ns(passes) for _ in range(2))


def loop_ns(passes: range) -> int:
    """Time an empty loop."""
    begin = perf_counter_ns()
    for _ in passes:
        pass
    return perf_counter_ns() - begin
