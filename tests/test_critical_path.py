"""The longest chain of work on several streams, against one that tries all chains."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaptrace.critical_path import Path, Wait, Work, critical_path


@pytest.mark.parametrize(
    ("calls", "path"),
    [
        ((), Path(0, 0)),
        ((Work(1, "a", 5), Work(2, "a", 7)), Path(12, 2)),
        ((Work(1, "a", 5), Work(2, "b", 7)), Path(7, 1)),
        # b waits for what a was given until the event was recorded.
        ((Work(1, "a", 5), Wait(2, "b", "a", 2), Work(3, "b", 7)), Path(12, 2)),
        ((Work(2, "a", 5), Wait(3, "b", "a", 1), Work(4, "b", 7)), Path(7, 1)),
        # The wait came after the work.
        ((Work(1, "a", 5), Work(2, "b", 7), Wait(4, "b", "a", 3)), Path(7, 1)),
        # A wait is passed on by an event that is recorded after it, without work between.
        (
            (Work(1, "a", 5), Wait(3, "b", "a", 2), Wait(5, "c", "b", 4), Work(6, "c", 7)),
            Path(12, 2),
        ),
        # Not known on which stream: all that was given before counts.
        (
            (Work(1, "a", 5), Work(2, "b", 9), Wait(3, "c", None, None), Work(4, "c", 7)),
            Path(16, 2),
        ),
        # A stream that has been given nothing is waited for in vain.
        ((Wait(1, "b", "a", 0), Work(2, "b", 7)), Path(7, 1)),
    ],
)
def test_chains(calls, path):
    assert critical_path(calls) == path
    assert critical_path(reversed(calls)) == path


@st.composite
def programs(draw):
    calls = []
    for at in range(draw(st.integers(0, 12))):
        stream = draw(st.sampled_from("abc"))
        if draw(st.booleans()):
            calls.append(Work(2 * at, stream, draw(st.integers(0, 9))))
        else:
            awaited = draw(st.sampled_from(["a", "b", "c", None]))
            recorded = draw(st.none() | st.integers(0, at).map(lambda before: 2 * before - 1))
            calls.append(Wait(2 * at, stream, awaited, recorded))
    return calls


def brute_force(calls):
    """Follow every call back to each that it comes after."""

    def before(call):
        for other in calls:
            if other.at >= call.at:
                continue
            if other.stream == call.stream:
                yield other
            elif isinstance(call, Wait) and call.awaited in (None, other.stream):
                until = call.at if call.recorded_at is None else call.recorded_at
                if other.at < until:
                    yield other

    def longest(call):
        ns, pieces = max((longest(other) for other in before(call)), default=(0, 0))
        return (ns + call.ns, pieces + 1) if isinstance(call, Work) else (ns, pieces)

    return max((longest(call) for call in calls), default=(0, 0))


@given(programs())
def test_no_chain_is_longer(calls):
    assert critical_path(calls) == brute_force(calls)
