"""What a timeline shows of literal rows, and that no nanosecond is lost in real traces."""

import polars as pl
import pytest
from real_traces import REAL
from rows import call, graph, nvtx, op, trace

from gaptrace.analysis import analyze
from gaptrace.errors import GaptraceError
from gaptrace.read import read
from gaptrace.view import view

SMALL = analyze(
    trace(
        [op(0, 10_000, 1), graph(60_000, 100_000, 2), op(100_000, 100_005, 3, stream_id=8)],
        [
            call("cudaLaunchKernel", -5_000, -1_000, 1),
            call("cudaMalloc", 10_000, 30_000),
            call("cudaGraphLaunch", 50_000, 58_000, 2),
            call("cudaLaunchKernel", 58_100, 58_200, 3),
        ],
        nvtx=[nvtx("step", 20_000, 110_000), nvtx("inner", 30_000, 40_000)],
    )
)


def test_bands_hold_busy_time_and_each_cause_bin_by_bin():
    seen = view(SMALL, 0, 100_000, device_bins=2)

    assert seen.bins.select("bin", "state", "covered_ns").sort("bin", "state").rows() == [
        (0, "api_other", 20_000),
        (0, "busy", 10_000),
        (0, "host_code", 20_000),
        (1, "busy", 40_000),
        (1, "device_queued", 2_000),
        (1, "launch_call", 8_000),
    ]


def test_pieces_say_which_op_waited_for_which_launch():
    seen = view(SMALL, 0, 100_000, device_bins=20)

    first = seen.pieces.row(0, named=True)
    assert first == {
        "device_id": 0,
        "start_ns": 10_000,
        "end_ns": 30_000,
        "cause": "api_other",
        "detail": "cudaMalloc",
        "gap_ns": 50_000,
        "previous_op": "scale",
        "next_op": "graph",
        "call_name": "cudaGraphLaunch",
        "lead_ns": 2_000,
    }
    # That of 2,000 ns is shorter than a bin: it is in the bins alone.
    assert seen.pieces["cause"].to_list() == ["api_other", "host_code", "launch_call"]


def test_every_stream_thread_and_depth_has_its_lane():
    seen = view(SMALL)
    named = seen.spans.join(seen.lanes, on="lane")

    assert seen.lanes["label"].to_list() == [
        "stream 7",
        "stream 8",
        "CUDA calls",
        "NVTX",
        "NVTX, depth 2",
    ]
    assert named.filter(label="NVTX, depth 2").select("start_ns", "end_ns", "name").rows() == [
        (30_000, 40_000, "step/inner")
    ]
    assert named.filter(label="CUDA calls").select("kind", "name").rows()[:2] == [
        ("api_other", "cudaMalloc"),
        ("launch_call", "cudaGraphLaunch"),
    ]


def test_an_op_says_its_launch_lead_and_the_gap_before_it():
    seen = view(SMALL)

    assert seen.spans.filter(kind="graph").row(0, named=True) == {
        "lane": 0,
        "start_ns": 60_000,
        "end_ns": 100_000,
        "kind": "graph",
        "name": "graph",
        "span_count": 1,
        "covered_ns": None,
        "call_name": "cudaGraphLaunch",
        "api_ns": 8_000,
        "lead_ns": 2_000,
        "gap_ns": 50_000,
        "cause": "api_other",
    }


def test_short_ops_become_a_bin_that_counts_them():
    seen = view(SMALL, lane_bins=10)

    (row,) = seen.spans.filter(lane=1).to_dicts()
    assert (row["span_count"], row["covered_ns"], row["kind"]) == (1, 5, "kernel")


def test_many_streams_share_a_lane():
    ops = [op(100 * i, 100 * i + 90, stream_id=i) for i in range(12)]
    seen = view(analyze(trace(ops)))

    assert seen.lanes.height == 9
    assert "other streams" in seen.lanes["label"]
    assert seen.spans["span_count"].sum() == 12


def test_unified_memory_belongs_to_no_stream():
    ops = [op(0, 50), op(60, 90, kind="memcpy", is_unified_memory=True)]

    assert view(analyze(trace(ops))).lanes["label"].to_list() == ["stream 7", "unified memory"]


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_the_bins_of_a_real_trace_sum_to_its_busy_and_idle_time(path):
    try:
        found = analyze(read(path))
    except GaptraceError as error:
        pytest.skip(f"no idle figure can be had: {error}")
    seen = view(found, device_bins=333, lane_bins=50)
    sums = seen.bins.group_by("device_id").agg(
        busy_ns=pl.col("covered_ns").filter(pl.col("state") == "busy").sum(),
        idle_ns=pl.col("covered_ns").filter(pl.col("state") != "busy").sum(),
    )

    assert (
        sums.sort("device_id").rows()
        == found.devices.select("device_id", "busy_ns", "idle_ns").rows()
    )
    assert seen.spans.height <= 2 * 51 * seen.lanes.height
    ops = seen.spans.filter(pl.col("kind").is_in(["kernel", "memcpy", "memset", "graph"]))
    assert ops.height > 0


def test_a_view_is_of_the_windows_of_its_analysis():
    inside = analyze(SMALL.trace, range_name="inner")
    seen = view(inside)

    assert (seen.start_ns, seen.end_ns) == (30_000, 40_000)
    assert seen.bins["state"].unique().to_list() == ["host_code"]
    assert seen.bins["covered_ns"].sum() == 10_000
