"""Level of detail: exact sums in every bin, against a walk over every nanosecond."""

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaptrace import detail


def lane(rows, numbers=None):
    """Spans of rows of start, end, kind, which are sorted by start."""
    starts, ends, kinds = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    numbers = np.arange(len(rows)) if numbers is None else np.array(numbers, np.int64)
    return detail.spans(starts, ends, numbers, kinds.astype(np.uint8))


some_rows = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 15), st.sampled_from([1, 4, 6])), max_size=14
).map(lambda rows: sorted((start, start + run, kind) for start, run, kind in rows))
windows = st.tuples(st.integers(0, 40), st.integers(1, 50)).map(lambda w: (w[0], w[0] + w[1]))


def apart(rows):
    """Those rows that begin when all before them have ended."""
    kept, reached = [], 0
    for row in rows:
        if row[0] >= reached:
            kept.append(row)
            reached = row[1]
    return kept


def walked(rows, begin, end):
    """Nanoseconds of [begin, end) that lie in any row."""
    return sum(any(a <= t < b for a, b, _ in rows) for t in range(begin, end))


@given(some_rows, windows, st.integers(1, 9))
def test_bins_hold_exactly_what_spans_cover(rows, window, bins):
    edges = detail.bin_edges(*window, bins)

    assert detail.covered(lane(rows).union, edges).tolist() == [
        walked(rows, *ends) for ends in pairwise(edges.tolist())
    ]


@given(windows, st.integers(1, 60))
def test_bins_tile_the_window_and_differ_by_a_nanosecond_at_most(window, bins):
    edges = detail.bin_edges(*window, bins)
    widths = np.diff(edges)

    assert (edges[0], edges[-1]) == window
    assert len(widths) == min(bins, window[1] - window[0])
    assert widths.max() - widths.min() <= 1


def test_bins_of_centuries_are_bins():
    edges = detail.bin_edges(-(2**61), 2**61, 1_000)
    assert (edges[0], edges[500], edges[-1]) == (-(2**61), 0, 2**61)


def expected(rows, window, bins):
    """What is visible, row by row and bin by bin."""
    (start, end), edges = window, detail.bin_edges(*window, bins).tolist()
    width = max(1, (end - start) // (len(edges) - 1))
    reach = [(*row, number) for number, row in enumerate(rows) if row[1] >= start and row[0] < end]
    long = [row for row in reach if row[1] - row[0] >= width]
    short = [row[:3] for row in reach if row[1] - row[0] < width]
    found = [
        (a, b, number, kind, 1, None)
        for a, b, kind, number in sorted(long, key=lambda row: row[0] - row[1])[: len(edges)]
    ]
    for begin, until in pairwise(edges):
        own = [row for row in short if begin <= max(row[0], start) < until]
        ns = {kind: sum(b - a for a, b, k in own if k == kind) for *_, kind in sorted(own)}
        main = min(ns, key=lambda kind: (-ns[kind], kind), default=None)
        if own or walked(short, begin, until):
            found.append((begin, until, None, main, len(own), walked(short, begin, until)))
    return found


COLUMNS = ["start_ns", "end_ns", "row", "kind", "span_count", "covered_ns"]


def seen(spans, window, bins):
    return detail.visible(spans, detail.bin_edges(*window, bins)).select(COLUMNS).rows()


def in_order(rows):
    return sorted(rows, key=lambda row: [(value is not None, value) for value in row])


@given(some_rows, windows, st.integers(1, 9))
def test_what_is_visible_is_bounded_and_loses_nothing(rows, window, bins):
    found = seen(lane(rows), window, bins)

    assert [row[:2] for row in found] == sorted(row[:2] for row in found)
    assert in_order(found) == in_order(expected(rows, window, bins))


@given(some_rows.map(apart), windows, st.integers(1, 9))
def test_disjoint_spans_are_no_exception(rows, window, bins):
    assert lane(rows).is_disjoint
    assert in_order(seen(lane(rows), window, bins)) == in_order(expected(rows, window, bins))


@given(some_rows, windows, st.integers(1, 9))
def test_lanes_join_to_the_lane_that_they_were(rows, window, bins):
    numbered = list(enumerate(rows))
    parts = [[each for each in numbered if each[1][2] == kind] for kind in (1, 4, 6)]
    lanes = [lane([row for _, row in part], [number for number, _ in part]) for part in parts]

    assert seen(detail.joined(lanes, *window), window, bins) == seen(lane(rows), window, bins)


@given(some_rows, windows, st.integers(0, 16))
def test_spans_of_a_window_are_counted_and_found_by_length(rows, window, least):
    start, end = window
    reach = [n for n, (a, b, _) in enumerate(rows) if b >= start and a < end]

    assert detail.count_inside(lane(rows), *window) == len(reach)
    assert detail.long_inside(lane(rows), *window, least).tolist() == [
        n for n in reach if rows[n][1] - rows[n][0] >= least
    ]


def test_a_bin_of_short_spans_says_what_most_of_its_time_is():
    spans = lane([(0, 3, 1), (4, 6, 2), (6, 8, 2), (100, 300, 1)])

    assert seen(spans, (0, 400), 4) == [(0, 100, None, 2, 3, 7), (100, 300, 3, 1, 1, None)]


@pytest.mark.parametrize(
    ("length", "number"), [(1, 0), (9, 4), (10, 5), (999, 14), (1_000, 15), (10**9, 45)]
)
def test_lengths_lie_in_their_logarithmic_bin(length, number):
    frame = pl.DataFrame({"ns": [length]})

    assert frame.select(detail.length_bins(pl.col("ns"))).item() == number
    assert detail.bin_length(number) <= length * (1 + 1e-9) < detail.bin_length(number + 1)
