"""The windows of an analysis, and what they are asked by: literal rows."""

import polars as pl
import pytest
from rows import call, nvtx, op, trace

from gaptrace.errors import WindowError
from gaptrace.ranges import range_tree
from gaptrace.windows import find_windows, named_ranges, no_device_work, starting_inside

NESTED = trace(
    [op(0, 10, 1), op(30, 60, 2), op(5, 8, 3, device_id=1)],
    [call("cudaLaunchKernel", -5, -1, 1)],
    nvtx=[nvtx("step", 0, 20), nvtx("attn", 5, 10), nvtx("reattn", 12, 14), nvtx("attn", 25, 40)],
)


def span(*rows):
    return pl.DataFrame(rows, ["device_id", "start_ns", "end_ns"], orient="row")


@pytest.mark.parametrize(
    ("name", "starts"),
    [("attn", [5, 25]), ("step/attn", [5]), ("step", [0]), ("reattn", [12])],
)
def test_a_range_is_named_by_its_path_or_by_the_end_of_it(name, starts):
    tree = range_tree(NESTED.nvtx)

    assert named_ranges(NESTED, tree, name)["start_ns"].to_list() == starts


def test_a_name_is_never_a_part_of_a_name_nor_a_pattern():
    for name in ("tn", "st.p", "attn/", ""):
        with pytest.raises(WindowError, match=r"there are: step, step/attn, step/reattn, attn$"):
            named_ranges(NESTED, range_tree(NESTED.nvtx), name)


def test_a_name_that_is_like_one_of_many_is_told():
    names = [f"range {number}" for number in range(9)] + ["aten::linear"]
    many = trace([op(0, 10, 1)], nvtx=[nvtx(each, i, i + 1) for i, each in enumerate(names)])

    with pytest.raises(
        WindowError, match=r"named aten::linearr; there is aten::linear, and range 0"
    ):
        named_ranges(many, range_tree(many.nvtx), "aten::linearr")


def test_a_trace_without_ranges_says_so():
    bare = trace([op(0, 10, 1)])
    with pytest.raises(WindowError, match=r"is named step; it holds no NVTX ranges$"):
        named_ranges(bare, range_tree(bare.nvtx), "step")


def test_nothing_asked_for_is_each_device_from_its_first_op_to_its_last():
    windows, name = find_windows(NESTED, NESTED.nvtx, None, None, None)

    assert (windows.rows(), name) == ([(0, 0, 60), (1, 5, 8)], None)


def test_what_was_asked_for_is_named_in_one_sentence():
    of_device = range_tree(NESTED.nvtx).with_columns(device_id=pl.lit(0, pl.Int64))
    windows, name = find_windows(NESTED, of_device, "attn", 7, None)

    assert windows.select("device_id", "start_ns", "end_ns").rows() == [(0, 7, 10), (0, 25, 40)]
    assert name == "range attn and from 7 ns to the end"
    with pytest.raises(
        WindowError, match=r"nothing lies in range reattn and from 0 ns to 10 ns; take more$"
    ):
        find_windows(NESTED, of_device, "reattn", None, 10)


@pytest.mark.parametrize("to_ns", [7, 8])
def test_a_window_that_ends_before_it_begins_is_none(to_ns):
    of_device = range_tree(NESTED.nvtx).with_columns(device_id=pl.lit(0, pl.Int64))
    said = f": the window asked for begins at 8 ns and ends at {to_ns} ns; let it end after"
    with pytest.raises(WindowError, match=said):
        find_windows(NESTED, of_device, None, 8, to_ns)


def test_the_error_says_when_there_is_device_work():
    assert str(no_device_work(NESTED, "at night")).endswith(
        ": no device work at night; device work runs from 0 ns to 60 ns"
    )


def test_rows_that_start_in_a_window_of_their_device_are_kept():
    rows = span((0, 9, 15), (0, 10, 90), (1, 12, 13), (0, 19, 30), (0, 20, 21))

    assert starting_inside(rows, span((0, 10, 20))).rows() == [(0, 10, 90), (0, 19, 30)]
