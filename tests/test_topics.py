"""Idle time by what to do about it."""

import polars as pl
import pytest
from hypothesis import given, settings
from rows import call, graph, op, trace
from test_gaps import calls_drawn, drawn_trace, launches_drawn, ops_drawn, overheads_drawn

from gaptrace import advice, gaps, graph_use, graphs, launches, ranges, topics


def topics_of(made):
    between = gaps.device_gaps(made)
    use = graph_use.graph_use(
        made,
        launches.launches(made, between),
        graphs.graph_executions(made),
        made.ops.select("device_id", "start_ns", "end_ns"),
        ranges.range_tree(made.nvtx),
    )
    return topics.with_topics(made, between, gaps.idle_pieces(made, between), use)


def by_topic(ops, api):
    found = topics_of(trace(ops, api))
    sums = {}
    for row in found.to_dicts():
        sums[row["topic"]] = sums.get(row["topic"], 0) + row["end_ns"] - row["start_ns"]
    return sums


def waited(name, *, blocked, gap, ends=graph):
    """An op, a wait that began `blocked` before its end, and the next op `gap` after it."""
    ops = [op(0, 1000, 1), ends(1000 + gap, 2000 + gap, 2)]
    launch = "cudaGraphLaunch" if ends is graph else "cudaLaunchKernel"
    api = [
        call("cudaLaunchKernel", -20, -10, 1),
        call(name, 1000 - blocked, 1010),
        call(launch, 990 + gap, 1000 + gap, 2),
    ]
    return by_topic(ops, api)


def test_code_after_a_wait_is_told_from_code_before_a_graph_and_other_code():
    rest = {"host_sync": 10, "launch_call:graph": 10}
    assert waited("cudaStreamSynchronize", blocked=500, gap=400) == rest | {
        "host_code:after_wait": 380
    }
    # The wait began after the device was done: it did not keep the host.
    assert waited("cudaStreamSynchronize", blocked=-5, gap=400) == {
        "host_sync": 5,
        "launch_call:graph": 10,
        "host_code:before_graphs": 385,
    }
    assert waited("cudaStreamSynchronize", blocked=-5, gap=400, ends=op) == {
        "host_sync": 5,
        "launch_call:single": 10,
        "host_code": 385,
    }


@pytest.mark.parametrize(
    ("gap", "topic"), [(5000, "host_code:after_wait"), (5001, "host_code:before_graphs")]
)
def test_a_gap_ten_times_as_long_as_the_wait_is_a_pause(gap, topic):
    assert topic in waited("cudaStreamSynchronize", blocked=500, gap=gap)


def test_a_wait_that_names_a_tiny_copy():
    ops = [
        op(0, 1000, 1),
        op(1001, 1003, 2, kind="memcpy", name="copy DtoH", bytes=4, target_memory="pageable"),
        graph(1500, 2000, 3),
    ]
    api = [
        call("cudaLaunchKernel", -20, -10, 1),
        call("cudaMemcpyAsync", 5, 8, 2),
        call("cudaStreamSynchronize", 10, 1100),
        call("cudaGraphLaunch", 1490, 1500, 3),
    ]
    found = topics_of(trace(ops, api))

    assert by_topic(ops, api) == {
        "device_queued:between_ops": 1,
        "host_sync:tiny_copy": 97,
        "host_code:after_wait": 390,
        "launch_call:graph": 10,
    }
    assert found["waited"].drop_nulls().to_list() == [
        "cudaStreamSynchronize for copy DtoH pageable, 4 bytes"
    ]


@pytest.mark.parametrize(("gap", "topic"), [(80, "no_graphs"), (81, "host_code")])
def test_a_gap_ten_times_the_usual_time_between_launches_is_a_pause(gap, topic):
    every, count = 8, 120
    ops = [op(i * every, i * every + 4, i) for i in range(1, count)]
    api = [call("cudaLaunchKernel", i * every - 2, i * every, i) for i in range(1, count)]
    last = (count - 1) * every + 4
    ops.append(op(last + gap, last + gap + 4, count))
    api.append(call("cudaLaunchKernel", last + gap - 2, last + gap, count))
    found = topics_of(trace(ops, api)).filter(pl.col("start_ns") >= last)

    assert found.filter(pl.col("cause") == "host_code")["topic"].to_list() == [topic]


@settings(max_examples=60)
@given(ops_drawn, calls_drawn, launches_drawn, overheads_drawn)
def test_every_piece_keeps_its_place_and_has_a_topic_with_words(ops, calls, launched, overheads):
    made = drawn_trace(ops, calls, launched, overheads)
    between = gaps.device_gaps(made)
    pieces = gaps.idle_pieces(made, between)
    found = topics_of(made)

    assert found.select(pieces.columns).equals(pieces)
    assert set(found["topic"]) <= set(advice.TOPICS)
