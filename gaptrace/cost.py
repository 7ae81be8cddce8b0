"""What a step of CUDA graph nodes costs as one graph, in uniform chunks, in any schedule.

Pure arithmetic on nanoseconds, held as floats because they are fits and means, not clock readings.
A step of N nodes is cut into chunks ``c_1 .. c_k``, each its own graph exec, launched in order on
one stream. ``a(c)`` is the host's time for a chunk, ``b`` the device's (its nodes and the gaps
between them), ``g`` the gap between queued graphs, ``E_0`` when the device is free, ``delta`` the
exposed latency less the API time::

    H_i = H_{i-1} + a(c_i)      S_i = max(H_i + delta, E_{i-1} + g),  S_1 = max(H_1 + delta, E_0)
    E_i = S_i + b_i             makespan = E_k, from when the host begins the step

Three refinements do nothing unless asked for: no chunk starts before the host begins it, however
negative ``delta``; a table of exposed latency may stand for ``a(c) + delta``; a host at most Q
launches ahead has ``H_i = max(H_{i-1} + a(c_i), E_{i-Q})``. Unrolled, the makespan is the largest
of ``H_{i-1} + ready(c_i) + b_i + g + b_{i+1} + .. + b_k`` over i, which is what lets every uniform
size be computed at once. Derived here; the effect itself, a launch as long as its graph is large in
front of an idle device, is described in sgl-project/sglang#29960 and ggml-org/llama.cpp#11867.
"""

import math
from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
_TIE = 1 + 1e-9  # sums in another order round differently; far below any measured time


class NotIdentifiableError(ValueError):
    """The samples cannot tell the fixed from the per-node part of a host cost."""


@dataclass(frozen=True)
class HostCost:
    """Host ns of one chunk by its node count, a(c): piecewise linear and never falling.

    From ``fixed_ns`` (not negative) at 0 nodes through the points ``(nodes, ns)``, then on with the
    last slope. The calls in it make the regime: launch; capture, exec update, launch; capture,
    instantiate, *first* launch, which pays the upload.
    """

    fixed_ns: float
    nodes: tuple[int, ...]
    ns: tuple[float, ...]

    def __post_init__(self) -> None:
        ascending = all(a < b for a, b in pairwise((0, *self.nodes)))
        rising = all(a <= b for a, b in pairwise((0.0, self.fixed_ns, *self.ns)))
        if not ascending or not rising or not 0 < len(self.nodes) == len(self.ns):
            raise ValueError("host cost needs ascending node counts with never falling costs >= 0")

    @classmethod
    def linear(cls, fixed_ns: float, per_node_ns: float) -> "HostCost":
        """``fixed_ns + per_node_ns * c``."""
        return cls(fixed_ns, (1,), (fixed_ns + per_node_ns,))

    @classmethod
    def fit(cls, nodes: ArrayLike, ns: ArrayLike, *, quantile: float = 0.25) -> "HostCost":
        """Fit samples: a quantile for each node count, lowered to what larger chunks cost.

        Both because disturbance only lengthens a host call: a low quantile is nearer the truth, and
        a larger chunk that was cheaper shows that the smaller one was disturbed. Leave out launches
        that a full queue blocked. Raises `NotIdentifiableError` for fewer than two node counts.
        """
        counts, group = np.unique(np.asarray(nodes, np.int64), return_inverse=True)
        if len(counts) < 2:
            raise NotIdentifiableError(
                f"host cost by node count cannot be told from node counts {counts.tolist()}: "
                "measure chunks of at least one other size"
            )
        times = np.asarray(ns, np.float64)
        low = np.array([np.quantile(times[group == i], quantile) for i in range(len(counts))])
        low = np.minimum.accumulate(low[::-1])[::-1]
        fixed = low[0] - (low[1] - low[0]) / (counts[1] - counts[0]) * counts[0]
        return cls(max(0.0, float(fixed)), tuple(counts.tolist()), tuple(low.tolist()))

    def __call__(self, nodes: ArrayLike) -> Floats:
        """Return the cost in ns of chunks of ``nodes`` nodes, in the same shape."""
        at = np.asarray(nodes, np.float64)
        (*_, x, last), (*_, y, top) = knots, costs = (0, *self.nodes), (self.fixed_ns, *self.ns)
        beyond = np.maximum(at - last, 0.0) * ((top - y) / (last - x))
        return np.asarray(np.interp(at, knots, costs) + beyond, np.float64)


