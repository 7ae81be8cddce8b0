"""Gaps by length, kind and cause: sums are the gaps and the idle time of the analysis."""

import polars as pl
import pytest
from real_traces import SAMPLES
from rows import call, op, trace

from gaptrace.analysis import analyze
from gaptrace.gap_lengths import gap_length_causes, gap_lengths, of_all_devices
from gaptrace.read import read


def test_gaps_are_counted_by_length_and_by_who_made_them():
    found = analyze(
        trace(
            [op(0, 100, 1), op(150, 300, 2), op(2_300, 2_400, 3), op(2_500, 2_600)],
            [
                call("cudaLaunchKernel", 0, 10, 1),
                call("cudaLaunchKernel", 20, 30, 2),  # in time: the gap of 50 ns is the device's
                call("cudaLaunchKernel", 2_000, 2_200, 3),  # late: the gap of 2,000 ns
            ],
        )
    )

    assert gap_lengths(found.gaps, found.idle).rows() == [
        (0, 8, "queued", 1, 50),
        (0, 10, "unknown", 1, 100),
        (0, 16, "starved", 1, 2_000),
    ]
    assert [
        (number, str(cause), ns)
        for _, number, cause, ns in gap_length_causes(found.gaps, found.idle).rows()
    ] == [
        (8, "device_queued", 50),
        (10, "unrecorded", 100),
        (16, "device_queued", 100),
        (16, "launch_call", 200),
        (16, "host_code", 1_700),
    ]


def test_devices_are_added_up():
    counts = pl.DataFrame(
        [(0, 8, "queued", 1, 50), (0, 9, "queued", 2, 70), (1, 8, "starved", 4, 210),
         (1, 8, "queued", 3, 155)],
        ["device_id", "bin", "kind", "gap_count", "idle_ns"], orient="row",
    )  # fmt: skip
    causes = pl.DataFrame(
        [(1, 9, "host_code", 5), (0, 9, "host_code", 7), (0, 8, "host_code", 1)],
        ["device_id", "bin", "cause", "idle_ns"],
        orient="row",
    )

    assert of_all_devices(counts).columns == ["bin", "kind", "gap_count", "idle_ns"]
    assert of_all_devices(counts).rows() == [
        (8, "queued", 4, 205), (8, "starved", 4, 210), (9, "queued", 2, 70),
    ]  # fmt: skip
    assert of_all_devices(causes).rows() == [(8, "host_code", 1), (9, "host_code", 12)]


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
@pytest.mark.parametrize("range_name", [None, "step"])
def test_the_sums_are_those_of_the_analysis(path, range_name):
    if range_name and "decoder" in path.stem:
        range_name = None
    found = analyze(read(path), range_name=range_name)
    lengths = gap_lengths(found.gaps, found.idle)
    causes = gap_length_causes(found.gaps, found.idle)
    totals = found.causes.group_by(pl.col("cause").cast(pl.String)).agg(pl.col("idle_ns").sum())

    assert lengths["gap_count"].sum() == found.devices["gap_count"].sum()
    assert lengths["idle_ns"].sum() == found.devices["idle_ns"].sum()
    assert (
        causes.group_by(pl.col("cause").cast(pl.String))
        .agg(pl.col("idle_ns").sum())
        .sort("cause")
        .equals(totals.sort("cause"))
    )
