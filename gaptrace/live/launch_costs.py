"""What launching a part of a graph costs, by its size, without a recorder."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from gaptrace.live.arms import wait
from gaptrace.live.driver import done, driver
from gaptrace.live.split import split
from gaptrace.timings import LaunchCost

#: Launches of a part per round: alone, and in a row. Own choice: a median of some, and a row long
#: enough for its end to weigh little.
_ALONE, _ROW = 15, 12


def launch_costs(
    graph: Any, nodes: int, pointer: int, rounds: int, put_back: Callable[[], None]
) -> list[LaunchCost]:
    """Measure the first 1, 2, 4 ... nodes of a graph, and all of them.

    Args:
        graph: the graph, see `live.graph_handles.graph_handle`.
        nodes: how many it has.
        pointer: the stream.
        rounds: how often each part has its turn.
        put_back: restores what the graph changes; called before each turn.

    Raises:
        GpuError: the graph cannot be cut.
    """
    sizes = [*(2**power for power in range(nodes.bit_length()) if 2**power < nodes), nodes]
    found: dict[int, list[tuple[float, float, float]]] = {size: [] for size in sizes}
    parts = {size: _first(graph, size, nodes) for size in sizes}
    try:
        for number in range(rounds):
            # Up and down in turn, so that a clock that drifts weighs on all sizes alike.
            for size in sizes if number % 2 else reversed(sizes):
                put_back()
                found[size].append(_once(parts[size].execs[0], pointer))
    finally:
        for part in parts.values():
            part.close()
    return [LaunchCost(size, *_medians(found[size])) for size in sizes]


def _first(graph: Any, size: int, nodes: int) -> Any:
    return split(graph, schedule=(size, nodes - size) if size < nodes else (nodes,))


def _once(piece: int, pointer: int) -> tuple[float, float, float]:
    cuda = driver()
    launches, alone = [], []
    _launch(cuda, piece, pointer)
    wait(pointer)
    for _ in range(_ALONE):
        begin = time.perf_counter_ns()
        _launch(cuda, piece, pointer)
        launched = time.perf_counter_ns()
        wait(pointer)
        alone.append(time.perf_counter_ns() - begin)
        launches.append(launched - begin)
    begin = time.perf_counter_ns()
    for _ in range(_ROW):
        _launch(cuda, piece, pointer)
    wait(pointer)
    row_ns = (time.perf_counter_ns() - begin) / _ROW
    return statistics.median(launches), statistics.median(alone), row_ns


def _launch(cuda: Any, piece: int, pointer: int) -> None:
    done(cuda.cuGraphLaunch(piece, pointer), "launching a part of the graph")


def _medians(rounds: Sequence[tuple[float, float, float]]) -> tuple[float, float, float]:
    launch_ns, alone_ns, row_ns = (
        statistics.median(values) for values in zip(*rounds, strict=True)
    )
    return launch_ns, alone_ns, row_ns
