"""What is built, when, and in which steps."""

import polars as pl
from rows import THREAD, call, graph, nvtx, op, trace

from gaptrace.analysis import analyze
from gaptrace.builds import build_costs, graph_builds, step_builds


def test_a_capture_costs_all_that_the_host_does_between_begin_and_end():
    built = trace(
        [op(0, 10)],
        [
            call("cudaStreamBeginCapture", 10, 12),
            call("cudaLaunchKernel", 14, 15, 2),
            call("cudaStreamEndCapture", 20, 22),
            call("cudaGraphInstantiate", 30, 50),
            call("cudaGraphExecUpdate", 60, 61),
            call("cudaGraphExecUpdate", 70, 72),
        ],
    )
    builds = graph_builds(built)

    assert builds.select("phase", "start_ns", "end_ns").rows() == [
        ("capture", 10, 22),
        ("instantiate", 30, 50),
        ("update", 60, 61),
        ("update", 70, 72),
    ]
    assert build_costs(builds).select("phase", "count", "host_ns").rows() == [
        ("capture", 1, 12),
        ("instantiate", 1, 20),
        ("update", 2, 3),
    ]


def inside_captures(*calls):
    return trace([op(0, 10)], calls).api["capture_id"].to_list()


def test_a_capture_that_does_not_begin_holds_nothing():
    failed = call("cudaStreamBeginCapture", 10, 12, return_code=900)
    assert inside_captures(failed, call("cudaLaunchKernel", 14, 15, 2)) == [None, None]


def test_the_end_of_a_capture_from_before_the_recording_ends_nothing_else():
    calls = [
        call("cudaStreamEndCapture", 10, 12),
        call("cudaStreamBeginCapture", 20, 22),
        call("cudaLaunchKernel", 24, 25, 2),
        call("cudaStreamEndCapture", 30, 32),
        call("cudaLaunchKernel", 34, 35, 3),
    ]
    assert inside_captures(*calls) == [None, 1, 1, 1, None]


def test_a_capture_that_was_invalidated_ends_with_an_error():
    calls = [
        call("cudaStreamBeginCapture", 20, 22),
        call("cudaStreamEndCapture", 30, 32, return_code=901),
        call("cudaLaunchKernel", 34, 35, 3),
    ]
    assert inside_captures(*calls) == [0, 0, None]


def test_captures_of_two_streams_end_with_the_last():
    begin, end = "cudaStreamBeginCapture", "cudaStreamEndCapture"
    calls = [call(begin, 0, 1), call(begin, 2, 3), call(end, 4, 5), call(end, 6, 7)]
    found = inside_captures(*calls, call("cudaLaunchKernel", 8, 9, 1))
    assert [each is not None for each in found] == [True] * 4 + [False]


STEP_TYPES = {"key": pl.Int64, "device_id": pl.Int64, "step": pl.Int64, "thread_id": pl.Int64}


def in_steps(builds, *steps):
    """Builds of steps (thread, start, end), numbered from 0 on."""
    rows = [
        {"key": 0, "device_id": 0, "step": number, "process_id": 1000, "thread_id": thread}
        | {"start_ns": start, "end_ns": end}
        for number, (thread, start, end) in enumerate(steps)
    ]
    frame = pl.DataFrame(rows, schema_overrides=STEP_TYPES)
    return step_builds(graph_builds(trace([op(0, 1)], builds)), frame).drop("key", "device_id")


def test_a_build_belongs_to_the_step_in_which_it_begins():
    found = in_steps(
        [
            call("cudaGraphInstantiate", 5, 9),
            call("cudaGraphExecUpdate", 10, 30),
            call("cudaGraphInstantiate", 40, 41),
            call("cudaGraphInstantiate", 42, 45),
            call("cudaGraphInstantiate", 50, 51),
        ],
        (None, 10, 20),
        (None, 20, 40),
        (None, 40, 50),
    )
    assert found.rows() == [(0, "update", 1, 20), (2, "instantiate", 2, 4)]


def test_a_step_of_one_thread_holds_only_what_that_thread_builds():
    builds = [
        call("cudaGraphInstantiate", 11, 12),
        call("cudaGraphInstantiate", 13, 16, thread_id=THREAD + 1),
    ]
    assert in_steps(builds, (THREAD, 10, 20)).rows() == [(0, "instantiate", 1, 1)]
    assert in_steps(builds, (None, 10, 20)).rows() == [(0, "instantiate", 2, 4)]
    assert in_steps(builds, (THREAD + 2, 10, 20)).rows() == []
    assert in_steps([], (None, 10, 20)).rows() == []


def test_an_analysis_says_what_steady_steps_build():
    """Ten steps; all build an exec, the first takes longest, two of the others also update."""
    api, ops, ranges = [], [], []
    for step in range(10):
        at = step * 1000
        ranges.append(nvtx("step", at, at + 900))
        api.append(call("cudaGraphInstantiate", at + 10, at + (110 if step == 0 else 30 + step)))
        if step in (4, 5):
            api.append(call("cudaGraphExecUpdate", at + 120, at + 125))
        api.append(call("cudaGraphLaunch", at + 200, at + 210, step))
        ops.append(graph(at + 220, at + 800, step))
    analysis = analyze(trace(ops, api, nvtx=ranges))

    assert analysis.build_costs.select("phase", "count").rows() == [
        ("instantiate", 10),
        ("update", 2),
    ]
    instantiate, update = analysis.unit_builds.drop("key", "device_id").to_dicts()
    assert instantiate == {
        "phase": "instantiate",
        "building_steps": 9,
        "count": {"count": 9, "p50": 1, "p90": 1, "p99": 1, "max": 1},
        "host_ns": {"count": 9, "p50": 25, "p90": 28, "p99": 29, "max": 29},
        "is_usual": True,
    }
    assert (update["phase"], update["building_steps"], update["is_usual"]) == ("update", 2, False)
    assert update["host_ns"]["p50"] == 5
