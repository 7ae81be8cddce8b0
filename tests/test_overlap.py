"""What a cut takes from branches that run at once, by hand and against every pair of parts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaptrace.overlap import overlap_across, overlap_of_ways


def covered(spans):
    """How many whole ns at least one span holds."""
    return len({ns for begin, end in spans for ns in range(begin, end)})


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), min_size=1, max_size=9))
def test_overlap_is_what_both_parts_take_beyond_the_whole(nodes):
    spans = [(begin, begin + length) for begin, length in nodes]
    found = overlap_across(*zip(*spans, strict=True))

    assert found.tolist() == [
        covered(spans[:cut]) + covered(spans[cut:]) - covered(spans)
        for cut in range(len(spans) + 1)
    ]


@pytest.mark.parametrize(
    ("spans", "overlap"),
    [
        # In a line, with a gap.
        ([(0, 10), (10, 20), (25, 30)], [0, 0, 0, 0]),
        # The second branch, of two nodes, beside the first, of one.
        ([(0, 30), (5, 10), (12, 20)], [0, 13, 8, 0]),
        # Numbered the other way round.
        ([(5, 10), (12, 20), (0, 30)], [0, 5, 13, 0]),
    ],
)
def test_overlap_by_hand(spans, overlap):
    assert overlap_across(*zip(*spans, strict=True)).tolist() == overlap


def test_what_pieces_took_longer_is_shared_out_among_their_cuts():
    # One graph takes 1,000. Cut in the middle it takes as long, so that this cut is free; the
    # three cuts of the other way take 60, that is 30 for each of the two others. Cuts that no way
    # has cost the mean of 0, 30 and 30.
    found = overlap_of_ways(1_000, {(4, 4): 1_010, (2, 2, 2, 2): 1_060})
    assert found.tolist() == [0, 20, 30, 20, 0, 20, 30, 20, 0]


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_ways_that_have_a_cut_the_cheaper_tells(order):
    ways = [((1, 1, 2), 1_200), ((2, 2), 1_050)][::order]
    assert overlap_of_ways(1_000, dict(ways)).tolist() == [0, 100, 50, 75, 0]


@pytest.mark.parametrize(("taken_ns", "lost_ns"), [(1_019, 0), (1_021, 21)])
def test_less_than_two_percent_is_nothing(taken_ns, lost_ns):
    assert overlap_of_ways(1_000, {(2, 2): taken_ns})[2] == lost_ns


@pytest.mark.parametrize(
    "ways",
    [
        {(2, 2): 900},
        {(2, 2): 1_000, (3, 1): 1_000, (1, 1, 1, 1): 1_015},
        # All cuts of a dear way are free in others: then it was not they that took so long.
        {(2, 2): 1_000, (1, 3): 1_000, (1, 1, 2): 1_500},
    ],
)
def test_nothing_is_lost_where_pieces_take_no_longer(ways):
    assert not overlap_of_ways(1_000, ways).any()


def test_without_another_way_nothing_is_known_to_be_lost():
    assert overlap_of_ways(1_000, {(4,): 1_000}).tolist() == [0, 0, 0, 0, 0]
    assert np.shape(overlap_of_ways(1_000, {(1,): 1_000})) == (2,)
