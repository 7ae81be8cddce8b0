"""Runs one step per launch, as one graph and in chunks, and times them without a recorder.

Recording lengthens just the launches that chunks hide, so that a comparison under a recorder comes
out for chunks where one graph is best. So this is done in the process itself.
"""

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, Self

from gaptrace.errors import GpuError, ScheduleError
from gaptrace.live import arrays
from gaptrace.live.agreement import TOLERANCE, differences
from gaptrace.live.arms import Runner, Start, graph_arms, per_launch, put_back, wait
from gaptrace.live.capture import CapturedGraph, capture
from gaptrace.live.clock import steps_for, time_arms
from gaptrace.live.cupti import is_waiting
from gaptrace.live.driver import done, driver, driver_version
from gaptrace.live.graph_handles import graph_handle, stream_handle
from gaptrace.live.launch_costs import launch_costs
from gaptrace.live.ranges import recording_domain
from gaptrace.live.several_streams import use_other_streams
from gaptrace.live.streams import current_stream
from gaptrace.timings import KINDS, ArmTiming, Kind, LaunchCost, Measurement

#: Steps before anything is captured: libraries load code and fill their pools in the first ones.
_WARM_UP = 3
#: Captures that are timed. Own choice: a median of a few.
_BUILDS = 3


def measure(
    step: Callable[[], Any] | Any,
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
    arm runs once and its results are compared with those of the step run per launch. Another stream
    is used first, since graphs take longer in processes that have used several
    (`live.several_streams`).

    Args:
        step: runs one step, on the current stream or on `stream`; CuPy and PyTorch code. What it
            returns (arrays and tensors, nested in tuples, lists, dicts) is compared. It must not
            wait for the device or read values from it: that cannot be captured. Or a captured
            graph (see `live.graph_handles.graph_handle`), which has no arm per_launch.
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
        ScheduleError: a chunk or schedule does not fit the graph.
        ValueError: unknown arms, or numbers below 1.
    """
    unknown = [arm for arm in arms if arm not in KINDS]
    if unknown or not arms:
        raise ValueError(f"arms are {', '.join(KINDS)}; not {', '.join(unknown) or 'none'}")
    if rounds < 1 or (steps is not None and steps < 1):
        raise ValueError("rounds and steps start at 1")
    with StepBench(step, state=state, stream=stream) as bench:
        return bench.time(arms, chunks, schedules, rounds=rounds, steps=steps, tolerance=tolerance)


class StepBench:
    """A step made ready to be timed: warmed up, its state kept, its graph captured when needed.

    Args:
        step, state, stream: as for `measure`.
    """

    def __init__(
        self, step: Callable[[], Any] | Any, *, state: Any = (), stream: Any = None
    ) -> None:
        self._step: Callable[[], Any] | None = step if callable(step) else None
        self._graph: Any = None if callable(step) else step
        self._state = arrays.arrays_in(state)
        self._given_stream = stream
        self._held = ExitStack()
        self._start: Start = []
        self._outputs: list[Any] = []
        self._results: list[Any] = []
        self.nodes: int | None = None
        self.capture_ns: int | None = None

    def __enter__(self) -> Self:
        """Run the step a few times, on the stream that all arms will run on."""
        try:
            self._pointer = self._held.enter_context(_stream(self._given_stream))
            self._held.enter_context(current_stream(self._pointer))
            self._start = [(array, arrays.copied(array)) for array in self._state]
            for _ in range(_WARM_UP if self._step else 0):
                self._results = arrays.arrays_in(self._step())  # type: ignore[misc]
            self._wait()
            use_other_streams(driver())
        except BaseException:
            self._held.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Put the state back and free what was made."""
        with self._held:
            put_back(self._start)
            self._wait()

    def time(
        self,
        arms: Sequence[Kind],
        chunks: Sequence[int],
        schedules: Sequence[Sequence[int]],
        *,
        rounds: int,
        steps: int | None = None,
        tolerance: float = TOLERANCE,
    ) -> Measurement:
        """Time arms; see `measure`."""
        warnings: list[str] = []
        single = [per_launch(self._step)] if self._step else []
        with ExitStack() as cut:
            runners = [*single]
            if set(arms) - {"per_launch"}:
                graph, nodes = self._captured()
                graphs, warnings = graph_arms(
                    graph, nodes, self._outputs, cut, self._pointer, arms, chunks, schedules
                )
                runners += graphs
            # Without the step there is nothing to compare with.
            found: list[float | None] = [None] * len(runners)
            if single:
                found = differences(runners, self._start, self._pointer, tolerance)
                if None in found:
                    warnings.append(
                        "nothing was compared: the step returns no arrays, so name those that it "
                        "changes with state="
                    )
            if "per_launch" not in arms:
                runners, found = runners[len(single) :], found[len(single) :]
            if not runners:
                raise ScheduleError(
                    f"nothing to time: no chunk is smaller than the graph of {self.nodes} nodes; "
                    "give smaller sizes, or more arms"
                )
            return self._timed(runners, found, rounds, steps, warnings)

    def launch_costs(self, rounds: int) -> list[LaunchCost]:
        """Measure what launching parts of the graph costs; see `live.launch_costs`."""
        graph, nodes = self._captured()
        return launch_costs(graph, nodes, self._pointer, rounds, lambda: put_back(self._start))

    def _timed(
        self,
        runners: Sequence[Runner],
        found: Sequence[float | None],
        rounds: int,
        steps: int | None,
        warnings: Sequence[str],
    ) -> Measurement:
        steps = steps or steps_for(runners, self._pointer)
        times = time_arms(runners, self._start, self._pointer, rounds, steps)
        timings = tuple(
            ArmTiming(runner.arm, *ns, runner.instantiate_ns, difference)
            for runner, ns, difference in zip(runners, times, found, strict=True)
        )
        return Measurement(
            timings,
            self.nodes,
            self.capture_ns,
            steps,
            *_machine(),
            tuple(warnings),
            is_recorded=is_recorded(),
        )

    def _captured(self) -> tuple[Any, int]:
        """Return the graph and how many nodes it has, captured when it is first asked for."""
        if self.nodes is None:
            if self._step is not None:
                put_back(self._start)
                captured = self._held.enter_context(self._capture())
                self._graph = captured
                self.capture_ns = self._time_captures()
                self._outputs = arrays.arrays_in(captured.outputs)
                self._keep_what_stays()
            doing = "counting the nodes of the graph"
            self.nodes = int(done(driver().cuGraphGetNodes(graph_handle(self._graph)), doing)[1])
            if self.nodes == 0:
                raise GpuError(
                    "the captured step holds no CUDA nodes: its work went to another stream; pass "
                    "that stream with stream="
                )
        return self._graph, self.nodes

    def _capture(self) -> CapturedGraph:
        return capture(self._step, stream=self._pointer)  # type: ignore[arg-type]

    def _time_captures(self) -> int:
        """Host ns of a capture, by the median of a few: the first one loads and allocates."""
        times = []
        for _ in range(_BUILDS):
            begin = time.perf_counter_ns()
            again = self._capture()
            times.append(time.perf_counter_ns() - begin)
            again.close()
        return round(statistics.median(times))

    def _keep_what_stays(self) -> None:
        """What the step returns from where it always lies is state of it, too."""
        known = {arrays.address(array) for array, _ in self._start}
        always = {arrays.address(array) for array in self._results} - known
        stays = [array for array in self._outputs if arrays.address(array) in always]
        self._start += [(array, arrays.copied(array)) for array in stays]

    def _wait(self) -> None:
        wait(self._pointer)


def is_recorded() -> bool:
    """Whether a recorder is attached to this process, whose cost is in every time."""
    # Set by Nsight Systems and by CUPTI's own loader, before the process starts.
    if "CUDA_INJECTION64_PATH" in os.environ:
        return True
    return recording_domain() is not None and not is_waiting()


@contextmanager
def _stream(stream: Any) -> Iterator[int]:
    """The stream to run on: the one given, or a new one, since the default cannot be captured."""
    cuda = driver()
    if stream is not None:
        yield stream_handle(stream)
        return
    done(cuda.cuCtxSynchronize(), "waiting for the program")
    flags = cuda.CUstream_flags.CU_STREAM_NON_BLOCKING
    made = done(cuda.cuStreamCreate(flags), "creating a stream")
    try:
        yield int(made)
    finally:
        cuda.cuStreamDestroy(made)


def _machine() -> tuple[str, str, str]:
    """Name of the GPU, version of the driver, CUDA version that it runs."""
    cuda = driver()
    device = done(cuda.cuCtxGetDevice(), "asking for the GPU")
    name = done(cuda.cuDeviceGetName(128, device), "asking for the GPU")
    number = done(cuda.cuDriverGetVersion(), "asking for the driver")
    text = name.split(b"\0")[0].decode(errors="replace")
    return text, driver_version(), f"{number // 1000}.{number % 1000 // 10}"
