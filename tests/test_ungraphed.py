"""What graphs would bring to kernels launched one by one, in figures that can be added by hand."""

from dataclasses import replace

import polars as pl
import pytest
from rows import call, graph, nvtx, op, trace

from gaptrace.analysis import analyze
from gaptrace.calibration import Calibration, Figure, Machine
from gaptrace.render.verdicts import verdict

US = 1000
#: Name -> value, low, high, ns. Launches took 1.0 us, under the recorder 1.25 us.
FIGURES = {
    "launch_queued_api_ns": (1_000, 1_000, 1_125),
    "launch_api_ns": (2_000, 2_000, 2_000),
    "launch_latency_ns": (5_000, 5_000, 5_000),
    "kernel_gap_ns": (1_000, 1_000, 1_000),
    "node_gap_ns": (600, 500, 800),
}
#: At 1 and at 1,000 nodes, ns.
TABLES = {
    "graph_launch_api_ns": (2_000, 2_000),
    "graph_launch_latency_ns": (3_000, 3_000),
    "cut_gap_ns": (500, 500),
    "capture_ns": (9_000, 9_000),
    "instantiate_ns": (50_000, 50_000),
}


def calibration(**changes):
    known = FIGURES | TABLES | changes
    figures = [Figure(name, None, 1, None, *known[name], 1) for name in FIGURES if known[name]]
    figures += [
        Figure(name, nodes, 1, None, ns, ns, ns, 1)
        for name in TABLES
        for nodes, ns in zip((1, 1_000), known[name], strict=True)
    ]
    figures.append(Figure("launch_queued_api_ns", None, 1, "nsys-graph", 1_300, 1_250, 1_600, 1))
    machine = Machine("GPU zero", None, None, None, None)
    return Calibration(machine, "2026-01-01", "0.1", {"nsys-graph": "2025.3"}, tuple(figures))


def program(*steps, kernel_us=4, interval_us=10, slow=(), marked=True):
    """Steps of such calls, one every 10 us, with a range around them and a wait at their end.

    A call is of a kernel, by its name; "wait"; "graph"; a copy, by the kind of its host memory,
    from it or to it; or "end" of the range. Steps of the numbers `slow` launch every 30 us.
    """
    ops, api, ranges, at, free = [], [], [], 0, 0
    for number, step in enumerate(steps):
        begin, end_ns = at, None
        for name in step:
            if name == "end":
                end_ns = at
                continue
            launch = len(api) + 1
            start = max(at + 2 * US, free)
            end = start + kernel_us * US
            match name:
                case "wait":
                    api.append(call("cudaStreamSynchronize", at, at + US))
                    end = free
                case "graph":
                    api.append(call("cudaGraphLaunch", at, at + US, launch))
                    ops.append(graph(start, end, launch))
                case ("from" | "to", memory):
                    api.append(call("cudaMemcpyAsync", at, at + US, launch))
                    side = "source_memory" if name[0] == "from" else "target_memory"
                    ops.append(op(start, end, launch, kind="memcpy", name="copy", **{side: memory}))
                case _:
                    api.append(call("cuLaunchKernel", at, at + US, launch))
                    ops.append(op(start, end, launch, name=name))
            free, at = end, at + (30 if number in slow else interval_us) * US
        api.append(call("cudaStreamSynchronize", at, max(at, free) + US))
        at = max(at, free) + 10 * US
        ranges.append(nvtx("step", begin, end_ns or at - US))
    return trace(ops, api, ranges if marked else (), granularity=None)


def weighed(recorded, **changes):
    return analyze(recorded, calibration=calibration(**changes)).recommendation.ungraphed


TEN = [f"k{number}" for number in range(10)]


def test_a_step_bound_by_its_launches():
    (found,) = weighed(program(*[TEN] * 5))

    assert (found.unit, found.steps, found.kernels, found.chunk) == ("step", 4, 10, 10)
    assert (found.verdict, found.cause) == ("one_graph", None)
    # 10 us from launch to launch, of which the recorder's are a fifth; from a tenth to 37.5 %.
    assert (found.launch_ns, found.launch_interval_ns) == (8_000, (6_250, 9_000))
    # Ten intervals, 3 us until the last kernel begins, and that kernel with half a gap of a node.
    assert found.per_launch_ns == 10 * 8_000 + 3_000 + 4_000 + 300
    assert found.one_graph_ns == 3_000 + 10 * (4_000 + 300)
    assert found.gain_ns == 87_300 - 46_000
    # Least where launches are short and gaps as long as calibrated, most where launches are long.
    assert found.gain_interval_ns == (62_500 + 3_000 + 4_800 - 51_000, 97_300 - 46_000)
    # Capturing takes as long as launching at least.
    assert found.break_even_replays == 4  # (80_000 + 50_000) / 41_300