@dataclass(frozen=True, eq=False)
class ChunkModel:
    """A step on a machine: all that the recurrence needs. Times in ns, none but delta negative.

    Args:
        host: host cost of one chunk.
        nodes: N, CUDA graph nodes of the step, in the order in which they run.
        node_ns: device time of each node, shape ``(N,)``, or their mean. Where branches run side by
            side, what each node adds to the span.
        in_graph_gap_ns: device gap between neighbours inside a graph.
        cut_gap_ns: g', what a cut adds to it: ``g`` less the in-graph gap.
        delta_ns: exposed latency less API time; negative if the device starts before the return.
        device_free_ns: E_0, from when the host begins this step.
        ready: by node count, from when the host begins a chunk to when the device may start it;
            replaces ``host + delta_ns`` where exposed latency does not grow with the launch call.
        queue_depth: Q, launches by which the host may be ahead; None: no limit.
        cuts: node counts after which a cut is allowed, in 1..N-1; None: all.
    """

    host: HostCost
    nodes: int
    node_ns: ArrayLike
    in_graph_gap_ns: float = 0.0
    cut_gap_ns: float = 0.0
    delta_ns: float = 0.0
    device_free_ns: float = 0.0
    ready: HostCost | None = None
    queue_depth: int | None = None
    cuts: Collection[int] | None = None

    def __post_init__(self) -> None:
        if self.nodes < 1 or np.shape(self.node_ns) not in ((), (self.nodes,)):
            raise ValueError(f"node_ns must be a mean or one time for each of {self.nodes} nodes")
        gaps = min(self.in_graph_gap_ns, self.cut_gap_ns, self.device_free_ns)
        if not (np.min(self.node_ns) >= 0 and gaps >= 0):
            raise ValueError("node times, gaps and device_free_ns must not be negative")
        inner = [] if self.cuts is None else list(self.cuts)
        if min(inner, default=1) < 1 or max(inner, default=0) >= self.nodes:
            raise ValueError(f"cuts must lie in 1..{self.nodes - 1}")
        if self.queue_depth is not None and self.queue_depth < 1:
            raise ValueError("queue_depth must be at least 1, or None")

    @cached_property
    def _snap(self) -> NDArray[np.int64]:  # for 0..N, the last boundary allowed up to there
        every = np.arange(self.nodes + 1)
        inner = every if self.cuts is None else self.cuts
        return np.maximum.accumulate(np.where(np.isin(every, [*inner, self.nodes]), every, 0))

    @cached_property
    def _device(self) -> Floats:  # time of the first 0..N nodes, each with the gap after it
        each = np.asarray(self.node_ns, np.float64) + self.in_graph_gap_ns
        return np.append(0.0, np.cumsum(np.broadcast_to(each, (self.nodes,))))

    @cached_property
    def _host(self) -> Floats:  # a(c) for 0..N
        return self.host(np.arange(self.nodes + 1))

    @cached_property
    def _ready(self) -> Floats:  # from host begin to earliest start, for chunks of 0..N
        late = self._host + self.delta_ns
        return np.maximum(late, 0.0) if self.ready is None else self.ready(np.arange(len(late)))

    @cached_property
    def _lists(self) -> tuple[list[int], list[float], list[float], list[float]]:
        columns = (self._device.tolist(), self._host.tolist(), self._ready.tolist())
        return np.unique(self._snap).tolist(), *columns  # faster to read value by value

    @property
    def device_only_ns(self) -> float:
        """Makespan if the host cost nothing and nothing were cut: no schedule is below it."""
        return float(self.device_free_ns + self._device[-1] - self.in_graph_gap_ns)


