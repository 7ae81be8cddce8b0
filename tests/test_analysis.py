"""A trace analysed whole and narrowed: figures always add up."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import THREAD, call, nvtx, op, trace
from test_gaps import calls_drawn, drawn_trace, launches_drawn, ops_drawn, overheads_drawn

from gaptrace import gaps
from gaptrace.analysis import analyze
from gaptrace.errors import WindowError

TWO_STEPS = trace(
    [op(0, 10, 1), op(30, 60, 2), op(0, 5, 3, device_id=1)],
    [
        call("cudaLaunchKernel", -8, -6, 3),
        call("cudaLaunchKernel", -5, -1, 1),
        call("cudaLaunchKernel", 22, 28, 2),
    ],
    nvtx=[nvtx("warm up", -8, 0), nvtx("step", 5, 40), nvtx("attn", 20, 30)],
)


def devices_of(analysis, *columns):
    return analysis.devices.select("device_id", *columns).rows()


def test_the_whole_trace_runs_from_each_devices_first_op_to_its_last():
    whole = analyze(TWO_STEPS)

    columns = ("first_ns", "last_ns", "busy_ns", "idle_ns", "gap_count", "op_count")
    assert devices_of(whole, *columns) == [(0, 0, 60, 40, 20, 1, 2), (1, 0, 5, 5, 0, 0, 1)]
    assert whole.devices["busy_fraction"].to_list() == [40 / 60, 1.0]


def test_a_range_that_several_windows_cut_counts_once():
    ops = [op(at, at + 10, at) for at in (10, 30, 50)]
    api = [call("cudaLaunchKernel", at - 5, at - 4, at) for at in (10, 30, 50)]
    steps = [nvtx("step", at - 6, at + 12) for at in (10, 30, 50)]
    found = analyze(trace(ops, api, nvtx=[nvtx("all", 0, 70), *steps]), range_name="step")

    columns = ("path", "count", "launches", "span_ns", "busy_ns")
    assert found.ranges.select(columns).rows() == [
        ("all", 1, 3, 54, 30),
        ("all/step", 3, 3, 54, 30),
    ]


def test_one_device():
    assert devices_of(analyze(TWO_STEPS, device_id=1), "busy_ns") == [(1, 5)]


def test_ranges_and_steps_of_another_device_are_not_about_the_one_asked_for():
    ops, api, ranges = [], [], []
    for step in range(6):
        for device, at in ((0, 1_000 * step), (1, 1_000 * step + 300)):
            thread, number = THREAD + device, 2 * step + device + 1
            api.append(call("cudaLaunchKernel", at + 10, at + 20, number, thread_id=thread))
            ops.append(op(at + 30, at + 430, number, device_id=device, context_id=device + 1))
            ranges.append(nvtx("step", at, at + 600, thread_id=thread))
            if device:
                ranges.append(nvtx("other", at, at + 600, thread_id=thread))
    both = trace(ops, api, nvtx=ranges)
    one, all_ = analyze(both, device_id=0), analyze(both)
    here = pl.col("device_id") == 0

    assert one.ranges.rows() == all_.ranges.filter(here).rows()
    assert one.ranges.select("count", "span_ns", "busy_ns", "idle_ns").rows() == [
        (6, 3600, 2400, 1200)
    ]
    assert one.step_summary.rows() == all_.step_summary.filter(here).rows()
    narrowed = analyze(both, device_id=0, range_name="step")
    assert devices_of(narrowed, "span_ns", "busy_ns") == [(0, 3600, 2400)]
    with pytest.raises(
        WindowError, match="nothing on the devices looked at belongs to NVTX range other; there"
    ):
        analyze(both, device_id=0, range_name="other")


def test_ops_of_no_length_at_the_end_are_counted():
    found = analyze(
        trace(
            [op(5, 10, 1), op(20, 20, 2)],
            [call("cudaLaunchKernel", 1, 2, 1), call("cudaLaunchKernel", 12, 13, 2)],
        )
    )

    assert devices_of(found, "op_count", "gap_count") == [(0, 2, 1)]
    assert found.launches.height == 2


def test_a_device_that_ran_nothing_is_an_error_that_lists_the_others():
    with pytest.raises(WindowError, match=r"device 7 ran nothing; devices with work: 0, 1"):
        analyze(TWO_STEPS, device_id=7)


@pytest.mark.parametrize("name", ["attn", "step/attn"])
def test_a_range_by_name_or_path(name):
    narrowed = analyze(TWO_STEPS, range_name=name)

    assert devices_of(narrowed, "span_ns", "busy_ns", "idle_ns") == [(0, 10, 0, 10)]
    assert narrowed.window_name == f"range {name}"


def test_an_unknown_range_is_an_error_that_lists_the_known_ones():
    with pytest.raises(
        WindowError, match="no NVTX range is named decode; there are: warm up, step"
    ):
        analyze(TWO_STEPS, range_name="decode")


def test_a_time_window_counts_idle_time_before_the_first_op():
    narrowed = analyze(TWO_STEPS, from_ns=-4, to_ns=35, device_id=0)

    assert devices_of(narrowed, "span_ns", "busy_ns", "idle_ns", "op_count") == [(0, 39, 15, 24, 2)]


def test_a_time_window_with_an_open_end_ends_with_the_last_op():
    assert devices_of(analyze(TWO_STEPS, from_ns=20), "first_ns", "last_ns") == [(0, 20, 60)]


def test_a_window_never_reaches_beyond_what_was_recorded():
    # After 60 ns there is no row: idle or busy, nobody knows.
    assert devices_of(analyze(TWO_STEPS, from_ns=50, to_ns=900), "span_ns") == [(0, 10), (1, 10)]
    # The first row, a call, begins 8 ns before the session.
    assert devices_of(analyze(TWO_STEPS, from_ns=-50, to_ns=2), "first_ns") == [(0, -8), (1, -8)]


def test_a_window_beside_all_device_work_is_an_error_not_an_idle_gpu():
    with pytest.raises(WindowError, match="device work runs from 0 ns to 60 ns"):
        analyze(TWO_STEPS, from_ns=70, to_ns=90)


def test_a_range_and_a_time_window_cut_each_other():
    narrowed = analyze(TWO_STEPS, range_name="step", from_ns=25, device_id=0)

    assert devices_of(narrowed, "first_ns", "last_ns", "busy_ns") == [(0, 25, 40, 10)]


def length(frame):
    return frame.select((pl.col("end_ns") - pl.col("start_ns")).sum()).item()


@settings(max_examples=60)
@given(
    ops_drawn,
    calls_drawn,
    launches_drawn,
    overheads_drawn,
    st.tuples(st.integers(-5, 70), st.integers(1, 60)),
)
def test_causes_sum_to_idle_and_idle_and_busy_to_the_span_in_any_window(
    ops, calls, launches, overheads, window
):
    drawn = drawn_trace(ops, calls, launches, overheads)
    pieces = pl.concat(
        gaps.idle_pieces(drawn, rows) for rows in (gaps.device_gaps(drawn), gaps.edge_gaps(drawn))
    )
    start, end = window[0], window[0] + window[1]
    begin, finish = gaps.recorded_extent(drawn)
    for device in drawn.ops["device_id"].unique():
        busy = {
            at
            for row in drawn.ops.filter(pl.col("device_id") == device).to_dicts()
            for at in range(row["start_ns"], row["end_ns"])
        }
        inside = range(max(start, begin), min(end, finish))
        idle = sum(at not in busy for at in inside)
        found = pieces.filter(pl.col("device_id") == device).with_columns(
            start_ns=pl.col("start_ns").clip(start, end), end_ns=pl.col("end_ns").clip(start, end)
        )
        assert length(found) == idle


def test_on_every_device_the_causes_sum_to_idle():
    whole = analyze(TWO_STEPS)

    sums = whole.causes.group_by("device_id").agg(pl.col("idle_ns").sum()).rows()
    assert sums == [(0, 20)]


def test_what_is_no_trace_is_refused_with_what_makes_one(tmp_path):
    with pytest.raises(TypeError, match=r"analyze takes a Trace, as gaptrace.read.read\(path\)"):
        analyze(str(tmp_path / "trace.sqlite"))
