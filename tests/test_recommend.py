"""The first recommendation: what a trace alone can say, and what it must not."""

from dataclasses import replace

import pytest
from rows import call, graph, graph_event, node, nvtx, op, trace

from gaptrace.analysis import analyze
from gaptrace.recommendation import Recommendation
from gaptrace.render import verdicts

US = 1000


def replayed(count, *, launch_us, before_us, graph_us, api="cudaGraphLaunch", every=()):
    """count graph executions of 600 nodes, each launched `before_us` after the last one ended."""
    ops, api_rows, at = [], [], 0
    for number in range(1, count + 1):
        for name, length_us in every:
            api_rows.append(call(name, at, at + length_us * US))
            at += length_us * US
        at += before_us * US
        start, launched = at + launch_us * US, at
        api_rows.append(call(api, launched, start, number))
        ops.append(graph(start, start + graph_us * US, number))
        at = start + graph_us * US
    return ops, api_rows


CAPTURE = [
    call("cudaStreamBeginCapture", -100 * US, -99 * US),
    *(
        call("cudaLaunchKernel", -95 * US + i * 100, -95 * US + i * 100 + 50, 5000 + i)
        for i in range(600)
    ),
    call("cudaStreamEndCapture", -30 * US, -29 * US),
]


def recommended(ops, api, ranges=(), *, with_nodes=True, granularity="graph"):
    extra = CAPTURE if with_nodes else []
    events = [
        graph_event(-99 * US, "graph", graph_id=1),
        graph_event(-29 * US, "exec", graph_id=1, graph_exec_id=2),
    ]
    made = trace(
        ops,
        [*extra, *api],
        ranges,
        graph_events=events if with_nodes else (),
        granularity=granularity,
    )
    return analyze(made).recommendation


def test_a_long_graph_launch_seen_under_a_recorder_needs_calibration():
    # 600 nodes, 150 us launch calls under nsys: without a recorder they take 4 to 10 us, and one
    # graph is best. The trace must not say "chunk".
    ops, api = replayed(5, launch_us=150, before_us=3, graph_us=577)
    found = recommended(ops, api)

    assert (found.verdict, found.cause) == ("needs_calibration", "host_cost_by_nodes")
    assert (found.regime, found.nodes, found.chunk) == ("replay", 600, None)
    # All launch calls but the first lie between executions.
    assert found.gain_cap_ns == 4 * 150 * US


def test_node_granularity_needs_calibration_too():
    # The same step in node granularity: half a millisecond of launch call before 600 nodes.
    api, ops = [], []
    for step in range(1, 4):
        begin = step * 1_080 * US
        api.append(call("cudaGraphLaunch", begin, begin + 470 * US, step))
        ops += [
            node(begin + 470 * US + i * US, begin + 470 * US + i * US + 900, step, i)
            for i in range(600)
        ]
    found = analyze(trace(ops, api, granularity="node")).recommendation

    assert (found.nodes, found.verdict, found.cause) == (
        600,
        "needs_calibration",
        "host_cost_by_nodes",
    )


def test_unknown_graph_size_is_said_to_be_what_is_missing():
    ops, api = replayed(5, launch_us=150, before_us=3, graph_us=577)
    found = recommended(ops, api, with_nodes=False)

    assert (found.verdict, found.cause) == ("needs_calibration", "nodes")


def test_building_once_is_no_reason_to_cut_a_graph_whose_launches_hardly_show():
    # 3 us of launch call before 2 ms of work: even free cuts could gain no more than 0.15 %. That
    # the graph was built while the device waited does not depend on its size.
    ops, api = replayed(5, launch_us=3, before_us=1, graph_us=2_000)
    found = recommended([op(-200 * US, -150 * US), *ops], api)

    assert (found.verdict, found.nodes, found.schedule) == ("one_graph", 600, (600,))
    assert found.predicted_ns == {"one_graph": 2_003_000, "device_only": 2_000_000}
    assert found.gain_ns == 0


def test_a_device_that_starts_before_the_launch_returns_waits_no_longer_than_that():
    ops, api = [], []
    for number in range(1, 6):
        at = (number - 1) * 2_004 * US
        api.append(call("cudaGraphLaunch", at, at + 50 * US, number))
        ops.append(graph(at + 3 * US, at + 2_003 * US, number))
    found = recommended([op(-200 * US, -150 * US), *ops], api)

    assert found.predicted_ns == {"one_graph": 2_003_000, "device_only": 2_000_000}


