"""Predictions of steps of graphs from literal rows, in figures that can be added by hand."""

from dataclasses import replace

import pytest
from rows import call, node, nvtx, op, trace
from test_ungraphed import TEN, US, calibration

from gaptrace.analysis import analyze
from gaptrace.calibrated import merge_share
from gaptrace.calibration import Figure
from gaptrace.cost import makespan, per_launch_ns

#: A graph begins 2 us and 1 us per node after its launch.
GROWING = {"graph_launch_latency_ns": (3_000, 1_002_000)}


def graphs(repeats, *, nodes=100, launch_us=10, busy_us=0, gap_ns=0, lengths_us=()):
    """One graph of nodes of 10 us, launched by a host that waits for it and knows 4 us later.

    Of each node the first `gap_ns` pass idle. Steps may have nodes of other lengths. Another stream
    is busy until so long after the launch begins.
    """
    ops, api, at = [], [], 100 * US
    for number in range(repeats):
        if busy_us:
            ops.append(op(at - 3 * US, at + busy_us * US, 1_000 + number, stream_id=9))
            api.append(call("cuLaunchKernel", at - 5 * US, at - 4 * US, 1_000 + number))
        begin = at + launch_us * US
        api.append(call("cudaGraphLaunch", at, begin, number))
        length = (lengths_us[number] if lengths_us else 10) * US
        ops += [
            node(begin + i * length + gap_ns, begin + (i + 1) * length, number, i)
            for i in range(nodes)
        ]
        end = ops[-1]["end_ns"]
        api.append(call("cudaStreamSynchronize", begin, end + 4 * US))
        at = end + 10 * US
    return ops, api


def recommended(ops, api, ranges=(), added=(), **changes):
    recorded, given = trace(ops, api, ranges, granularity="node"), calibration(**changes)
    given = replace(given, figures=(*given.figures, *added))
    return analyze(recorded, calibration=given).recommendation


def test_a_step_is_its_launch_its_nodes_and_what_the_host_takes_to_know():
    found = recommended(*graphs(5), **GROWING)

    assert (found.verdict, found.chunk) == ("chunk", 32)
    assert found.predicted_ns["one_graph"] == 102_000 + 1_000_000 + 4_000
    # 1 us for the launch, 3 us until the first begins, 0.4 us more between kernels than nodes.
    assert found.predicted_ns["per_launch"] == 4_000 + 1_000_000 + 99 * 400 + 4_000
    assert found.schedules.added_ns == 4_000
    # No more than the 10 us before four of five graphs.
    assert (found.gain_ns, found.gain_interval_ns) == (8_000, (8_000, 8_000))


def test_earlier_work_hides_a_launch():
    found = recommended(*graphs(5, busy_us=60), **GROWING)

    assert found.predicted_ns["one_graph"] == 42_000 + 1_000_000 + 4_000
    assert found.predicted_ns["per_launch"] == 4_000 + 1_000_000 + 99 * 400 + 4_000
    assert found.schedules.added_ns == 4_000 - 60_000


@pytest.mark.parametrize(
    ("steps", "host_ns", "warned"), [(2, 12_000, True), (3, 12_000, False), (2, 2_000, False)]
)
def test_chunks_for_a_slow_host_are_not_advised_on_two_steps_without_a_warning(
    steps, host_ns, warned
):
    slow = (host_ns, 1_000 * host_ns)
    found = recommended(
        *graphs(steps, launch_us=200),
        graph_launch_api_ns=slow,
        graph_launch_latency_ns=slow,
        launch_queued_api_ns=(50_000, 50_000, 50_000),
    )

    assert found.verdict == "chunk"
    assert ("few_steps" in [each.code for each in found.warnings]) == warned


def test_no_graphs_advised_on_two_steps_need_no_more_of_them():
    slow = (12_000, 12_000_000)
    found = recommended(
        *graphs(2, launch_us=200),
        graph_launch_api_ns=slow,
        graph_launch_latency_ns=slow,
        launch_queued_api_ns=(100, 100, 100),
    )

    assert found.verdict == "do_not_graph"
    assert "few_steps" not in [each.code for each in found.warnings]


def test_the_pace_of_the_same_step_kernel_by_kernel_is_that_of_single_launches():
    ops, api = graphs(5, nodes=10, launch_us=1_000)
    ranges = []
    for begin in range(10_000 * US, 15_000 * US, 1_000 * US):
        for i, name in enumerate(TEN):
            at = begin + 30 * i * US
            api.append(call("cuLaunchKernel", at, at + US, begin + i))
            ops.append(op(at + 2 * US, at + 6 * US, begin + i, name=name))
        api.append(call("cudaStreamSynchronize", at + US, at + 10 * US))
        ranges.append(nvtx("step", begin, begin + 400 * US))
    found = recommended(ops, api, ranges, graph_launch_latency_ns=(400_000, 400_000))

    # 30 us from launch to launch, of which the recorder's are a fifth; from a tenth to 37.5 %.
    (pace,) = (each for each in found.inputs if each.name == "single_launch_ns")
    assert (pace.value, pace.low, pace.high) == (24_000, 18_750, 27_000)
    assert (pace.source, pace.samples) == ("trace", 4)
    assert found.verdict == "do_not_graph"
    # Ten launches, 3 us until the last kernel begins, 10 us for it and 4 until the host knows.
    assert found.predicted_ns["per_launch"] == 240_000 + 17_000
    assert found.predicted_ns["one_graph"] == 400_000 + 100_000 + 4_000
    assert found.gain_ns == 504_000 - 257_000
    assert found.gain_interval_ns == (504_000 - 287_000, 504_000 - 204_500)
    assert found.ungraphed == ()  # the same step


