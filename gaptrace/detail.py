"""Level of detail: what is left of millions of spans on a screen of so many pixels, exactly.

Pure: nothing here knows what a GPU is. A window is cut into bins, one for a pixel or a few. Spans
at least a bin long stay as they are; shorter ones become one row for each bin in which they lie,
with the exact nanoseconds that they cover there. So the number of rows is bounded by the bins, and
no nanosecond is sampled, lost or counted twice.

Spans are sorted and summed up once (`spans`); what a window needs is then found by binary search.
Only spans that overlap each other, long and short, are walked through anew.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

Array = npt.NDArray[np.int64]
Codes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Blocks:
    """Disjoint half-open spans, sorted.

    Attributes:
        starts, ends: of each, in ns.
        before: nanoseconds of all blocks before each one, and of all together at the end.
    """

    starts: Array
    ends: Array
    before: Array


@dataclass(frozen=True)
class Spans:
    """Half-open spans that share a lane, sorted by start.

    Attributes:
        starts, ends: of each, in ns.
        rows: which row of its frame each one is; ascending.
        kinds: a number for what each one is.
        reached: the latest end so far, this one included.
        union: what all of them cover.
        is_disjoint: whether none begins before the one before it has ended.
        longest_ns: no span is longer.
        sums_ns: for each number among `kinds`, nanoseconds of the spans of that kind before each
            one, and of all at the end; empty where all are of one kind.
        kinds_present: the numbers among `kinds`; ascending.
    """

    starts: Array
    ends: Array
    rows: Array
    kinds: Codes
    reached: Array
    union: Blocks
    is_disjoint: bool
    longest_ns: int
    sums_ns: tuple[Array, ...]
    kinds_present: tuple[int, ...]


def spans(starts: Array, ends: Array, rows: Array, kinds: Codes) -> Spans:
    """Sum up spans that are sorted by start."""
    lengths = ends - starts
    is_disjoint = bool((starts[1:] >= ends[:-1]).all())
    present = tuple(np.flatnonzero(np.bincount(kinds)).tolist())
    several = present if len(present) > 1 else ()
    return Spans(
        starts=starts,
        ends=ends,
        rows=rows,
        kinds=kinds,
        reached=ends if is_disjoint else np.maximum.accumulate(ends),
        union=blocks(starts, ends) if is_disjoint else _merged(starts, ends),
        is_disjoint=is_disjoint,
        longest_ns=int(lengths.max(initial=0)),
        sums_ns=tuple(_sums(np.where(kinds == kind, lengths, 0)) for kind in several),
        kinds_present=present,
    )


def blocks(starts: Array, ends: Array) -> Blocks:
    """Sum up spans that are disjoint and sorted."""
    return Blocks(starts, ends, _sums(ends - starts))


def joined(lanes: list[Spans], start_ns: int, end_ns: int) -> Spans:
    """Return what reaches into a window of several lanes of the same frame, as one lane."""
    if len(lanes) == 1:
        return lanes[0]
    parts = [slice(*_bounds(lane, start_ns, end_ns)[::2]) for lane in lanes]
    starts, ends, rows, kinds = (
        np.concatenate([getattr(lane, name)[part] for lane, part in zip(lanes, parts, strict=True)])
        for name in ("starts", "ends", "rows", "kinds")
    )
    order = np.argsort(rows, kind="stable")
    return spans(starts[order], ends[order], rows[order], kinds[order])


def count_inside(lane: Spans, start_ns: int, end_ns: int) -> int:
    """Count the spans that begin before a window ends and do not end before it begins."""
    first, begun, last = _bounds(lane, start_ns, end_ns)
    return last - begun + int(np.count_nonzero(lane.ends[first:begun] >= start_ns))


def long_inside(lane: Spans, start_ns: int, end_ns: int, least_ns: int) -> Array:
    """Return the numbers of those of the spans of `count_inside` that have at least a length."""
    if lane.longest_ns < least_ns:
        return np.zeros(0, np.int64)
    first, _, last = _bounds(lane, start_ns, end_ns)
    starts, ends = lane.starts[first:last], lane.ends[first:last]
    return first + np.flatnonzero((ends - starts >= least_ns) & (ends >= start_ns))


def _bounds(lane: Spans, start_ns: int, end_ns: int) -> tuple[int, int, int]:
    """Numbers of the first span that reaches a window, of the first that begins in it, or later."""
    begun, last = np.searchsorted(lane.starts, [start_ns, end_ns]).tolist()
    return min(int(np.searchsorted(lane.reached, start_ns)), begun), begun, last


def bin_edges(start_ns: int, end_ns: int, bins: int) -> Array:
    """Return the edges of equal bins, as equal as whole nanoseconds can be.

    Returns:
        one more edge than there are bins; as many bins as nanoseconds where that is fewer.
    """
    count = max(1, min(bins, end_ns - start_ns))
    # Whole and rest apart, since a long session's nanoseconds times a screen's pixels are too many.
    width, rest = divmod(end_ns - start_ns, count)
    edges = np.arange(count + 1, dtype=np.int64)
    return start_ns + edges * width + edges * rest // count


def covered(union: Blocks, edges: Array) -> Array:
    """Return the nanoseconds of each bin that blocks cover."""
    if not len(union.starts):
        return np.zeros(len(edges) - 1, np.int64)
    begun = np.searchsorted(union.starts, edges)
    # Of the blocks begun before an edge only the last can reach beyond it.
    last_ends = union.ends[np.maximum(begun - 1, 0)]
    beyond = np.where(begun > 0, np.maximum(last_ends - edges, 0), 0)
    return np.diff(union.before[begun] - beyond)


def visible(lane: Spans, edges: Array) -> pl.DataFrame:
    """Return what can be seen of spans in a window.

    Args:
        lane: the spans.
        edges: `bin_edges` of the window.

    Returns:
        start_ns, end_ns. row: of the frame, for a span as it is; else null. kind: the span's; of a
        bin, the kind that holds most of the time of the short spans that begin in it, null where
        none does. span_count: 1 for a span as it is; of a bin, how many short ones begin in it,
        the first bin including those that began before and reach it. covered_ns: of a bin,
        nanoseconds that short spans cover; else null. At most one row a bin, and one span more
        than there are bins: of overlapping ones the longest. Sorted by start and end.
    """
    start_ns, end_ns, count = int(edges[0]), int(edges[-1]), len(edges) - 1
    first, begun, last = _bounds(lane, start_ns, end_ns)
    long = long_inside(lane, start_ns, end_ns, max(1, (end_ns - start_ns) // count))
    ended = first + np.flatnonzero(lane.ends[first:begun] < start_ns)
    left_out = np.concatenate([ended, long])
    bounds = np.concatenate([[first], np.searchsorted(lane.starts, edges[1:-1]), [last]])
    # A window's first bin begins with what began before it.
    bins = np.searchsorted(bounds[1:-1], left_out, side="right")
    counts = np.diff(bounds) - np.bincount(bins, minlength=count)
    sums = _covered_by_short(lane, first, last, long, edges)
    shown = np.flatnonzero((counts > 0) | (sums > 0))
    kinds = _main_kinds(lane, bounds, left_out, bins)
    if len(long) > count + 1:
        order = np.argsort(lane.starts[long] - lane.ends[long], kind="stable")
        long = np.sort(long[order[: count + 1]])
    one = pl.DataFrame(
        {
            "start_ns": lane.starts[long],
            "end_ns": lane.ends[long],
            "row": lane.rows[long],
            "kind": lane.kinds[long].astype(np.int64),
            "span_count": np.ones(len(long), np.int64),
        }
    )
    binned = pl.DataFrame(
        {
            "start_ns": edges[shown],
            "end_ns": edges[shown + 1],
            "kind": kinds[shown],
            "span_count": counts[shown],
            "covered_ns": sums[shown],
        }
    ).with_columns(kind=pl.when(pl.col("span_count") > 0).then("kind"))
    return pl.concat([one, binned], how="diagonal").sort("start_ns", "end_ns", maintain_order=True)


def _covered_by_short(lane: Spans, first: int, last: int, long: Array, edges: Array) -> Array:
    """Nanoseconds of each bin that the spans from `first` to `last` cover without the long ones."""
    if not len(long):
        return covered(lane.union, edges)
    if lane.is_disjoint:
        of_long = blocks(lane.starts[long], lane.ends[long])
        return covered(lane.union, edges) - covered(of_long, edges)
    short = np.delete(np.arange(first, last), long - first)
    return covered(_merged(lane.starts[short], lane.ends[short]), edges)


def _main_kinds(lane: Spans, bounds: Array, left_out: Array, bins: Array) -> Array:
    """Of the spans of each bin, the kind with most time; of equal ones the first."""
    kinds = np.array(lane.kinds_present or (0,), np.int64)
    if len(kinds) < 2:
        return np.repeat(kinds, len(bounds) - 1)
    sums = np.stack([np.diff(sums_ns[bounds]) for sums_ns in lane.sums_ns])
    lengths = lane.ends[left_out] - lane.starts[left_out]
    np.subtract.at(sums, (np.searchsorted(kinds, lane.kinds[left_out]), bins), lengths)
    main: Array = kinds[sums.argmax(axis=0)]
    # Where no span has a length, none has most of the time.
    for number in np.flatnonzero((sums.max(axis=0) == 0) & (np.diff(bounds) > 0)):
        apart = left_out[bins == number]
        own = np.setdiff1d(np.arange(bounds[number], bounds[number + 1]), apart)
        main[number] = lane.kinds[own].min(initial=kinds[-1])
    return main


def _merged(starts: Array, ends: Array) -> Blocks:
    """The union of spans that are sorted by start."""
    reached = np.maximum.accumulate(ends)
    opens = np.flatnonzero(np.append(True, starts[1:] > reached[:-1])[: len(starts)])
    return blocks(starts[opens], reached[np.append(opens[1:], len(starts))[: len(opens)] - 1])


def _sums(numbers: Array) -> Array:
    """Sums of all numbers before each, and of all."""
    sums = np.zeros(len(numbers) + 1, np.int64)
    np.cumsum(numbers, out=sums[1:])
    return sums


def length_bins(lengths_ns: pl.Expr, per_decade: int = 5) -> pl.Expr:
    """Return the number of the logarithmic bin of each length: `bin_length` gives its bounds.

    Lengths of less than 1 ns do not occur.
    """
    # The logarithm of 1000 comes out as 2.9999999999999996: exact powers belong to the upper bin.
    return (lengths_ns.log10() * per_decade + 1e-9).floor().cast(pl.Int64)


def bin_length(number: int, per_decade: int = 5) -> float:
    """Return the lower bound in ns of a bin of `length_bins`."""
    return float(10 ** (number / per_decade))