def makespan(model: ChunkModel, sizes: Sequence[int]) -> float:
    """Return the makespan in ns of chunks of ``sizes`` nodes: the recurrence of this module.

    Raises ValueError if the sizes do not sum to N or end a chunk where no cut is allowed.
    """
    size = np.asarray(sizes, np.int64)
    ends = np.cumsum(size)
    if not size.size or size.min() < 1 or ends[-1] != model.nodes:
        raise ValueError(f"chunk sizes must be positive and sum to {model.nodes}")
    if (model._snap[ends] != ends).any():
        raise ValueError("a chunk ends where no cut is allowed")
    spans = model._device[ends] - model._device[ends - size] - model.in_graph_gap_ns
    columns = (model._host[size].tolist(), model._ready[size].tolist(), spans.tolist())
    host, free, done = 0.0, model.device_free_ns, list[float]()
    for i, (cost, lag, span) in enumerate(zip(*columns, strict=True)):
        host += cost
        if model.queue_depth is not None and i >= model.queue_depth:
            host = max(host, done[i - model.queue_depth])
        done.append(max(host - cost + lag, free) + span)
        free = done[-1] + model.in_graph_gap_ns + model.cut_gap_ns
    return done[-1]


def uniform(model: ChunkModel) -> Floats:
    """Return the makespan in ns of every uniform chunk size: shape ``(N,)``, size c at ``c - 1``.

    The remainder is last or first, whichever costs less: in front it starts the device sooner, at
    the end it leaves less to drain behind a slow host. Boundaries move back to the last allowed
    cut. A fraction of a second for N = 100,000 (1.2 million chunks); sizes that make more than
    ``queue_depth`` chunks go through the recurrence one by one, about a microsecond a chunk.
    """
    return np.minimum(_uniform(model, False), _uniform(model, True))


