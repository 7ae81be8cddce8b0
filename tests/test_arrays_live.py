"""Comparing results on the host."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaptrace.live.arrays import arrays_in, largest_difference, magnitude
from gaptrace.live.streams import current_stream

NAN, INF = float("nan"), float("inf")


def f32(*values):
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("one", "other", "difference"),
    [
        (f32(1, 2), f32(1, 2), 0.0),
        (f32(1, 2), f32(1, 4), 2.0),
        (f32(0.0), f32(-0.0), 0.0),
        (f32(1, NAN), f32(1, NAN), 0.0),
        (f32(NAN, 1), f32(NAN, 3), 2.0),
        (f32(1, NAN), f32(1, 2), INF),
        (f32(1, INF), f32(3, INF), 2.0),
        (f32(1, INF), f32(1, -INF), INF),
        (f32(1, 2), f32(1), INF),
        (f32(1), np.array([1.0]), INF),
        (f32(), f32(), 0.0),
        (np.array([1, 2]), np.array([1, 5]), 3.0),
        (np.array([2**63 - 1]), np.array([-(2**63)]), 2.0**64),
        (np.array([0, 255], np.uint8), np.array([255, 255], np.uint8), 255.0),
        (np.array([True, False]), np.array([True, True]), 1.0),
        (np.array([1 + 1j]), np.array([1 + 3j]), 2.0),
    ],
)
def test_the_largest_difference(one, other, difference):
    assert largest_difference(one, other) == difference
    assert largest_difference(other, one) == difference


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1), st.integers(0, 2**31))
def test_one_changed_value_is_the_difference(values, seed):
    one = f32(*values)
    other = one.copy()
    at = seed % len(values)
    other[at] += 1
    assert largest_difference(one, other) == abs(float(other[at]) - float(one[at]))


def test_magnitude_leaves_out_what_is_not_finite():
    assert magnitude(f32(-3, 2, INF, NAN)) == 3.0
    assert magnitude(f32(NAN)) == 0.0
    assert magnitude(np.array([3 + 4j])) == 5.0


def test_host_arrays_and_other_things_are_left_alone():
    assert arrays_in({"a": [f32(1), 3, None], "b": "x"}) == []


def test_without_a_library_no_stream_is_made_current():
    with current_stream(7):
        pass
