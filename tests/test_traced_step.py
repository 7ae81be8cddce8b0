"""The step that a program makes of graphs, from literal rows."""

import pytest
from rows import call, graph, graph_event, node, nvtx, op, trace

from gaptrace.analysis import analyze
from gaptrace.traced_step import traced_step


def step_of(ops, api):
    recorded = trace(ops, api, granularity="node")
    analysis = analyze(recorded)
    return traced_step(recorded, analysis.executions, analysis.steps)


def launched(at, number, *nodes, graph_exec=2, **own):
    """A launch and its nodes, of which begin and end are ns after the launch call's begin."""
    return [
        node(at + begin, at + end, number, i, graph_exec, **own)
        for i, (begin, end) in enumerate(nodes)
    ], call("cudaGraphLaunch", at, at + 50, number)


def test_nodes_gaps_and_spread_are_those_of_the_typical_step():
    ops, api = [], []
    # Spans of 100 to 150 ns; only the last node differs.
    for number, longer in enumerate((20, 0, 50, 10, 30)):
        at = 10_000 * number
        own, launch = launched(at, number, (60, 90), (95, 110), (110, 160 + longer))
        ops += own
        api += [launch, call("cudaStreamSynchronize", at + 70, at + 164 + longer)]
    step = step_of(ops, api)

    assert (step.ways, step.repeats, step.sizes) == (((3,),), 5, (3,))
    assert step.node_ns.tolist() == [30, 15, 70]
    # Nodes that touch do not run side by side.
    assert (step.gap_ns.tolist(), step.has_branches) == ([0, 5, 0], False)
    assert step.spread == (100 / 120, 150 / 120)
    assert (step.is_waited_for, step.notice_ns, step.device_free_ns) == (True, 4, 0)


@pytest.mark.parametrize(("late", "notice_ns"), [(2, 4), (3, None)])
def test_only_a_wait_that_begins_before_the_device_is_done_tells_when_the_host_knows(
    late, notice_ns
):
    ops, api = [], []
    for number in range(4):
        at = 10_000 * number
        own, launch = launched(at, number, (60, 100), (100, 200))
        ops += own
        begin = 2_000 if number < late else 200
        api += [launch, call("cudaStreamSynchronize", at + begin, at + begin + 4)]
    step = step_of(ops, api)

    assert (step.notice_ns, step.is_waited_for) == (notice_ns, notice_ns is not None)


def test_other_work_keeps_the_device_from_the_step_and_the_host_waiting():
    ops, api = [], []
    for number in range(3):
        at = 10_000 * number
        api += [
            call("cuLaunchKernel", at, at + 10, 100 + number),
            call("cuLaunchKernel", at + 10, at + 20, 200 + number),
        ]
        # On another stream, until 30 ns after the launch of the graph begins; and with its nodes.
        ops.append(op(at + 20, at + 130, 100 + number, stream_id=9))
        ops.append(op(at + 150, at + 310, 200 + number, stream_id=9))
        own, launch = launched(at + 100, number, (50, 100), (100, 200))
        ops += own
        api += [launch, call("cudaStreamSynchronize", at + 200, at + 314)]
    step = step_of(ops, api)

    assert (step.device_free_ns, step.notice_ns) == (30, 4)
    assert step.node_ns.tolist() == [50, 100]