@pytest.mark.parametrize(
    "odd",
    [
        program(*[TEN] * 6, slow=[3]),
        program(TEN, TEN, TEN, [*TEN, *TEN], TEN, TEN),
    ],
)
def test_one_odd_step_changes_nothing(odd):
    (usual,), (found,) = weighed(program(*[TEN] * 6)), weighed(odd)

    assert (found.kernels, found.launch_ns) == (usual.kernels, usual.launch_ns)
    assert (found.per_launch_ns, found.one_graph_ns) == (usual.per_launch_ns, usual.one_graph_ns)


def test_launches_after_a_range_are_no_part_of_it():
    (found,) = weighed(program(*[[*TEN, "end", "x", "y"]] * 5))

    assert (found.kernels, found.verdict) == (10, "one_graph")


def test_steps_without_ranges_are_told_by_their_kernels():
    (found,) = weighed(program(*[TEN] * 30, marked=False))

    assert (found.unit, found.kernels, found.launch_ns) == ("10 kernels from k0", 10, 8_000)
    assert found.one_graph_ns == 46_000


def test_launches_hidden_by_kernels_gain_what_is_between_the_kernels():
    (found,) = weighed(program(*[TEN] * 5, kernel_us=12))

    # 8 us to the first and 3 us until it begins; gaps of kernels are 0.4 us more than of nodes.
    assert found.per_launch_ns == 8_000 + 3_000 + 10 * 12_300 + 9 * 400
    assert found.one_graph_ns == 3_000 + 10 * 12_300


def test_gaps_measured_below_those_of_nodes_or_below_nothing_are_none():
    recorded = program(*[TEN] * 5, kernel_us=12)
    (same,) = weighed(recorded, kernel_gap_ns=(100, 100, 100))
    (none,) = weighed(recorded, node_gap_ns=(-300, -300, -300))

    assert same.per_launch_ns == 8_000 + 3_000 + 10 * 12_300
    assert none.one_graph_ns == 3_000 + 10 * 12_000
    # Otherwise ten graphs would be better than one.
    assert weighed(recorded, cut_gap_ns=(-500, -500))[0].verdict == "one_graph"
    # Launches that began before their call ended.
    early = (1_000, 1_000, 1_000)
    assert weighed(recorded, launch_latency_ns=early)[0].per_launch_ns == 8_000 + 123_000 + 3_600


@pytest.mark.parametrize(("steps", "found"), [(3, 0), (4, 1)])
def test_three_steps_beside_the_first_are_enough(steps, found):
    assert len(weighed(program(*[TEN] * steps))) == found


@pytest.mark.parametrize(
    ("step", "kernels"),
    [
        (["a"], []),
        (["a", "b"], [2]),
        # Steps that launch graphs are no steps without.
        (["a", "b", "graph", "c"], []),
    ],
)
def test_steps_of_several_kernels_and_no_graph_are_weighed(step, kernels):
    assert [each.kernels for each in weighed(program(*[step] * 5))] == kernels


@pytest.mark.parametrize(
    ("others", "said"),
    [(1, ("one_graph", None)), (2, ("not_a_chunk_problem", "dynamic_steps"))],
)
def test_three_of_four_steps_alike_are_enough(others, said):
    (found,) = weighed(program(*[TEN] * (5 - others), *[TEN[::-1], TEN[1:] + TEN[:1]][:others]))

    assert (found.verdict, found.cause) == said


WAITS = ("not_a_chunk_problem", "waits_inside")


@pytest.mark.parametrize(
    ("between", "said"),
    [
        ("wait", WAITS),
        (("from", "pageable"), WAITS),
        (("to", "pageable"), WAITS),
        (("from", "pinned"), ("one_graph", None)),
        (("to", "pinned"), ("one_graph", None)),
    ],
)
def test_one_wait_of_the_host_in_a_step_is_one_too_many(between, said):
    (found,) = weighed(program(*[[*TEN[:5], between, *TEN[5:]]] * 5))

    assert (found.verdict, found.cause) == said
    assert found.kernels == 10 + (between != "wait")


