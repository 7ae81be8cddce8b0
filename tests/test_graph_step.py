"""The step that the graphs of a program make: literal rows."""

from rows import call, graph, graph_event, op, trace

from gaptrace.graph_step import GraphStep, largest_step
from gaptrace.graphs import graph_executions


def step_of(given_trace):
    return largest_step(given_trace, graph_executions(given_trace))


def test_a_step_is_a_starved_graph_and_the_queued_ones_after_it():
    pairs = trace(
        [graph(100, 200, 1), graph(210, 300, 2), graph(500, 640, 3), graph(660, 700, 4)],
        [
            call("cudaGraphLaunch", 50, 80, 1),
            call("cudaGraphLaunch", 90, 100, 2),
            call("cudaGraphLaunch", 430, 470, 3),
            call("cudaGraphLaunch", 480, 500, 4),
        ],
    )

    # Both of two graphs: 100 to 300 and 500 to 700; 40 and 60 in calls; 50 and 70 to the start.
    assert step_of(pairs) == GraphStep(
        nodes=None,
        graphs=2,
        chains=2,
        device_ns=200,
        launch_api_ns=50,
        exposed_latency_ns=60,
        queued_gap_ns=15,
        call_ids=(0, 1, 2, 3),
    )


def test_the_kind_of_step_that_keeps_the_device_longest_in_all_is_taken():
    calls = [call("cudaGraphLaunch", at - 60, at - 50, n) for n, at in ((1, 100), (2, 400))]
    calls += [call("cudaGraphLaunch", 640, 650, 3), call("cudaGraphLaunch", 651, 660, 4)]
    short = [graph(100, 200, 1), graph(400, 500, 2)]

    long_pair = trace([*short, graph(700, 800, 3), graph(810, 920, 4)], calls)
    assert (step_of(long_pair).graphs, step_of(long_pair).device_ns) == (2, 220)
    short_pair = trace([*short, graph(700, 710, 3), graph(720, 730, 4)], calls)
    assert (step_of(short_pair).graphs, step_of(short_pair).chains) == (1, 2)


def test_nodes_of_a_step_are_those_of_all_its_graphs_or_unknown():
    def captured(*execs):
        rows = [graph(1000, 1100, 1, graph_exec=2), graph(1110, 1200, 2, graph_exec=5)]
        calls = [call("cudaGraphLaunch", 900, 910, 1), call("cudaGraphLaunch", 920, 930, 2)]
        events = []
        for at, graph_id, exec_id in execs:
            calls += [
                call("cudaStreamBeginCapture", at, at + 2),
                call("cudaLaunchKernel", at + 3, at + 4),
                call("cudaLaunchKernel", at + 5, at + 6),
                call("cudaStreamEndCapture", at + 8, at + 10),
            ]
            events.append(graph_event(at + 9, "graph", graph_id=graph_id))
            events.append(graph_event(at + 20, "exec", graph_id=graph_id, graph_exec_id=exec_id))
        return trace([op(0, 1), *rows], calls, graph_events=events)

    assert step_of(captured((100, 1, 2), (200, 4, 5))).nodes == 4
    assert step_of(captured((100, 1, 2))).nodes is None


def test_without_launch_calls_every_graph_is_a_step_and_its_costs_are_not_known():
    assert step_of(trace([graph(100, 200), graph(300, 400)])) == GraphStep(
        nodes=None,
        graphs=1,
        chains=2,
        device_ns=100,
        launch_api_ns=0,
        exposed_latency_ns=None,
        queued_gap_ns=None,
        call_ids=(),
    )
