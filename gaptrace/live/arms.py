"""Arms that can be run: the step launch by launch, and its graph cut in the ways asked for."""

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from gaptrace.live import arrays
from gaptrace.live.driver import done, driver
from gaptrace.live.graph_handles import graph_handle
from gaptrace.live.split import split
from gaptrace.timings import Arm, Kind, default_chunks

#: Instantiations that are timed. Own choice: a median of a few.
_BUILDS = 3


@dataclass(frozen=True)
class Runner:
    """An arm that can be run.

    Attributes:
        arm: which.
        launch: submits one step.
        outputs: returns the arrays that hold its results afterwards.
        instantiate_ns: of its graphs; None without.
    """

    arm: Arm
    launch: Callable[[], Any]
    outputs: Callable[[], list[Any]]
    instantiate_ns: int | None = None


#: Arrays that a step changes, each with a copy of what it holds when a step begins.
Start = list[tuple[Any, Any]]


def put_back(start: Start) -> None:
    """Have the state be again what it is when a step begins."""
    for array, copy in start:
        arrays.put_back(array, copy)


def wait(pointer: int) -> None:
    """Wait for a stream."""
    done(driver().cuStreamSynchronize(pointer), "waiting for the step")


def per_launch(step: Callable[[], Any]) -> Runner:
    """Return the arm that calls the step; its outputs are what the last call returned."""
    last: list[Any] = []

    def launch() -> None:
        last[:] = [step()]

    return Runner(Arm("per_launch"), launch, lambda: arrays.arrays_in(last))


def graph_arms(
    graph: Any,
    nodes: int,
    outputs: list[Any],
    stack: ExitStack,
    pointer: int,
    arms: Sequence[Kind],
    chunks: Sequence[int],
    schedules: Sequence[Sequence[int]],
) -> tuple[list[Runner], list[str]]:
    """Cut a graph in all the ways asked for, and upload the pieces.

    Args:
        graph: see `live.graph_handles.graph_handle`.
        nodes: how many it has.
        outputs: arrays that hold the results of a replay.
        stack: keeps the pieces.
        pointer: the stream.
        arms: which kinds, as for `measure`.
        chunks: sizes, likewise.
        schedules: likewise.

    Returns:
        the arms, and what the cuts cost them, in sentences.
    """
    wanted: list[tuple[Kind, dict[str, Any]]] = []
    if "graph" in arms:
        wanted.append(("graph", {"chunk": nodes}))
    if "chunks" in arms:
        sizes = tuple(chunks) or (() if schedules else default_chunks(nodes))
        wanted += [("chunks", {"chunk": size}) for size in sizes if size < nodes]
        wanted += [("chunks", {"schedule": tuple(sizes)}) for sizes in schedules]
    runners, warnings = [], []
    _instantiated_ns(graph, pointer)  # the first exec of a process loads what all need
    for kind, cut in wanted:
        begin = time.perf_counter_ns()
        pieces = stack.enter_context(split(graph, **cut))
        pieces.upload(pointer)
        wait(pointer)
        built_ns = time.perf_counter_ns() - begin
        if kind == "graph":
            built_ns = _instantiated_ns(graph, pointer)
        arm = Arm(kind, tuple(pieces.schedule))
        warnings += [f"{arm.name}: {warning}" for warning in pieces.warnings]
        runners.append(Runner(arm, _launching(pieces, pointer), lambda: outputs, built_ns))
    return runners, warnings


def _instantiated_ns(graph: Any, pointer: int) -> int:
    """Host ns of instantiating a graph as it is, and uploading it; by the median of a few."""
    cuda, doing, times = driver(), "instantiating the graph", []
    for _ in range(_BUILDS):
        begin = time.perf_counter_ns()
        whole = done(cuda.cuGraphInstantiate(graph_handle(graph), 0), doing)
        done(cuda.cuGraphUpload(whole, pointer), doing)
        wait(pointer)
        times.append(time.perf_counter_ns() - begin)
        done(cuda.cuGraphExecDestroy(whole), doing)
    return round(statistics.median(times))


def _launching(pieces: Any, pointer: int) -> Callable[[], None]:
    return lambda: pieces.launch(pointer)