def _uniform(model: ChunkModel, remainder_first: bool) -> Floats:
    total, device, gap = model.nodes, model._device, model.cut_gap_ns
    sizes = np.arange(1, total + 1)
    counts = -(-total // sizes)
    pad = np.repeat((counts * sizes - total) * remainder_first, counts)
    order = np.arange(len(pad)) - np.repeat(np.cumsum(counts) - counts, counts)
    chunk = np.repeat(sizes, counts)  # from here on a row for every chunk of every size
    begin = model._snap[np.maximum(order * chunk - pad, 0)]
    end = model._snap[np.minimum((order + 1) * chunk - pad, total)]
    begin, end, chunk = (rows[end > begin] for rows in (begin, end, chunk))
    counts = np.bincount(chunk)[1:]
    heads = np.cumsum(counts) - counts
    order = np.arange(len(chunk)) - np.repeat(heads, counts)
    before = np.cumsum(model._host[end - begin]) - model._host[end - begin]
    host = before - np.repeat(before[heads], counts)
    late = host + model._ready[end - begin] - device[begin] - order * gap
    start = np.maximum(np.maximum.reduceat(late, heads), model.device_free_ns)
    result: Floats = start + device[-1] - model.in_graph_gap_ns + (counts - 1) * gap
    for i in np.flatnonzero(counts > (model.queue_depth or total)):
        rows = slice(heads[i], heads[i] + counts[i])
        result[i] = makespan(model, end[rows] - begin[rows])
    return result


def uniform_sizes(model: ChunkModel, chunk: int) -> tuple[int, ...]:
    """Return the schedule behind ``uniform(model)[chunk - 1]``; where equal, remainder last."""
    marks = np.arange(0, model.nodes + chunk, chunk)
    pads = (0, -model.nodes % chunk)
    bounds = (np.unique(model._snap[np.clip(marks - pad, 0, model.nodes)]) for pad in pads)
    last, first = (tuple(np.diff(bound).tolist()) for bound in bounds)
    return first if makespan(model, first) * _TIE < makespan(model, last) else last


@dataclass(frozen=True)
class Plateau:
    """Chunk sizes ``lo..hi`` about as good as ``best``, and ``recommended`` among them."""

    lo: int
    hi: int
    best: int
    recommended: int


def plateau(uniform_ns: Floats, *, fraction: float = 0.005) -> Plateau:
    """Return the size to recommend and the unbroken range around it that is as good.

    As good is at most ``fraction`` above the least; 0.5 %: repeated runs seldom tell less apart.
    Recommended is N (one graph) if as good. Else a round number (a power of two, or 1, 2 or 5 times
    a power of ten): the cheapest in the range around ``best``, failing that, since lucky remainders
    break ranges up, the cheapest of all as good. Else ``best``, the largest of the least.
    """
    total, least = len(uniform_ns), float(uniform_ns.min())
    near = uniform_ns <= least * (1 + fraction)
    best = int(np.flatnonzero(uniform_ns <= least * _TIE)[-1]) + 1
    lo, hi = _run(near, best)
    powers = range(total.bit_length())
    round_numbers = {2**i for i in powers} | {d * 10**i for d in (1, 2, 5) for i in powers}
    good = [size for size in sorted(round_numbers) if size <= total and near[size - 1]]
    choice = [size for size in good if lo <= size <= hi] or good or [best]
    cheapest = min(choice, key=lambda size: (float(uniform_ns[size - 1]), -size))
    recommended = total if near[-1] else cheapest
    return Plateau(*_run(near, recommended), best, recommended)


def _run(near: NDArray[np.bool_], size: int) -> tuple[int, int]:
    outside = np.flatnonzero(~np.pad(near, 1)).tolist()  # sizes that are not near, 0 and N + 1 too
    after = bisect_right(outside, size)
    return outside[after - 1] + 1, outside[after] - 1


def growing_schedule(model: ChunkModel) -> tuple[int, ...]:
    """Return the best greedy schedule, or the best uniform one where that is as good.

    Each next chunk is the largest that is ready by the time the device could start it (for linear
    costs ``c_{i+1} = (E_i + g - H_i - delta - F) / p``); where none is, the last size again. Sizes
    grow where the device is the slower side, and shrink towards the end where the host is. First
    chunks tried: eight to an octave, and the largest that hides behind ``device_free_ns``. Above
    `optimal_schedule` by less than 0.5 % on average, 5 % at most, on the random steps of
    tests/test_cost.py.
    """
    best = uniform_sizes(model, plateau(uniform(model)).best)
    least = makespan(model, best)
    firsts = {round(2 ** (i / 8)) for i in range(8 * model.nodes.bit_length())}
    slack = int(np.searchsorted(model._ready, model.device_free_ns, side="right")) - 1
    for first in sorted(firsts | {max(slack, 1)}):
        sizes = _grow(model, first, least)
        if sizes and (time := makespan(model, sizes)) * _TIE < least:
            best, least = tuple(sizes), time
    return best


def _grow(model: ChunkModel, size: int, limit: float) -> list[int]:
    bounds, device, host, ready = model._lists
    each = np.arange(1, model.nodes + 1)
    rate = float((model._host[1:] / each).min())  # no node costs the host less
    begin, now, free, sizes = 0, 0.0, model.device_free_ns, list[int]()
    while begin < model.nodes:
        following, reached = bisect_right(bounds, begin), bisect_right(bounds, begin + size) - 1
        end = bounds[max(following, reached)]
        start = max(now + ready[end - begin], free)
        device_end = start + device[-1] - device[begin] - model.in_graph_gap_ns
        if max(device_end, now + rate * (model.nodes - begin)) > limit:
            return []  # neither side can finish the rest in time
        now += host[end - begin]
        free = start + device[end] - device[begin] + model.cut_gap_ns
        sizes.append(end - begin)
        begin, size = end, bisect_right(ready, free - now) - 1 or size
    return sizes


def optimal_schedule(model: ChunkModel) -> tuple[int, ...]:
    """Return the cheapest of all schedules: exact, for up to a few hundred allowed cuts.

    A dynamic programme over boundaries. What comes after one depends only on when host and device
    are free there, so of the ways to reach it only those are kept that no other beats in both, and
    that could still beat the greedy schedule. Raises ValueError if the queue could fill up, since
    then it depends on more.
    """
    device, bounds = model._device, model._lists[0]
    if (model.queue_depth or model.nodes) < len(bounds) - 1:
        raise ValueError("optimal_schedule needs a queue at least as deep as chunks are allowed")
    limit = makespan(model, growing_schedule(model)) * _TIE + model.in_graph_gap_ns
    at, parent = np.array([0]), np.array([-1])
    host, free = np.array([0.0]), np.array([model.device_free_ns])
    for cut in bounds[1:]:
        start = np.maximum(host + model._ready[cut - at], free)
        hosts, ends = host + model._host[cut - at], start + device[cut] - device[at]
        kept = np.flatnonzero(start + device[-1] - device[at] <= limit)
        kept = kept[np.lexsort((ends[kept], hosts[kept]))]
        kept = kept[np.diff(np.minimum.accumulate(ends[kept]), prepend=np.inf) < 0]
        at, parent = np.append(at, np.full(len(kept), cut)), np.append(parent, kept)
        host, free = np.append(host, hosts[kept]), np.append(free, ends[kept] + model.cut_gap_ns)
    path = [len(at) - 1]  # the last kept is the earliest end
    while parent[path[-1]] >= 0:
        path.append(int(parent[path[-1]]))
    return tuple(np.diff(at[path[::-1]]).tolist())


def closed_form(model: ChunkModel) -> tuple[float, float]:
    """Return c* if the device is the slower side, and if the host is: to explain, not to choose.

    With F and p the fixed part and mean slope of a(c) up to N, e the mean node with its gap: a cut
    costs g', a node of the first chunk p unless it hides behind earlier work, so ``N g'/c + p c``
    is least at ``max(sqrt(N g'/p), (E_0 - F)/p)``. Behind a slow host each chunk costs F and the
    last does not hide, so ``N F/c + e c`` is least at ``sqrt(N F/e)``. Both within 1..N.
    """
    total, fixed = model.nodes, model.host.fixed_ns
    p, e = float(model._host[-1] - fixed) / total, float(model._device[-1]) / total
    device = host = math.inf
    if p > 0:
        device = max(math.sqrt(total * model.cut_gap_ns / p), (model.device_free_ns - fixed) / p)
    if e > 0:
        host = math.sqrt(total * fixed / e)
    return min(max(device, 1.0), float(total)), min(max(host, 1.0), float(total))


def per_launch_ns(model: ChunkModel, launch_ns: float, gap_ns: float) -> float:
    """Return the makespan in ns of the same nodes launched one by one, without graphs.

    The recurrence with ``launch_ns`` of host time and ``gap_ns`` between queued kernels for each
    node: near the larger of both sums. ``delta_ns``, ``device_free_ns``, ``queue_depth`` hold.
    """
    host = HostCost.linear(launch_ns, 0.0)
    plain = replace(model, host=host, ready=None, cuts=None)
    single = replace(plain, in_graph_gap_ns=gap_ns, cut_gap_ns=0.0)
    return makespan(single, [1] * model.nodes)


def break_even_replays(build_ns: float, per_launch_ns: float, graph_ns: float) -> int | None:
    """Return after how many replays a graph has paid for itself; None if it is not faster.

    ``ceil(build / saved by each replay)``; ``build_ns`` is capture and instantiation, less what
    the same step would have cost without.
    """
    saved = per_launch_ns - graph_ns
    return math.ceil(build_ns / saved) if saved > 0 else None


def amortised_ns(graph_ns: float, build_ns: float, replays: int) -> float:
    """Return the cost of a step if one build serves ``replays`` of them."""
    return graph_ns + build_ns / replays
