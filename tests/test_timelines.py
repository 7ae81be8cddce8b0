"""What host threads do at every time, and their captures: literal rows."""

import polars as pl
from rows import THREAD, call, op, overhead, trace

from gaptrace.captures import captures
from gaptrace.timelines import FOREVER, thread_timelines


def timeline(given_trace, thread=THREAD):
    of_thread = thread_timelines(given_trace).filter(pl.col("thread_id") == thread)
    return of_thread.select("start_ns", "end_ns", "cause", "detail").rows()


def test_the_recorder_lies_over_the_driver_and_the_driver_over_the_call():
    layered = trace(
        [op(0, 1)],
        [call("cudaMalloc", 10, 50)],
        overhead=[overhead(20, 40, kind="driver"), overhead(35, 45)],
    )

    assert timeline(layered) == [
        (-FOREVER, 10, "host_code", None),
        (10, 20, "api_other", "cudaMalloc"),
        (20, 35, "api_other", "lazy function loading"),
        (35, 45, "profiler", None),
        (45, 50, "api_other", "cudaMalloc"),
        (50, FOREVER, "host_code", None),
    ]
    driver = thread_timelines(layered).filter("is_driver")
    assert driver.select("start_ns", "end_ns").rows() == [(20, 35)]


def test_a_call_inside_a_call_counts_as_the_outer_one():
    nested = trace([op(0, 1)], [call("cudaMemcpy", 10, 50), call("cudaMalloc", 20, 30)])

    assert timeline(nested)[1:-1] == [(10, 50, "host_sync", "cudaMemcpy")]


def test_threads_have_a_timeline_each_and_those_without_calls_none():
    two = trace(
        [op(0, 1)],
        [call("cudaFree", 10, 20), call("cudaStreamSynchronize", 15, 25, thread_id=7)],
        overhead=[overhead(0, 5, kind="driver", thread_id=7)],
    )

    assert timeline(two)[1:-1] == [(10, 20, "api_other", "cudaFree")]
    assert timeline(two, 7)[1:-1] == [
        (0, 5, "api_other", "lazy function loading"),
        (5, 15, "host_code", None),
        (15, 25, "host_sync", "cudaStreamSynchronize"),
    ]
    assert set(thread_timelines(two)["thread_id"]) == {THREAD, 7}


def test_captures_last_from_begin_to_end_and_count_the_launches_of_their_thread():
    captured = trace(
        [op(0, 1)],
        [
            call("cudaStreamBeginCapture", 10, 12),
            call("cudaLaunchKernel", 15, 20, 3),
            call("cudaLaunchKernel", 15, 20, 4, thread_id=7),
            call("cudaMemcpyAsync", 22, 24, 5),
            call("cudaStreamEndCapture", 30, 32),
            call("cudaLaunchKernel", 40, 41, 6),
            call("cudaStreamBeginCapture", 50, 52),
            call("cudaStreamEndCapture", 60, 62),
        ],
    )

    spans = captures(captured.api).select("thread_id", "start_ns", "end_ns", "nodes")
    assert spans.rows() == [(THREAD, 10, 32, 2), (THREAD, 50, 62, 0)]
