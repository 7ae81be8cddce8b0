"""Runs one step per launch, as one graph and in chunks, and times them without a recorder.

Recording lengthens just the launches that chunks hide, so that a comparison under a recorder comes
out for chunks where one graph is best. So this is done in the process itself.
"""

import gc
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from gaptrace.errors import GpuError, ResultError
from gaptrace.live import arrays
from gaptrace.live.capture import capture
from gaptrace.live.driver import done, driver
from gaptrace.live.ranges import range as named_range
from gaptrace.live.ranges import recording_domain
from gaptrace.live.split import split
from gaptrace.live.streams import current_stream, stream_pointer
from gaptrace.timings import KINDS, Arm, ArmTiming, Kind, Measurement, default_chunks

#: Steps before anything is captured: libraries load code and fill their pools in the first ones.
_WARM_UP = 3
#: An arm runs about so long in a round, within these bounds, so that rounds follow each other
#: closely enough to share clocks and neighbours. Own choice.
_ROUND_NS = 30_000_000
_STEPS = (3, 50)
#: Largest difference of results, as a share of their largest value, that still counts as the same
#: unless asked for otherwise: several roundings of float32. Own choice.
TOLERANCE = 1e-5


@dataclass(frozen=True)
class _Runner:
    """An arm that can be run: `launch` submits one step; `outputs` hold its results afterwards."""

    arm: Arm
    launch: Callable[[], Any]
    outputs: Callable[[], list[Any]]
    instantiate_ns: int | None = None


def measure(
    step: Callable[[], Any],
    *,
    arms: Sequence[Kind] = KINDS,
    chunks: Sequence[int] = (),
    schedules: Sequence[Sequence[int]] = (),
    state: Any = (),
    stream: Any = None,
    rounds: int = 9,
    steps: int | None = None,
    tolerance: float = TOLERANCE,
) -> Measurement:
    """Time one step per launch, as one CUDA graph and in chunks, side by side.

    The step is warmed up, captured once, and cut (`gaptrace.split`). Then all arms run in random
    order, in several rounds, each from the same state: steps one at a time with a wait after each,
    by the host clock and again by events on the stream, and steps back to back. Before that, each
    arm runs once and its results are compared with those of the step run per launch.

    Args:
        step: runs one step, on the current stream or on `stream`; CuPy and PyTorch code. What it
            returns (arrays and tensors, nested in tuples, lists, dicts) is compared. It must not
            wait for the device or read values from it: that cannot be captured.
        arms: which of per_launch, graph, chunks.
        chunks: sizes in CUDA nodes; by default a geometric set (`timings.default_chunks`).
        schedules: chunk sizes one by one, in launch order, for more arms.
        state: arrays that the step changes; put back before each arm, and in the end.
        stream: on which to run, when the step names a stream of its own.
        rounds: how often each arm has its turn.
        steps: steps per arm and round; by default as many as fit into 30 ms, 3 to 50.
        tolerance: largest difference of results, as a share of their largest value.

    Raises:
        GpuError: the step cannot be captured or cut; the message says why.
        ResultError: an arm computes something else than the step per launch.
        ValueError: unknown arms, or numbers below 1.
    """
    _check(arms, rounds, steps)
    with ExitStack() as stack:
        pointer = stack.enter_context(_stream(stream))
        stack.enter_context(current_stream(pointer))
        given = arrays.arrays_in(state)
        before = [arrays.copied(array) for array in given]
        try:
            return _measured(
                step, stack, pointer, arms, chunks, schedules, given, rounds, steps, tolerance
            )
        finally:
            for array, copy in zip(given, before, strict=True):
                arrays.put_back(array, copy)
            _wait(pointer)


def _check(arms: Sequence[Kind], rounds: int, steps: int | None) -> None:
    unknown = [arm for arm in arms if arm not in KINDS]
    if unknown or not arms:
        raise ValueError(f"arms are {', '.join(KINDS)}; not {', '.join(unknown) or 'none'}")
    if rounds < 1 or (steps is not None and steps < 1):
        raise ValueError("rounds and steps start at 1")


