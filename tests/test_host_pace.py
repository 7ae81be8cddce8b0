"""Whether the host runs at full pace, on CPUs whose loops take what they are told to."""

import os
import time

import pytest

from gaptrace.live import host_pace
from gaptrace.live.host_pace import HostPace

FULL, HALF = 60_000, 120_000


class Cpus:
    """CPUs by number, with the ns of their next loops; the last one stays."""

    def __init__(self, loops: dict[int, list[int]], here: int) -> None:
        self.loops, self.here, self.moves = loops, here, list[list[int]]()

    def getaffinity(self, pid: int) -> set[int]:
        assert pid == 0
        return set(self.loops)

    def setaffinity(self, pid: int, cpus: list[int]) -> None:
        assert pid == 0
        self.moves.append(list(cpus))
        if self.here not in cpus:
            self.here = cpus[0]

    def loop(self, passes: range = host_pace.PASSES) -> int:
        assert passes == host_pace.PASSES
        left = self.loops[self.here]
        return left.pop(0) if len(left) > 1 else left[0]


def nothing():
    pass


@pytest.fixture
def on(monkeypatch):
    def on(loops, here=0):
        cpus = Cpus(loops, here)
        monkeypatch.setattr(os, "sched_getaffinity", cpus.getaffinity, raising=False)
        monkeypatch.setattr(os, "sched_setaffinity", cpus.setaffinity, raising=False)
        monkeypatch.setattr(host_pace, "loop_ns", cpus.loop)
        return cpus

    return on


def look(*ns):
    """Loops of a CPU that is looked at: one to wake it, then 50."""
    return [FULL, *(list(ns) * 50)[:50]]


def test_at_full_pace_it_stays_where_it_is(on):
    cpus = on({0: [FULL], 1: [FULL]})
    pace = HostPace()
    looked = len(cpus.moves)
    pace.settle(nothing)
    assert len(cpus.moves) == looked
    # It looked at each, and was held on none.
    assert sorted(cpus.moves) == [[0], [0, 1], [0, 1], [1]]
    assert pace.loops_ns == [FULL]


def test_it_goes_where_the_pace_is_full(on):
    cpus = on({0: [HALF], 1: [HALF], 2: [FULL]})
    pace = HostPace()
    pace.settle(nothing)
    assert cpus.here == 2
    assert pace.loops_ns == [FULL]
    assert cpus.moves[-1] == [0, 1, 2]


def test_it_waits_where_all_are_slow(on):
    slow = [HALF, HALF, *look(HALF)]
    cpus = on({0: [*look(FULL), *slow, *slow, FULL]})
    awake = []
    pace = HostPace()
    pace.settle(lambda: awake.append(len(cpus.loops[0])))
    assert awake == [len(slow) + 1, 1]
    assert pace.loops_ns == [FULL]


def test_it_does_not_wait_for_ever(on, monkeypatch):
    monkeypatch.setattr(host_pace, "PATIENCE_NS", 1_000_000)
    cpus = on({0: [HALF], 1: [HALF]})
    pace = HostPace(FULL)
    pace.settle(lambda: time.sleep(0.001))
    looked, awake = len(cpus.moves), []
    pace.settle(lambda: awake.append(1))  # no patience is left
    assert pace.loops_ns == [HALF, HALF]
    assert (len(cpus.moves), awake) == (looked, [])


def test_looking_for_a_better_cpu_takes_patience(on, monkeypatch):
    monkeypatch.setattr(host_pace, "PATIENCE_NS", 1)
    on({0: [HALF]})
    pace, awake = HostPace(FULL), []
    pace.settle(lambda: awake.append(1))
    assert awake == []


def test_waiting_takes_patience(on, monkeypatch):
    on({0: [HALF]})
    monkeypatch.delattr(os, "sched_getaffinity")  # there is no other CPU to look at
    pace, awake = HostPace(FULL, patience_ns=10_000_000), []

    def wait():
        awake.append(time.sleep(0.004))
        assert len(awake) < 5

    pace.settle(wait)
    assert awake


def test_patience_can_be_given(on):
    cpus = on({0: [HALF]})
    pace, awake = HostPace(FULL, patience_ns=0), []
    looked = len(cpus.moves)
    pace.settle(lambda: awake.append(1))
    assert (len(cpus.moves), awake) == (looked, [])


def test_it_looks_at_some_of_many_cpus(on):
    cpus = on({number: [FULL] for number in range(100)})
    HostPace()
    assert len({move[0] for move in cpus.moves if len(move) == 1}) == 16


