"""What a timeline shows of literal rows, and that no nanosecond is lost in real traces."""

from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real_traces import REAL
from rows import PROCESS, call, graph, node, nvtx, op, trace

from gaptrace.analysis import analyze
from gaptrace.errors import GaptraceError, WindowError
from gaptrace.export.tracks import _idle
from gaptrace.prepared import prepare
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


def test_streams_stand_in_the_order_of_their_numbers():
    ops = [op(10 * at, 10 * at + 5, stream_id=at) for at in (13, 7, 100, 29)]
    labels = view(analyze(trace(ops))).lanes["label"].to_list()
    assert labels == [f"stream {number}" for number in (7, 13, 29, 100)]


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


@st.composite
def analyses(draw):
    """Of some ops on a few devices and streams, launched by calls of two threads."""
    ops, calls = [], []
    for number in range(draw(st.integers(1, 12))):
        start, run = draw(st.integers(0, 80)), draw(st.integers(1, 20))
        ops.append(
            op(start, start + run, number, device_id=draw(st.integers(0, 1)), stream_id=number % 3)
        )
        called = draw(st.integers(-20, start))
        calls.append(
            call("cudaLaunchKernel", called, called + draw(st.integers(0, 9)), number)
            | {"thread_id": 1001 + number % 2}
        )
    return analyze(trace(ops, calls))


def in_each_bin(frame, edges, **own):
    """Nanoseconds of each bin that lie in any row of the frame."""
    spans = frame.filter(**own).select("start_ns", "end_ns").rows()
    return [
        sum(any(a <= t < b for a, b in spans) for t in range(*ends)) for ends in pairwise(edges)
    ]


