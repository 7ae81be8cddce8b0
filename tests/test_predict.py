"""Predicted steps, the choice between them, and by how much figures may be wrong."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaptrace.cost import HostCost, makespan
from gaptrace.predict import StepCosts, advise, best_cut, by_size, gain_interval
from gaptrace.recommendation import NOISE_FRACTION, Recommendation
from gaptrace.render.page import printed
from gaptrace.render.recommendation import recommendation_section
from gaptrace.render.verdicts import verdict
from gaptrace.schedules import growing_with_reserve, is_even, plateau, uniform_sizes
from gaptrace.sensitivity import scaled, sensitivity


def costs(nodes=100, *, fixed=3_000, per_node=0.0, node=1_000, cut=1_200, launch=5_000, free=0):
    host = HostCost.linear(fixed, per_node)
    return StepCosts(
        host=host,
        ready=HostCost.linear(fixed + 1_500, per_node),
        node_ns=np.full(nodes, float(node)),
        cut_gap_ns=cut,
        device_free_ns=free,
        notice_ns=1_000,
        launch_ns=launch,
        launch_delta_ns=1_500,
        kernel_gap_ns=800,
    )


def test_launches_that_do_not_grow_with_nodes_want_one_graph():
    found = advise(costs(), [(100,)])

    assert (found.verdict, found.sizes, found.gain_ns) == ("one_graph", (100,), 0)
    # 4.5 us until it starts, 100 us, 1 us until the host knows.
    assert found.predicted_ns["one_graph"] == 105_500
    assert found.predicted_ns["device_only"] == 100_000
    # 100 launches of 5 us, the last of which starts 1.5 us later; its kernel; the notice.
    assert found.predicted_ns["per_launch"] == 500_000 + 1_500 + 1_000 + 1_000


def test_launches_that_grow_with_nodes_want_chunks_and_the_gain_is_capped():
    slow = costs(1_000, per_node=500.0)
    found = advise(slow, [(1_000,)])

    assert found.verdict == "chunk"
    assert found.gain_ns == pytest.approx(
        slow.step_ns((1_000,)) - slow.step_ns(found.sizes), rel=1e-9
    )
    assert advise(slow, [(1_000,)], 10_000.0).gain_ns == 10_000
    assert advise(slow, [(1_000,)], 0.0).verdict == "no_difference_shown"


@pytest.mark.parametrize(
    ("nodes", "lead", "is_growing"), [(10_000, 0.00893, True), (30_000, 0.0048, False)]
)
def test_chunks_grow_only_where_that_saves_half_a_percent(nodes, lead, is_growing):
    slow = costs(nodes, per_node=300.0)
    even = uniform_sizes(slow.model, plateau(slow.uniform_ns).recommended)
    growing = growing_with_reserve(slow.model)

    assert 1 - slow.step_ns(growing) / slow.step_ns(even) == pytest.approx(lead, rel=0.01)
    assert advise(slow, [(nodes,)]).sizes == (growing if is_growing else even)


def test_the_curve_is_the_step_at_each_size_between_the_ends():
    middle, slow = costs(), costs(per_node=100.0)
    found = by_size(middle, [slow])

    assert (found[0].chunk, found[-1].chunk) == (1, 100)
    for each in found:
        sizes = [each.chunk] * (100 // each.chunk)
        if sum(sizes) == 100:
            assert each.step_ns == round(middle.step_ns(sizes))
            assert (each.low_ns, each.high_ns) == (each.step_ns, round(slow.step_ns(sizes)))


@pytest.mark.parametrize(
    ("ways", "verdict"),
    [
        ([(10,) * 10], "one_graph"),  # a graph that was cut
        ([(30, 50, 20)], "merge"),  # parts of a program
        ([(10,) * 10, (100,)], "one_graph"),  # launched as one, too: that is compared
    ],
)
def test_many_graphs_that_gain_nothing_from_being_many(ways, verdict):
    found = advise(costs(), ways)

    assert (found.verdict, found.sizes) == (verdict, (100,))
    cuts = 0 if (100,) in ways else len(ways[0]) - 1
    assert found.gain_ns == pytest.approx(cuts * 1_200)


def test_two_graphs_instead_of_one_are_no_difference_in_a_long_step():
    assert advise(costs(10_000), [(5_000, 5_000)]).verdict == "no_difference_shown"


def test_large_kernels_whose_graph_is_built_anew_are_better_launched_one_by_one():
    slow = costs(20, per_node=300_000.0, node=100_000, launch=5_000)
    found = advise(slow, [(20,)])

    assert found.verdict == "do_not_graph"
    assert found.gain_ns > 0


def test_a_remainder_that_comes_first_is_told():
    # Behind a device that is slower by far the small chunk is launched first.
    dear = costs(27, fixed=1_000, per_node=400.0, node=2_400, cut=100)
    found = advise(dear, [(27,)])
    alternatives = {each.name: each for each in found.alternatives}

    assert found.verdict == "chunk"
    assert found.sizes[0] < found.sizes[-1]
    assert not is_even(found.sizes)
    cut = alternatives["chunk"]
    assert (cut.first, cut.chunk) == (uniform_sizes(dear.model, cut.chunk)[0], cut.chunk)
    said = verdict(
        Recommendation(
            "chunk", regime="update", nodes=27, chunk=found.chunk, schedule=found.sizes, gain_ns=5
        )
    )
    assert ("then chunks of" in said) == (len(set(found.sizes[1:])) == 1)


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        ((23, 4), "Cut the graph into chunks of 23 CUDA nodes: it saves 5.00 us a step."),
        (
            (4, 23),
            "Cut the graph into a chunk of 4 CUDA nodes, then chunks of 23: it saves 5.00 us a "
            "step.",
        ),
        (
            (4, 23, 23),
            "Cut the graph into a chunk of 4 CUDA nodes, then chunks of 23: it saves 5.00 us a "
            "step.",
        ),
        (
            (2, 8, 40),
            "Cut the graph into 3 growing chunks: it saves 5.00 us a step. The best equal ones are "
            "chunks of 23 CUDA nodes.",
        ),
        (
            (40, 8, 2),
            "Cut the graph into 3 unequal chunks: it saves 5.00 us a step. The best equal ones are "
            "chunks of 23 CUDA nodes.",
        ),
    ],
)
def test_the_order_of_chunks_is_in_the_sentence(schedule, said):
    found = Recommendation(
        "chunk", regime="update", nodes=sum(schedule), chunk=23, schedule=schedule, gain_ns=5_000
    )
    assert verdict(found) == said
    shown = printed([recommendation_section(found)], 200, color=False)
    order = f"chunks in launch order, CUDA nodes: {', '.join(map(str, schedule))}\n"
    assert (order in shown) == (schedule != (23, 4))


def test_a_chunk_size_is_explained_by_the_closed_form():
    found = Recommendation("chunk", nodes=600, chunk=64, closed_form=(60.4, 97.98))
    shown = printed([recommendation_section(found)], 200, color=False)

    assert "about 60 CUDA nodes where the device is the slower side, about 98 where" in shown
    assert "explained" not in printed(
        [recommendation_section(replace(found, verdict="one_graph"))], 200, color=False
    )


@pytest.mark.parametrize(
    ("now", "chunk"), [((40, 40, 20), 40), ((30, 70), None), ((20, 40, 40), None)]
)
def test_a_recorded_way_has_a_size_only_if_its_graphs_are_equal(now, chunk):
    (found,) = (each for each in advise(costs(100), [now]).alternatives if each.name == "now")
    assert (found.graphs, found.chunk) == (len(now), chunk)


def test_what_is_predicted_of_a_schedule_is_of_the_advised_one():
    slow = costs(120, fixed=12_000, per_node=700, cut=1_000)
    found = advise(slow, [(120,)])

    assert found.verdict == "chunk"
    assert found.predicted_ns["schedule"] == round(slow.step_ns(found.sizes))
    single = advise(costs(20, fixed=100_000, per_node=50_000, node=50_000), [(20,)])
    assert single.verdict == "do_not_graph"
    assert "schedule" not in single.predicted_ns


def test_alternatives_say_what_each_would_lose():
    found = advise(costs(1_000), [(100,) * 10])
    losses = {(each.name, each.graphs): each.loss_ns for each in found.alternatives}

    assert losses["one_graph", 1] == 0
    assert losses["now", 10] == 9 * 1_200
    assert losses["chunk", 2] == 1_200
    assert losses["per_launch", 0] > 0
    assert 512 in [each.chunk for each in found.alternatives]


def test_the_interval_of_a_gain_covers_both_ends():
    slow = costs(1_000, per_node=500.0)
    found = advise(slow, [(1_000,)])
    ends = [replace(slow, host=HostCost.linear(3_000, p)) for p in (100.0, 900.0)]
    ends = [replace(each, ready=each.host) for each in ends]
    low, high = gain_interval(found, ends)

    assert low <= found.gain_ns <= high
    assert gain_interval(found, ends, 5_000.0)[1] == 5_000


def test_what_leaving_it_may_miss_is_told_from_the_ends():
    cheap = costs(1_000)
    found = advise(cheap, [(1_000,)])
    slow = costs(1_000, per_node=500.0)

    assert gain_interval(found, [cheap]) == (0, 0)
    assert gain_interval(found, [cheap, slow])[1] == round(
        makespan(slow.model, (1_000,)) - slow.uniform_ns.min()
    )


@given(
    st.integers(2, 60),
    st.integers(0, 5_000),
    st.floats(0, 500),
    st.integers(100, 5_000),
    st.integers(0, 3_000),
)
def test_at_the_factor_found_the_advice_loses_and_just_before_it_does_not(
    nodes, fixed, per_node, node, cut
):
    step = costs(nodes, fixed=fixed, per_node=per_node, node=node, cut=cut)
    sizes = advise(step, [(nodes,)]).sizes

    def loses(name, factor):
        changed = scaled(step, name, factor)
        own, least = makespan(changed.model, sizes), float(changed.uniform_ns.min())
        return own > least * (1 + NOISE_FRACTION)

    for row in sensitivity(step, sizes):
        for factor, end in ((row.smaller, 1 / 16), (row.larger, 16)):
            to = end if factor is None else factor
            tried = [end ** (number / 16) for number in range(1, 17)]
            before = [each for each in tried if abs(np.log(each)) < abs(np.log(to)) - 1e-9]
            assert not any(loses(row.name, each) for each in before)
            if factor is None:
                assert not loses(row.name, end)
            else:
                assert 1 / 16 <= factor <= 16
                assert loses(row.name, factor)
                # Half an octave is divided by eight: a little nearer to 1 it does not lose yet.
                nearer = factor / end ** (1 / 64)
                assert abs(np.log(nearer)) < 1e-9 or not loses(row.name, nearer)


def test_the_fixed_part_of_every_host_cost_is_scaled_by_itself():
    twice = scaled(costs(fixed=3_000, per_node=10.0), "host_fixed_ns", 2.0)

    assert (twice.host.fixed_ns, twice.ready.fixed_ns) == (6_000, 9_000)
    assert (float(twice.host(100)), float(twice.ready(100))) == (7_000, 10_000)


def test_advice_that_is_right_again_farther_away_turns_where_it_is_first_wrong():
    # Dearer launches first ask for chunks, which begin sooner, and in the end hide behind nothing.
    step = costs(150, fixed=6_000, per_node=50.0, node=300, cut=200, free=20_000)
    rows = {row.name: row for row in sensitivity(step, (150,))}

    def loses(factor):
        changed = scaled(step, "host_fixed_ns", factor)
        own, least = makespan(changed.model, (150,)), float(changed.uniform_ns.min())
        return own - 20_000 > (least - 20_000) * (1 + NOISE_FRACTION)

    assert [loses(factor) for factor in (1, 4, 16)] == [False, True, False]
    assert rows["host_fixed_ns"].larger == pytest.approx(2.3, rel=0.3)


def test_what_the_advice_loses_is_weighed_against_the_step_not_the_work_before_it():
    # Behind a millisecond of earlier work a cut costs 400 ns of 100 us: 0.5 % if cuts cost 1.25
    # times as much, or nodes 0.8 times. Found to 5 %.
    rows = sensitivity(costs(cut=400, free=1_000_000), (50, 50))
    found = {row.name: (row.smaller, row.larger) for row in rows}

    # Launches here do not grow with nodes; a figure of nothing cannot be wrong by a factor.
    assert found.keys() == {"host_fixed_ns", "device_ns", "cut_gap_ns", "device_free_ns"}
    assert found["cut_gap_ns"] == (None, pytest.approx(1.25 * 1.025, rel=0.025))
    assert found["device_ns"] == (pytest.approx(0.8 / 1.025, rel=0.025), None)


@pytest.mark.parametrize(
    ("name", "value", "changed"),
    [
        ("host_fixed_ns", 3_000, (7_000, 7_000, 100_000, 1_200, 500)),
        ("host_by_nodes_ns", 1_000, (5_000, 5_000, 100_000, 1_200, 500)),
        ("device_ns", 100_000, (4_000, 4_000, 200_000, 1_200, 500)),
        ("cut_gap_ns", 1_200, (4_000, 4_000, 100_000, 2_400, 500)),
        ("device_free_ns", 500, (4_000, 4_000, 100_000, 1_200, 1_000)),
    ],
)
def test_one_figure_is_scaled_and_no_other(name, value, changed):
    usual = replace(costs(per_node=10.0, free=500), ready=HostCost.linear(3_000, 10.0))
    twice = scaled(usual, name, 2.0)

    assert (
        float(twice.host(100)),
        float(twice.ready(100)),
        twice.device_only_ns,
        twice.cut_gap_ns,
        twice.device_free_ns,
    ) == changed
    assert {each.name: each.value for each in sensitivity(usual, (100,))}[name] == value


def test_the_best_cut_makes_two_chunks_at_least():
    # One graph is best; of those that are cut, the one cut in the middle.
    assert best_cut(costs()) == 50
    assert best_cut(costs(nodes=3)) == 1
    assert best_cut(costs(nodes=1)) is None


def test_a_figure_without_a_name_is_refused():
    with pytest.raises(ValueError, match="no figure"):
        scaled(costs(), "weather", 2.0)
