"""Executions that wait for another execution of their own exec."""

import pytest
from rows import call, event_wait, graph, node, op, trace

from gaptrace.analysis import analyze
from gaptrace.exec_waits import FOLLOWS_WITHIN_NS, exec_waits
from gaptrace.graphs import graph_executions

US = 1000


def waits_in(*rows, **frames):
    """Waits among (launch call, op) pairs; a launch is numbered by its place."""
    calls = [
        call("cudaGraphLaunch", at, at + 2 * US, number) for number, (at, _) in enumerate(rows, 1)
    ]
    ops = [made(number) for number, (_, made) in enumerate(rows, 1)]
    made = trace(ops, calls, **frames)
    found = exec_waits(made, graph_executions(made))
    return found.select("graph_exec_id", "stream_id", "start_ns", "waited_ns").rows()


def runs(start, end, stream, graph_exec=2, **own):
    return lambda launch: graph(start, end, launch, graph_exec, stream_id=stream, **own)


FIRST = (0, runs(5 * US, 100 * US, 13))


def test_an_exec_launched_on_a_second_stream_waits_for_itself():
    # Launched by 12 us, ready then, and held until the first ends at 100 us.
    assert waits_in(FIRST, (10 * US, runs(101 * US, 196 * US, 14))) == [(2, 14, 101 * US, 88 * US)]


@pytest.mark.parametrize(
    "second",
    [
        # The same stream orders by itself.
        (10 * US, runs(101 * US, 196 * US, 13)),
        # Another exec waits for something else.
        (10 * US, runs(101 * US, 196 * US, 14, graph_exec=3)),
        # Launched after the first had ended.
        (99 * US, runs(102 * US, 196 * US, 14)),
        # Began long after: it waited for something else, too.
        (10 * US, runs(100 * US + FOLLOWS_WITHIN_NS + 1, 250 * US, 14)),
        # Another process has an exec of that number.
        (10 * US, runs(101 * US, 196 * US, 14, process_id=2000)),
    ],
)
def test_what_does_not_wait_for_its_own_exec(second):
    assert waits_in(FIRST, second) == []


def test_the_latest_beginning_that_counts():
    second = (10 * US, runs(100 * US + FOLLOWS_WITHIN_NS, 250 * US, 14))
    assert [waited for *_, waited in waits_in(FIRST, second)] == [88 * US]


def test_only_the_time_after_its_own_stream_was_free():
    busy = (1 * US, runs(5 * US, 70 * US, 14, graph_exec=9))
    second = (10 * US, runs(101 * US, 196 * US, 14))
    assert [waited for *_, waited in waits_in(FIRST, busy, second)] == [30 * US]


def test_streams_that_the_program_orders_are_left_out():
    second = (10 * US, runs(101 * US, 196 * US, 14))
    assert waits_in(FIRST, second, event_waits=[event_wait(0, 14)]) == []
    assert len(waits_in(FIRST, second, event_waits=[event_wait(0, 15)])) == 1


def test_in_node_granularity_the_first_node_counts():
    calls = [call("cudaGraphLaunch", 0, 2 * US, 1), call("cudaGraphLaunch", 10 * US, 12 * US, 2)]
    ops = [
        node(5 * US, 50 * US, 1, 0, stream_id=13),
        node(51 * US, 100 * US, 1, 1, stream_id=13),
        node(101 * US, 150 * US, 2, 0, stream_id=14),
        node(151 * US, 196 * US, 2, 1, stream_id=14),
    ]
    made = trace(ops, calls, granularity="node")
    assert exec_waits(made, graph_executions(made))["waited_ns"].to_list() == [88 * US]


def program(waits_ns):
    """A window of 1,000 us in which one execution waited for so long, ending in a small kernel."""
    ready = 100 * US - waits_ns
    return analyze(
        trace(
            [
                op(0, 5 * US, 1),
                graph(5 * US, 100 * US, 2, stream_id=13),
                graph(101 * US, 196 * US, 3, stream_id=14),
                op(196 * US, 1000 * US, 4),
            ],
            [
                call("cudaLaunchKernel", -5 * US, -4 * US, 1),
                call("cudaGraphLaunch", -3 * US, -2 * US, 2),
                call("cudaGraphLaunch", ready - 2 * US, ready, 3),
                call("cudaLaunchKernel", ready + 1, ready + 100, 4),
            ],
        )
    )


def test_waits_become_a_finding_from_two_percent_of_the_window_on():
    (finding,) = program(20 * US).findings
    assert finding.code == "exec_waits_for_itself"
    assert finding.severity == "low"
    assert "an exec for each stream" in finding.advice
    assert finding.evidence == {
        "device_id": 0,
        "waited_ns": 20 * US,
        "fraction": 0.02,
        "executions": 1,
        "execs": 1,
    }
    assert program(20 * US - 1).findings == ()
