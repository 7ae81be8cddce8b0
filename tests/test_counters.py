"""Values over time: busy and queue depth, against counting nanosecond by nanosecond."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from rows import call, op, trace

from gaptrace.analysis import analyze
from gaptrace.counters import busy_changes, queue_depth
from gaptrace.gaps import device_gaps
from gaptrace.launches import launches


def depth_of(observed):
    return queue_depth(launches(observed, device_gaps(observed))).rows()


def test_busy_changes_where_gaps_begin_and_end():
    analysis = analyze(
        trace(ops=[op(10, 20), op(15, 30), op(40, 41), op(41, 50), op(5, 7, device_id=1)])
    )
    assert busy_changes(analysis.windows, analysis.gaps).rows() == [
        (0, 10, 1),
        (0, 30, 0),
        (0, 40, 1),
        (0, 50, 0),
        (1, 5, 1),
        (1, 7, 0),
    ]


def test_an_op_of_no_length_makes_no_device_busy():
    analysis = analyze(trace(ops=[op(10, 20), op(25, 25), op(30, 40)]))
    changes = busy_changes(analysis.windows, analysis.gaps).rows()
    assert changes == [(0, 10, 1), (0, 20, 0), (0, 30, 1), (0, 40, 0)]


def test_launches_wait_from_the_return_of_their_call_to_their_first_op():
    observed = trace(
        api=[
            call("cudaLaunchKernel", 0, 10, 1),
            call("cudaLaunchKernel", 10, 20, 2),
            call("cudaGraphLaunch", 20, 30, 3),
        ],
        ops=[
            op(15, 40, 1),
            op(40, 50, 2),
            op(60, 70, 3, graph_exec_id=2, graph_node_id=1),
            op(75, 80, 3, graph_exec_id=2, graph_node_id=2),
        ],
    )
    assert depth_of(observed) == [
        (0, 10, 1),
        (0, 15, 0),
        (0, 20, 1),
        (0, 30, 2),
        (0, 40, 1),
        (0, 60, 0),
    ]


def test_an_op_that_began_before_its_call_returned_never_waited():
    observed = trace(
        api=[call("cudaLaunchKernel", 0, 10, 1), call("cudaLaunchKernel", 10, 20, 2)],
        ops=[op(9, 12, 1), op(20, 22, 2)],
    )
    assert depth_of(observed) == []


def test_a_change_that_another_undoes_is_no_row():
    observed = trace(
        api=[call("cudaLaunchKernel", 0, 10, 1), call("cudaLaunchKernel", 10, 20, 2)],
        ops=[op(20, 22, 1), op(30, 32, 2)],
    )
    assert depth_of(observed) == [(0, 10, 1), (0, 30, 0)]


SPANS = st.tuples(st.integers(0, 40), st.integers(1, 10))


@given(st.lists(SPANS, min_size=1, max_size=12))
def test_busy_is_one_exactly_where_an_op_runs(spans):
    analysis = analyze(trace(ops=[op(start, start + length) for start, length in spans]))
    changes = busy_changes(analysis.windows, analysis.gaps)
    assert changes["value"].to_list() == [1, 0] * (changes.height // 2)
    for time in range(60):
        runs = any(start <= time < start + length for start, length in spans)
        assert at(changes, time) == runs


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5), st.integers(0, 20))))
def test_queue_depth_counts_what_is_launched_and_not_begun(given_launches):
    rows = [(a, a + length, a + begun) for a, length, begun in given_launches]
    frame = pl.DataFrame(
        [
            {"device_id": 0, "call_end_ns": end, "start_ns": op, "lead_ns": op - end}
            for _, end, op in rows
        ],
        schema=dict.fromkeys(["device_id", "call_end_ns", "start_ns", "lead_ns"], pl.Int64),
    )
    depth = queue_depth(frame)
    assert all(a != b for a, b in zip([0, *depth["value"]], depth["value"], strict=False))
    for time in range(60):
        assert at(depth, time) == sum(end <= time < op for _, end, op in rows)


def at(changes, time):
    before = changes.filter(pl.col("time_ns") <= time)
    return before["value"][-1] if before.height else 0
