"""Which chunks to cut a step into: every uniform size, the one to recommend, and schedules.

Unrolled, the makespan of `cost` is the largest of ``H_{i-1} + ready(c_i) + b_i + g + b_{i+1} + .. +
b_k`` over i (each b with the overlap lost by the cut before it), which is what lets every uniform
size be computed at once.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gaptrace.cost import ChunkModel, Floats, makespan

_TIE = 1 + 1e-9  # sums in another order round differently; far below any measured time
#: Hosts to plan for: as measured, and slower by up to as much as one process differs from the next
#: (launch calls cost up to 1.5 times as much on one H200, benchmarks/RESULTS.md).
_SLOWER = (1.0, 1.1, 1.25, 1.5)


def uniform(model: ChunkModel) -> Floats:
    """Return the makespan in ns of every uniform chunk size: shape ``(N,)``, size c at ``c - 1``.

    The remainder is last or first, whichever costs less: in front it starts the device sooner, at
    the end it leaves less to drain behind a slow host. Boundaries move back to the last allowed
    cut. A fraction of a second for N = 100,000 (1.2 million chunks); sizes that make more than
    ``queue_depth`` chunks go through the recurrence one by one, about a microsecond a chunk.
    """
    return np.minimum(_uniform(model, False), _uniform(model, True))


def _uniform(model: ChunkModel, remainder_first: bool) -> Floats:
    total, device, gap = model.nodes, model.device_ns, model.cut_gap_ns
    sizes = np.arange(1, total + 1)
    counts = -(-total // sizes)
    pad = np.repeat((counts * sizes - total) * remainder_first, counts)
    order = np.arange(len(pad)) - np.repeat(np.cumsum(counts) - counts, counts)
    chunk = np.repeat(sizes, counts)  # from here on a row for every chunk of every size
    begin = model.last_cut[np.maximum(order * chunk - pad, 0)]
    end = model.last_cut[np.minimum((order + 1) * chunk - pad, total)]
    begin, end, chunk = (rows[end > begin] for rows in (begin, end, chunk))
    counts = np.bincount(chunk)[1:]
    heads = np.cumsum(counts) - counts
    order = np.arange(len(chunk)) - np.repeat(heads, counts)
    before = np.cumsum(model.host_ns[end - begin]) - model.host_ns[end - begin]
    host = before - np.repeat(before[heads], counts)
    cut = np.cumsum(gap + model.lost_ns[begin])  # what cuts have cost the device so far
    cut -= np.repeat(cut[heads], counts)
    # Overlap that is lost lengthens a chunk, which starts no later for it.
    late = host + model.ready_ns[end - begin] - device[begin] - (cut - model.lost_ns[begin])
    start = np.maximum(np.maximum.reduceat(late, heads), model.device_free_ns)
    result: Floats = start + device[-1] - model.in_graph_gap_ns + cut[heads + counts - 1]
    for i in np.flatnonzero(counts > (model.queue_depth or total)):
        rows = slice(heads[i], heads[i] + counts[i])
        result[i] = makespan(model, end[rows] - begin[rows])
    return result


def uniform_sizes(model: ChunkModel, chunk: int) -> tuple[int, ...]:
    """Return the schedule behind ``uniform(model)[chunk - 1]``; where equal, remainder last.

    Raises:
        ValueError: chunks of no node.
    """
    if chunk < 1:
        raise ValueError(f"a chunk has at least one node, not {chunk}")
    marks = np.arange(0, model.nodes + chunk, chunk)
    pads = (0, -model.nodes % chunk)
    bounds = (np.unique(model.last_cut[np.clip(marks - pad, 0, model.nodes)]) for pad in pads)
    last, first = (tuple(np.diff(bound).tolist()) for bound in bounds)
    return first if makespan(model, first) * _TIE < makespan(model, last) else last


def is_even(sizes: Sequence[int]) -> bool:
    """Whether these are chunks of one size with the remainder last, as `gaptrace.split` cuts."""
    return len(set(sizes[:-1])) <= 1 and sizes[-1] <= sizes[0]


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
    good = [size for size in round_numbers if size <= total and near[size - 1]]
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
    tests/test_schedules.py.
    """
    best = uniform_sizes(model, plateau(uniform(model)).best)
    least = makespan(model, best)
    firsts = {round(2 ** (i / 8)) for i in range(8 * model.nodes.bit_length())}
    slack = int(np.searchsorted(model.ready_ns, model.device_free_ns, side="right")) - 1
    lists = _lists(model)
    for first in sorted(firsts | {max(slack, 1)}):
        sizes = _grow(model, lists, first, least)
        if sizes and (time := makespan(model, sizes)) * _TIE < least:
            best, least = tuple(sizes), time
    return best