@pytest.mark.parametrize(
    ("waits", "way", "repeats"), [((), (2, 1), 8), ([2], (2, 1) * 5, 1), ([2, 4], (2, 1) * 3, 2)]
)
def test_late_launches_end_steps_of_graphs_that_never_come_again_if_nothing_waits(
    waits, way, repeats
):
    ops, api = [], []
    for number in range(8):
        at = 10_000 * number
        # The second is launched before the first is done, which is launched too late itself.
        first, launch = launched(at, 2 * number, (60, 500), (510, 1_000), graph_exec=10 + number)
        second, other = launched(at + 100, 2 * number + 1, (905, 1_500), graph_exec=30 + number)
        ops += [*first, *second]
        api += [launch, other]
        if number in waits:
            api.append(call("cudaStreamSynchronize", at + 200, at + 2_000))
    step = step_of(ops, api)

    assert (step.ways, step.repeats) == ((way,), repeats)
    assert step.node_ns.tolist() == [440, 490, 595] * (len(way) // 2)


def test_the_step_and_the_way_with_most_device_time_are_first():
    ops, api, number = [], [], 0
    for round_ in range(3):
        # A node alone; two graphs and the same the other way round; six nodes that take less.
        for at, ways in enumerate(([[900]], [[100], [200, 200]], [[300, 300], [100]], [[50] * 6])):
            for place, lengths in enumerate(ways):
                number += 1
                begin = 100_000 * round_ + 20_000 * at + 2_000 * place
                ends = [60 + sum(lengths[: i + 1]) for i in range(len(lengths))]
                nodes = zip([60, *ends], ends, strict=False)
                own, launch = launched(begin, number, *nodes, graph_exec=10 * at + place + 2)
                ops += own
                api.append(launch)
            api.append(call("cudaStreamSynchronize", begin + 100, begin + 5_000))
    step = step_of(ops, api)

    assert (step.ways, step.sizes, step.repeats) == (((2, 1), (1, 2)), (2, 1), 3)
    assert step.node_ns.tolist() == [300, 300, 100]


def test_streams_have_steps_of_their_own():
    ops, api, number = [], [], 0
    for round_ in range(3):
        for place, stream in enumerate((7, 9, 7)):
            number += 1
            own, launch = launched(
                10_000 * round_ + 1_000 * place,
                number,
                (60, 600 - 100 * place),
                graph_exec=2 + place,
                stream_id=stream,
            )
            ops += own
            api.append(launch)
    step = step_of(ops, api)

    assert (step.ways, step.repeats) == (((1, 1),), 3)
    assert step.node_ns.tolist() == [540, 340]


def test_threads_wait_for_their_own_steps():
    ops, api = [], []
    for number in range(6):
        # Two execs of one node in turn; meanwhile another thread launches, and waits later.
        at, execs = 10_000 * number, 2 + number % 2
        own, launch = launched(at, 2 * number, (60, 900), graph_exec=execs)
        others, other = launched(
            at + 100, 2 * number + 1, (60, 400), graph_exec=4 + execs, stream_id=9
        )
        ops += own + others
        api += [
            launch,
            other | {"thread_id": 5},
            call("cudaStreamSynchronize", at + 100, at + 907),
            call("cudaStreamSynchronize", at + 200, at + 3_000, thread_id=5),
        ]
    step = step_of(ops, api)

    assert (step.ways, step.repeats, step.notice_ns) == (((1,),), 12, (7 + 2_100) / 2)


def test_where_branches_run_at_once_a_cut_between_them_costs_that():
    ops, api = [], []
    for number in range(5):
        at = 10_000 * number
        # Created in another order than they run in: the first runs beside the third, at the first
        # launch for less long. The last launch lacks a node.
        spans = ((130 if number == 0 else 110, 160), (60, 100), (100, 150), (180, 200))
        own, launch = launched(at, number, *spans[: 3 if number == 4 else 4])
        ops += own
        api += [launch, call("cudaStreamSynchronize", at + 70, at + 204)]
    step = step_of(ops, api)

    assert step.has_branches
    assert step.node_ns.tolist() == [35] * 4
    assert step.overlap_ns.tolist() == [0, 40, 40, 0, 0]


def in_pieces(*chains):
    """The step of graphs recorded as wholes; a chain is its execs, ns until each begins, its ns.

    Exec 2 has four nodes, 3 and 4 have two each, 5 has one and 6 has three.
    """
    ops, api, sizes = [], [], {2: 4, 3: 2, 4: 2, 5: 1, 6: 3}
    made = [nvtx("cut", 10 * each, 10 * each + 8, payload=n) for each, n in sizes.items()]
    events = [graph_event(10 * each + 5, "exec", graph_exec_id=each) for each in sizes]
    for number, chain in enumerate(chains):
        at = end = 1_000 + 10_000 * number
        for place, (each, wait_ns, ns) in enumerate(chain):
            launch, begin = 10 * number + place, max(end, at + 100) + wait_ns
            call_at = at + 20 * place if wait_ns < 50 else begin - 40
            end = begin + ns
            ops.append(graph(begin, end, launch, graph_exec=each))
            api.append(call("cudaGraphLaunch", call_at, call_at + 10, launch))
        api.append(call("cudaStreamSynchronize", at + 80, end + 4))
    recorded = trace(ops, api, made, graph_events=events)
    analysis = analyze(recorded)
    return traced_step(recorded, analysis.executions, analysis.steps)


@pytest.mark.parametrize(("piece_ns", "lost_ns"), [(200, 0), (203, 0), (230, 60)])
def test_what_pieces_take_longer_together_tells_of_branches(piece_ns, lost_ns):
    whole, cut = [(2, 10, 400)], [(3, 10, piece_ns), (4, 10, piece_ns)]
    step = in_pieces(*[whole, cut] * 3)

    assert sorted(step.ways) == [(2, 2), (4,)]
    assert step.node_ns.tolist() == [100] * 4
    assert step.has_branches == (lost_ns > 0)
    # Cuts that no way has are taken to cost as much.
    assert step.overlap_ns.tolist() == [0, lost_ns, lost_ns, lost_ns, 0]


def test_pieces_launched_in_time_tell_what_they_take_if_a_way_has_enough_of_them():
    # Pieces launched late take 100 ns longer here. The one way has three in time, the other none.
    whole, cut = [(2, 10, 400)], [(3, 10, 200), (4, 10, 230)]
    late, other = [(3, 10, 200), (4, 100, 330)], [(5, 10, 100), (6, 100, 400)]
    step = in_pieces(*[whole] * 3, *[cut] * 3, *[late] * 4, *[other] * 3)

    assert sorted(step.ways) == [(1, 3), (2, 2), (4,)]
    assert step.overlap_ns.tolist() == [0, 100, 30, 65, 0]


def test_marks_of_another_process_do_not_cut_a_step():
    ops, api, ranges = [], [], []
    other = {"process_id": 2_000, "thread_id": 2_001}
    for number in range(6):
        at = 10_000 * number
        for late in (0, 500):
            launch = 10 * number + late
            exec_id = 2 if late == 0 else 3
            own, called = launched(at + late, launch, (60, 100), (100, 200), graph_exec=exec_id)
            ops += own
            api.append(called)
        ranges.append(nvtx("step", at, at + 900))
        # Between both launches the other one begins a step, too.
        api.append(call("cuLaunchKernel", at + 300, at + 310, launch, **other))
        ops.append(op(at + 2_000, at + 2_010, launch, process_id=2_000))
        ranges.append(nvtx("step", at + 290, at + 320, **other))
    recorded = trace(ops, api, ranges, granularity="node")
    analysis = analyze(recorded)
    step = traced_step(recorded, analysis.executions, analysis.steps)

    assert (step.sizes, step.repeats) == ((2, 2), 6)
