"""The largest gaps, each with its surroundings."""

from dataclasses import replace

import polars as pl
from rows import THREAD, call, nvtx, op, trace

from gaptrace import gaps, ranges
from gaptrace.analysis import analyze
from gaptrace.largest_gaps import largest_gaps

SMALL = trace(
    [
        op(0, 10, 1, name="embed"),
        op(100, 110, 2, name="attn"),
        op(130, 140, 3, name="mlp"),
        op(500, 510, name="lost"),
    ],
    [
        call("cudaLaunchKernel", -9, -8, 1),
        call("cudaMalloc", 12, 72),
        call("cudaLaunchKernel", 90, 98, 2),
        call("cudaLaunchKernel", 100, 105, 3),
    ],
    nvtx=[
        nvtx("step", 50, 300),
        nvtx("layer", 80, 120),
        nvtx("other thread", 80, 120, thread_id=THREAD + 1),
    ],
)


def found(count=10):
    between = gaps.device_gaps(SMALL)
    pieces = gaps.idle_pieces(SMALL, between)
    return largest_gaps(SMALL, between, pieces, ranges.range_tree(SMALL.nvtx), count=count)


def test_gaps_come_longest_first():
    assert found()["gap_ns"].to_list() == [360, 90, 20]
    assert found(count=2)["gap_ns"].to_list() == [360, 90]


def test_a_gap_names_ops_call_thread_range_and_its_main_cause():
    assert found().rows(named=True)[1] == {
        "device_id": 0,
        "start_ns": 10,
        "end_ns": 100,
        "gap_ns": 90,
        "cause": "api_other",
        "detail": "cudaMalloc",
        "cause_ns": 60,
        "previous_op": "embed",
        "next_op": "attn",
        "call_name": "cudaLaunchKernel",
        "thread_id": THREAD,
        "range": "step/layer",
    }


def test_in_a_window_the_time_before_the_first_op_and_after_the_last_counts():
    late = replace(SMALL, nvtx=pl.concat([SMALL.nvtx, trace(nvtx=[nvtx("all", 0, 1_000)]).nvtx]))
    cut = analyze(late, from_ns=-9, to_ns=2_000).largest_gaps

    assert cut["gap_ns"].to_list() == [490, 360, 90, 20, 9]
    assert cut.select("start_ns", "cause", "cause_ns", "previous_op", "next_op").rows()[::4] == [
        (510, "unrecorded", 490, "lost", None),
        (-9, "device_queued", 8, None, "embed"),
    ]


def test_a_gap_whose_launch_is_not_recorded_says_so():
    unrecorded = found().rows(named=True)[0]

    assert (unrecorded["cause"], unrecorded["next_op"]) == ("unrecorded", "lost")
    assert (unrecorded["call_name"], unrecorded["thread_id"], unrecorded["range"]) == (None,) * 3