@pytest.mark.parametrize(
    ("gap_ns", "added_ns", "share"),
    [
        (5_000, (2_000, 4_000), 0.4),
        (2_000, (2_000, 4_000), 0.0),
        (None, (2_000, 4_000), 1.0),
        (5_000, (), 1.0),
    ],
)
def test_the_share_of_a_gap_between_graphs_that_is_not_the_recorders(gap_ns, added_ns, share):
    figures = tuple(
        Figure("recorder_graph_gap_ns", nodes, 1, "nsys-graph", ns, ns, ns, 1)
        for nodes, ns in enumerate(added_ns, 1)
    )

    assert merge_share(trace([op(0, 1)]), replace(calibration(), figures=figures), gap_ns) == share


#: What the recorder adds between nodes: 300 ns, from 200 to 400.
ADDED = (Figure("recorder_node_gap_ns", None, 1, "nsys-node", 300, 200, 400, 1),)


@pytest.mark.parametrize(
    ("recorded", "value", "low", "high"),
    [
        # Nodes without gaps; the step took a fifth less or more.
        ({"lengths_us": (8, 10, 10, 10, 12)}, 970_000, 760_000, 1_180_000),
        # Gaps: at the upper end they are as recorded, and none is below nothing.
        (
            {"gap_ns": 1_000},
            900_000 + 99 * 700,
            900_000 + 99 * 600,
            900_000 + 99 * 1_000,
        ),
        ({"gap_ns": 250}, 975_000, 975_000, 975_000 + 99 * 250),
    ],
)
def test_what_the_recorder_adds_between_nodes_is_taken_off(recorded, value, low, high):
    found = recommended(*graphs(5, **recorded), added=ADDED)
    (device,) = (each for each in found.inputs if each.name == "device_ns")

    assert (device.value, device.low, device.high) == pytest.approx((value, low, high))
    assert found.predicted_ns["device_only"] == value


def test_gaps_of_kernels_shorter_than_those_of_nodes_and_launches_before_their_end_are_none():
    found = recommended(
        *graphs(5), kernel_gap_ns=(100, 100, 100), launch_latency_ns=(1_000, 1_000, 1_000)
    )

    assert found.predicted_ns["per_launch"] == 1_000 + 1_000_000 + 4_000


def test_nodes_side_by_side_are_warned_of():
    ops, api = graphs(5)
    beside = [each | {"end_ns": each["end_ns"] + 2 * US} for each in ops]
    codes = [
        [each.code for each in recommended(*rows).warnings] for rows in ((ops, api), (beside, api))
    ]

    assert [found.count("branches") for found in codes] == [0, 1]


def test_a_cut_through_branches_takes_the_time_in_which_both_parts_ran():
    # Each node runs for 2 us more, beside the next; so all take 2 us more as one graph, and each
    # cut that is made 2 us beside the gap.
    ops, api = graphs(5)
    beside = [each | {"end_ns": each["end_ns"] + 2 * US} for each in ops]
    found = recommended(beside, api, cut_gap_ns=(1_000, 1_000))
    (warning,) = (each for each in found.warnings if each.code == "branches")
    model = found.schedules.model

    assert "predicted to cost up to 2.0 us at one cut" in warning.message
    assert model.lost_ns.tolist() == [0, *[2_000] * 99, 0]
    assert makespan(model, [50, 50]) - makespan(model, [100]) == pytest.approx(3_000)
    # Kernels launched one by one overlap as before.
    assert per_launch_ns(model, 100, 0) == per_launch_ns(replace(model, overlap_ns=0.0), 100, 0)


def test_branches_of_which_nodes_are_missing_are_left_out_and_that_is_said():
    ops, api = graphs(5)
    beside = [each | {"end_ns": each["end_ns"] + 2 * US} for each in ops]
    for step in range(5):
        del beside[100 * step]  # its node of that number, since one of each before is gone
    found = recommended(beside, api)
    (warning,) = (each for each in found.warnings if each.code == "branches")

    assert "which these predictions leave out" in warning.message


def test_the_gaps_between_graphs_can_be_gained_where_a_step_is_cut():
    ops, api, at = [], [], 100 * US
    for number in range(0, 10, 2):
        begin = at + 40 * US
        api.append(call("cudaGraphLaunch", at, begin, number))
        api.append(call("cudaGraphLaunch", begin, begin + 10 * US, number + 1))
        for part, start in enumerate((begin, begin + 520 * US)):
            nodes = range(start, start + 500 * US, 10 * US)
            ops += [
                node(each, each + 10 * US, number + part, i, graph_exec=2 + part)
                for i, each in enumerate(nodes)
            ]
        api.append(call("cudaStreamSynchronize", begin + 10 * US, begin + 1_024 * US))
        at = begin + 1_024 * US
    found = recommended(ops, api, cut_gap_ns=(100_000, 100_000))

    assert (found.verdict, found.chunk, found.schedule) == ("one_graph", 100, (100,))
    # 40 us of launching before four of five steps, 20 us between the graphs of each.
    assert found.gain_ns == 32_000 + 20_000
    assert found.schedules.now == (50, 50)
