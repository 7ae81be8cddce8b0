"""Recommendations that rest on a calibration: the recorder must not decide."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import call, event_wait, graph, graph_event, node, nvtx, op, trace

from gaptrace.analysis import analyze
from gaptrace.calibrated import _warnings as warnings_of
from gaptrace.calibrated import predicted
from gaptrace.calibration import Calibration, Figure
from gaptrace.calibration_match import best_match, differences
from gaptrace.cost import makespan
from gaptrace.host_pace import _MARKED_LOOP, host_pace
from gaptrace.live import host_pace as calibrated_pace
from gaptrace.live import pace_marks
from gaptrace.machine_costs import (
    chunk_model,
    host_costs,
    launch_slowdown,
    node_gap_added,
    slowdown,
)
from gaptrace.predict import advise
from gaptrace.recommendation import Recommendation
from gaptrace.record.calibrations import load
from gaptrace.steps import find_steps
from gaptrace.traced_step import traced_step
from gaptrace.untraced import untraced

US = 1000
SAMPLES = Path(__file__).parent.parent / "sample_traces"
H200 = load(SAMPLES / "h200_calibration.json")
#: One step of 600 nodes on an H200 under Nsight Systems, in us: launch call of a graph of 600 and
#: of 100, its execution, the gap between queued graphs. Without a recorder one graph takes 574 us a
#: step and chunks of 100 take 579; recorded they take 701 and 611 in graph granularity, 1,288 and
#: 826 in node granularity.
RECORDED = {"graph": (125, 32, 577, 96.3, 2.4), "node": (450, 87, 647, 108, 5.4)}


def arms(granularity, repeats=5, pause_us=10):
    """600 nodes a step as one graph, then as six, the host waiting after each step."""
    whole_us, part_us, one_us, chunk_us, gap_us = RECORDED[granularity]
    ops, api, at, number = [], [], 0, 0

    def execution(start, length, nodes, graph_exec):
        if granularity == "graph":
            return [graph(start, start + length, number, graph_exec=graph_exec)]
        each = length / nodes
        ends = [(start + round(i * each), start + round((i + 1) * each) - 85) for i in range(nodes)]
        return [node(a, b, number, i, graph_exec=graph_exec) for i, (a, b) in enumerate(ends)]

    for graphs, launch_us, length_us in ((1, whole_us, one_us), (6, part_us, chunk_us)):
        for _ in range(repeats):
            free = at
            for part in range(graphs):
                number += 1
                end = at + launch_us * US
                api.append(call("cudaGraphLaunch", at, end, number))
                start = max(end, round(free + gap_us * US * (part > 0)))
                length = round(length_us * US)
                ops += execution(start, length, 600 // graphs, 2 if graphs == 1 else 10 + part)
                free, at = start + length, end + US
            api.append(call("cudaStreamSynchronize", at, free + 4 * US))
            at = free + pause_us * US
    return ops, api


def captured(nodes, graph_id, graph_exec, at):
    launches = [
        call("cudaLaunchKernel", at + 10 + i, at + 11 + i, 10_000 * graph_id + i)
        for i in range(nodes)
    ]
    rows = [
        call("cudaStreamBeginCapture", at, at + 5),
        *launches,
        call("cudaStreamEndCapture", at + 2_000, at + 2_010),
    ]
    events = [
        graph_event(at + 6, "graph", graph_id=graph_id),
        graph_event(at + 2_020, "exec", graph_id=graph_id, graph_exec_id=graph_exec),
    ]
    return rows, events


def six_hundred(granularity, **more):
    ops, api = arms(granularity, **more)
    if granularity == "node":
        return trace(ops, api, granularity=granularity)
    built = [captured(600, 1, 2, -100_000)]
    built += [captured(100, 3 + i, 10 + i, -90_000 + 5_000 * i) for i in range(6)]
    api += [row for rows, _ in built for row in rows]
    return trace(
        ops, api, graph_events=[e for _, events in built for e in events], granularity=granularity
    )


@pytest.mark.parametrize("granularity", ["graph", "node"])
def test_the_recorder_makes_no_verdict(granularity):
    recorded = six_hundred(granularity)
    without = analyze(recorded).recommendation
    found = analyze(recorded, calibration=H200).recommendation

    assert (without.verdict, without.cause) == ("needs_calibration", "host_cost_by_nodes")
    assert (found.verdict, found.chunk, found.schedule) == ("one_graph", 600, (600,))
    assert found.gain_ns == 0
    # In the recording six chunks are faster; predicted without it, they are not.
    by_graphs = {each.graphs: each.step_ns for each in found.alternatives}
    step = traced_step(recorded, analyze(recorded).executions, find_steps_of(recorded))
    assert set(step.ways) == {(600,), (100,) * 6}
    assert by_graphs[1] == found.predicted_ns["one_graph"]
    # Timed on such a machine, in two passes: 574 and 578 us.
    assert found.predicted_ns["one_graph"] == pytest.approx(576_000, rel=0.06)


def find_steps_of(recorded):
    found = analyze(recorded)
    return find_steps(recorded, found.range_windows, found.executions)


@pytest.mark.parametrize("granularity", ["graph", "node"])
def test_predicted_chunks_are_not_faster_though_recorded_ones_are(granularity):
    from gaptrace.untraced import untraced

    recorded = six_hundred(granularity)
    analysis = analyze(recorded)
    step = traced_step(recorded, analysis.executions, analysis.steps)
    costs = untraced(recorded, step, H200, "replay", analysis.windows).costs

    one, six = costs.step_ns((600,)), costs.step_ns((100,) * 6)
    assert one < six < 1.02 * one
    assert advise(costs, step.ways).now == (600,)


def paused_capture(at, pause_us):
    """100 launches, 20 us apart; before the second some time goes by."""
    starts = [20, *(20 * n + pause_us for n in range(2, 101))]
    return [
        call("cudaStreamBeginCapture", at, at + US),
        *(call("cudaLaunchKernel", at + us * US, at + (us + 2) * US) for us in starts),
        call("cudaStreamEndCapture", at + (2_020 + pause_us) * US, at + (2_021 + pause_us) * US),
    ]


def single_launch_ns(*pauses_us):
    """Of a step whose program captured 100 nodes, each time with such a pause; with its code."""
    ops, api = arms("node")
    for number, pause_us in enumerate(pauses_us, 1):
        api += paused_capture(-number * 100_000 * US, pause_us)
    found = analyze(trace(ops, api, granularity="node"), calibration=H200).recommendation
    launch, *code = launch_and_code(found.inputs)
    assert (launch.source, launch.evidence, launch.samples) == ("calibration", "timed", 20)
    assert all((each.source, each.samples) == ("trace", len(pauses_us)) for each in code)
    return sum(each.value for each in (launch, *code))


def launch_and_code(inputs):
    """What a launch costs on this machine, and what the program does for one, if it is known."""
    return [each for each in inputs if each.name in ("single_launch_ns", "code_per_launch_ns")]


def test_what_a_capture_compiles_is_no_cost_of_launching():
    usual = single_launch_ns(0)
    assert 8 * US < usual < 30 * US
    # Compiling 40 ms in the only capture, or in one of two, would be 400 us for each of 100 nodes.
    assert single_launch_ns(40_000) == pytest.approx(usual)
    assert single_launch_ns(40_000, 0) == pytest.approx(usual)
    # Of many captures the typical one counts, with what it does each time.
    assert single_launch_ns(40_000, 0, 0) == pytest.approx(usual)
    assert single_launch_ns(1_000, 1_000, 1_000) > usual + 3 * US


def test_captures_may_hold_code_that_launches_do_not():
    ops, api = arms("node")
    recorded = trace(ops, api + paused_capture(-100_000 * US, 0), granularity="node")
    analysis = analyze(recorded)
    step = traced_step(recorded, analysis.executions, analysis.steps)
    at = untraced(recorded, step, H200, "replay", analysis.windows).at
    launch = H200.figure("launch_queued_api_ns")

    assert at["low"].launch_ns == launch.low
    code_ns = at["value"].launch_ns - launch.value
    assert code_ns > 3 * US
    assert at["high"].launch_ns == pytest.approx(launch.high + code_ns)


def capture_of(*starts_us, others=(), end_us=2_020, failed=False, at_us=-1_000_000):
    """A capture of single launches and other calls that begin then, each 2 us long."""
    calls = [
        call("cudaStreamBeginCapture", 0, US),
        *(call("cudaLaunchKernel", us * US, (us + 2) * US) for us in starts_us),
        *(call("cudaEventRecord", us * US, (us + 2) * US) for us in others),
        call("cudaStreamEndCapture", (end_us - 1) * US, end_us * US, return_code=int(failed)),
    ]
    return [
        each | {"start_ns": each["start_ns"] + at_us * US, "end_ns": each["end_ns"] + at_us * US}
        for each in calls
    ]


def single_launch_of(capture):
    ops, api = arms("node")
    made = trace(ops, capture + api, granularity="node")
    found = analyze(made, calibration=H200).recommendation
    return sum(each.value for each in launch_and_code(found.inputs))


def test_only_pauses_of_a_capture_are_taken_as_usual_intervals():
    every_20_us = range(20, 2_001, 20)
    usual = single_launch_of(capture_of(*every_20_us))
    # The first launch comes late; between calls that launch nothing a pause is one all the same.
    late = [us + 40_000 for us in every_20_us]
    assert single_launch_of(capture_of(*late, end_us=42_020)) == pytest.approx(usual)
    paused = [20, *late[1:]]
    others = range(500, 40_000, 100)
    assert single_launch_of(capture_of(*paused, others=others, end_us=42_020)) == pytest.approx(
        usual
    )
    # Every tenth interval nine times as long: that is how the program launches, 36 us on average.
    slower = [20 * n + 160 * (n // 10) for n in range(1, 101)]
    assert single_launch_of(capture_of(*slower, end_us=3_620)) > usual + 3 * US
    # Three captures, but of two shapes: none of them comes often.
    shapes = capture_of(*paused, end_us=42_020)
    shapes += capture_of(*paused, end_us=42_020, at_us=-900_000)
    shapes += capture_of(*paused[:50], end_us=42_020 - 1_000, at_us=-800_000)
    assert single_launch_of(shapes) == pytest.approx(usual)
    # A capture that failed, or that holds nothing, tells nothing.
    nothing = single_launch_of([])
    assert nothing < usual - 3 * US
    assert single_launch_of(capture_of(*every_20_us, failed=True)) == nothing
    assert single_launch_of(capture_of()) == nothing


def test_every_input_says_where_it_is_from_and_how_sure_it_is():
    found = analyze(six_hundred("graph"), calibration=H200).recommendation
    inputs = {each.name: each for each in found.inputs}

    assert inputs["device_ns"].source == "trace"
    assert inputs["device_ns"].evidence == "graph-granularity trace"
    host = inputs["host_one_graph_ns"]
    assert (host.source, host.evidence) == ("calibration", "timed")
    assert host.low < host.value < host.high
    assert found.calibration["gpu"] == "NVIDIA H200"


def test_the_answer_hinges_on_how_launches_grow_with_nodes():
    found = analyze(six_hundred("graph"), calibration=H200).recommendation
    by_name = {each.name: each for each in found.sensitivity}

    assert 1 < by_name["host_by_nodes_ns"].larger < 16
    assert by_name["cut_gap_ns"].larger is None


def test_predictions_are_told_where_something_else_is_the_problem():
    found = analyze(six_hundred("graph", pause_us=3000), calibration=H200).recommendation
    sized = analyze(six_hundred("graph"), calibration=H200).recommendation

    assert (found.verdict, found.cause) == ("not_a_chunk_problem", "host_code:after_wait")
    assert found.by_size == sized.by_size
    assert (found.schedules.now, found.schedules.advised) == ((600,), None)
    # No size is advised: nothing that such an advice would hinge on.
    assert (found.chunk, found.plateau, found.schedule, found.sensitivity) == (None, None, None, ())


def test_the_way_it_is_now_is_among_the_alternatives():
    found = analyze(six_hundred("graph"), calibration=H200).recommendation

    assert [each.name for each in found.alternatives if each.is_now] == ["one_graph"]
    assert (found.schedules.now, found.schedules.advised) == ((600,), (600,))
    model, sizes = found.schedules.model, found.schedules.cut
    ns = {each.chunk: each.step_ns for each in found.alternatives if each.name == "chunk"}
    step_ns = makespan(model, sizes) + found.schedules.added_ns
    assert round(step_ns) == ns[max(sizes)]


def test_an_unknown_number_of_nodes_is_what_is_missing_even_with_a_calibration():
    ops, api = arms("graph")
    found = analyze(trace(ops, api), calibration=H200).recommendation

    assert (found.verdict, found.cause) == ("needs_calibration", "nodes")


def test_a_calibration_without_tables_does_not_tell():
    bare = replace(H200, figures=tuple(each for each in H200.figures if each.nodes is None))
    found = analyze(six_hundred("graph"), calibration=bare).recommendation

    assert (found.verdict, found.cause) == ("needs_calibration", "calibration_incomplete")


def test_a_calibration_that_does_not_say_what_a_cut_adds_does_not_tell():
    bare = replace(H200, figures=tuple(e for e in H200.figures if e.name != "cut_gap_ns"))
    found = analyze(six_hundred("graph"), calibration=bare).recommendation

    assert (found.verdict, found.cause) == ("needs_calibration", "calibration_incomplete")


def told(regime="replay", *, has_branches=False, more=()):
    """What is told of a graph of 16 nodes that is built as in a regime."""
    ops = [graph(i * 200 * US + 9 * US, i * 200 * US + 25 * US, i) for i in range(1, 6)]
    api = [call("cudaGraphLaunch", i * 200 * US, i * 200 * US + 5 * US, i) for i in range(1, 6)]
    rows, events = captured(16, 1, 2, -100_000)
    recorded = trace(ops, [*api, *rows, *more], graph_events=events)
    found = analyze(recorded)
    step = traced_step(recorded, found.executions, find_steps_of(recorded))
    step = replace(step, has_branches=has_branches)
    everywhere = pl.DataFrame({"device_id": [0], "start_ns": [-(10**9)], "end_ns": [10**9]})
    idle = found.pieces.with_columns(next_op_id=pl.lit(None, pl.Int64)).clear()
    base = Recommendation("needs_calibration")
    return predicted(base, recorded, step, H200, regime, idle, everywhere, ())


def test_what_every_step_builds_is_not_paid_for_by_replays():
    assert told("replay").break_even_replays > 0
    assert told("update").break_even_replays is None
    assert told("instantiate").break_even_replays is None


def test_builds_as_recorded_cost_the_same_with_branches():
    """The calibrated cost of branches is higher; what was recorded holds that already."""
    builds = [
        call(name, -50_000 + i * 10_000, -50_000 + i * 10_000 + 9_000)
        for i, name in enumerate(("cudaGraphExecUpdate", "cudaGraphExecDestroy"))
    ]
    line, branches = (
        {each.name: each.value for each in told("update", has_branches=has, more=builds).inputs}
        for has in (False, True)
    )

    name = "host_one_graph_ns"
    assert branches[name] == pytest.approx(line[name], rel=0.05)


def test_a_gain_that_may_be_none_is_warned_of():
    recorded = six_hundred("graph")
    found = analyze(recorded)
    step = traced_step(recorded, found.executions, find_steps_of(recorded))
    costs = untraced(recorded, step, H200, "replay", found.windows).costs
    advice = replace(advise(costs, [(100,) * 6]), gain_ns=10.0)

    def codes(interval):
        return [each.code for each in warnings_of(step, advice, costs, interval)]

    assert codes((0, 20)) == codes((-5, 20)) == ["gain_unsure"]
    assert codes((1, 20)) == []


def test_a_calibration_without_recorders_corrects_nothing_and_says_so():
    bare = replace(
        H200, recorders={}, figures=tuple(each for each in H200.figures if each.recorder is None)
    )
    found = analyze(six_hundred("node"), calibration=bare).recommendation

    assert "recorder_not_calibrated" in [each.code for each in found.warnings]
    assert found.verdict == "one_graph"
    assert slowdown(bare, "capture_ns", "nsys-node", 100) == 1


def test_overlapping_nodes_are_branches():
    ops = [node(1_000 + 100 * i, 1_250 + 100 * i, 1, i) for i in range(20)]
    recorded = trace(ops, [call("cudaGraphLaunch", 0, 900, 1)], granularity="node")
    analysis = analyze(recorded)
    step = traced_step(recorded, analysis.executions, analysis.steps)

    assert step.has_branches
    # Each has its share of the span, 2,150 ns.
    assert step.node_ns.tolist() == [107.5] * 20
    assert step.gap_ns.tolist() == [0.0] * 20


@pytest.mark.parametrize(("in_time", "node_ns"), [(2, 90.0), (3, 60.0)])
def test_executions_launched_in_time_tell_what_the_device_takes(in_time, node_ns):
    # Alone each takes 900 ns, part of it the launch call's; queued behind another 600.
    api, ops, at = [], [], 0
    for launch in range(1, 5):
        api += [call("cudaGraphLaunch", at, at + 400, launch)]
        ops += [graph(at + 300, at + 1_200, launch)]
        at += 2_000
    api += [call("cudaGraphLaunch", at, at + 400, 5)]
    ops += [graph(at + 300, at + 10_000, 5, graph_exec=3)]
    for number in range(in_time):
        begin = at + 10_000 + 700 * number
        api += [call("cudaGraphLaunch", at + 500 + 10 * number, at + 505 + 10 * number, 6 + number)]
        ops += [graph(begin, begin + 600, 6 + number)]
    rows, events = captured(10, 1, 2, -50_000)
    more, others = captured(4, 2, 3, -40_000)
    recorded = trace(ops, api + rows + more, graph_events=[*events, *others])
    analysis = analyze(recorded)
    nodes = analysis.executions.filter(graph_exec_id=2)
    step = traced_step(recorded, nodes, analysis.steps)

    assert step.sizes == (10,)
    assert step.node_ns.tolist() == [node_ns] * 10


@pytest.mark.parametrize(
    ("gap_ns", "said"),
    [(900, "no_difference_shown"), (2_000, "not_a_chunk_problem")],
)
def test_gaps_that_all_graphs_have_between_their_nodes_are_no_problem_of_this_one(gap_ns, said):
    usual = H200.figure("node_gap_ns", recorder="nsys-node")
    assert 900 < usual.high < 2_000
    ops, api, at = [], [], 0
    for launch in range(1, 6):
        api += [call("cudaGraphLaunch", at, at + 5 * US, launch)]
        begin = max(at + 6 * US, ops[-1]["end_ns"] + 2 * US if ops else 0)
        for number in range(300):
            ops += [node(begin, begin + 3_000, launch, number)]
            begin += 3_000 + gap_ns
        at += 6 * US
    recorded = trace(ops, api, granularity="node")
    found = analyze(recorded, calibration=H200).recommendation

    assert found.verdict == said
    assert found.cause == ("device_queued:in_graph" if said == "not_a_chunk_problem" else None)
    without = analyze(recorded).recommendation
    assert (without.verdict, without.cause) == ("not_a_chunk_problem", "device_queued:in_graph")


def test_a_step_ends_where_the_host_waits_or_a_graph_comes_again():
    calls = [call("cudaGraphLaunch", at, at + 5, i) for i, at in enumerate((0, 10, 20, 30), 1)]
    ops = [
        graph(100 * i, 100 * i + 90, i, graph_exec=exec_id)
        for i, exec_id in enumerate((2, 3, 2, 3), 1)
    ]
    built = [captured(4, 1, 2, -50_000), captured(6, 5, 3, -40_000)]
    api = calls + [row for rows, _ in built for row in rows]
    events = [event for _, each in built for event in each]
    recorded = trace(ops, api, graph_events=events)
    analysis = analyze(recorded)
    step = traced_step(recorded, analysis.executions, analysis.steps)

    assert (step.ways, step.repeats, step.is_waited_for) == (((4, 6),), 2, False)
    assert step.notice_ns is None
    assert step.node_ns.tolist() == [90 / 4] * 4 + [90 / 6] * 6


def test_a_chunk_model_of_calibrated_costs():
    def table(name):
        return {each.nodes: each.value for each in H200.table(name)}

    updated = (
        "capture_ns",
        "exec_update_ns",
        "graph_updated_launch_api_ns",
        "destroy_graph_ns",
    )
    model = chunk_model(H200, 512, 2_000.0, "update")
    # The largest calibrated size is no more than others cost: it is taken as it is.
    large = max(table("capture_ns"))
    cost = sum(table(name)[large] for name in updated)
    assert model.host(large) == pytest.approx(cost)
    gaps = [each.value for each in H200.table("cut_gap_ns")]
    assert model.cut_gap_ns == pytest.approx(sum(gaps) / 2)
    assert model.device_only_ns == 512 * 2_000
    whole, halves = (makespan(model, sizes) for sizes in ([512], [256, 256]))
    ready = model.ready_ns
    assert whole == pytest.approx(ready[512] + 512 * 2_000)
    begun = max(model.host_ns[256] + ready[256], ready[256] + 256 * 2_000 + model.cut_gap_ns)
    assert halves == pytest.approx(begun + 256 * 2_000)
    assert halves < whole


@pytest.mark.parametrize(
    ("regime", "names"),
    [
        ("replay", ("graph_launch_api_ns",)),
        ("instantiate", ("capture_ns", "instantiate_ns", "graph_first_launch_api_ns")),
    ],
)
def test_host_cost_of_a_regime_is_the_sum_of_its_calls(regime, names):
    factors = {"capture_ns": 2.0, "destroy_graph_ns": 0.0, "destroy_exec_ns": 0.0}
    host, _ = host_costs(H200, regime, "value", factors)
    parts = [H200.figure(name, nodes=512).value * factors.get(name, 1.0) for name in names]

    assert float(host(512)) == pytest.approx(sum(parts))


def per_launch(
    kernels,
    *,
    kernel_us,
    interval_us,
    api_us=2,
    launch="cudaLaunchKernel",
    steps=6,
    names=None,
    inside=(),
    slow=(),
    loops_us=None,
    **own,
):
    """Steps marked by a range: kernels one by one, as many as in each or in all, then a wait.

    In slow ones launch calls take twice, and what lies between them 2.3 times as long. Before each
    the host's pace is marked, if the loops of the marks are given, which are as in `own`.
    """
    ops, api, ranges, at, number = [], [], [], 0, 0
    for step, count in enumerate(kernels if isinstance(kernels, list) else [kernels] * steps):
        begin, free = at, at
        calls, code = (2, 2.3) if step in slow else (1, 1)
        if loops_us:
            loop_ns = round(loops_us[step] * US)
            mark = nvtx(pace_marks.NAME, at - US // 2, None, kind="mark", payload=loop_ns)
            ranges.append(mark | own)
        for i in range(count):
            number += 1
            api.append(call(launch, at, at + round(calls * api_us * US), number))
            start = max(at + round((calls * api_us + 1) * US), free)
            name = names(step, i) if names else f"k{i % 3}"
            ops.append(op(start, start + kernel_us * US, number, name=name))
            free, at = start + kernel_us * US, at + round(code * interval_us * US)
            if i in inside:
                api.append(call("cudaStreamSynchronize", at, free + US))
                at = free + 2 * US
        api.append(call("cudaStreamSynchronize", at, free + 4 * US))
        at = max(at, free) + 10 * US
        ranges.append(nvtx("step", begin, at - US, payload=step))
    return trace(ops, api, ranges, granularity=None)


def of_steps(recorded):
    return analyze(recorded, calibration=H200).recommendation


def test_many_small_kernels_should_be_captured():
    found = of_steps(per_launch(50, kernel_us=1, interval_us=10))
    step = found.ungraphed[0]

    assert (found.verdict, found.nodes, found.chunk, found.regime) == ("one_graph", 50, 50, None)
    assert (step.unit, step.kernels, step.steps) == ("step", 50, 5)
    # The fastest launches of 3,466 ns became 4,361 ns, in the less disturbed of two processes.
    factor = launch_slowdown(H200, "nsys-graph", "value")
    assert factor == pytest.approx(3466 / 4361, abs=0.001)
    assert step.per_launch_ns == pytest.approx(50 * 10_000 * factor, rel=0.02)
    # Of the gap of 0.66 us that nodes have, half is taken not to be in the recorded kernels.
    assert step.one_graph_ns == pytest.approx(50_000 + 50 * 330 + 5_000, rel=0.02)
    assert 0 < step.gain_interval_ns[0] <= step.gain_ns <= step.gain_interval_ns[1]
    assert step.break_even_replays == 2


@pytest.mark.parametrize(
    ("api_ns", "level", "speed"),
    [
        # 3,684 ns as calibrated, and 7 % more in a program.
        (3_900, "value", 1.0),
        # 3,684 ns as calibrated, up to a tenth more in a program.
        (1.09 * 3683.7, "value", 1.0),
        # Twice as long a call: what the program does between launches takes 2.3 times as long.
        (2 * 4052, "value", 0.5**1.2),
        (2 * 4052, "low", 0.5**1.2),
        # Or else the launches of this program are dearer.
        (2 * 4052, "high", 1.0),
        (0, "value", 1.0),
        # A step without launches, of copies alone.
        (None, "value", 1.0),
    ],
)
def test_launch_calls_longer_than_calibrated_show_a_slow_host(api_ns, level, speed):
    assert host_pace(H200, [api_ns], [np.nan], level) == pytest.approx([speed], abs=0.001)


@pytest.mark.parametrize(
    ("loop_ns", "api_ns", "level", "speed"),
    [
        # Calibrated: 3,684 ns a call; 58,560 ns a loop (55,873 to 65,248), of a mark 0.105 of it.
        (6_149, 3_684, "value", 1.0),
        (12_298, 2 * 3_684, "value", 0.5),
        (12_298, 8 * 3_684, "value", 0.25),
        (4 * 6_149, 3_684 / 2, "value", 0.5**0.5),
        (3_000, 3_684, "value", 1.0),
        (12_298, 4 * 3_684, "low", (5_867 / 12_298 / 4) ** 0.5),
        # At the ends launches are dearer, or cheaper, on any host.
        (12_298, 3_684, "low", 5_867 / 12_298),
        (12_298, 2 * 3_684, "high", 6_851 / 12_298),
        (12_298, 3_684, "high", (6_851 / 12_298) ** 0.5),
        (12_298, None, "value", 0.5),
        # No loop takes no time.
        (0, 2 * 4_052, "value", 0.5**1.2),
    ],
)
def test_the_pace_of_the_host_is_between_that_of_a_loop_and_of_its_calls(
    loop_ns, api_ns, level, speed
):
    found = host_pace(H200, [api_ns, 3_600], [loop_ns, np.nan], level)
    assert found == pytest.approx([speed, 1.0], abs=0.001)


@given(st.floats(1_000, 50_000), st.one_of(st.none(), st.floats(500, 50_000)))
def test_the_pace_of_the_host_lies_between_its_ends(api_ns, loop_ns):
    low, value, high = (
        host_pace(H200, [api_ns], [loop_ns], level)[0] for level in ("low", "value", "high")
    )
    assert 0 < low <= value <= high <= 1


def test_a_calibration_without_the_pace_of_the_host_leaves_the_calls():
    figures = tuple(each for each in H200.figures if each.name != "host_loop_ns")
    old = replace(H200, figures=figures)
    found = host_pace(old, [2 * 4052], [100_000], "value")
    assert found == pytest.approx([0.5**1.2], abs=0.001)


def test_a_launch_that_was_calibrated_as_nothing_shows_no_slow_host():
    none = Figure("launch_queued_api_ns", None, 1, None, -10.0, -20.0, 5.0, 4)
    assert host_pace(replace(H200, figures=(none,)), [4_000], [np.nan], "value") == [1.0]


def at_pace(slow):
    recorded = per_launch(
        50, kernel_us=1, interval_us=10, api_us=5, launch="cuLaunchKernel", steps=5, slow=slow
    )
    (found,) = of_steps(recorded).ungraphed
    return found


def test_the_pace_of_a_slow_process_is_not_that_of_the_program():
    quick, slow = at_pace(()), at_pace(range(5))

    assert (quick.host_pace, slow.host_pace) == pytest.approx((0.777, 0.338), abs=0.001)
    assert slow.launch_ns == pytest.approx(quick.launch_ns, rel=0.03)
    assert slow.gain_interval_ns[1] > 2.2 * quick.gain_interval_ns[1]


def test_a_step_of_one_launch_has_no_pace_of_its_own():
    plain = of_steps(per_launch([50] * 6, kernel_us=1, interval_us=10)).ungraphed[0]
    found = of_steps(per_launch([50, 50, 1, 50, 50, 50], kernel_us=1, interval_us=10)).ungraphed[0]

    assert (found.kernels, found.launch_ns) == (50, plain.launch_ns)


def at_loops(loops_us, **own):
    """The launch interval of steps, every other one 2.3 times as long, its calls twice."""
    recorded = per_launch(
        *(50,),
        kernel_us=1,
        interval_us=10,
        api_us=3.684,
        launch="cuLaunchKernel",
        steps=5,
        slow=(2, 4),
        loops_us=loops_us,
        **own,
    )
    return of_steps(recorded).ungraphed[0].launch_ns


def test_what_a_mark_says_of_the_host_counts_for_the_step_after_it():
    full, slow = 6.149, 2.3**2 / 2 * 6.149
    slowdown = launch_slowdown(H200, "nsys-graph", "value")

    assert at_loops([full, full, slow, full, slow]) == pytest.approx(10_000 * slowdown, rel=0.001)
    # The wrong way round, steps 2 and 4 seem to take 23 / 2**0.5 us, 1 and 3 for 10 * 2**0.5 / 2.3.
    assert at_loops([slow, slow, full, slow, full]) == pytest.approx(11_206 * slowdown, rel=0.001)


def test_the_loop_of_a_mark_is_part_of_the_calibrated_one():
    share = len(pace_marks.PASSES) / len(calibrated_pace.PASSES)

    assert pace_marks.PASSES[-1] == calibrated_pace.PASSES[-1]
    # Small integers are not made anew, and pass in half the time; only the whole loop has them.
    assert pace_marks.PASSES[0] > 256
    assert pytest.approx(share / (1 - 0.5 * 257 / 5_000), rel=0.03) == _MARKED_LOOP


@pytest.mark.parametrize(
    ("loop_us", "said"),
    [
        (9.5, None),
        (
            9.8,
            "the host ran at 79 % of its calibrated pace while step was recorded, as if others "
            "used it; launches one by one are predicted at full pace",
        ),
    ],
)
def test_a_slow_host_is_told_of(loop_us, said):
    recorded = per_launch(
        50,
        kernel_us=1,
        interval_us=10,
        api_us=3.684,
        launch="cuLaunchKernel",
        loops_us=[loop_us] * 6,
    )
    warnings = {each.code: each.message for each in of_steps(recorded).warnings}

    assert warnings.get("slow_host") == said


@pytest.mark.parametrize(
    "own",
    [
        {"start_ns": -200_000 * US},
        {"process_id": 77},
        {"domain": "another"},
        {"kind": "push_pop"},
        {"name": "another"},
        {"payload": None},
    ],
)
def test_other_marks_say_nothing_of_the_host(own):
    assert at_loops([64.0] * 5, **own) == at_loops(None)


def test_a_host_that_slows_down_is_seen_step_by_step():
    quick, half, slow = (at_pace(steps) for steps in ((), (3, 4), range(5)))

    assert quick.launch_ns < slow.launch_ns
    assert half.launch_ns == pytest.approx((quick.launch_ns + slow.launch_ns) / 2, abs=1)
    assert half.host_pace == pytest.approx((quick.host_pace + slow.host_pace) / 2)


def test_what_the_runtime_adds_to_a_call_does_not_show_a_slow_host():
    paces = [
        of_steps(per_launch(50, kernel_us=1, interval_us=20, api_us=api_us, launch=launch))
        .ungraphed[0]
        .launch_ns
        for launch, api_us in (("cuLaunchKernel", 8), ("cudaLaunchKernel", 8.7))
    ]

    assert paces[0] == paces[1] < 20_000 * 0.6


def test_without_a_calibration_the_cost_of_a_graph_is_missing():
    found = analyze(per_launch(50, kernel_us=1, interval_us=10)).recommendation

    assert (found.verdict, found.cause) == ("needs_calibration", "graph_launch_cost")
    assert found.ungraphed == ()


@pytest.mark.parametrize(
    ("recorded", "said"),
    [
        (
            per_launch(50, kernel_us=1, interval_us=10, names=lambda step, i: f"s{step}k{i}"),
            ("not_a_chunk_problem", "dynamic_steps"),
        ),
        (
            per_launch(50, kernel_us=1, interval_us=10, inside=(20, 40)),
            ("not_a_chunk_problem", "waits_inside"),
        ),
    ],
)
def test_steps_that_no_graph_can_hold(recorded, said):
    found = of_steps(recorded)

    assert [(each.verdict, each.cause) for each in found.ungraphed] == [said]
    assert (found.verdict, found.cause) == said


def on_two_streams(*, waits):
    """Steps of 40 kernels of 5 us, in turn on streams 7 and 9; 9 waits for each of 7, or not."""
    ops, api, ranges, orders, at, number = [], [], [], [], 0, 0
    for step in range(6):
        begin = at
        for i in range(40):
            number, stream = number + 1, 9 if i % 2 else 7
            if i % 2 and waits:
                api.append(call("cudaEventRecord", at, at + 500))
                api.append(call("cudaStreamWaitEvent", at + 500, at + US))
                orders.append(
                    event_wait(len(api) - 1, 9, awaited_stream_id=7, recorded_call_id=len(api) - 2)
                )
            api.append(call("cudaLaunchKernel", at + US, at + 3 * US, number))
            ops.append(op(at + 4 * US, at + 9 * US, number, name=f"k{i}", stream_id=stream))
            at += 10 * US
        api.append(call("cudaStreamSynchronize", at, at + 4 * US))
        at += 20 * US
        ranges.append(nvtx("step", begin, at - US, payload=step))
    return trace(ops, api, ranges, event_waits=orders, granularity=None)


def test_kernels_on_several_streams_run_side_by_side_or_not():
    alone, chained = (of_steps(on_two_streams(waits=waits)).ungraphed[0] for waits in (False, True))
    gap = 330  # of a kernel in a graph
    launch = 5_000
    # The longest chain is the 20 kernels of one stream, or those of 7 and the last one of 9.
    all_ns = 40 * (5_000 + gap)
    assert alone.one_graph_ns == pytest.approx((all_ns + 20 * (5_000 + gap)) / 2 + launch, rel=0.02)
    assert chained.one_graph_ns == pytest.approx(
        (all_ns + 21 * (5_000 + gap)) / 2 + launch, rel=0.02
    )
    assert alone.gain_interval_ns[1] > chained.gain_interval_ns[1]


def test_few_large_kernels_hide_their_launches():
    found = of_steps(per_launch(10, kernel_us=2_000, interval_us=8))

    assert (found.ungraphed[0].verdict, found.ungraphed[0].cause) == (
        "do_not_graph",
        "large_kernels",
    )
    assert found.verdict == "do_not_graph"


def on(gpu="GPU zero", driver="580.1", cuda="13.0", cpu="a CPU", date="2026-01-01", os="Linux"):
    machine = replace(H200.machine, gpu=gpu, driver=driver, cuda=cuda, cpu=cpu, os=os)
    return replace(H200, machine=machine, date=date)


def recorded_on():
    made = trace([op(0, 10)])
    meta = replace(made.meta, driver="580.1", cuda="13.0", cpu="a CPU", os="Ubuntu 24.04")
    return replace(made, meta=meta)


def test_what_differs_is_named():
    assert differences(on(), recorded_on()) == {}
    assert differences(on(os="Windows-11"), recorded_on()) == {"os": ("Windows-11", "Ubuntu 24.04")}
    assert differences(on(gpu="GPU two", cpu="another"), recorded_on()) == {
        "gpu": ("GPU two", "GPU one + GPU zero"),
        "cpu": ("another", "a CPU"),
    }


def test_what_either_does_not_know_does_not_differ():
    unknown = recorded_on()
    unknown = replace(unknown, meta=replace(unknown.meta, cuda=None, os=None))

    assert differences(on(gpu=None, driver=None, cuda=None, cpu=None, os=None), recorded_on()) == {}
    assert differences(on(cuda="12.0", os="Windows-11"), unknown) == {}
    # But what is not known of GPU or driver does not fit either.
    assert best_match([on(gpu=None), on(driver=None)], recorded_on()) is None
    nameless = recorded_on().devices.with_columns(name=pl.lit(None, pl.String))
    assert best_match([on()], replace(recorded_on(), devices=nameless)) is None


def test_each_kind_of_gpu_is_named_once():
    made = recorded_on()
    twice = pl.concat([made.devices, made.devices.with_columns(pl.col("device_id") + 2)])

    assert differences(on(gpu="GPU two"), replace(made, devices=twice)) == {
        "gpu": ("GPU two", "GPU one + GPU zero")
    }


def test_the_newest_calibration_of_the_same_gpu_driver_and_cuda_is_taken():
    saved = [
        on(date="2026-01-01"),
        on(date="2026-03-01"),
        on(date="2026-05-01", cpu="another"),
        on(date="2026-06-01", driver="570.1"),
        on(date="2026-06-01", gpu="GPU two"),
    ]

    assert best_match(saved, recorded_on()) is saved[1]
    assert best_match(saved[2:], recorded_on()) is saved[2]
    assert best_match(saved[3:], recorded_on()) is None
    assert best_match(saved, trace([op(0, 10)])) is None  # it does not name its driver


def test_another_driver_is_a_warning():
    found = analyze(recorded_on(), calibration=on(driver="570.1")).recommendation

    assert [each.code for each in found.warnings] == ["calibration_differs"]
    assert "driver 570.1" in found.warnings[0].message


#: Untraced on an H200, us a step: medians of five runs of examples/demo.py.
TIMED = {(75,): (79.0, 82.3), (25,) * 3: (81.2, 83.8), (10,) * 7 + (5,): (87.3, 90.0)}


@pytest.mark.parametrize("granularity", ["graph", "node"])
def test_predictions_from_the_samples_are_what_was_timed(granularity):
    from gaptrace.read import read
    from gaptrace.untraced import untraced

    recorded = read(SAMPLES / f"demo_{granularity}.sqlite")
    analysis = analyze(recorded, calibration=H200)
    step = traced_step(recorded, analysis.executions, analysis.steps)
    costs = untraced(recorded, step, H200, "replay", analysis.windows).costs

    assert set(step.ways) == set(TIMED)
    for way, (low, high) in TIMED.items():
        assert low * 0.985 <= costs.step_ns(way) / US <= high * 1.015
    assert analysis.recommendation.verdict == "one_graph"
    # Launches of single kernels took 381 to 550 us a step, by process.
    assert 381 <= analysis.recommendation.predicted_ns["per_launch"] / US <= 1.15 * 550
    assert "slow_host" in [each.code for each in analysis.recommendation.warnings]
    (single,) = (e for e in analysis.recommendation.inputs if e.name == "single_launch_ns")
    assert single.low < 381 * US / 75
    assert single.high > 550 * US / 75


def test_nodes_are_corrected_by_what_is_added_between_kernels_of_programs():
    small = Figure("recorder_small_node_ns", None, 1, "nsys-node", 120.0, 110.0, 130.0, 4)

    older = replace(H200, figures=tuple(f for f in H200.figures if f.name != small.name))
    assert node_gap_added(older, "nsys-node", "value") == pytest.approx(301, abs=1)
    known = replace(H200, figures=(*older.figures, small))
    assert node_gap_added(known, "nsys-node", "value") == 120
    assert node_gap_added(known, "nsys-graph", "value") == pytest.approx(0, abs=10)


def test_calibrations_are_what_the_tests_take_them_for():
    assert isinstance(H200, Calibration)
    assert H200.machine.os == "Linux"
    assert np.isfinite([each.value for each in H200.figures]).all()


def test_a_trace_that_does_not_name_its_gpu_is_warned_of():
    recorded = six_hundred("graph")
    nameless = replace(
        recorded, devices=recorded.devices.with_columns(name=pl.lit(None, pl.String))
    )

    def codes(given):
        warnings = analyze(given, calibration=H200).recommendation.warnings
        return [each.code for each in warnings if "calibration" in each.code]

    assert codes(nameless) == ["calibration_unsure"]
    assert codes(recorded) == ["calibration_differs"]


def test_a_row_of_new_graphs_without_a_wait_is_no_step():
    """Built anew at every launch, and launched in time: nothing tells where a step begins."""
    ops, api, events = [], [], []
    for number in range(1, 13):
        rows, made = captured(10, number, 100 + number, number * 5_000)
        api += [*rows, call("cudaGraphInstantiate", number * 5_000 + 2_015, number * 5_000 + 2_030)]
        api.append(call("cudaGraphLaunch", number * 5_000 + 2_100, number * 5_000 + 2_200, number))
        start = number * 120 * US - 112 * US
        ops.append(graph(start, start + 100 * US, number, graph_exec=100 + number))
        events += made
    recorded = trace(ops, api, graph_events=events)
    found = analyze(recorded, calibration=H200)
    step = traced_step(recorded, found.executions, found.steps)

    assert (step.repeats, len(step.sizes)) == (1, 12)
    assert found.recommendation.regime == "instantiate"
    assert (found.recommendation.verdict, found.recommendation.cause) == (
        "needs_calibration",
        "steps",
    )
