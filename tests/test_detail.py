"""Level of detail: exact sums in every bin, against a walk over every nanosecond."""

from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaptrace import detail

SPANS = pl.Schema({"lane": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64, "kind": pl.String})


def spans(*rows):
    return pl.DataFrame(rows, schema=SPANS, orient="row")


some_spans = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 60), st.integers(0, 15), st.sampled_from("xy")),
    max_size=12,
).map(lambda rows: spans(*((lane, start, start + run, k) for lane, start, run, k in rows)))
windows = st.tuples(st.integers(0, 30), st.integers(1, 50)).map(lambda w: (w[0], w[0] + w[1]))


def walked(frame, lane, begin, end):
    """Nanoseconds of [begin, end) that lie in any span."""
    mine = frame.filter(lane=lane).select("start_ns", "end_ns").rows()
    return sum(any(a <= t < b for a, b in mine) for t in range(begin, end))


@given(some_spans, windows, st.integers(1, 9))
def test_bins_hold_exactly_what_spans_cover(frame, window, bins):
    edges = detail.bin_edges(*window, bins).to_list()
    found = {
        (row["lane"], row["bin"]): (row["start_ns"], row["end_ns"], row["covered_ns"])
        for row in detail.by_bin(frame, *window, bins, ["lane"]).to_dicts()
    }
    expected = {
        (lane, number): (*ends, covered)
        for lane in "ab"
        for number, ends in enumerate(pairwise(edges))
        if (covered := walked(frame, lane, *ends))
    }

    assert found == expected


@given(windows, st.integers(1, 60))
def test_bins_tile_the_window_and_differ_by_a_nanosecond_at_most(window, bins):
    edges = detail.bin_edges(*window, bins)
    widths = edges.diff().drop_nulls()

    assert (edges[0], edges[-1]) == window
    assert len(widths) == min(bins, window[1] - window[0])
    assert widths.max() - widths.min() <= 1


@given(some_spans, windows, st.integers(1, 9))
def test_what_is_visible_is_bounded_and_loses_nothing(frame, window, bins):
    start, end = window
    seen = detail.visible(frame, start, end, bins, ["lane"], main="kind")
    width = max(1, (end - start) // min(bins, end - start))
    reached = frame.filter((pl.col("end_ns") >= start) & (pl.col("start_ns") < end))
    is_long = pl.col("end_ns") - pl.col("start_ns") >= width
    whole = seen.filter(pl.col("covered_ns").is_null())

    for lane in "ab":
        assert seen.filter(pl.col("covered_ns").is_not_null(), lane=lane).height <= bins
        assert whole.filter(lane=lane).height <= bins + 1
        long, short = reached.filter(is_long, lane=lane), reached.filter(~is_long, lane=lane)
        if long.height <= bins:
            columns = ["start_ns", "end_ns", "kind"]
            assert sorted(whole.filter(lane=lane).select(columns).rows()) == sorted(
                long.select(columns).rows()
            )
        binned = seen.filter(pl.col("covered_ns").is_not_null(), lane=lane)
        assert binned["span_count"].sum() == short.height
        assert binned["covered_ns"].sum() == walked(short, lane, start, end)


def test_a_bin_of_short_spans_says_what_most_of_its_time_is():
    frame = spans(("a", 0, 3, "x"), ("a", 4, 6, "y"), ("a", 6, 8, "y"), ("a", 100, 300, "x"))

    assert detail.visible(frame, 0, 400, 4, ["lane"], main="kind").to_dicts() == [
        {
            "lane": "a",
            "start_ns": 0,
            "end_ns": 100,
            "kind": "y",
            "span_count": 3,
            "covered_ns": 7,
        },
        {
            "lane": "a",
            "start_ns": 100,
            "end_ns": 300,
            "kind": "x",
            "span_count": 1,
            "covered_ns": None,
        },
    ]


@pytest.mark.parametrize(
    ("length", "number"), [(1, 0), (9, 4), (10, 5), (999, 14), (1_000, 15), (10**9, 45)]
)
def test_lengths_lie_in_their_logarithmic_bin(length, number):
    frame = pl.DataFrame({"ns": [length]})

    assert frame.select(detail.length_bins(pl.col("ns"))).item() == number
    assert detail.bin_length(number) <= length * (1 + 1e-9) < detail.bin_length(number + 1)
