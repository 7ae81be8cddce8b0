"""Graph executions in both granularities, gaps between them, nodes, builds."""

import pytest
from rows import call, graph, graph_event, node, nvtx, op, trace

from gaptrace import graphs


def two_launches(first, second):
    """Two graph executions; their launch calls as given."""
    return [call("cudaGraphLaunch", *first, 1), call("cudaGraphLaunch", *second, 2)]


GRAPH_ROWS = [graph(10, 40, 1), graph(45, 75, 2)]
NODE_ROWS = [node(10, 20, 1, 0), node(22, 40, 1, 1), node(45, 55, 2, 0), node(57, 75, 2, 1)]


@pytest.mark.parametrize("ops", [GRAPH_ROWS, NODE_ROWS], ids=["graph", "node"])
def test_a_gap_is_queued_when_the_next_launch_returned_before_the_previous_graph_ended(ops):
    queued = trace(ops, two_launches((0, 5), (6, 40)))
    found = graphs.graph_executions(queued)

    columns = ("start_ns", "end_ns", "api_ns", "gap_ns", "gap_kind")
    assert found.select(columns).rows() == [(10, 40, 5, None, None), (45, 75, 34, 5, "queued")]


@pytest.mark.parametrize("ops", [GRAPH_ROWS, NODE_ROWS], ids=["graph", "node"])
def test_a_gap_is_starved_when_the_host_was_late(ops):
    late = trace(ops, two_launches((0, 5), (6, 41)))

    assert graphs.graph_executions(late)["gap_kind"].to_list() == [None, "starved"]


def test_graphs_on_two_streams_have_no_gap_between_them():
    streams = trace([graph(10, 40, 1), graph(45, 75, 2, stream_id=9)], two_launches((0, 5), (6, 9)))

    assert graphs.graph_executions(streams)["gap_ns"].to_list() == [None, None]


def test_executions_without_a_launch_row_stay_apart_and_have_no_kind():
    cut = trace([graph(10, 40), graph(45, 75)])

    assert graphs.graph_executions(cut).select("op_count", "gap_ns", "gap_kind").rows() == [
        (1, None, None),
        (1, 5, None),
    ]


def test_nodes_are_counted_from_the_ops_of_an_exec():
    nodes = trace(NODE_ROWS)

    assert graphs.graph_nodes(nodes).select("graph_exec_id", "nodes", "source").rows() == [
        (2, 2, "ops")
    ]


def test_nodes_of_a_captured_graph_are_the_launches_inside_the_capture():
    captured = trace(
        [graph(80, 90, 9)],
        [
            call("cudaLaunchKernel", 0, 3, 1),
            call("cudaStreamBeginCapture", 10, 12),
            call("cudaLaunchKernel", 14, 15, 2),
            call("cudaMemcpyAsync", 16, 17, 3),
            call("cudaLaunchKernel", 18, 19, 4),
            call("cudaStreamEndCapture", 20, 22),
            call("cudaGraphInstantiate", 30, 50),
            call("cudaGraphLaunch", 60, 70, 9),
        ],
        graph_events=[
            graph_event(11, "graph", graph_id=1),
            graph_event(35, "graph", graph_id=2),
            graph_event(49, "exec", graph_id=1, graph_exec_id=2),
        ],
    )

    assert graphs.graph_nodes(captured).select("graph_exec_id", "nodes", "source").rows() == [
        (2, 3, "capture")
    ]


def test_a_graph_that_was_cut_has_the_size_that_its_range_tells():
    pieces = trace(
        [graph(80, 90, 9)],
        [call("cudaGraphLaunch", 60, 70, 9)],
        [
            nvtx("cut", 10, 20, payload=64),
            nvtx("cut", 30, 40, payload=24),
            nvtx("cut", 50, 60, payload=7, domain="other"),
        ],
        graph_events=[
            graph_event(15, "exec", graph_id=4, graph_exec_id=5),
            graph_event(40, "exec", graph_id=6, graph_exec_id=7),
            graph_event(45, "exec", graph_id=8, graph_exec_id=9),  # after a cut, in none
            graph_event(55, "exec", graph_id=10, graph_exec_id=11),
        ],
    )

    assert graphs.graph_nodes(pieces).select("graph_exec_id", "nodes", "source").rows() == [
        (5, 64, "cut"),
        (7, 24, "cut"),
    ]


def test_a_graph_built_without_capture_has_unknown_size():
    by_hand = trace(
        [graph(80, 90, 9)],
        [call("cudaGraphInstantiate", 30, 50), call("cudaGraphLaunch", 60, 70, 9)],
        graph_events=[
            graph_event(11, "graph", graph_id=1),
            graph_event(49, "exec", graph_id=1, graph_exec_id=2),
        ],
    )
    summary = graphs.graph_summary(graphs.graph_executions(by_hand), graphs.graph_nodes(by_hand))

    assert summary.select("nodes", "executions").rows() == [(None, 1)]


def test_a_graph_in_whose_capture_nothing_was_recorded_has_unknown_size():
    empty = trace(
        [graph(80, 90, 9)],
        [
            call("cudaStreamBeginCapture", 10, 12),
            call("cudaStreamEndCapture", 20, 22),
            call("cudaGraphLaunch", 60, 70, 9),
        ],
        graph_events=[
            graph_event(11, "graph", graph_id=1),
            graph_event(49, "exec", graph_id=1, graph_exec_id=2),
        ],
    )

    assert graphs.graph_nodes(empty).rows() == []


def test_sizes_sum_up_execs_alike():
    ops = [
        node(10, 20, 1, 0),
        node(30, 40, 2, 0, graph_exec=5),
        node(50, 60, 3, 0, graph_exec=8),
        node(60, 70, 3, 1, graph_exec=8),
    ]
    api = [call("cudaGraphLaunch", at, at + 2, number) for number, at in ((1, 0), (2, 4), (3, 8))]
    given_trace = trace(ops, api)
    sizes = graphs.graph_sizes(
        graphs.graph_executions(given_trace), graphs.graph_nodes(given_trace)
    )

    assert sizes.select("nodes", "execs", "executions").rows() == [(2, 1, 1), (1, 2, 2)]
    assert sizes["queued_gap_ns"].to_list() == [
        {"count": 1, "p50": 10, "p90": 10, "p99": 10, "max": 10},
        {"count": 1, "p50": 10, "p90": 10, "p99": 10, "max": 10},
    ]


@pytest.mark.parametrize(
    ("call_ns", "lead_ns", "exposed_ns"),
    [
        ((6, 20), 25, None),  # launched while the device worked: nothing is exposed
        ((41, 43), 2, 4),
        ((41, 900), 45 - 900, 4),  # a long call of which the device waited for little
    ],
)
def test_exposed_latency_is_what_the_device_waited_and_not_what_the_call_took(
    call_ns, lead_ns, exposed_ns
):
    found = graphs.graph_executions(trace(GRAPH_ROWS, two_launches((0, 5), call_ns)))

    assert found.select("lead_ns", "exposed_latency_ns").rows()[1] == (lead_ns, exposed_ns)


def test_work_of_another_stream_keeps_a_latency_from_being_exposed():
    shadowed = trace([*GRAPH_ROWS, op(40, 44, stream_id=9)], two_launches((0, 5), (41, 43)))

    assert graphs.graph_executions(shadowed)["exposed_latency_ns"].to_list() == [None, None]