@pytest.mark.parametrize(
    ("figures", "said", "gain_ns"),
    [
        # 8 us until all is launched, 3 us until the first begins, and 0.4 us between kernels.
        (
            {"launch_latency_ns": (5_000, 2_000, 5_000), "kernel_gap_ns": (1_000, 0, 1_000)},
            ("one_graph", None),
            11_600,
        ),
        # Too little of 1.2 ms, though it could be more.
        (
            {"launch_latency_ns": (2_000, 2_000, 9_000), "kernel_gap_ns": (600, 600, 900)},
            ("do_not_graph", "large_kernels"),
            5_000,
        ),
    ],
)
def test_the_verdict_is_by_the_figures_not_by_their_ends(figures, said, gain_ns):
    (found,) = weighed(program(*[TEN] * 5, kernel_us=120), **figures)

    assert (found.verdict, found.cause, found.gain_ns) == (*said, gain_ns)
    assert found.gain_interval_ns[0] < 0.005 * found.per_launch_ns < found.gain_interval_ns[1]


@pytest.mark.parametrize(("kernel_us", "cause"), [(9, "nothing_to_gain"), (10, "large_kernels")])
def test_kernels_as_long_as_the_time_between_launches_are_large(kernel_us, cause):
    recorded = program(*[TEN] * 5, kernel_us=kernel_us)
    (found,) = weighed(recorded, graph_launch_latency_ns=(90_000, 90_000))

    assert (found.verdict, found.cause, found.chunk) == ("do_not_graph", cause, None)
    assert found.gain_ns < 0
    assert found.break_even_replays is None


def test_work_that_overlaps_counts_once_and_the_sequence_with_most_time_is_first():
    ops, api, ranges = [], [], []
    for at in range(0, 500 * US, 100 * US):
        number = len(api)
        api += [
            call("cuLaunchKernel", at + i * US, at + i * US + 500, number + i) for i in range(4)
        ]
        ops += [
            # Two streams: what is launched first begins last.
            op(at + 20 * US, at + 30 * US, number, name="a", device_id=1),
            op(at + 12 * US, at + 22 * US, number + 1, name="b", device_id=1, stream_id=9),
            # Another device that is done sooner, though its first kernel takes longer.
            op(at + 10 * US, at + 24 * US, number + 2, name="c"),
            op(at + 24 * US, at + 25 * US, number + 3, name="d"),
        ]
        api.append(call("cudaStreamSynchronize", at + 10 * US, at + 40 * US))
        ranges.append(nvtx("step", at, at + 50 * US))
    first, second = weighed(trace(ops, api, ranges, granularity=None))

    assert (first.device_id, second.device_id) == (1, 0)
    # Half way between both kernels, of which 2 us overlap, and the longer one alone.
    assert first.one_graph_ns == 3_000 + (18_000 + 2 * 300 + 10_000 + 300) / 2
    assert second.one_graph_ns == 3_000 + 15_000 + 2 * 300


def two_processes(*offsets_us, intervals_us=(10, 10)):
    """Eight steps of ten kernels in each of as many processes, that begin so much later."""
    ops, api, ranges = [], [], []
    for process, (offset_us, interval_us) in enumerate(
        zip(offsets_us, intervals_us[: len(offsets_us)], strict=True), 1
    ):
        own = {"process_id": process, "thread_id": 100 + process}
        at = offset_us * US
        for _ in range(8):
            begin = at
            for name in TEN:
                number = len(api)
                api.append(call("cuLaunchKernel", at, at + US, number, **own))
                ops.append(op(at + 2 * US, at + 4 * US, number, name=name, process_id=process))
                at += interval_us * US
            api.append(call("cudaStreamSynchronize", at, at + 5 * US, **own))
            ranges.append(nvtx("step", begin, at + 5 * US, **own))
            at += 15 * US
    return trace(ops, api, ranges, granularity=None)


def test_steps_of_another_process_on_the_device_change_nothing():
    (alone,) = weighed(two_processes(0))
    both = weighed(two_processes(0, 42))

    assert (alone.steps, alone.kernels) == (7, 10)
    assert both == (alone, alone)


@pytest.mark.parametrize("intervals_us", [(10, 20), (20, 10)])
def test_the_sequence_with_most_time_is_first_whichever_began_first(intervals_us):
    first, second = weighed(two_processes(0, 42, intervals_us=intervals_us))

    assert (first.launch_ns, second.launch_ns) == (16_000, 8_000)


def with_calls(recorded, change):
    """The same with each call changed."""
    api = [each | change(each) for each in recorded.api.drop("call_id", "capture_id").to_dicts()]
    ops, ranges = recorded.ops.drop("call_id").to_dicts(), recorded.nvtx.to_dicts()
    return trace(ops, api, ranges, granularity=None)


def test_a_copy_that_the_host_waits_for_is_a_wait_inside_whatever_its_memory():
    copying = program(*[[*TEN[:5], ("from", "pinned"), *TEN[5:]]] * 5)

    def blocking(each):
        return {"kind": "blocking_copy"} if each["name"] == "cudaMemcpyAsync" else {}

    (free,), (held,) = weighed(copying), weighed(with_calls(copying, blocking))
    assert (free.cause, held.cause) == (None, "waits_inside")