@settings(max_examples=30)
@given(analyses(), st.integers(-10, 90), st.integers(13, 60), st.integers(1, 7))
def test_any_window_holds_what_a_walk_over_it_finds(found, start, length, bins):
    prepared, end = prepare(found), start + length
    seen = view(prepared, start, end, device_bins=bins, lane_bins=13)
    edges = [start + number * length // bins for number in range(bins + 1)]
    shown = {
        (row["device_id"], row["state"], row["bin"]): row["covered_ns"]
        for row in seen.bins.to_dicts()
    }
    for device_id in found.devices["device_id"]:
        idle = [0] * (len(edges) - 1)
        for cause in found.idle["cause"].cast(pl.String).unique():
            sums = in_each_bin(found.idle, edges, device_id=device_id, cause=cause)
            idle = [one + other for one, other in zip(idle, sums, strict=True)]
            assert sums == [shown.pop((device_id, cause, n), 0) for n in range(len(sums))]
        inside = in_each_bin(found.windows, edges, device_id=device_id)
        busy = [shown.pop((device_id, "busy", n), 0) for n in range(len(idle))]
        assert [one + other for one, other in zip(busy, idle, strict=True)] == inside
    assert not shown

    width = max(1, length // bins)
    long = (pl.col("end_ns") > start) & (pl.col("start_ns") < end)
    long &= pl.col("end_ns") - pl.col("start_ns") >= width
    key = ["device_id", "start_ns", "end_ns"]
    assert seen.pieces.select(key).rows() == found.idle.filter(long).select(key).sort(key).rows()

    reach = (pl.col("end_ns") >= start) & (pl.col("start_ns") < end)
    ops, calls = (frame.filter(reach) for frame in (found.trace.ops, found.trace.api))
    lanes = seen.spans.join(seen.lanes, on="lane")
    of_calls = pl.col("label").str.contains("CUDA calls")
    assert lanes.filter(~of_calls)["span_count"].sum() == ops.height
    assert lanes.filter(of_calls)["span_count"].sum() == calls.height
    one_by_one = lanes.filter(~of_calls & pl.col("covered_ns").is_null()).select(key[1:])
    is_long = pl.col("end_ns") - pl.col("start_ns") >= length // 13
    assert sorted(one_by_one.rows()) == sorted(ops.filter(is_long).select(key[1:]).rows())


def test_a_window_that_ends_before_it_begins_is_refused_and_one_of_a_single_time_is_not():
    with pytest.raises(WindowError, match="begins at 100 ns and ends at 99 ns; let it end after"):
        view(SMALL, 100, 99)
    assert (view(SMALL, 100, 100).start_ns, view(SMALL, 100, 100).end_ns) == (100, 101)


def test_work_of_a_stream_without_a_number_has_a_lane_of_its_own():
    made = trace([op(0, 10, stream_id=None), op(20, 30, stream_id=7)])
    labels = view(analyze(made)).lanes["label"].to_list()

    assert [each for each in labels if each.startswith("stream")] == ["stream 7", "stream unknown"]


def test_parts_of_a_gap_that_ranges_cut_are_gaps_of_their_own():
    """A gap of 80 us, of which two instances of a range hold 10 and 20 us; the host allocates."""
    one = trace(
        [op(0, 10_000, 1), op(90_000, 100_000, 2)],
        [
            call("cudaLaunchKernel", -5_000, -1_000, 1),
            call("cudaMalloc", 20_000, 30_000),
            call("cudaLaunchKernel", 80_000, 88_000, 2),
        ],
        nvtx=[nvtx("load", 20_000, 30_000), nvtx("load", 75_000, 95_000)],
    )
    found = analyze(one, range_name="load")
    pieces = view(prepare(found), device_bins=1_000).pieces

    lengths = {(20_000, 30_000): 10_000, (75_000, 80_000): 15_000, (80_000, 88_000): 15_000}
    spans = pieces.select("start_ns", "end_ns", "gap_ns").rows()
    assert {(start, end): gap for start, end, gap in spans} == lengths | {(88_000, 90_000): 15_000}
    assert found.largest_gaps.select("gap_ns", "cause", "cause_ns").rows() == [
        (15_000, "launch_call", 8_000),
        (10_000, "api_other", 10_000),
    ]
    # The op ended the second of them.
    (ended,) = view(prepare(found)).spans.filter(name="scale").to_dicts()
    assert (ended["gap_ns"], ended["cause"]) == (15_000, "launch_call")
    tracks = _idle(found)
    assert (tracks["end_ns"] - tracks["start_ns"]).sum() == 25_000


def by_threads(*counts):
    """Launches of threads 2001, 2002 ..., side by side, and the ops that they launch."""
    api, ops = [], []
    for thread, times in enumerate(counts, 2001):
        for at in times:
            api.append(call("cudaLaunchKernel", at, at + 500, len(api), thread_id=thread))
            ops.append(op(at + 600, at + 900, len(ops)))
    return ops, api


def calls_by_lane(seen):
    named = seen.spans.join(seen.lanes, on="lane").filter(pl.col("label").str.ends_with("calls"))
    return dict(named.group_by("label").agg(pl.col("span_count").sum()).rows())


def test_a_thread_has_the_same_number_in_every_window():
    ops, api = by_threads([*range(0, 50_000, 1_000), 61_000], range(60_000, 160_000, 10_000))
    prepared = prepare(analyze(trace(ops, api)))

    every = {"thread 1 CUDA calls": 51, "thread 2 CUDA calls": 10}
    assert calls_by_lane(view(prepared, 0, 200_000)) == every
    later = {"thread 1 CUDA calls": 1, "thread 2 CUDA calls": 9}
    assert calls_by_lane(view(prepared, 60_800, 160_000)) == later
    assert calls_by_lane(view(prepared, 70_000, 160_000)) == {"thread 2 CUDA calls": 9}


def test_threads_of_several_processes_say_of_which_by_the_numbers_of_their_streams():
    ops, api = by_threads(range(0, 50_000, 5_000), range(0, 60_000, 5_000), [31_000])
    owner = {2001: PROCESS + 1, 2002: PROCESS, 2003: PROCESS + 2}
    for row, did in zip(api, ops, strict=True):
        row["process_id"] = did["process_id"] = owner[row["thread_id"]]
    # The third launched, and no op of it was recorded; too little to be refused.
    labels = view(analyze(trace(ops[:-1], api))).lanes["label"].to_list()

    assert labels == [
        "process 1 stream 7",
        "process 2 stream 7",
        "process 1 thread 1 CUDA calls",
        "process 2 thread 2 CUDA calls",
        "thread 3 CUDA calls",
    ]


def test_ranges_that_cross_are_drawn_whoever_opened_them():
    ops, api = by_threads(*(range(1_000 * t, 90_000, 5_000 + 1_000 * t) for t in range(5)))
    epoch = nvtx("epoch", 0, 100_000, thread_id=2005, kind="start_end")

    assert "NVTX start/end" in view(analyze(trace(ops, api, [epoch]))).lanes["label"]


def test_a_graph_execution_is_not_said_to_end_a_gap_in_which_the_device_worked():
    ops = [
        *(node(at, at + 1_000, 1, number) for number, at in enumerate((1_000, 3_000))),
        op(4_000, 80_000, 2),
        *(node(at, at + 1_000, 3, number) for number, at in enumerate((81_000, 83_000))),
    ]
    api = [
        call("cudaGraphLaunch", 0, 100, 1),
        call("cudaLaunchKernel", 200, 300, 2),
        call("cudaGraphLaunch", 400, 500, 3),
    ]
    seen = view(analyze(trace(ops, api, granularity="node")))
    executions = seen.spans.filter(pl.col("name").str.starts_with("graph exec"))

    assert executions["gap_ns"].to_list() == [None, None]
    assert executions["lead_ns"].to_list() == [900, 80_500]
