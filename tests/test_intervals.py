"""Rows in, rows out; and every function against a brute-force count of covered nanoseconds."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from gaptrace import intervals


def frame(*rows, columns=("start_ns", "end_ns")):
    return pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.Int64), orient="row")


def keyed(*rows):
    return frame(*rows, columns=("key", "start_ns", "end_ns"))


def test_merge_joins_overlapping_nested_and_touching_spans():
    spans = keyed((0, 10, 20), (0, 0, 12), (0, 11, 13), (0, 20, 25), (0, 30, 31), (1, 0, 5))

    assert_frame_equal(keyed((0, 0, 25), (0, 30, 31), (1, 0, 5)), intervals.merge(spans, ["key"]))


def test_merge_drops_empty_spans():
    assert_frame_equal(frame((5, 6)), intervals.merge(frame((1, 1), (5, 6), (9, 9)), []))


def test_gaps_use_the_running_end_not_the_previous_end():
    # (8, 15) nests in (0, 20): "next start minus previous end" would report 15..22.
    assert_frame_equal(frame((20, 22)), intervals.gaps(frame((0, 20), (8, 15), (22, 30)), []))


def test_gaps_of_one_stream_filled_by_another_are_none():
    assert intervals.gaps(frame((0, 10), (20, 30), (10, 20)), []).is_empty()


def test_disjoint_keeps_the_outermost_and_cuts_a_crossing():
    spans = pl.DataFrame(
        {"start_ns": [0, 2, 8, 0], "end_ns": [10, 5, 14, 3], "name": ["a", "in", "cross", "in0"]}
    )

    expected = pl.DataFrame({"start_ns": [0, 10], "end_ns": [10, 14], "name": ["a", "cross"]})
    assert_frame_equal(expected, intervals.disjoint(spans, []))


def test_subtract_splits_a_span_around_a_hole():
    left = keyed((0, 0, 10), (1, 0, 10))
    holes = keyed((0, 3, 4), (0, 9, 12))

    assert_frame_equal(
        keyed((0, 0, 3), (0, 4, 9), (1, 0, 10)), intervals.subtract(left, holes, ["key"])
    )


def test_intersect_carries_columns_of_both_sides():
    spans = pl.DataFrame({"start_ns": [0, 5], "end_ns": [10, 30], "gap": ["g1", "g2"]})
    others = pl.DataFrame({"start_ns": [8, 20], "end_ns": [12, 21], "cause": ["x", "y"]})

    expected = pl.DataFrame(
        {
            "start_ns": [8, 8, 20],
            "end_ns": [10, 12, 21],
            "gap": ["g1", "g2", "g2"],
            "cause": ["x", "x", "y"],
        }
    )
    assert_frame_equal(expected, intervals.intersect(spans, others, []))


spans_of = st.lists(
    st.tuples(st.integers(0, 2), st.integers(-30, 60), st.integers(0, 25)).map(
        lambda row: (row[0], row[1], row[1] + row[2])
    ),
    max_size=25,
)


def covered(rows):
    """Every nanosecond that some span covers, per key: the slow truth."""
    return {(key, at) for key, start, end in rows for at in range(start, end)}


@given(spans_of)
def test_merge_covers_the_same_nanoseconds_in_disjoint_blocks(rows):
    blocks = intervals.merge(keyed(*rows), ["key"]).rows()

    assert covered(blocks) == covered(rows)
    assert sum(end - start for _, start, end in blocks) == len(covered(rows))


@given(spans_of)
def test_gaps_are_what_is_not_covered_between_first_and_last(rows):
    truth = covered(rows)
    extent = {key: [at for k, at in truth if k == key] for key, _ in truth}
    holes = {
        (key, at)
        for key, ats in extent.items()
        for at in range(min(ats), max(ats))
        if (key, at) not in truth
    }

    gaps = intervals.gaps(keyed(*rows), ["key"]).rows()

    assert covered(gaps) == holes
    assert all(end > start for _, start, end in gaps)


@given(spans_of)
def test_disjoint_covers_the_same_and_never_twice(rows):
    cut = intervals.disjoint(keyed(*rows), ["key"]).rows()

    assert covered(cut) == covered(rows)
    assert sum(end - start for _, start, end in cut) == len(covered(rows))


@given(spans_of, spans_of)
def test_subtract_leaves_each_span_without_the_holes(rows, holes):
    numbered = keyed(*rows).with_row_index("row")
    left = intervals.subtract(numbered, keyed(*holes), ["key"])

    for row, (key, start, end) in enumerate(rows):
        mine = left.filter(pl.col("row") == row).select("key", "start_ns", "end_ns").rows()
        assert covered(mine) == covered([(key, start, end)]) - covered(holes)


@given(spans_of, spans_of)
def test_intersect_of_each_span_is_what_both_cover(rows, others):
    numbered = keyed(*rows).with_row_index("row")
    overlaps = intervals.intersect(numbered, intervals.merge(keyed(*others), ["key"]), ["key"])

    for row, (key, start, end) in enumerate(rows):
        mine = overlaps.filter(pl.col("row") == row).select("key", "start_ns", "end_ns").rows()
        assert covered(mine) == covered([(key, start, end)]) & covered(others)
        assert sum(end - start for _, start, end in mine) == len(covered(mine))
