"""Sums over devices and over details: literal rows."""

import polars as pl

from gaptrace.timelines import CAUSES
from gaptrace.totals import DeviceTotals, over_details, over_devices


def devices(*rows):
    columns = ["op_count", "span_ns", "busy_ns", "idle_ns"]
    return pl.DataFrame(rows, dict.fromkeys(columns, pl.Int64), orient="row")


def test_devices_of_all_traces_are_added_up():
    first, second = devices((2, 60, 40, 20), (1, 5, 5, 0)), devices((7, 100, 1, 99))

    assert over_devices([first, second]) == DeviceTotals(3, 10, 165, 46, 119)


def test_without_a_trace_there_is_no_device():
    assert over_devices([]) == DeviceTotals(0, 0, 0, 0, 0)


def test_details_of_a_cause_are_added_up_largest_first():
    rows = [
        (0, "api_other", "cudaMalloc", 30, 1),
        (0, "host_code", None, 25, 9),
        (0, "api_other", "cudaFree", 4, 2),
        (0, "host_code", "in capture", 20, 1),
        (1, "api_other", "cudaFree", 33, 2),
    ]
    schema = {"device_id": pl.Int64, "cause": CAUSES, "detail": pl.String}
    schema |= {"idle_ns": pl.Int64, "piece_count": pl.Int64}
    added = over_details(pl.DataFrame(rows, schema, orient="row"))

    assert added.columns == ["device_id", "cause", "idle_ns"]
    assert added.rows() == [(0, "host_code", 45), (0, "api_other", 34), (1, "api_other", 33)]


def test_of_equal_causes_the_one_with_the_largest_detail_comes_first():
    rows = [
        ("api_other", "a", 5),
        ("api_other", "b", 5),
        ("launch_call", None, 10),
        ("host_sync", "c", 5),
        ("host_sync", "d", 5),
    ]
    added = over_details(pl.DataFrame(rows, ["cause", "detail", "idle_ns"], orient="row"))

    assert added.rows() == [("launch_call", 10), ("api_other", 10), ("host_sync", 10)]


def test_ranges_are_kept_apart_by_domain_the_default_one_too():
    rows = [
        ("step", None, 0, "host_code", None, 1),
        ("step", "mine", 0, "host_code", None, 2),
        ("step", None, 0, "host_code", "in capture", 4),
    ]
    columns = ["path", "domain", "device_id", "cause", "detail", "idle_ns"]
    added = over_details(pl.DataFrame(rows, columns, orient="row"))

    assert added.rows() == [("step", None, 0, "host_code", 5), ("step", "mine", 0, "host_code", 2)]
