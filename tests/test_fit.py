"""The fit finds the model that made the times; tuning follows the clock where the two disagree."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaptrace.cost import ChunkModel, HostCost, NotIdentifiableError, makespan
from gaptrace.fit import Fit, fit
from gaptrace.schedules import plateau, uniform
from gaptrace.timings import Arm, ArmTiming, LaunchCost, Measurement
from gaptrace.tuning import recommendation


def times_of(model, notice_ns, sizes):
    """What a bench would measure of a graph with such a model: costs, one graph, chunks."""
    device = np.append(0.0, np.cumsum(np.broadcast_to(model.node_ns, model.nodes)))
    parts = sorted({2**i for i in range(model.nodes.bit_length()) if 2**i < model.nodes})
    costs = []
    for c in (*parts, model.nodes):
        launch = float(model.host(c))
        alone = launch + model.delta_ns + device[c] + notice_ns
        costs.append(LaunchCost(c, launch, alone, max(device[c] + model.cut_gap_ns, launch)))

    def arm(*schedule):
        step_ns = makespan(model, schedule)
        queued = max(
            device[-1] + len(schedule) * model.cut_gap_ns,
            sum(float(model.host(c)) for c in schedule),
        )
        kind = "graph" if len(schedule) == 1 else "chunks"
        one = (round(step_ns + notice_ns),)
        return ArmTiming(Arm(kind, schedule), (one,), ((round(step_ns),),), (round(queued),))

    def cut(c):
        rest = model.nodes % c
        return (c,) * (model.nodes // c) + ((rest,) if rest else ())

    return costs, arm(model.nodes), [arm(*cut(c)) for c in sizes]


@settings(deadline=None, max_examples=60)
@given(
    fixed=st.integers(2000, 8000),
    per_node=st.integers(0, 300),
    node=st.integers(600, 9000),
    gap=st.integers(0, 3000),
    delta=st.integers(0, 5000),
    notice=st.integers(0, 6000),
)
def test_the_fit_finds_the_model_that_made_the_times(fixed, per_node, node, gap, delta, notice):
    true = ChunkModel(HostCost.linear(fixed, per_node), 512, node, cut_gap_ns=gap, delta_ns=delta)
    costs, graph, chunks = times_of(true, notice, (256, 128, 64))
    found = fit(costs, graph, chunks)

    # To the nanosecond but for rounding, where the parts were long enough to be told apart.
    assert found.error_fraction < 0.01
    sizes = np.arange(32, 513)
    error = np.abs(uniform(found.model) / uniform(true) - 1)[sizes - 1]
    assert error.max() < 0.02
    assert found.notice_ns == pytest.approx(notice, abs=2)
    assert found.cut_gap_ns == pytest.approx(gap, abs=2)


def test_nodes_of_different_length_are_told_apart_as_far_as_the_parts_do():
    node_ns = np.where(np.arange(256) < 128, 1000, 5000)
    true = ChunkModel(HostCost.linear(3000, 5), 256, node_ns, cut_gap_ns=1200)
    costs, graph, chunks = times_of(true, 3000, (128, 64))
    found = fit(costs, graph, chunks)
    device = np.cumsum(found.model.node_ns)
    assert device[127] == pytest.approx(128_000, rel=1e-3)
    assert device[255] == pytest.approx(128_000 + 640_000, rel=1e-3)


def launched(nodes, launch_ns, alone_ns, row_ns):
    return LaunchCost(nodes, launch_ns, alone_ns, row_ns)


def whole(step_ns, device_ns=None):
    device_ns = step_ns if device_ns is None else device_ns
    return ArmTiming(Arm("graph", (8,)), ((step_ns,),), ((device_ns,),), (800,))


def test_the_error_is_the_largest_of_all_arms():
    # Nodes of 100 ns, launches of 10 ns: 810 ns as one graph and in two. One graph is timed at
    # that, chunks 90 ns above and 190 ns below.
    costs = [launched(4, 10, 410, 400), launched(8, 10, 810, 800)]
    chunks = [
        ArmTiming(Arm("chunks", (4, 4)), ((ns,),), ((ns,),), (800,)) for ns in (900, 1000, 620)
    ]

    assert fit(costs, whole(810), []).error_fraction == 0
    assert fit(costs, whole(810), chunks[:1]).error_fraction == pytest.approx(90 / 900)
    assert fit(costs, whole(810), chunks[:2]).error_fraction == pytest.approx(190 / 1000)
    assert fit(costs, whole(810), chunks).error_fraction == pytest.approx(190 / 620)


def test_nodes_that_only_the_host_tells_of_are_as_long_as_those_before():
    # A row of the whole takes as long as its launches: its own time, 800 ns, is hidden.
    costs = [launched(c, 10, 100 * c + 10, 100 * c) for c in (1, 2, 4)]
    costs.append(launched(8, 900, 900, 900))

    found = fit(costs, whole(1000), [])
    assert found.model.node_ns.tolist() == [100.0] * 8


def test_what_is_measured_below_nothing_is_nothing():
    # The step is over sooner by the host's clock than by the device's, and a launch alone sooner
    # than its row: by chance, since neither can be.
    costs = [launched(4, 10, 390, 400), launched(8, 10, 790, 800)]
    found = fit(costs, whole(800, device_ns=820), [])

    assert found.notice_ns == 0
    assert found.model.node_ns.tolist() == [100.0] * 8
    assert found.step_ns((8,)) == 800


def test_a_step_bound_by_the_host_cannot_be_fitted():
    true = ChunkModel(HostCost.linear(50_000, 5000), 64, 100)
    with pytest.raises(NotIdentifiableError, match="bound by the host"):
        fit(*times_of(true, 0, (32, 16)))


def timing(kind, *rounds, schedule=(), **own):
    steps = tuple((ns,) for ns in rounds)
    return ArmTiming(Arm(kind, schedule), steps, steps, rounds, **own)


def measured(*timings, capture_ns=1000):
    return Measurement(timings, 600, capture_ns, 20, "GPU", "580", "13.0")


GRAPH = timing("graph", 1000, 1002, 998, schedule=(600,), instantiate_ns=500)


def verdict(single, chunk, graph=GRAPH):
    chunks = timing("chunks", *chunk, schedule=(100,) * 6, instantiate_ns=700)
    arms = (graph, chunks) if single is None else (timing("per_launch", *single), graph, chunks)
    found = measured(*arms)
    return recommendation(found, found, None)


@pytest.mark.parametrize(
    ("single", "chunk", "expected", "gain_ns"),
    [
        # The clock decides: chunks are faster by more than chance and noise ...
        ((3000, 3002, 2998), (900, 902, 898), "chunk", 100),
        # ... by more than chance, but by less than half a percent ...
        ((3000, 3002, 2998), (997, 999, 995), "one_graph", 2000),
        # ... by chance ...
        ((3000, 3002, 2998), (900, 1500, 500), "one_graph", 2000),
        # ... slower.
        ((3000, 3002, 2998), (1100, 1101, 1099), "one_graph", 2000),
        # One graph is slower than launches, or no different from them.
        ((900, 902, 898), (1100, 1101, 1099), "do_not_graph", None),
        ((1000, 1300, 700), (1100, 1101, 1099), "no_difference_shown", None),
        # Chunks are faster than one graph, launches than both.
        ((800, 802, 798), (900, 902, 898), "do_not_graph", None),
        # A graph by itself has nothing to be compared with but its chunks.
        (None, (1100, 1101, 1099), "one_graph", 0),
        (None, (900, 902, 898), "chunk", 100),
    ],
)
def test_verdicts_follow_the_clock(single, chunk, expected, gain_ns):
    found = verdict(single, chunk)
    assert (found.verdict, found.gain_ns) == (expected, gain_ns)
    assert found.regime == "replay"
    assert bool(found.amortised_ns) == (expected in ("chunk", "one_graph"))
    sizes = {"chunk": (100, (100,) * 6), "one_graph": (600, (600,))}
    assert (found.chunk, found.schedule) == sizes.get(expected, (None, None))
    assert all(item.evidence == "timed" for item in found.inputs)
    assert found.measured_ns["graph:600"] == 1000
    assert found.break_even_replays == (1 if single and single[0] == 3000 else None)


def test_a_graph_that_was_not_cut_is_compared_with_launches():
    times = measured(timing("per_launch", 3000, 3002, 2998), GRAPH)
    found = recommendation(times, times, None)
    assert (found.verdict, found.gain_ns) == ("one_graph", 2000)
    # 1,000 ns to capture and 500 to instantiate, once.
    assert found.amortised_ns == {10: 1150, 100: 1015, 1_000: 1002}


def test_a_gain_by_chance_is_no_reason_for_a_graph():
    assert verdict((1010, 1310, 710), (1100, 1101, 1099)).verdict == "no_difference_shown"


def test_a_recommendation_tells_what_the_fit_holds_and_the_fastest_of_the_chunks():
    # a(c) = 10 + c. One graph: 610 + 600. Six chunks: the last starts at 6 * 110 and takes 100.
    # The host knows 20 later.
    model = ChunkModel(HostCost.linear(10, 1), 600, 1.0, cut_gap_ns=5)
    fitted = Fit(model, notice_ns=20, cut_gap_ns=5, error_fraction=0.25)
    slower = timing("chunks", 950, 952, 948, schedule=(200,) * 3)
    faster = timing("chunks", 900, 902, 898, schedule=(100,) * 6)
    times = measured(GRAPH, slower, faster)
    found = recommendation(times, times, fitted)

    assert (found.verdict, found.chunk, found.gain_ns) == ("chunk", 100, 100)
    assert found.predicted_ns == {"one_graph": 1230, "device_only": 600, "chunk": 780}
    assert found.measured_ns == {"graph:600": 1000, "chunk:200": 950, "chunk:100": 900}
    # It was not timed what instantiating these chunks takes.
    assert found.amortised_ns == {}
    # The clock chose another size than the model: what is as good by the model is not said of it.
    good = plateau(uniform(model))
    assert (good.lo, good.hi, found.plateau) == (76, 79, None)
    among = timing("chunks", 880, 882, 878, schedule=(77,) * 7 + (61,))
    both = measured(GRAPH, slower, among)
    assert recommendation(both, both, fitted).plateau == (76, 79)
    assert {each.name: (each.value, each.samples) for each in found.inputs} == {
        "nodes": (600, 1),
        "capture_ns": (1000, 1),
        "instantiate_ns": (500, 1),
        # Three rounds of twenty steps; the error is that of three arms.
        "device_ns": (600, 60),
        "launch_fixed_ns": (10, 60),
        "launch_whole_ns": (610, 60),
        "cut_gap_ns": (5, 60),
        "notice_ns": (20, 60),
        "prediction_error_fraction": (0.25, 3),
    }

    # Without graphs there are no sizes; what was not timed is no input.
    single = timing("per_launch", 800, 802, 798)
    bare = timing("graph", 1000, 1002, 998, schedule=(600,))
    times = measured(single, bare, faster, capture_ns=None)
    found = recommendation(times, times, None)
    assert {each.name for each in found.inputs} == {"nodes"}
    times = measured(single, bare, timing("chunks", 1100, 1102, 1098, schedule=(100,) * 6))
    found = recommendation(times, times, fitted)
    assert (found.verdict, found.plateau) == ("do_not_graph", None)