def test_calls_that_copy_do_not_show_the_pace_of_the_host():
    copies = [("from", "pinned")] * 3
    recorded = program(*[["a", *copies, "b", *copies, "c"]] * 5)

    def long(each):
        return {"end_ns": each["start_ns"] + 8 * US} if each["name"] == "cudaMemcpyAsync" else {}

    assert weighed(recorded)[0].host_pace == 1.0
    assert weighed(with_calls(recorded, long))[0].host_pace == 1.0


def test_steps_of_the_warm_up_are_not_looked_at():
    (found,) = weighed(program(*[TEN] * 8, slow=(0, 1)))

    assert (found.steps, found.launch_ns) == (6, 8_000)


def test_a_program_whose_device_hardly_waits_is_not_advised_by_its_launches():
    found = analyze(program(*[TEN] * 5, kernel_us=2_000), calibration=calibration()).recommendation

    assert (found.verdict, found.cause, found.nodes) == ("do_not_graph", None, None)
    assert [each.cause for each in found.ungraphed] == ["large_kernels"]


def test_a_slow_host_is_told_of_in_a_program_with_graphs_too():
    single = program(*[TEN] * 5, slow=range(5))
    at = single.ops["end_ns"].max() + 1_000 * US
    launches = [at + 300 * US * number for number in range(6)]
    ops = [graph(begin + 100 * US, begin + 140 * US, 1_000 + begin) for begin in launches]
    api = [call("cudaGraphLaunch", begin, begin + 100 * US, 1_000 + begin) for begin in launches]
    both = trace(
        [*single.ops.drop("call_id").to_dicts(), *ops],
        [*single.api.drop("call_id", "capture_id").to_dicts(), *api],
        [
            *single.nvtx.to_dicts(),
            nvtx("host pace", -5, None, kind="mark", payload=60_000, domain="gaptrace"),
        ],
        granularity="graph",
    )
    loop = Figure("host_loop_ns", None, 1, None, 60_000, 60_000, 60_000, 1)
    known = calibration()
    known = replace(known, figures=(*known.figures, loop))
    found = analyze(both, calibration=known).recommendation

    (step,) = found.ungraphed
    assert step.host_pace < 0.8
    assert "slow_host" in [each.code for each in found.warnings]