def _measured(
    step: Callable[[], Any],
    stack: ExitStack,
    pointer: int,
    arms: Sequence[Kind],
    chunks: Sequence[int],
    schedules: Sequence[Sequence[int]],
    given: list[Any],
    rounds: int,
    steps: int | None,
    tolerance: float,
) -> Measurement:
    for _ in range(_WARM_UP):
        results = arrays.arrays_in(step())
    _wait(pointer)
    single = _per_launch(step)
    runners, nodes, capture_ns = [single], None, None
    warnings: list[str] = []
    if set(arms) != {"per_launch"}:
        begin = time.perf_counter_ns()
        captured = stack.enter_context(capture(step, stream=pointer))
        capture_ns = time.perf_counter_ns() - begin
        outputs = arrays.arrays_in(captured.outputs)
        nodes, graphs, warnings = _graphs(
            captured.handle, outputs, stack, pointer, arms, chunks, schedules
        )
        runners += graphs
        # What the step returns from where it always lies is state of it, too.
        always = {arrays.address(array) for array in results}
        given = given + [array for array in outputs if arrays.address(array) in always]
    start = [(array, arrays.copied(array)) for array in given]
    differences = _differences(runners, start, pointer, tolerance)
    if None in differences:
        warnings.append(
            "nothing was compared: the step returns no arrays, so name those that it changes with "
            "state="
        )
    if "per_launch" not in arms:
        runners, differences = runners[1:], differences[1:]
    steps = steps or _steps_for(runners, pointer)
    times = _time(runners, start, pointer, rounds, steps)
    facts = _facts()
    return Measurement(
        tuple(
            ArmTiming(runner.arm, *times[index], runner.instantiate_ns, difference)
            for index, (runner, difference) in enumerate(zip(runners, differences, strict=True))
        ),
        nodes, capture_ns, steps, *facts, tuple(warnings),
    )  # fmt: skip


def _per_launch(step: Callable[[], Any]) -> _Runner:
    last: list[Any] = []

    def launch() -> None:
        last[:] = [step()]

    return _Runner(Arm("per_launch"), launch, lambda: arrays.arrays_in(last))


def _graphs(
    graph: int,
    outputs: list[Any],
    stack: ExitStack,
    pointer: int,
    arms: Sequence[Kind],
    chunks: Sequence[int],
    schedules: Sequence[Sequence[int]],
) -> tuple[int, list[_Runner], list[str]]:
    """Cut the captured graph in all the ways asked for."""
    cuda = driver()
    _, nodes = done(cuda.cuGraphGetNodes(graph), "counting the nodes of the captured step")
    if nodes == 0:
        raise GpuError(
            "the captured step holds no CUDA nodes: its work went to another stream; pass that "
            "stream with stream="
        )
    wanted: list[tuple[Kind, dict[str, Any]]] = []
    if "graph" in arms:
        wanted.append(("graph", {"chunk": nodes}))
    if "chunks" in arms:
        sizes = tuple(chunks) or (() if schedules else default_chunks(nodes))
        wanted += [("chunks", {"chunk": size}) for size in sizes if size < nodes]
        wanted += [("chunks", {"schedule": tuple(sizes)}) for sizes in schedules]
    runners, warnings = [], []
    for kind, cut in wanted:
        begin = time.perf_counter_ns()
        pieces = stack.enter_context(split(graph, **cut))
        pieces.upload(pointer)
        _wait(pointer)
        built_ns = time.perf_counter_ns() - begin
        arm = Arm(kind, tuple(pieces.schedule))
        warnings += [f"{arm.name}: {warning}" for warning in pieces.warnings]
        runners.append(_Runner(arm, _launching(pieces, pointer), lambda: outputs, built_ns))
    return nodes, runners, warnings


def _launching(pieces: Any, pointer: int) -> Callable[[], None]:
    return lambda: pieces.launch(pointer)


def _differences(
    runners: Sequence[_Runner], start: list[tuple[Any, Any]], pointer: int, tolerance: float
) -> list[float | None]:
    """Compare what each arm leaves with what the step per launch leaves."""
    expected = _results(runners[0], start, pointer)
    if not expected:
        return [None] * len(runners)
    differences: list[float | None] = []
    for runner in runners:
        found = _results(runner, start, pointer)
        worst, problem = _compared(expected, found, tolerance)
        if problem is not None:
            raise ResultError(_explained(runner.arm, problem))
        differences.append(worst)
    return differences


def _explained(arm: Arm, problem: str) -> str:
    if arm.kind == "per_launch":
        return (
            f"the step run twice from one state gives two results ({problem}): name all arrays "
            "that it changes with state=, or allow for its spread with tolerance="
        )
    return (
        f"arm {arm.name} computes something else than the step per launch ({problem}): the graph "
        "holds the addresses and values of its capture; copy inputs into fixed buffers, and keep "
        "host decisions out of the step"
    )