def test_a_graph_of_one_node_cannot_be_cut():
    ops, api = [], []
    for step in range(1, 6):
        at = step * 300 * US
        api.append(call("cudaGraphLaunch", at, at + 100 * US, step))
        ops.append(node(at + 100 * US, at + 299 * US, step, 0))
    found = analyze(trace(ops, api, granularity="node")).recommendation

    assert (found.nodes, found.verdict, found.cause) == (1, "not_a_chunk_problem", "launch_call")


def test_a_trace_does_not_tell_whether_several_graphs_should_be_one():
    # As above, but a step is two graphs, the second queued behind the first.
    ops, api = [], []
    for step in range(5):
        at = step * 2_004 * US
        api += [
            call("cudaGraphLaunch", at + US, at + 4 * US, 2 * step + 1),
            call("cudaGraphLaunch", at + 4 * US, at + 7 * US, 2 * step + 2),
        ]
        ops += [
            graph(at + 4 * US, at + 1_004 * US, 2 * step + 1),
            graph(at + 1_004 * US + 100, at + 2_004 * US, 2 * step + 2),
        ]
    found = recommended([op(-200 * US, -150 * US), *ops], api)

    assert {each.name: each.value for each in found.inputs}["graphs_per_step"] == 2
    assert (found.verdict, found.cause) == ("needs_calibration", "host_cost_by_nodes")


def test_launches_that_hardly_show_make_no_difference():
    ops, api = replayed(5, launch_us=3, before_us=1, graph_us=2_000)

    assert recommended(ops, api).verdict == "no_difference_shown"


def test_graphs_that_follow_each_other_at_once_show_no_difference():
    ops = [graph(i * 1_001 * US, i * 1_001 * US + 1_000 * US, i) for i in range(1, 6)]
    api = [call("cudaGraphLaunch", i * US, i * US + 900, i) for i in range(1, 6)]

    assert recommended(ops, api).verdict == "no_difference_shown"


def test_many_small_graphs_queued_behind_each_other_should_be_merged():
    ops = [graph(i * 50 * US, i * 50 * US + 27 * US, i) for i in range(1, 60)]
    api = [call("cudaGraphLaunch", i * US - 500, i * US, i) for i in range(1, 60)]

    found = recommended(ops, api)

    # 58 pauses of 23 us as traced; in graph granularity 2.2 times what they are without a recorder.
    assert (found.verdict, found.gain_cap_ns) == ("merge", 58 * 23 * US)
    assert found.gain_ns == round(58 * 23 * US / 2.2)


def test_what_merging_gains_is_told_per_step():
    ops, api = [], []
    for step in range(4):
        for i in range(1, 21):
            number, at = 20 * step + i, 1_030 * step * US
            ops.append(graph(at + (50 * i - 49) * US, at + (50 * i - 22) * US, number))
            api.append(call("cudaGraphLaunch", at + i * US - 500, at + i * US, number))
        api.append(call("cudaStreamSynchronize", at + 30 * US, at + 1_000 * US))
    found = recommended(ops, api)

    assert (found.verdict, found.gain_cap_ns) == ("merge", 4 * 19 * 23 * US)
    assert found.gain_ns == round(19 * 23 * US / 2.2)


def queued(steps):
    """Steps of so many graphs of that length, all launched at once, 5 us apart; then a wait."""
    ops, api, at, number = [], [], 0, 0
    for graphs, length in steps:
        free = at + 20 * US
        for i in range(graphs):
            number += 1
            api.append(call("cudaGraphLaunch", at + i * US, at + i * US + 500, number))
            ops.append(graph(free, free + length, number, graph_exec=graphs * 100 + i))
            free += length + 5 * US
        api.append(call("cudaStreamSynchronize", at + graphs * US, free - 4 * US))
        at = free - 3 * US
    return ops, api


def test_pauses_of_other_steps_are_not_gained_by_this_one():
    # Ten short graphs at once, fifty times; and two long ones, three times.
    found = recommended(*queued([(10, 30 * US)] * 50 + [(2, 10_000 * US)] * 3))

    # The step that takes most time has a single pause of 5 us.
    assert (found.verdict, found.gain_ns) == ("merge", round(5 * US / 2.2))


def test_nothing_is_merged_where_the_usual_step_is_one_graph():
    found = recommended(*queued([(10, 30 * US)] * 50 + [(1, 20_000 * US)] * 3))

    assert (found.verdict, found.gain_ns) == ("no_difference_shown", None)


