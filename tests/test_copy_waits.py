"""Tiny copies behind large ones."""

import polars as pl
import pytest
from rows import call, op, trace

from gaptrace.copy_waits import delayed_copies

WINDOW = pl.DataFrame({"device_id": [0], "start_ns": [0], "end_ns": [10**6]})


def copy(start, end, launch, size, name="copy DtoH", **own):
    return op(start, end, launch, kind="memcpy", name=name, bytes=size, **own)


def delayed(tiny_at, *others, called=100, window=WINDOW, **own):
    """A tiny copy that was submitted at `called` and began at `tiny_at`."""
    rows = [copy(tiny_at, tiny_at + 2, 1, 8, **own), *others]
    api = [call("cudaMemcpyAsync", called - 5, called, 1)]
    api += [call("cudaMemcpyAsync", 2, 3, row["correlation_id"]) for row in others]
    return delayed_copies(trace(rows, api), window).select("start_ns", "delayed_ns").rows()


def large(start, end, launch=2, **own):
    return copy(start, end, launch, 1 << 20, stream_id=9, **own)


def test_a_tiny_copy_waits_for_the_rest_of_a_large_one():
    assert delayed(500, large(50, 499)) == [(500, 399)]


def test_it_is_not_ready_before_its_stream_is():
    kernel = op(90, 300, 3)
    assert delayed(500, large(50, 499), kernel) == [(500, 199)]


def test_several_large_copies_add_up_and_overlaps_count_once():
    assert delayed(500, large(50, 200), large(150, 300, 3), large(400, 499, 4)) == [(500, 299)]


@pytest.mark.parametrize(
    "other",
    [
        large(50, 499, name="copy HtoD"),
        large(50, 499, device_id=1),
        copy(50, 499, 2, 64, stream_id=9),
        op(50, 499, 2, stream_id=9),
        large(50, 499, graph_exec_id=3),
        large(50, 99),
    ],
    ids=["other direction", "other device", "tiny", "kernel", "in a graph", "over before"],
)
def test_nothing_else_is_waited_for(other):
    assert delayed(500, other) == []


@pytest.mark.parametrize(("left", "found"), [(40_000, [(50_000, 39_900)]), (39_999, [])])
def test_a_copy_that_begins_long_after_the_large_one_waited_for_something_else(left, found):
    assert delayed(50_000, large(50, left)) == found


@pytest.mark.parametrize(("size", "found"), [(64, 1), (65, 0)])
def test_only_tiny_copies_are_looked_at(size, found):
    rows = [copy(500, 502, 1, size), large(50, 499)]
    api = [call("cudaMemcpyAsync", 90, 100, 1), call("cudaMemcpyAsync", 2, 3, 2)]

    assert delayed_copies(trace(rows, api), WINDOW).height == found


@pytest.mark.parametrize(("end", "found"), [(500, 0), (501, 1)])
def test_copies_that_start_outside_the_window_do_not_count(end, found):
    window = WINDOW.with_columns(end_ns=pl.lit(end, pl.Int64))
    assert len(delayed(500, large(50, 499), window=window)) == found


def test_a_tiny_copy_without_a_launch_row_is_left_out():
    rows = [copy(500, 502, None, 8), large(50, 499)]
    assert delayed_copies(trace(rows), WINDOW).is_empty()
