"""Arms in turn, on the device that is a thread."""

from contextlib import contextmanager

import pytest
from fake_gpu import FakeGpu

from gaptrace.live import arms, clock
from gaptrace.timings import Arm


class Launching:
    """An arm that launches nothing, and notes when it does."""

    arm = Arm("per_launch")

    def __init__(self, events):
        self._events = events

    def launch(self):
        self._events.append("launch")


@pytest.fixture
def stream(monkeypatch):
    device = FakeGpu()
    monkeypatch.setattr(clock, "driver", lambda: device)
    monkeypatch.setattr(arms, "driver", lambda: device)
    return device.cuStreamCreate(0)[1]


def test_each_turn_waits_for_the_hosts_pace(stream, monkeypatch):
    events = []

    class Pace:
        def settle(self, meanwhile):
            events.append("settle")
            meanwhile()

    monkeypatch.setattr(clock, "HostPace", Pace)
    found = clock.time_arms([Launching(events)] * 2, [], stream, rounds=3, steps=4)

    # While waiting, for the caches, and four each alone, between events and back to back.
    assert events == ["settle", *["launch"] * (2 + 3 * 4)] * 6
    alone, device, queued = found[0]
    assert [len(alone), len(device), len(queued)] == [3, 3, 3]
    assert {len(steps) for steps in (*alone, *device)} == {4}


def test_what_a_recorder_sees_holds_no_waits_for_the_host(stream, monkeypatch):
    events = []

    @contextmanager
    def unnamed(*of, **more):
        yield

    def pace():
        raise AssertionError("looks for a better host")

    monkeypatch.setattr(clock, "HostPace", pace)
    monkeypatch.setattr(clock, "recording_domain", lambda: "a domain")
    monkeypatch.setattr(clock, "named_range", unnamed)
    clock.time_arms([Launching(events)], [], stream, rounds=1, steps=4)

    assert events == ["launch"] * (1 + 3 * 4)