def test_idle_time_without_graphs_is_not_said_to_be_before_graphs():
    found = Recommendation("not_a_chunk_problem", cause="graph_build")

    assert "most of the idle time is graph_build" in verdicts.verdict(found)
    of_graphs = replace(found, regime="replay")
    assert "most of the idle time before graphs is graph_build" in verdicts.verdict(of_graphs)


@pytest.mark.parametrize(
    ("granularity", "gap_ns", "verdict"),
    [
        ("graph", 5_600, "merge"),
        ("graph", 5_400, "no_difference_shown"),
        ("node", 12_000, "merge"),
        ("node", 11_600, "no_difference_shown"),
    ],
)
def test_pauses_are_worth_merging_if_half_a_percent_is_left_without_the_recorder(
    granularity, gap_ns, verdict
):
    length = 500 * US
    one = graph if granularity == "graph" else lambda *rows: node(*rows, 1)
    ops = [one(i * length, (i + 1) * length - gap_ns, i) for i in range(1, 60)]
    api = [call("cudaGraphLaunch", i * US - 500, i * US, i) for i in range(1, 60)]

    assert recommended(ops, api, granularity=granularity).verdict == verdict


@pytest.mark.parametrize("granularity", ["graph", "node"])
def test_what_a_recorder_does_to_launches_is_warned_of(granularity):
    one = graph if granularity == "graph" else lambda *rows: node(*rows, 1)
    rows = [one(10, 20, 1)], [call("cudaGraphLaunch", 0, 5, 1)]
    (warning,) = recommended(*rows, granularity=granularity).warnings

    assert warning.code == "recorder_cost"
    assert ("recorded in node granularity" in warning.message) == (granularity == "node")


def reading_loop(launch_us, host_us, iterations=10):
    """Graphs of 30 us; between them a value is read, code runs, and the next is launched."""
    ops, api, at = [], [], 0
    for number in range(1, 2 * iterations, 2):
        api.append(call("cudaGraphLaunch", at - launch_us * US, at, number))
        ops.append(graph(at, at + 30 * US, number))
        api.append(call("cudaMemcpyAsync", at + 1, at + 2, number + 1))
        copied = at + 31 * US
        ops.append(op(copied, copied + US, number + 1, kind="memcpy", name="copy DtoH", bytes=4))
        at = copied + (1 + host_us + launch_us) * US
    return ops, api


def test_a_loop_that_the_host_decides_is_no_chunk_problem_however_long_its_launches():
    found = recommended(*reading_loop(launch_us=40, host_us=5), with_nodes=False)

    assert (found.verdict, found.cause) == ("not_a_chunk_problem", "value_loop")
    assert found.gain_cap_ns == 9 * 40 * US


def rebuilt(build_us, launch_us):
    """Graphs of 500 us, each instantiated and launched while the device waits."""
    every = [("cudaStreamBeginCapture", 1), ("cudaLaunchKernel", 1), ("cudaStreamEndCapture", 1)]
    every.append(("cudaGraphInstantiate", build_us - 3))
    return replayed(5, launch_us=launch_us, before_us=0, graph_us=500, every=every)


@pytest.mark.parametrize(
    ("launch_us", "said"),
    [
        (100, ("not_a_chunk_problem", "graph_build:instantiated_alike")),
        (101, ("needs_calibration", "host_cost_by_nodes")),
    ],
)
def test_builds_that_can_be_avoided_come_before_sizes_if_they_are_half_of_it(launch_us, said):
    found = recommended(*rebuilt(100, launch_us))

    assert (found.verdict, found.cause) == said
    assert found.regime == "instantiate"


@pytest.mark.parametrize(("nodes", "warned"), [(9_999, False), (10_000, True)])
def test_the_memory_of_a_huge_exec_is_something_to_look_at(nodes, warned):
    ops = [node(i * 10, i * 10 + 9, 1, i) for i in range(nodes)]
    found = analyze(trace(ops, [call("cudaGraphLaunch", -20, -10, 1)], granularity="node"))

    codes = [warning.code for warning in found.recommendation.warnings]
    assert ("exec_memory" in codes) == warned


