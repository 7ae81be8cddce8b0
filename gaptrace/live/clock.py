"""Times arms in turn: by the host's clock, by events on the stream, and back to back."""

import gc
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from gaptrace.live.arms import Runner, Start, put_back, wait
from gaptrace.live.capture import no_collection
from gaptrace.live.driver import done, driver
from gaptrace.live.host_pace import HostPace
from gaptrace.live.ranges import range as named_range
from gaptrace.live.ranges import recording_domain
from gaptrace.timings import Arm

#: An arm runs about so long in a round, within these bounds, so that rounds follow each other
#: closely enough to share clocks and neighbours. Own choice.
_ROUND_NS = 30_000_000
_STEPS = (3, 50)


def steps_for(runners: Sequence[Runner], pointer: int) -> int:
    """Return how many steps the slowest arm runs in about `_ROUND_NS`."""
    slowest = max(_alone(runner, pointer) for runner in runners for _ in range(2))
    fewest, most = _STEPS
    return min(most, max(fewest, _ROUND_NS // max(slowest, 1)))


def time_arms(
    runners: Sequence[Runner],
    start: Start,
    pointer: int,
    rounds: int,
    steps: int,
) -> list[tuple[Any, Any, Any]]:
    """Return, per arm, alone_ns, device_ns and back_to_back_ns as in `ArmTiming`."""
    alone: list[list[tuple[int, ...]]] = [[] for _ in runners]
    device: list[list[tuple[int, ...]]] = [[] for _ in runners]
    queued: list[list[int]] = [[] for _ in runners]
    # The order is random, to spread what comes with it, and the same in each run, to be repeated.
    order, turns = list(range(len(runners))), random.Random(0)
    gc.collect()
    # Waiting for a better host would be in a recording, as idle time and as steps of no arm.
    pace = HostPace() if recording_domain() is None else None
    with _events() as events, no_collection():
        for _ in range(rounds):
            turns.shuffle(order)
            for index in order:
                runner = runners[index]
                if pace:
                    pace.settle(partial(_alone, runner, pointer))
                put_back(start)
                with _named(runner.arm):
                    _alone(runner, pointer)  # what ran before has emptied the caches
                    alone[index].append(
                        tuple(_alone(runner, pointer, number) for number in range(steps))
                    )
                    device[index].append(
                        tuple(_between(runner, pointer, events) for _ in range(steps))
                    )
                    queued[index].append(_back_to_back(runner, pointer, steps))
    return [
        (tuple(alone[index]), tuple(device[index]), tuple(queued[index]))
        for index in range(len(runners))
    ]


def _alone(runner: Runner, pointer: int, number: int | None = None) -> int:
    """Host ns from before the first launch until the device is done."""
    if number is not None and recording_domain() is not None:
        with named_range("step", payload=number):
            return _alone(runner, pointer)
    begin = time.perf_counter_ns()
    runner.launch()
    wait(pointer)
    return time.perf_counter_ns() - begin


def _between(runner: Runner, pointer: int, events: tuple[Any, Any]) -> int:
    """Device ns from an event before the step to one after it."""
    cuda = driver()
    first, last = events
    done(cuda.cuEventRecord(first, pointer), "timing a step")
    runner.launch()
    done(cuda.cuEventRecord(last, pointer), "timing a step")
    wait(pointer)
    elapsed_ms: float = done(cuda.cuEventElapsedTime(first, last), "timing a step")
    return round(elapsed_ms * 1e6)


def _back_to_back(runner: Runner, pointer: int, steps: int) -> int:
    begin = time.perf_counter_ns()
    for _ in range(steps):
        runner.launch()
    wait(pointer)
    return (time.perf_counter_ns() - begin) // steps


@contextmanager
def _named(arm: Arm) -> Iterator[None]:
    """Name an arm's turn in a recording, so that trace and timing line up."""
    with named_range(arm.name, payload=arm.chunk):
        yield


@contextmanager
def _events() -> Iterator[tuple[Any, Any]]:
    cuda = driver()
    made: list[Any] = []
    try:
        for _ in range(2):
            made.append(done(cuda.cuEventCreate(0), "timing a step"))  # noqa: PERF401 - freed below
        yield made[0], made[1]
    finally:
        for event in made:
            cuda.cuEventDestroy(event)