def _results(runner: _Runner, start: list[tuple[Any, Any]], pointer: int) -> list[Any]:
    """Run an arm once from the start; return its outputs and the state that it leaves, on the host.

    Outputs are poisoned first: those of a replay lie where an earlier arm may have left them right.
    """
    for array in runner.outputs():
        arrays.poison(array)
    _put_back(start)
    runner.launch()
    _wait(pointer)
    left = [*runner.outputs(), *(array for array, _ in start)]
    return [arrays.on_host(array) for array in left]


def _compared(expected: list[Any], found: list[Any], tolerance: float) -> tuple[float, str | None]:
    """Return the largest difference, and what is wrong if it is too large."""
    if len(expected) != len(found):
        return float("inf"), f"{len(found)} arrays instead of {len(expected)}"
    worst = 0.0
    for number, (one, other) in enumerate(zip(expected, found, strict=True)):
        difference = arrays.largest_difference(one, other)
        worst = max(worst, difference)
        if difference > tolerance * arrays.magnitude(one):
            return worst, f"array {number} differs by up to {difference:g}"
    return worst, None


def _steps_for(runners: Sequence[_Runner], pointer: int) -> int:
    slowest = max(_alone(runner, pointer) for runner in runners for _ in range(2))
    fewest, most = _STEPS
    return min(most, max(fewest, _ROUND_NS // max(slowest, 1)))


def _time(
    runners: Sequence[_Runner],
    start: list[tuple[Any, Any]],
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
    with _events() as events, _no_collection():
        for _ in range(rounds):
            turns.shuffle(order)
            for index in order:
                runner = runners[index]
                _put_back(start)
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


def _alone(runner: _Runner, pointer: int, number: int | None = None) -> int:
    """Host ns from before the first launch until the device is done."""
    if number is not None and recording_domain() is not None:
        with named_range("step", payload=number):
            return _alone(runner, pointer)
    begin = time.perf_counter_ns()
    runner.launch()
    _wait(pointer)
    return time.perf_counter_ns() - begin


def _between(runner: _Runner, pointer: int, events: tuple[Any, Any]) -> int:
    """Device ns from an event before the step to one after it."""
    cuda = driver()
    first, last = events
    done(cuda.cuEventRecord(first, pointer), "timing a step")
    runner.launch()
    done(cuda.cuEventRecord(last, pointer), "timing a step")
    _wait(pointer)
    elapsed_ms: float = done(cuda.cuEventElapsedTime(first, last), "timing a step")
    return round(elapsed_ms * 1e6)


def _back_to_back(runner: _Runner, pointer: int, steps: int) -> int:
    begin = time.perf_counter_ns()
    for _ in range(steps):
        runner.launch()
    _wait(pointer)
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


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep Python's garbage collector out of the timed steps."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def _stream(stream: Any) -> Iterator[int]:
    """The stream to run on: the one given, or a new one, since the default cannot be captured."""
    cuda = driver()
    if stream is not None:
        pointer = stream_pointer(stream)
        if pointer == 0:
            raise GpuError("the default stream cannot be captured: pass another one, or none")
        yield pointer
        return
    flags = cuda.CUstream_flags.CU_STREAM_NON_BLOCKING
    made = done(cuda.cuStreamCreate(flags), "creating a stream")
    try:
        yield int(made)
    finally:
        cuda.cuStreamDestroy(made)


def _put_back(start: list[tuple[Any, Any]]) -> None:
    for array, copy in start:
        arrays.put_back(array, copy)


def _wait(pointer: int) -> None:
    done(driver().cuStreamSynchronize(pointer), "waiting for the step")


def _facts() -> tuple[str, str, str]:
    """Name of the GPU, version of the driver, CUDA version that it runs."""
    from gaptrace.live.driver import driver_version

    cuda = driver()
    device = done(cuda.cuCtxGetDevice(), "asking for the GPU")
    name = done(cuda.cuDeviceGetName(128, device), "asking for the GPU")
    number = done(cuda.cuDriverGetVersion(), "asking for the driver")
    text = name.split(b"\0")[0].decode(errors="replace")
    return text, driver_version(), f"{number // 1000}.{number % 1000 // 10}"
