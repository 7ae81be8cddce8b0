"""Causes of idle time: one small story per cause, then all of them against a slow oracle."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import PROCESS, call, event_wait, graph, node, op, overhead, trace

from gaptrace import gaps


def pieces_of(given_trace):
    found = gaps.idle_pieces(given_trace, gaps.device_gaps(given_trace))
    return found.select("start_ns", "end_ns", "cause", "detail").rows()


def gaps_of(given_trace):
    return gaps.device_gaps(given_trace).select("device_id", "start_ns", "end_ns").rows()


def test_a_gap_is_between_the_running_end_and_the_next_start():
    # The op (8, 15) nests in (0, 20), so the device is busy until 20.
    assert gaps_of(trace([op(0, 20), op(8, 15), op(25, 30)])) == [(0, 20, 25)]


def test_overlapping_ops_of_one_stream_leave_no_gap():
    # Programmatic dependent launch starts a kernel before the one in front of it has ended.
    assert gaps_of(trace([op(0, 10), op(8, 15)])) == []


def test_a_stream_gap_that_another_stream_fills_is_no_device_gap():
    streams = [op(0, 10, stream_id=1), op(20, 30, stream_id=1), op(10, 20, stream_id=2)]

    assert gaps_of(trace(streams)) == []


def test_devices_are_judged_apart_whatever_their_stream_numbers():
    assert gaps_of(trace([op(0, 10), op(12, 15), op(5, 20, device_id=1)])) == [(0, 10, 12)]


def test_two_processes_on_one_device_fill_each_others_gaps():
    shared = [op(0, 10), op(20, 30), op(10, 18, process_id=PROCESS + 1)]

    assert gaps_of(trace(shared)) == [(0, 18, 20)]


def test_a_gap_names_the_op_before_it_and_the_op_that_ends_it():
    # Op 1 ends inside op 0; it is op 0 whose end begins the gap.
    found = gaps.device_gaps(trace([op(0, 20), op(8, 15), op(25, 30)]))

    assert found.select("previous_op_id", "next_op_id").rows() == [(0, 2)]


def test_work_launched_in_time_is_queued_on_the_device():
    early = trace([op(0, 10), op(13, 20, 2)], [call("cudaLaunchKernel", 2, 5, 2)])

    assert pieces_of(early) == [(10, 13, "device_queued", "between_ops")]


@pytest.mark.parametrize(
    ("previous", "following", "behind"),
    [
        (node(0, 10, 2, 0), node(13, 20, 2, 1), "in_graph"),
        (graph(0, 10, 1), graph(13, 20, 2), "between_graphs"),
        (op(0, 10, stream_id=9), op(13, 20, 2), "cross_stream"),
        (graph(0, 10, 1), op(13, 20, 2), "between_ops"),
    ],
)
def test_queued_work_says_what_it_stood_behind(previous, following, behind):
    queued = trace([previous, following], [call("cudaGraphLaunch", -9, -5, 2)])

    assert pieces_of(queued) == [(10, 13, "device_queued", behind)]


@pytest.mark.parametrize(
    ("wait", "behind"),
    [
        (event_wait(1, 7), "cross_stream"),
        (event_wait(1, 7, awaited_stream_id=9), "cross_stream"),
        (event_wait(1, 7, awaited_stream_id=7), "between_ops"),  # its own event: no wait at all
        (event_wait(1, 9), "between_ops"),  # another stream waits
        (event_wait(0, 7), "between_ops"),  # before the op in front, which has waited already
    ],
)
def test_work_that_was_told_to_wait_for_an_event_waits_for_another_stream(wait, behind):
    # Calls 0 and 1 are waits, around the launch of the first op.
    waiting = trace(
        [op(0, 10, 1), op(13, 20, 2)],
        [
            call("cudaStreamWaitEvent", -9, -8),
            call("cudaLaunchKernel", -7, -6, 1),
            call("cudaStreamWaitEvent", 1, 2),
            call("cudaLaunchKernel", 3, 4, 2),
        ],
        event_waits=[wait | {"call_id": 2 * wait["call_id"]}],
    )

    assert pieces_of(waiting) == [(10, 13, "device_queued", behind)]


def test_before_the_launch_call_it_is_host_code_inside_it_the_launch_after_it_the_device():
    late = trace([op(0, 10), op(40, 50, 2)], [call("cudaLaunchKernel", 20, 35, 2)])

    assert pieces_of(late) == [
        (10, 20, "host_code", None),
        (20, 35, "launch_call", "cudaLaunchKernel"),
        (35, 40, "device_queued", "between_ops"),
    ]


def test_a_launch_call_that_outlasts_the_start_of_its_work_counts_up_to_that_start():
    # One public trace has a graph launch of 3,776 us whose first kernel starts after 30 us.
    slow = trace([op(0, 10), graph(43, 90, 2)], [call("cudaGraphLaunch", 13, 3789, 2)])

    assert pieces_of(slow) == [
        (10, 13, "host_code", None),
        (13, 43, "launch_call", "cudaGraphLaunch"),
    ]


def test_only_the_part_of_a_wait_inside_the_gap_is_lost_to_it():
    waited = trace(
        [op(0, 100), op(130, 140, 3)],
        [call("cudaStreamSynchronize", 5, 108, 2), call("cudaLaunchKernel", 120, 130, 3)],
    )

    assert pieces_of(waited) == [
        (100, 108, "host_sync", "cudaStreamSynchronize"),
        (108, 120, "host_code", None),
        (120, 130, "launch_call", "cudaLaunchKernel"),
    ]


def test_returning_from_a_blocking_copy_is_host_sync():
    copied = trace(
        [op(0, 10, 1), op(30, 40, 2)],
        [call("cudaMemcpy", -5, 14, 1), call("cudaLaunchKernel", 28, 30, 2)],
    )

    assert pieces_of(copied)[0] == (10, 14, "host_sync", "cudaMemcpy")


def test_other_calls_are_named():
    allocated = trace(
        [op(0, 10), op(30, 40, 2)],
        [call("cudaMalloc", 8, 20), call("cudaLaunchKernel", 20, 30, 2)],
    )

    assert pieces_of(allocated)[0] == (10, 20, "api_other", "cudaMalloc")


def test_building_a_graph_is_split_by_phase_and_launches_in_a_capture_build_it():
    built = trace(
        [op(0, 10), graph(70, 80, 9)],
        [
            call("cudaStreamBeginCapture", 10, 12),
            call("cudaLaunchKernel", 15, 20, 3),
            call("cudaStreamEndCapture", 20, 22),
            call("cudaGraphInstantiate", 30, 50),
            call("cudaGraphLaunch", 55, 70, 9),
        ],
    )

    assert pieces_of(built) == [
        (10, 12, "graph_build", "capture"),
        (12, 15, "host_code", "in capture"),
        (15, 20, "graph_build", "capture"),
        (20, 22, "graph_build", "capture"),
        (22, 30, "host_code", None),
        (30, 50, "graph_build", "instantiate"),
        (50, 55, "host_code", None),
        (55, 70, "launch_call", "cudaGraphLaunch"),
    ]


def test_the_recorders_own_time_comes_first_but_not_once_the_work_was_submitted():
    flushed = trace(
        [op(0, 10), op(40, 50, 2)],
        [call("cudaLaunchKernel", 20, 30, 2)],
        overhead=[overhead(15, 25), overhead(35, 40)],
    )

    assert pieces_of(flushed) == [
        (10, 15, "host_code", None),
        (15, 20, "profiler", None),
        (20, 25, "profiler", None),
        (25, 30, "launch_call", "cudaLaunchKernel"),
        (30, 40, "device_queued", "between_ops"),
    ]


def test_lazy_loading_inside_a_launch_call_is_told_apart_from_the_launch():
    loaded = trace(
        [op(0, 10), op(40, 50, 2)],
        [call("cudaLaunchKernel", 10, 40, 2)],
        overhead=[overhead(12, 30, kind="driver")],
    )

    assert pieces_of(loaded)[1] == (12, 30, "api_other", "lazy function loading")


def test_a_full_launch_queue_is_the_launch_call_not_the_recorder():
    blocked = trace(
        [op(0, 10), op(12, 50, 2)],
        [call("cudaLaunchKernel", 1, 12, 2)],
        overhead=[overhead(1, 12, kind="back_pressure")],
    )

    assert pieces_of(blocked) == [(10, 12, "launch_call", "cudaLaunchKernel")]


def test_without_a_launch_row_the_cause_is_unrecorded_not_host_code():
    cut = trace([op(0, 10), op(40, 50, 77)], [call("cudaLaunchKernel", 20, 30, 2)])

    assert pieces_of(cut) == [(10, 40, "unrecorded", None)]


def test_another_process_with_the_same_correlation_id_explains_nothing():
    ranks = trace(
        [op(0, 10), op(40, 50, 2)],
        [call("cudaLaunchKernel", 20, 30, 2, process_id=PROCESS + 1, thread_id=7)],
    )

    assert pieces_of(ranks) == [(10, 40, "unrecorded", None)]


def test_only_the_thread_that_launched_explains_the_gap():
    busy_elsewhere = trace(
        [op(0, 10), op(40, 50, 2)],
        [call("cudaMalloc", 10, 30, thread_id=7), call("cudaLaunchKernel", 38, 40, 2)],
    )

    assert pieces_of(busy_elsewhere)[0] == (10, 38, "host_code", None)


def test_after_the_last_op_its_thread_explains_the_rest():
    ending = trace(
        [op(0, 10, 1)],
        [call("cudaLaunchKernel", -6, -2, 1), call("cudaStreamSynchronize", 0, 14)],
    )
    edges = gaps.idle_pieces(ending, gaps.edge_gaps(ending))

    assert edges.select("start_ns", "end_ns", "cause").rows() == [
        (-6, -2, "launch_call"),
        (-2, 0, "device_queued"),
        (10, 14, "host_sync"),
    ]


def test_after_the_last_op_nothing_is_known_once_a_launch_waits_whose_work_is_not_seen():
    def after_the_last_op(*more):
        ending = trace([op(0, 10, 1)], [call("cudaLaunchKernel", -6, -2, 1), *more])
        edges = gaps.idle_pieces(ending, gaps.edge_gaps(ending))
        return edges.filter(pl.col("start_ns") >= 10).select(
            "start_ns", "end_ns", "cause", "detail"
        )

    unseen = call("cudaLaunchKernel", 14, 16, 2)
    assert after_the_last_op(unseen, call("cudaMalloc", 16, 20)).rows() == [
        (10, 14, "host_code", None),
        (14, 20, "unrecorded", "unfinished"),
    ]
    queued = call("cudaLaunchKernel", 4, 6, 2)
    assert after_the_last_op(queued, call("cudaMalloc", 16, 20)).rows() == [
        (10, 20, "unrecorded", "unfinished")
    ]
    # Failed, or a copy, which may rightly have no work.
    failed = call("cudaLaunchKernel", 14, 16, 2, return_code=1)
    copy = call("cudaMemcpyAsync", 16, 20, 3)
    assert "unrecorded" not in after_the_last_op(failed, copy)["cause"].to_list()


def test_unified_memory_stands_in_no_stream_and_has_no_launch():
    moved = op(20, 30, kind="memcpy", stream_id=None, context_id=None, is_unified_memory=True)
    found = trace([op(0, 10, 1), moved, op(40, 50, 2)], [call("cudaLaunchKernel", 2, 6, 2)])

    assert pieces_of(found) == [
        (10, 20, "unrecorded", "migration"),
        (30, 40, "device_queued", "between_ops"),
    ]


def test_causes_add_up_by_cause_and_detail():
    late = trace([op(0, 10), op(40, 50, 2)], [call("cudaLaunchKernel", 20, 35, 2)])
    pieces = gaps.idle_pieces(late, gaps.device_gaps(late))

    assert gaps.causes(pieces, ["device_id"]).rows() == [
        (0, "launch_call", "cudaLaunchKernel", 15, 1),
        (0, "host_code", None, 10, 1),
        (0, "device_queued", "between_ops", 5, 1),
    ]


# The oracle: every nanosecond by itself, straight from the definitions.

THREADS = (11, 12)
span = st.tuples(st.integers(0, 60), st.integers(1, 12)).map(lambda s: (s[0], s[0] + s[1]))
ops_drawn = st.lists(
    st.tuples(span, st.sampled_from([None, 1, 2, 3, 4]), st.integers(0, 1), st.integers(7, 8)),
    min_size=1,
    max_size=8,
)
names = ["cudaMalloc", "cudaStreamSynchronize", "cudaGraphInstantiate", "cudaMemcpy"]
calls_drawn = st.lists(
    st.tuples(span, st.sampled_from(THREADS), st.sampled_from(names)), max_size=8
)
launches_drawn = st.lists(st.tuples(span, st.sampled_from(THREADS)), max_size=4)
overheads_drawn = st.lists(
    st.tuples(span, st.sampled_from(THREADS), st.sampled_from(["profiler", "driver"])), max_size=3
)


def drawn_trace(ops, calls, launches, overheads):
    return trace(
        [op(a, b, launch, device_id=d, stream_id=s) for (a, b), launch, d, s in ops],
        [call(name, a, b, thread_id=t) for (a, b), t, name in calls]
        + [
            call("cudaLaunchKernel", a, b, number, thread_id=t)
            for number, ((a, b), t) in enumerate(launches, 1)
        ],
        overhead=[overhead(a, b, kind, thread_id=t) for (a, b), t, kind in overheads],
    )


def cause_at(at, thread, launch, rows, extra):
    """The cause of one idle nanosecond, its op having been launched by `launch` on `thread`."""
    began, returned = launch
    if at >= returned:
        return "device_queued"
    if any(r["kind"] == "profiler" and r["start_ns"] <= at < r["end_ns"] for r in extra):
        return "profiler"
    if any(r["kind"] == "driver" and r["start_ns"] <= at < r["end_ns"] for r in extra):
        return "api_other"
    if at >= began:
        return "launch_call"
    # The outermost call: first to start, longest among those that start together; a call that
    # crosses its end counts from there on.
    covered_until, owner = None, None
    for row in sorted(rows, key=lambda r: (r["start_ns"], -r["end_ns"])):
        start = row["start_ns"] if covered_until is None else max(row["start_ns"], covered_until)
        if start <= at < row["end_ns"]:
            owner = row
            break
        covered_until = max(covered_until or row["end_ns"], row["end_ns"])
    if owner is None:
        return "host_code"
    return {"wait": "host_sync", "blocking_copy": "host_sync", "graph_build": "graph_build"}.get(
        owner["kind"], "api_other"
    )


@settings(max_examples=200)
@given(ops_drawn, calls_drawn, launches_drawn, overheads_drawn)
def test_every_idle_nanosecond_has_the_cause_that_the_definitions_give(
    ops, calls, launches, overheads
):
    drawn = drawn_trace(ops, calls, launches, overheads)
    found = gaps.idle_pieces(drawn, gaps.device_gaps(drawn))
    by_time = {
        (row["device_id"], at): row["cause"]
        for row in found.to_dicts()
        for at in range(row["start_ns"], row["end_ns"])
    }

    expected = {}
    api, extra = drawn.api.to_dicts(), drawn.overhead.to_dicts()
    for device in (0, 1):
        mine = drawn.ops.filter(pl.col("device_id") == device).to_dicts()
        busy = {at for row in mine for at in range(row["start_ns"], row["end_ns"])}
        if not busy:
            continue
        for at in range(min(busy), max(busy)):
            if at in busy:
                continue
            start = min(row["start_ns"] for row in mine if row["start_ns"] > at)
            ender = min(
                (row for row in mine if row["start_ns"] == start),
                key=lambda row: (row["end_ns"], row["op_id"]),
            )
            own = [r for r in api if r["correlation_id"] == ender["correlation_id"]]
            if ender["correlation_id"] is None or not own:
                expected[device, at] = "unrecorded"
                continue
            thread = own[0]["thread_id"]
            expected[device, at] = cause_at(
                at,
                thread,
                (own[0]["start_ns"], own[0]["end_ns"]),
                [r for r in api if r["thread_id"] == thread],
                [r for r in extra if r["thread_id"] == thread],
            )

    assert by_time == expected
    # Not twice either: the pieces' lengths add up to the idle time exactly.
    assert found.select((pl.col("end_ns") - pl.col("start_ns")).sum()).item() == len(expected)