def growing_with_reserve(model: ChunkModel) -> tuple[int, ...]:
    """Return a growing schedule that is good as well if the host turns out slower.

    Where each chunk is as large as just hides, a host slower by a tenth leaves a bubble of a tenth
    of it at every cut. Of the `growing_schedule` for the host as it is and for ones slower by 10,
    25 and 50 % this is the one with the least mean makespan at both ends. On the random steps of
    tests/test_schedules.py it takes 2 % longer on average if the host is as modelled, and saves 5 %
    if it is slower by half; where chunks can hide wholly, it takes 0.1 % longer or less.
    """
    hosts = [_slowed(model, factor) for factor in _SLOWER]
    schedules = dict.fromkeys(growing_schedule(host) for host in hosts)
    ends = hosts[0], hosts[-1]
    return min(schedules, key=lambda sizes: sum(makespan(host, sizes) for host in ends))


def _slowed(model: ChunkModel, factor: float) -> ChunkModel:
    ready = model.ready and model.ready.times(factor)
    return replace(model, host=model.host.times(factor), ready=ready)


_Lists = tuple[list[int], list[float], list[float], list[float], list[float]]


def _lists(model: ChunkModel) -> _Lists:
    """Allowed boundaries; device, lost, host and ready times: faster to read value by value."""
    device, host = (model.device_ns.tolist(), model.lost_ns.tolist()), model.host_ns.tolist()
    return np.unique(model.last_cut).tolist(), *device, host, model.ready_ns.tolist()


def _grow(model: ChunkModel, lists: _Lists, size: int, limit: float) -> list[int]:
    bounds, device, lost, host, ready = lists
    each = np.arange(1, model.nodes + 1)
    rate = float((model.host_ns[1:] / each).min())  # no node costs the host less
    begin, now, free, sizes = 0, 0.0, model.device_free_ns, list[int]()
    while begin < model.nodes:
        following, reached = bisect_right(bounds, begin), bisect_right(bounds, begin + size) - 1
        end = bounds[max(following, reached)]
        start = max(now + ready[end - begin], free)
        start += lost[begin]
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
    device, bounds = model.device_ns, np.unique(model.last_cut).tolist()
    if (model.queue_depth or model.nodes) < len(bounds) - 1:
        raise ValueError("optimal_schedule needs a queue at least as deep as chunks are allowed")
    limit = makespan(model, growing_schedule(model)) * _TIE + model.in_graph_gap_ns
    at, parent = np.array([0]), np.array([-1])
    host, free = np.array([0.0]), np.array([model.device_free_ns])
    for cut in bounds[1:]:
        start = np.maximum(host + model.ready_ns[cut - at], free)
        start += model.lost_ns[at]
        hosts, ends = host + model.host_ns[cut - at], start + device[cut] - device[at]
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
    p, e = float(model.host_ns[-1] - fixed) / total, float(model.device_ns[-1]) / total
    device = host = math.inf
    if p > 0:
        device = max(math.sqrt(total * model.cut_gap_ns / p), (model.device_free_ns - fixed) / p)
    if e > 0:
        host = math.sqrt(total * fixed / e)
    return min(max(device, 1.0), float(total)), min(max(host, 1.0), float(total))