def test_work_is_done_again_if_the_pace_was_lost(on):
    # Two loops each: before the work, when it begins, after it.
    on({0: [*look(FULL), *[FULL] * 4, *[HALF] * 2, FULL]})
    done = []
    pace = HostPace()
    assert pace.undisturbed(lambda: done.append(1) or len(done)) == 2
    assert pace.was_full


def test_work_is_not_done_again_and_again(on, monkeypatch):
    monkeypatch.setattr(host_pace, "PATIENCE_NS", 0)
    on({0: [HALF]})
    done = []
    pace = HostPace(FULL)
    assert pace.undisturbed(lambda: done.append(1) or len(done)) == host_pace.TRIES
    assert not pace.was_full


def test_work_begun_at_half_pace_was_disturbed(on, monkeypatch):
    monkeypatch.setattr(host_pace, "PATIENCE_NS", 0)
    monkeypatch.setattr(host_pace, "TRIES", 1)
    # Two loops each: before the work, and when it begins.
    cpus = on({0: [*look(FULL), *[HALF] * 4, FULL]})
    pace = HostPace()
    pace.undisturbed(nothing)
    assert not pace.was_full
    assert cpus.loops == {0: [FULL]}


@pytest.mark.parametrize(
    ("loops", "stays"),
    [
        ([5 * FULL, FULL], True),  # a CPU on which nothing ran begins slowly
        (look(HALF, FULL, FULL, FULL, FULL), True),
        (look(HALF, FULL, FULL), False),
    ],
)
def test_a_cpu_is_looked_at_for_a_while(on, loops, stays):
    cpus = on({0: [*look(FULL), HALF], 1: [*look(HALF), *loops]})
    pace = HostPace()
    cpus.here = 0
    pace.settle(lambda: cpus.loops.update({0: [FULL], 1: [HALF]}))
    assert (cpus.here == 1) == stays


def test_where_the_pace_was_lost_it_does_not_stay(on):
    # Two loops each: before the work, when it begins, after it; then it looks full at first sight.
    lost = [HALF, HALF, *look(HALF, FULL, FULL)]
    cpus = on({0: [*look(FULL), *[FULL] * 4, *lost, FULL], 1: [FULL]})
    pace = HostPace()
    cpus.here = 0
    places = []
    pace.undisturbed(lambda: places.append(cpus.here))
    assert places == [0, 1]
    assert pace.was_full


def test_a_loop_is_timed_twice(monkeypatch):
    loops = [6_000, 9_000, 9_000, 6_000]
    monkeypatch.setattr(host_pace, "loop_ns", lambda passes: loops.pop())
    assert [host_pace.fastest_loop_ns(range(5)) for _ in range(2)] == [6_000, 6_000]


def test_the_better_of_two_loops_counts(on):
    on({0: [*look(FULL), 5 * FULL, FULL, FULL]})
    pace = HostPace()
    pace.settle(nothing)
    assert pace.loops_ns == [FULL]


def test_a_loop_too_fast_to_be_true_is_not_the_full_pace(on):
    on({0: [*look(FULL), FULL // 2, FULL]})
    pace = HostPace()
    pace.settle(nothing)
    assert pace.fastest_ns == FULL


@pytest.mark.parametrize("loops", [(FULL, HALF, HALF), (FULL // 2, *[FULL] * 4)])
def test_full_pace_is_what_one_loop_in_four_had(on, loops):
    on({0: look(*loops)})
    assert HostPace().fastest_ns == FULL


def test_full_pace_may_come_after_the_first_look(on):
    on({0: [*look(HALF), FULL]})
    pace = HostPace()
    assert pace.fastest_ns == HALF
    pace.settle(nothing)
    assert pace.fastest_ns == FULL


def test_where_moving_is_not_allowed(on, monkeypatch):
    cpus = on({0: [FULL], 1: [FULL]})

    def refuse(pid, cpus):
        raise PermissionError

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    pace = HostPace()
    pace.settle(nothing)
    assert (cpus.here, pace.loops_ns) == (0, [FULL])


def test_where_there_is_no_such_call(on, monkeypatch):
    on({0: [FULL]})
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.delattr(os, "sched_setaffinity")
    pace = HostPace()
    pace.settle(nothing)
    assert pace.loops_ns == [FULL]


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="CPUs cannot be chosen here")
def test_on_this_machine():
    before = os.sched_getaffinity(0)
    pace = HostPace()
    assert pace.undisturbed(lambda: "done") == "done"
    assert os.sched_getaffinity(0) == before
    assert 0 < pace.fastest_ns < 1e9
    assert all(0 < ns < 1e9 for ns in pace.loops_ns)