def test_many_small_graphs_in_a_row_are_no_huge_exec():
    ops = [node(i * 10, i * 10 + 9, i // 20, i % 20) for i in range(20_000)]
    api = [call("cudaGraphLaunch", -2 * (1001 - i), -2 * (1001 - i) + 1, i) for i in range(1000)]
    found = analyze(trace(ops, api, granularity="node")).recommendation

    assert "exec_memory" not in [warning.code for warning in found.warnings]


@pytest.mark.parametrize(("arm", "is_burst"), [(None, True), ("step", True), ("per_launch", False)])
def test_bursts_of_single_launches_are_no_chunk_problem(arm, is_burst):
    """Those of the arm per_launch are gaptrace's own, to compare."""
    ops, api, ranges, at = [], [], [], 0
    for number in range(1, 200):
        is_graph = number % 20 < 10
        name = "cudaGraphLaunch" if is_graph else "cudaLaunchKernel"
        api.append(call(name, at, at + 10 * US, number))
        ops.append((graph if is_graph else op)(at + 10 * US, at + 12 * US, number))
        if arm and not is_graph:
            ranges.append(nvtx(arm, at, at + 12 * US))
        at += 12 * US
    found = recommended(ops, api, ranges)

    assert (found.cause == "eager_bursts") == is_burst
    assert not is_burst or found.verdict == "not_a_chunk_problem"


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("cudaStreamSynchronize", "host_sync"),
        ("cudaMemcpy", "host_sync"),
        ("cudaMalloc", "api_other"),
    ],
)
def test_other_causes_before_graphs_are_no_chunk_problem(name, cause):
    ops, api = replayed(5, launch_us=10, before_us=1, graph_us=500, every=[(name, 300)])
    found = recommended(ops, api)

    assert (found.verdict, found.cause) == ("not_a_chunk_problem", cause)


def test_host_code_between_graphs_is_no_chunk_problem():
    ops, api = replayed(5, launch_us=10, before_us=400, graph_us=500)
    found = recommended(ops, api)

    assert (found.verdict, found.cause) == ("not_a_chunk_problem", "host_code:before_graphs")


@pytest.mark.parametrize(
    ("call_name", "regime"),
    [("cudaGraphInstantiate", "instantiate"), ("cudaGraphExecUpdate", "update")],
)
def test_builds_at_every_launch_are_the_regime(call_name, regime):
    ops, api = replayed(5, launch_us=20, before_us=1, graph_us=500, every=[(call_name, 700)])
    found = recommended(ops, api)

    assert found.regime == regime
    assert found.gain_cap_ns == 4 * 720 * US


def test_one_build_between_few_launches_makes_no_habit():
    ops, api = rebuilt(6, 50)
    launches = [each for each in api if each["kind"] == "graph_launch"]

    # Built before the first launch, and once more before the second of three.
    few = recommended(ops[:3], [*api[:10], launches[2]], with_nodes=False)
    assert few.regime == "replay"
    assert recommended(ops, api, with_nodes=False).regime == "instantiate"


def test_what_an_update_at_every_launch_costs_by_size_is_not_in_the_trace():
    # As with graphs built once, launches hardly show: 3 us of 2 ms. The 20 us of updates may.
    every = [("cudaGraphExecUpdate", 20)]
    ops, api = replayed(5, launch_us=3, before_us=1, graph_us=2_000, every=every)
    found = recommended(ops, api)

    assert (found.verdict, found.cause) == ("needs_calibration", "host_cost_by_nodes")


def test_without_graphs_and_with_a_busy_device_graphs_gain_nothing():
    ops = [op(i * 1_000_000, i * 1_000_000 + 999_000, i) for i in range(1, 9)]
    api = [call("cudaLaunchKernel", i * 10_000, i * 10_000 + 5_000, i) for i in range(1, 9)]
    found = analyze(trace(ops, api)).recommendation

    assert (found.verdict, found.regime) == ("do_not_graph", None)


