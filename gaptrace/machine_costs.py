"""Single figures of a calibration, as the chunk model needs them."""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from gaptrace.calibration import REGIMES, Calibration, Figure
from gaptrace.cost import ChunkModel, HostCost, NotIdentifiableError
from gaptrace.recommendation import Regime

Level = Literal["value", "low", "high"]
OPPOSITE: dict[Level, Level] = {"value": "value", "low": "high", "high": "low"}


def value_of(
    calibration: Calibration, name: str, level: Level, recorder: str | None = None
) -> float:
    """Return one end of a figure without node counts; 0 where it was not measured."""
    figure = calibration.figure(name, recorder=recorder)
    return float(getattr(figure, level)) if figure else 0.0


def at_nodes(figures: Sequence[Figure], nodes: int) -> float | None:
    """Return a figure at a number of nodes, from those around it; None for fewer than two."""
    if len(figures) < 2:
        return None
    known = [(each.nodes or 0, max(0.0, each.value)) for each in figures]
    return float(HostCost.fit(*zip(*known, strict=True))(nodes))


def slowdown(calibration: Calibration, name: str, recorder: str, nodes: int) -> float:
    """Return the calibrated time without a recorder over that with it; 1 where it is not known."""
    with_it_ns = at_nodes(calibration.table(name, recorder=recorder), nodes)
    without_ns = at_nodes(calibration.table(name), nodes)
    return without_ns / with_it_ns if with_it_ns and without_ns else 1.0


def launch_slowdown(calibration: Calibration, recorder: str, level: Level) -> float:
    """Return what a single launch takes without a recorder over with it; 1 where it is not known.

    How graphs are recorded does not matter to it, so both granularities count: under a recorder one
    process each is calibrated, and the host runs some processes at half the speed of others (5.0
    and 7.7 us a launch on an H200's host, both under Nsight Systems). So the least disturbed ones
    with and without are compared; the interval is that of all.
    """
    name, product = "launch_queued_api_ns", recorder.split("-")[0]
    with_it = [
        found
        for each in ("graph", "node")
        if (found := calibration.figure(name, recorder=f"{product}-{each}"))
    ]
    without = calibration.figure(name)
    if without is None or not with_it or min(each.low for each in with_it) <= 0:
        return 1.0
    if level == "low":
        return min(1.0, without.low / max(each.high for each in with_it))
    fastest = min(each.low for each in with_it)
    return min(1.0, (without.low if level == "value" else without.high) / fastest)


def node_gap_added(calibration: Calibration, recorder: str, level: Level) -> float:
    """Return what a recorder adds between two nodes of a graph, on kernels as programs have them.

    In node granularity it added 0.30 us between kernels of one warp that write nothing, 0.23 us
    where they have 64 blocks, and 0.10 to 0.14 us in graphs of the demo, of 600 kernels in a line
    and of a small decoder (H200, Nsight Systems 2025.3; the latter are one graph recorded in both
    granularities). So a kernel that works on memory is calibrated; older calibrations have none.
    """
    small = "recorder_small_node_ns"
    is_known = calibration.figure(small, recorder=recorder) is not None
    name = small if is_known else "recorder_node_gap_ns"
    return value_of(calibration, name, level, recorder=recorder)


def host_costs(
    calibration: Calibration,
    regime: Regime,
    level: Level,
    factors: Mapping[str, float],
    branches: int = 1,
) -> tuple[HostCost, HostCost]:
    """Return a(c) of a regime, and when the device may start a chunk.

    Args:
        calibration: the calibration.
        regime: what a chunk costs the host; see `calibration.REGIMES`.
        level: which end of the figures.
        factors: by name of a figure, how many times that the program takes; 0 leaves it out.
        branches: of the graph.

    Raises:
        NotIdentifiableError: the calibration lacks node counts.
    """
    names = REGIMES[regime]
    launch = next(name for name in names if "launch" in name)
    until_start = [*names[: names.index(launch)], launch.replace("_api_ns", "_latency_ns")]
    return (
        _sum(calibration, names, level, factors, branches),
        _sum(calibration, until_start, level, factors, branches),
    )


def _sum(
    calibration: Calibration,
    names: Sequence[str],
    level: Level,
    factors: Mapping[str, float],
    branches: int,
) -> HostCost:
    tables = [
        {
            each.nodes: factors.get(name, 1.0) * max(0.0, getattr(each, level))
            for each in calibration.table(name, branches=branches)
        }
        for name in names
    ]
    common = set(tables[0]).intersection(*tables[1:])
    nodes = sorted(each for each in common if each is not None)
    return HostCost.fit(nodes, [sum(table[each] for table in tables) for each in nodes])


def cut_gap(calibration: Calibration, level: Level) -> float:
    """Return what a cut adds on the device: the median over the calibrated node counts.

    Raises:
        NotIdentifiableError: the calibration lacks it.
    """
    table = calibration.table("cut_gap_ns")
    if not table:
        raise NotIdentifiableError("what a cut adds on the device is not in the calibration")
    return float(np.median([getattr(each, level) for each in table]))


def chunk_model(
    calibration: Calibration, nodes: int, node_ns: ArrayLike, regime: Regime = "replay"
) -> ChunkModel:
    """Return the chunk model of a step on a calibrated machine, without a recorder.

    Args:
        calibration: of the machine.
        nodes: CUDA graph nodes of the step, in a straight line.
        node_ns: device time of each with the gap after it, shape `(nodes,)`, or their mean.
        regime: what a chunk costs the host: built once and launched again and again, or captured
            and updated, or captured and instantiated, at every step.

    Raises:
        NotIdentifiableError: the calibration lacks node counts.
    """
    host, ready = host_costs(calibration, regime, "value", {})
    gap_ns = max(0.0, cut_gap(calibration, "value"))
    return ChunkModel(host, nodes, node_ns, cut_gap_ns=gap_ns, ready=ready)


def build_ns(calibration: Calibration, nodes: int, launch_ns: float) -> float:
    """Return capture and instantiation of a graph; a capture runs the code that launches, too.

    Raises:
        NotIdentifiableError: the calibration lacks them.
    """
    capture, instantiate = (
        at_nodes(calibration.table(name), nodes) for name in ("capture_ns", "instantiate_ns")
    )
    if capture is None or instantiate is None:
        raise NotIdentifiableError("the calibration has no capture or instantiation costs")
    return max(capture, nodes * launch_ns) + instantiate
