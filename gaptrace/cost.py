"""What a step of CUDA graph nodes costs as one graph, in chunks, or without graphs.

Pure arithmetic on nanoseconds, held as floats because they are fits and means, not clock readings.
A step of N nodes is cut into chunks ``c_1 .. c_k``, each its own graph exec, launched in order on
one stream. ``a(c)`` is the host's time for a chunk, ``b`` the device's (its nodes and the gaps
between them), ``g`` the gap between queued graphs, ``E_0`` when the device is free, ``delta`` the
exposed latency less the API time::

    H_i = H_{i-1} + a(c_i)      S_i = max(H_i + delta, E_{i-1} + g),  S_1 = max(H_1 + delta, E_0)
    E_i = S_i + b_i             makespan = E_k, from when the host begins the step

Three refinements do nothing unless asked for: no chunk starts before the host begins it, however
negative ``delta``; a table of exposed latency may stand for ``a(c) + delta``; a host at most Q
launches ahead has ``H_i = max(H_{i-1} + a(c_i), E_{i-Q})``. Derived here; the effect itself, a
launch as long as its graph is large in front of an idle device, is described in
sgl-project/sglang#29960 and ggml-org/llama.cpp#11867.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
#: Replays for which a step is told with its share of what building the graph takes.
REPLAYS = (10, 100, 1_000)


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

    def times(self, factor: float) -> "HostCost":
        """Return the cost of a host that takes ``factor`` times as long for every chunk."""
        return HostCost(factor * self.fixed_ns, self.nodes, tuple(factor * ns for ns in self.ns))

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
        overlap_ns: what a cut after 0..N nodes adds to the chunk behind it, since branches on both
            sides of it no longer run at once; shape ``(N + 1,)``, or 0.
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
    overlap_ns: ArrayLike = 0.0

    def __post_init__(self) -> None:
        if self.nodes < 1 or np.shape(self.node_ns) not in ((), (self.nodes,)):
            raise ValueError(f"node_ns must be a mean or one time for each of {self.nodes} nodes")
        if np.shape(self.overlap_ns) not in ((), (self.nodes + 1,)):
            raise ValueError(f"overlap_ns must be 0 or one for each of {self.nodes + 1} cuts")
        gaps = min(self.in_graph_gap_ns, self.cut_gap_ns, self.device_free_ns)
        device = min(np.min(self.node_ns), np.min(self.overlap_ns))
        if not (device >= 0 and gaps >= 0):
            raise ValueError("node times, overlap, gaps and device_free_ns must not be negative")
        inner = [] if self.cuts is None else list(self.cuts)
        if min(inner, default=1) < 1 or max(inner, default=0) >= self.nodes:
            raise ValueError(f"cuts must lie in 1..{self.nodes - 1}")
        if self.queue_depth is not None and self.queue_depth < 1:
            raise ValueError("queue_depth must be at least 1, or None")

    @cached_property
    def last_cut(self) -> NDArray[np.int64]:
        """For 0..N nodes, the last boundary allowed up to there; shape ``(N + 1,)``, as below."""
        every = np.arange(self.nodes + 1)
        inner = every if self.cuts is None else self.cuts
        return np.maximum.accumulate(np.where(np.isin(every, [*inner, self.nodes]), every, 0))

    @cached_property
    def device_ns(self) -> Floats:
        """Device time in ns of the first 0..N nodes, each with the gap after it."""
        each = np.asarray(self.node_ns, np.float64) + self.in_graph_gap_ns
        return np.append(0.0, np.cumsum(np.broadcast_to(each, (self.nodes,))))

    @cached_property
    def lost_ns(self) -> Floats:
        """Overlap in ns lost by cuts after 0..N nodes; nothing before the first."""
        lost = np.array(np.broadcast_to(self.overlap_ns, (self.nodes + 1,)), np.float64)
        lost[0] = 0.0
        return lost

    @cached_property
    def host_ns(self) -> Floats:
        """Host time in ns of a chunk of 0..N nodes: a(c)."""
        return self.host(np.arange(self.nodes + 1))

    @cached_property
    def ready_ns(self) -> Floats:
        """Time in ns from when the host begins a chunk of 0..N nodes to when it may start."""
        late = self.host_ns + self.delta_ns
        return np.maximum(late, 0.0) if self.ready is None else self.ready(np.arange(len(late)))

    @property
    def device_only_ns(self) -> float:
        """Makespan if the host cost nothing and nothing were cut: no schedule is below it."""
        return float(self.device_free_ns + self.device_ns[-1] - self.in_graph_gap_ns)


def makespan(model: ChunkModel, sizes: Sequence[int]) -> float:
    """Return the makespan in ns of chunks of ``sizes`` nodes: the recurrence of this module.

    Raises ValueError if the sizes do not sum to N or end a chunk where no cut is allowed.
    """
    size = np.asarray(sizes, np.int64)
    ends = np.cumsum(size)
    if not size.size or size.min() < 1 or ends[-1] != model.nodes:
        raise ValueError(f"chunk sizes must be positive and sum to {model.nodes}")
    if (model.last_cut[ends] != ends).any():
        raise ValueError("a chunk ends where no cut is allowed")
    begins = ends - size
    spans = model.device_ns[ends] - model.device_ns[begins] + model.lost_ns[begins]
    spans -= model.in_graph_gap_ns
    columns = (model.host_ns[size].tolist(), model.ready_ns[size].tolist(), spans.tolist())
    host, free, done = 0.0, model.device_free_ns, list[float]()
    for i, (cost, lag, span) in enumerate(zip(*columns, strict=True)):
        host += cost
        if model.queue_depth is not None and i >= model.queue_depth:
            host = max(host, done[i - model.queue_depth])
        done.append(max(host - cost + lag, free) + span)
        free = done[-1] + model.in_graph_gap_ns + model.cut_gap_ns
    return done[-1]


def per_launch_ns(model: ChunkModel, launch_ns: float, gap_ns: float) -> float:
    """Return the makespan in ns of the same nodes launched one by one, without graphs.

    The recurrence with ``launch_ns`` of host time and ``gap_ns`` between queued kernels for each
    node: near the larger of both sums. ``delta_ns``, ``device_free_ns``, ``queue_depth`` hold.
    """
    host = HostCost.linear(launch_ns, 0.0)
    plain = replace(model, host=host, ready=None, cuts=None, overlap_ns=0.0)
    single = replace(plain, in_graph_gap_ns=gap_ns, cut_gap_ns=0.0)
    return makespan(single, [1] * model.nodes)


def break_even_replays(build_ns: float, per_launch_ns: float, graph_ns: float) -> int | None:
    """Return after how many replays a graph has paid for itself; None if it is not faster.

    ``ceil(build / saved by each replay)``; ``build_ns`` is capture and instantiation, less what
    the same step would have cost without.
    """
    saved = per_launch_ns - graph_ns
    return math.ceil(build_ns / saved) if saved > 0 else None


def amortised_ns(graph_ns: float, build_ns: float) -> dict[int, int]:
    """Return the cost of a step by how many replays (`REPLAYS`) one build serves, in whole ns."""
    return {replays: round(graph_ns + build_ns / replays) for replays in REPLAYS}


@dataclass(frozen=True)
class ChunkTimes:
    """When one chunk of a schedule is launched and run. In ns from when the host begins the step.

    Attributes:
        nodes: of the chunk.
        host_start_ns, host_end_ns: its launch, with all that the regime does before it.
        device_start_ns, device_end_ns: its run.
    """

    nodes: int
    host_start_ns: float
    host_end_ns: float
    device_start_ns: float
    device_end_ns: float


def chunk_times(model: ChunkModel, sizes: Sequence[int]) -> tuple[ChunkTimes, ...]:
    """Return when host and device are at work on each chunk: the recurrence behind `makespan`.

    Raises ValueError as `makespan` does.
    """
    size = np.asarray(sizes, np.int64)
    ends = np.cumsum(size)
    last_end = makespan(model, sizes)  # which checks the sizes
    host, free, times = 0.0, model.device_free_ns, list[ChunkTimes]()
    for i, (count, end) in enumerate(zip(size.tolist(), ends.tolist(), strict=True)):
        begun = host
        host += float(model.host_ns[count])
        if model.queue_depth is not None and i >= model.queue_depth:
            host = max(host, times[i - model.queue_depth].device_end_ns)
            begun = host - float(model.host_ns[count])
        start = max(begun + float(model.ready_ns[count]), free)
        first = end - count
        work = model.device_ns[end] - model.device_ns[first] + model.lost_ns[first]
        span = float(work) - model.in_graph_gap_ns
        times.append(ChunkTimes(count, begun, host, start, start + span))
        free = times[-1].device_end_ns + model.in_graph_gap_ns + model.cut_gap_ns
    assert math.isclose(times[-1].device_end_ns, last_end)
    return tuple(times)
