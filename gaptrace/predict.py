"""What a step would take without a recorder, launched in any way, and which way to advise.

Pure arithmetic on `cost.ChunkModel`: how the figures are come by is in `gaptrace.untraced`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from gaptrace.cost import ChunkModel, Floats, HostCost, makespan, per_launch_ns
from gaptrace.recommendation import NOISE_FRACTION, Alternative, SizeTime, Verdict
from gaptrace.schedules import growing_with_reserve, is_even, plateau, uniform, uniform_sizes

#: The size that made people ask (ggml-org/llama.cpp#11867), always among the alternatives.
_REFERENCE = 512
#: Up to here every uniform size is tried for each change of a figure, above only `_few_sizes`.
_MOST_NODES = 2_000


@dataclass(frozen=True, eq=False)
class StepCosts:
    """What launching and running a step costs, without a recorder. Nanoseconds.

    Attributes:
        host: host cost of a chunk by its nodes, in the regime of the program.
        ready: from when the host begins a chunk to when an idle device starts it.
        node_ns: device time of each node with the gap after it, shape `(N,)`.
        cut_gap_ns: what a cut adds on the device.
        device_free_ns: from the begin of the step's first launch until earlier work is done.
        notice_ns: from the device's end until the host knows.
        launch_ns: host time from one single launch to the next, the program's own code included.
        launch_delta_ns: of a single launch, exposed latency less that.
        kernel_gap_ns: what a gap between queued kernels is longer than one between nodes.
        queue_depth: graphs by which the host can be ahead.
        overlap_ns: what a cut takes from branches that run side by side, shape `(N + 1,)`, or 0.
    """

    host: HostCost
    ready: HostCost
    node_ns: Floats
    cut_gap_ns: float
    device_free_ns: float
    notice_ns: float
    launch_ns: float
    launch_delta_ns: float
    kernel_gap_ns: float
    queue_depth: int | None = None
    overlap_ns: ArrayLike = 0.0

    @cached_property
    def model(self) -> ChunkModel:
        """The step as the recurrence sees it."""
        return ChunkModel(
            self.host,
            len(self.node_ns),
            self.node_ns,
            cut_gap_ns=self.cut_gap_ns,
            device_free_ns=self.device_free_ns,
            ready=self.ready,
            queue_depth=self.queue_depth,
            overlap_ns=self.overlap_ns,
        )

    @cached_property
    def uniform_ns(self) -> Floats:
        """Makespan of every uniform size, see `schedules.uniform`."""
        return uniform(self.model)

    def step_ns(self, sizes: Sequence[int]) -> float:
        """Return the time of a step launched as graphs of these sizes."""
        return makespan(self.model, sizes) - self.device_free_ns + self.notice_ns

    @property
    def per_launch_ns(self) -> float:
        """The time of a step launched kernel by kernel, by a host that is not ahead."""
        single = replace(self.model, delta_ns=self.launch_delta_ns, device_free_ns=0.0)
        return per_launch_ns(single, self.launch_ns, self.kernel_gap_ns) + self.notice_ns

    @property
    def device_only_ns(self) -> float:
        """The time of a step if the host cost nothing."""
        return float(self.node_ns.sum())


@dataclass(frozen=True)
class Advice:
    """How to launch a step.

    Attributes:
        verdict: what to do.
        sizes: the advised graphs, in launch order.
        chunk: their size; N for one graph; of unequal ones, the best size of equal ones.
        plateau: sizes about as good.
        now: the graphs that it is compared with.
        cut: the best chunks of one size that are not one graph; None for a step of one node.
        gain_ns: saved per step, not capped.
        predicted_ns: by arm.
        alternatives: other ways.
    """

    verdict: Verdict
    sizes: tuple[int, ...]
    chunk: int
    plateau: tuple[int, int]
    now: tuple[int, ...]
    cut: tuple[int, ...] | None
    gain_ns: float
    predicted_ns: dict[str, int]
    alternatives: tuple[Alternative, ...]


def advise(
    costs: StepCosts, ways: Sequence[tuple[int, ...]], cap_ns: float | None = None
) -> Advice:
    """Choose between one graph, chunks, and single launches.

    Args:
        costs: of the step.
        ways: node counts of the graphs by which the step is launched now, the usual way first. If
            one graph is among them, that is what the advice is compared with.
        cap_ns: a gain above it is not believed; None: no cap.
    """
    nodes = len(costs.node_ns)
    whole = (nodes,)
    now = whole if whole in ways else ways[0]
    found = plateau(costs.uniform_ns)
    growing = growing_with_reserve(costs.model)
    sizes = best_sizes(costs, found.recommended, growing)
    best_ns, now_ns = costs.step_ns(sizes), costs.step_ns(now)
    cap = float("inf") if cap_ns is None else cap_ns
    gain_ns = min(now_ns - best_ns, cap)
    verdict = _verdict(costs, sizes, now, gain_ns)
    if verdict == "do_not_graph":
        best_ns, gain_ns = costs.per_launch_ns, min(now_ns - costs.per_launch_ns, cap)
    elif verdict == "no_difference_shown" or (verdict == "one_graph" and now == whole):
        sizes, best_ns, gain_ns = now, now_ns, 0.0
    cut = found.recommended if found.recommended < nodes else best_cut(costs)
    return Advice(
        verdict=verdict,
        sizes=sizes,
        chunk=sizes[0] if is_even(sizes) else found.recommended,
        plateau=(found.lo, found.hi),
        now=now,
        cut=uniform_sizes(costs.model, cut) if cut is not None else None,
        gain_ns=gain_ns,
        predicted_ns=_predicted(costs, cut, None if verdict == "do_not_graph" else sizes),
        alternatives=_alternatives(costs, cut, growing, now, best_ns),
    )


def best_sizes(costs: StepCosts, recommended: int, growing: tuple[int, ...]) -> tuple[int, ...]:
    """Return the chunks of the recommended size, or those that grow where that pays."""
    sizes = uniform_sizes(costs.model, recommended)
    pays = costs.step_ns(growing) < costs.step_ns(sizes) * (1 - NOISE_FRACTION)
    return growing if pays else sizes


def _verdict(
    costs: StepCosts, sizes: tuple[int, ...], now: tuple[int, ...], gain_ns: float
) -> Verdict:
    shown = gain_ns >= NOISE_FRACTION * costs.step_ns(now)
    if costs.per_launch_ns < costs.step_ns(sizes) * (1 - NOISE_FRACTION):
        return "do_not_graph"
    if len(sizes) == 1 and len(now) == 1:
        return "one_graph"
    if not shown:
        return "no_difference_shown"
    if len(sizes) > 1:
        return "chunk"
    # Graphs of one size, but for the last, are a graph that was cut; others are a program's parts.
    return "one_graph" if len(set(now[:-1])) == 1 and now[-1] <= now[0] else "merge"


def best_cut(costs: StepCosts) -> int | None:
    """Return the uniform size that is best among those that make two or more equal chunks."""
    half = costs.uniform_ns[: len(costs.node_ns) // 2]
    return int(np.argmin(half)) + 1 if half.size else None


def _predicted(
    costs: StepCosts, cut: int | None, advised: tuple[int, ...] | None
) -> dict[str, int]:
    found = {
        "per_launch": costs.per_launch_ns,
        "one_graph": costs.step_ns((len(costs.node_ns),)),
        "device_only": costs.device_only_ns,
    }
    if advised is not None:
        found["schedule"] = costs.step_ns(advised)
    if cut is not None:
        found["chunk"] = costs.step_ns(uniform_sizes(costs.model, cut))
    return {arm: round(ns) for arm, ns in found.items()}


def _alternatives(
    costs: StepCosts,
    cut: int | None,
    growing: tuple[int, ...],
    now: tuple[int, ...],
    best_ns: float,
) -> tuple[Alternative, ...]:
    nodes = len(costs.node_ns)
    ways: dict[tuple[int, ...], tuple[str, int | None]] = {(nodes,): ("one_graph", nodes)}
    for chunk in (cut, _REFERENCE if nodes > _REFERENCE else None):
        if chunk is not None:
            ways.setdefault(uniform_sizes(costs.model, chunk), ("chunk", chunk))
    ways.setdefault(growing, ("schedule", None))
    ways.setdefault(now, ("now", now[0] if is_even(now) else None))
    single_ns = costs.per_launch_ns
    rows = [Alternative("per_launch", 0, None, round(single_ns), round(single_ns - best_ns))]
    for way, (name, chunk) in ways.items():
        ns = costs.step_ns(way)
        first = way[0] if chunk is not None and way[0] != chunk else None
        rows.append(
            Alternative(name, len(way), chunk, round(ns), round(ns - best_ns), way == now, first)
        )
    return tuple(rows)


def gain_interval(
    advice: Advice, ends: Sequence[StepCosts], cap_ns: float | None = None
) -> tuple[int, int]:
    """Return the least and the most that the advice gains.

    Where the advice is to leave the step as it is, 0 and what the best uniform size could save.

    Args:
        advice: from `advise`.
        ends: the costs again, with figures at one or the other end of what is known of them.
        cap_ns: as for `advise`.
    """
    cap = float("inf") if cap_ns is None else cap_ns
    if advice.verdict == "do_not_graph":
        gains = [each.step_ns(advice.now) - each.per_launch_ns for each in ends]
    elif advice.sizes == advice.now:
        missed = [makespan(each.model, advice.now) for each in ends]
        least = [least_ns(each) for each in ends]
        gains = [0.0, *(now - best for now, best in zip(missed, least, strict=True))]
    else:
        gains = [each.step_ns(advice.now) - each.step_ns(advice.sizes) for each in ends]
    return round(min(*gains, cap)), round(min(max(gains), cap))


def least_ns(costs: StepCosts) -> float:
    """Return the least makespan of uniform sizes; of a few of them where there are very many."""
    model = costs.model
    if model.nodes <= _MOST_NODES:
        return float(costs.uniform_ns.min())
    return min(makespan(model, uniform_sizes(model, size)) for size in _few_sizes(model.nodes))


def by_size(costs: StepCosts, ends: Sequence[StepCosts]) -> tuple[SizeTime, ...]:
    """Return the step at a few sizes from 1 to all nodes, four to an octave.

    Args:
        costs: of the step.
        ends: as for `gain_interval`.
    """
    found = []
    for chunk in _few_sizes(costs.model.nodes):
        sizes = uniform_sizes(costs.model, chunk)
        step_ns = costs.step_ns(sizes)
        times = [step_ns, *(each.step_ns(sizes) for each in ends)]
        found.append(SizeTime(chunk, round(step_ns), round(min(times)), round(max(times))))
    return tuple(found)


def _few_sizes(nodes: int) -> list[int]:
    """Four sizes to an octave, of which none makes more than 1,000 chunks."""
    octaves = range(4 * nodes.bit_length())
    sizes = {min(nodes, round(2 ** (i / 4))) for i in octaves} | {nodes}
    return sorted(size for size in sizes if nodes <= 1_000 * size)