def test_without_graphs_and_with_a_waiting_device_the_cost_of_a_graph_is_missing():
    ops = [op(i * 10_000, i * 10_000 + 1_500, i) for i in range(1, 50)]
    api = [call("cudaLaunchKernel", i * 10_000 - 6_000, i * 10_000, i) for i in range(1, 50)]
    found = analyze(trace(ops, api)).recommendation

    assert (found.verdict, found.cause) == ("needs_calibration", "graph_launch_cost")
    assert [each.code for each in found.warnings] == ["no_steps"]
    marks = [nvtx("step", i * 50_000, i * 50_000 + 50_000) for i in range(10)]
    marked = analyze(trace(ops, api, nvtx=marks)).recommendation
    assert (marked.cause, marked.warnings) == ("graph_launch_cost", ())


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("cudaStreamSynchronize", "host_sync"),
        ("cudaMemcpy", "host_sync"),
        ("cudaMalloc", "api_other"),
    ],
)
@pytest.mark.parametrize(("launch_us", "other_us"), [(1000, 2), (10, 2), (5, 5), (2, 10)])
def test_without_graphs_something_else_is_the_problem_if_it_takes_more_than_launches(
    name, cause, launch_us, other_us
):
    ops, api = [], []
    for number in range(1, 22):
        at = number * (launch_us + 4 + other_us) * US
        start = at + launch_us * US
        api.append(call("cudaLaunchKernel", at, start, number))
        ops.append(op(start, start + 4 * US, number))
        api.append(call(name, start + 4 * US, start + (4 + other_us) * US))
    found = analyze(trace(ops, api)).recommendation

    assert found.gain_cap_ns == 20 * launch_us * US
    assert (found.verdict, found.cause) == (
        ("needs_calibration", "graph_launch_cost")
        if launch_us >= other_us
        else ("not_a_chunk_problem", cause)
    )


def test_without_graphs_pauses_between_queued_kernels_are_what_a_graph_could_shorten():
    ops = [op(i * 10 * US, i * 10 * US + 8 * US, i) for i in range(20, 40)]
    api = [call("cudaLaunchKernel", i * US, i * US + 500, i) for i in range(20, 40)]
    found = analyze(trace(ops, api)).recommendation

    assert found.gain_cap_ns == 0
    assert (found.verdict, found.cause) == ("needs_calibration", "graph_launch_cost")


def test_without_graphs_all_host_code_is_weighed_as_one():
    # 5 us of code before each of 100 launches, 495 us between them, and a pause of 299 us; then a
    # wait of 500 us in which nothing runs: more than either of the two, less than both.
    ops = [op(i * 10_000, i * 10_000 + 4_000, i) for i in range(1, 101)]
    api = [call("cudaLaunchKernel", i * 10_000 - 1_000, i * 10_000, i) for i in range(1, 101)]
    at = 1_004_000 + 300_000
    ops.append(op(at, at + 4_000, 101))
    api.append(call("cudaLaunchKernel", at - 1_000, at, 101))
    api.append(call("cudaStreamSynchronize", at + 4_000, at + 504_000))
    ops.append(op(at + 505_000, at + 509_000, 102))
    api.append(call("cudaLaunchKernel", at + 504_000, at + 505_000, 102))
    found = analyze(trace(ops, api)).recommendation

    assert (found.verdict, found.cause) == ("needs_calibration", "graph_launch_cost")


def test_every_input_says_what_kind_of_evidence_it_is():
    ops, api = replayed(5, launch_us=150, before_us=3, graph_us=577)
    inputs = recommended(ops, api).inputs

    assert {item.evidence for item in inputs} == {"graph-granularity trace"}
    assert {item.name: item.value for item in inputs}["nodes"] == 600


def test_the_step_is_named_after_its_range_and_its_devices_where_there_are_several():
    """On device 1 steps of two graphs, in ranges; on device 0 short ones of a single graph."""
    ops, api, ranges = [], [], []

    def launch(at, start, end, device):
        number, own = len(ops), {"thread_id": 1_001 + device}
        api.append(call("cudaGraphLaunch", at, at + 2_000, number, **own))
        ops.append(graph(start, end, number, 2 + device, device_id=device))

    for at in range(0, 1_000_000, 100_000):
        launch(at, at + 3_000, at + 50_000, 1)
        launch(at + 4_000, at + 51_000, at + 90_000, 1)
        launch(at + 10_000, at + 13_000, at + 20_000, 0)
        ranges.append(nvtx("decode", at - 500, at + 92_000, thread_id=1_002))
    found = analyze(trace(ops, api, nvtx=ranges)).recommendation
    assert (found.step, found.devices) == ("decode", (1,))
    assert verdicts.whose(found) == "the step is decode on device 1"
    unnamed = analyze(trace(ops, api)).recommendation
    assert verdicts.whose(unnamed) == "the step is that of device 1"
    alone = [[each for each in rows if each["correlation_id"] % 3 < 2] for rows in (ops, api)]
    one = analyze(trace(*alone)).recommendation
    assert verdicts.whose(one) is None
