"""From what single processes measured to the figures of a calibration, and what recorders add."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gaptrace.calibration import Figure

#: What a recorder adds -> the figure that it adds it to.
_ADDED = {
    "recorder_call_ns": "launch_queued_api_ns",
    "recorder_kernel_gap_ns": "kernel_gap_ns",
    "recorder_node_gap_ns": "node_gap_ns",
    "recorder_small_node_ns": "small_node_ns",
    "recorder_graph_gap_ns": "graph_gap_ns",
}


@dataclass(frozen=True)
class Plan:
    """What one process is to measure.

    Attributes:
        nodes: node counts of the graphs.
        branches: shapes of the graphs.
        rounds: how often everything is measured, in random order.
        seed: of that order.
        depths: whether to fill launch queues.
        guard: whether to look first if the GPU is idle.
        call_ns: what a call from Python costs, where that is known already; else measured.
        loop_ns: what the loop of `gaptrace.live.host_pace` takes at full pace, if known already.
    """

    nodes: tuple[int, ...]
    branches: tuple[int, ...]
    rounds: int
    seed: int
    depths: bool = False
    guard: bool = False
    call_ns: float | None = None
    loop_ns: float | None = None


@dataclass(frozen=True)
class Sample:
    """Values of one figure from one process, one a round."""

    name: str
    nodes: int | None
    branches: int
    values: tuple[float, ...]


def figures_of(
    processes: Iterable[Sequence[Sample]], *, recorder: str | None = None
) -> tuple[Figure, ...]:
    """Put the samples of several processes together.

    Args:
        processes: the samples of each.
        recorder: what recorded them.
    """
    values: dict[tuple[str, int | None, int], list[float]] = {}
    for samples in processes:
        for sample in samples:
            key = sample.name, sample.nodes, sample.branches
            values.setdefault(key, []).extend(sample.values)
    return tuple(
        Figure(*key, recorder, statistics.median(runs), *_spread(runs), len(runs))
        for key, runs in values.items()
        if runs
    )


def _spread(runs: Sequence[float]) -> tuple[float, float]:
    """Return the lowest and highest run, a tenth left out at each end: one may be disturbed."""
    ordered, left_out = sorted(runs), len(runs) // 10
    return ordered[left_out], ordered[-1 - left_out]


def recorder_costs(figures: Sequence[Figure], recorder: str) -> tuple[Figure, ...]:
    """Return what a recorder adds to launches, to each launched node and to gaps.

    The differences of figures under the recorder and without; low and high are as far apart as the
    spreads of both allow. The cost of a node is that of a launch at the largest node count that was
    measured both ways, less that at the smallest, by the nodes between them: the recorder's cost of
    the launch itself falls out.
    """
    plain = {(each.name, each.nodes, each.branches): each for each in figures if not each.recorder}
    pairs = [
        (each, plain[each.name, each.nodes, each.branches])
        for each in figures
        if each.recorder == recorder and (each.name, each.nodes, each.branches) in plain
    ]
    costs = [
        _combined(new, recorder, each.nodes, (1, each), (-1, before))
        for new, old in _ADDED.items()
        for each, before in pairs
        if each.name == old
    ]
    for branches in sorted({each.branches for each, _ in pairs}):
        launches = sorted(
            (
                (each, before)
                for each, before in pairs
                if each.name == "graph_launch_api_ns" and each.branches == branches
            ),
            key=lambda pair: pair[0].nodes or 0,
        )
        if len(launches) > 1:
            (few, few_before), *_, (many, many_before) = launches
            by = 1 / ((many.nodes or 0) - (few.nodes or 0))
            terms = ((by, many), (-by, few), (-by, many_before), (by, few_before))
            costs.append(_combined("recorder_node_ns", recorder, None, *terms, branches=branches))
    return tuple(costs)


def _combined(
    name: str,
    recorder: str,
    nodes: int | None,
    *terms: tuple[float, Figure],
    branches: int = 1,
) -> Figure:
    """Return a sum of figures, each with its factor, with the widest spread that it can have."""
    return Figure(
        name,
        nodes,
        branches,
        recorder,
        value=sum(factor * each.value for factor, each in terms),
        low=sum(factor * (each.low if factor > 0 else each.high) for factor, each in terms),
        high=sum(factor * (each.high if factor > 0 else each.low) for factor, each in terms),
        runs=min(each.runs for _, each in terms),
    )