@pytest.mark.parametrize("late_ns", [(0, 0, 0, 0, 0), (0, 500, 0, 500, 0)])
def test_kernels_that_the_host_launches_in_one_order_are_alike_whichever_begins_first(late_ns):
    ops, api, ranges = [], [], []
    for at, late in zip(range(0, 500 * US, 100 * US), late_ns, strict=True):
        for i, (name, stream) in enumerate([("a", 7), ("b", 9), ("c", 7), ("d", 9)]):
            number, begin = len(api), at + 20 * US + 10 * US * (i // 2)
            api.append(call("cuLaunchKernel", at + i * US, at + i * US + 500, number))
            # Of two that run side by side now one begins first, now the other.
            start = begin + (late if stream == 7 else 250)
            ops.append(op(start, start + 4 * US, number, name=name, stream_id=stream))
        api.append(call("cudaStreamSynchronize", at + 10 * US, at + 50 * US))
        ranges.append(nvtx("step", at, at + 60 * US))
    (found,) = weighed(trace(ops, api, ranges, granularity=None))

    assert found.cause != "dynamic_steps"


def test_chunks_of_kernels_pay_for_their_cuts():
    recorded = program(*[TEN] * 5, kernel_us=12)
    (found,) = weighed(recorded, graph_launch_latency_ns=(3_000, 1_002_000))

    # A graph begins 2 us and 1 us per node after its launch: 1 and then 9 nodes start soonest.
    assert (found.verdict, found.chunk) == ("chunk", 9)
    assert found.one_graph_ns == 12_000 + 10 * 12_300
    assert found.per_launch_ns - found.gain_ns == 3_000 + 10 * 12_300 + 500
    assert found.best_ns == 3_000 + 10 * 12_300 + 500
    assert (found.schedule, found.plateau) == ((1, 9), (9, 9))


def test_kernels_may_be_cut_into_chunks_that_grow():
    sixty = [f"k{number}" for number in range(60)]
    dear = calibration(graph_launch_latency_ns=(3_000, 1_002_000))
    found = analyze(program(*[sixty] * 5, kernel_us=12), calibration=dear).recommendation

    # The first begins after 3 us; behind its 12.3 us so many more nodes hide, and so on.
    assert (found.verdict, found.chunk, found.schedule) == ("chunk", 8, (1, 7, 52))
    (step,) = found.ungraphed
    # Nothing but the first launch and both cuts is added to the device's time.
    assert step.best_ns == 3_000 + 60 * 12_300 + 2 * 500
    assert verdict(found).startswith("Capture the step, and cut the graph into 3 growing chunks: ")
    assert verdict(found).endswith(" The best equal ones are chunks of 8 CUDA nodes.")


def test_what_is_advised_for_kernels_is_told_as_for_graphs():
    recorded = program(*[TEN] * 5, kernel_us=12)
    dear = calibration(graph_launch_latency_ns=(3_000, 1_002_000))
    found = analyze(recorded, calibration=dear).recommendation

    assert (found.verdict, found.chunk, found.schedule) == ("chunk", 9, (1, 9))
    assert found.plateau == (9, 9)
    assert found.predicted_ns["chunk"] == found.ungraphed[0].best_ns
    # A step of 126.5 us; to capture and instantiate once takes 80 and 50 us.
    assert found.amortised_ns == {10: 139_500, 100: 127_800, 1_000: 126_630}


def test_a_graph_pays_later_where_capturing_is_dear():
    (found,) = weighed(program(*[TEN] * 5), capture_ns=(400_000, 400_000))

    assert found.break_even_replays == 11  # 450_000 / 41_300


def test_times_between_launches_stay_as_recorded_where_launches_are_not_calibrated():
    recorded = program(*[TEN] * 5)
    (unknown,) = weighed(recorded, launch_queued_api_ns=None)

    assert (unknown.launch_ns, unknown.launch_interval_ns) == (10_000, (10_000, 10_000))


def test_a_call_that_caused_two_ops_is_one_of_the_step():
    recorded = program(*[TEN] * 5)
    more = recorded.ops.with_columns(pl.col("start_ns", "end_ns") + 4 * US)
    twice = (
        pl.concat([recorded.ops, more])
        .sort("start_ns")
        .with_columns(op_id=pl.int_range(pl.len(), dtype=pl.Int64))
    )
    (found,) = weighed(replace(recorded, ops=twice))

    assert found.kernels == 10
    assert found.one_graph_ns == 3_000 + 10 * (8_000 + 300)


@pytest.mark.parametrize(
    ("latency_ns", "verdict", "gain"), [(3_000, "one_graph", True), (90_000, "do_not_graph", False)]
)
def test_a_program_without_graphs_is_told_what_its_steps_gain(latency_ns, verdict, gain):
    recorded, given = program(*[TEN] * 5), calibration(graph_launch_latency_ns=[latency_ns] * 2)
    found = analyze(recorded, calibration=given).recommendation
    (step,) = found.ungraphed

    assert found.verdict == step.verdict == verdict
    assert (found.gain_ns, found.gain_interval_ns) == (
        (step.gain_ns, step.gain_interval_ns) if gain else (0, None)
    )
    assert found.predicted_ns == {"per_launch": 87_300, "one_graph": 43_000 + latency_ns}


def test_what_keeps_kernels_from_being_weighed_is_told_apart():
    def missing(recorded, given=None):
        found = analyze(recorded, calibration=given or calibration()).recommendation
        assert found.verdict == "needs_calibration"
        return found.cause

    of_one_size = [each for each in calibration().figures if each.nodes in (None, 1)]
    bare = replace(calibration(), figures=tuple(of_one_size))
    assert missing(program(*[TEN] * 5), bare) == "calibration_incomplete"
    assert missing(program(*[TEN] * 3)) == "few_steps"
    assert missing(program(TEN, TEN[::-1], marked=False)) == "steps"


@pytest.mark.parametrize(
    ("kernel_gap_ns", "verdict"), [(3_000, "one_graph"), (500, "do_not_graph")]
)
def test_steps_that_gain_on_a_busy_device_are_advised_to_be_graphs(kernel_gap_ns, verdict):
    """The device hardly waits in the trace; without the recorder a graph has shorter gaps."""
    busy = program(*[TEN * 6] * 5, kernel_us=100, interval_us=1)
    known = calibration(kernel_gap_ns=(kernel_gap_ns,) * 3)
    found = analyze(busy, calibration=known).recommendation

    assert analyze(busy).recommendation.verdict == "do_not_graph"
    assert (found.verdict, found.gain_ns > 0) == (verdict, verdict == "one_graph")
    assert (found.ungraphed[0].gain_interval_ns[0] > 0.005 * found.ungraphed[0].per_launch_ns) == (
        verdict == "one_graph"
    )
