"""Chunk sizes and schedules against all ways to cut a step, by hand and as published."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from chunk_steps import allowed, compositions, last, model_of, oracle, steps
from hypothesis import given, settings
from hypothesis import strategies as st

from gaptrace.cost import ChunkModel, HostCost, makespan
from gaptrace.schedules import (
    closed_form,
    growing_schedule,
    growing_with_reserve,
    optimal_schedule,
    plateau,
    uniform,
    uniform_sizes,
)

untimed = settings(deadline=None)  # a busy machine must not fail a test
close = pytest.approx  # model values are sums of floats in another order than the expected ones


@untimed
@given(steps(longest=24))
def test_uniform_is_the_better_end_of_every_size(fields):
    nodes, cuts = len(fields["node_ns"]), allowed(fields)
    model = model_of(fields)
    result = uniform(model)
    assert result.shape == (nodes,)
    for chunk in range(1, nodes + 1):
        ends = []
        for marks in (range(0, nodes, chunk), [nodes - i for i in range(0, nodes, chunk)]):
            back = {max([0, *(c for c in cuts if c <= mark)]) for mark in marks if mark < nodes}
            bounds = sorted(back | {0, nodes})
            ends.append([b - a for a, b in pairwise(bounds)])
        expected = min(oracle(fields, sizes) for sizes in ends)
        assert result[chunk - 1] == close(expected)
        assert list(uniform_sizes(model, chunk)) in ends
        assert oracle(fields, uniform_sizes(model, chunk)) == close(expected)


@untimed
@given(steps())
def test_optimal_is_the_best_of_all_compositions(fields):
    fields["queue_depth"] = None
    model = model_of(fields)
    every = compositions(len(fields["node_ns"]), allowed(fields))
    sizes = optimal_schedule(model)
    assert oracle(fields, sizes) == close(min(oracle(fields, each) for each in every))


@untimed
@given(steps(longest=30))
def test_growing_is_a_schedule_between_the_optimum_and_the_best_uniform(fields):
    model = model_of(fields)
    sizes = growing_schedule(model)
    time = makespan(model, sizes)  # refuses a wrong sum or a forbidden cut
    assert time <= uniform(model).min() * (1 + 1e-9)
    unlimited = model_of(fields | {"queue_depth": None})
    assert time >= makespan(unlimited, optimal_schedule(unlimited)) * (1 - 1e-9)
    assert time >= model.device_only_ns * (1 - 1e-9)


def random_steps():
    random = np.random.default_rng(7)
    for _ in range(80):
        nodes = int(random.integers(20, 200))
        mean = random.uniform(500, 8000)
        yield ChunkModel(
            HostCost.linear(random.uniform(0, 30_000), random.uniform(100, 6000)),
            nodes,
            np.repeat(random.exponential(mean, nodes // 10 + 1), 10)[:nodes],
            in_graph_gap_ns=random.uniform(0, 1000),
            cut_gap_ns=random.uniform(0, 5000),
            device_free_ns=random.choice([0.0, random.uniform(0, 200_000)]),
        )


def test_growing_is_near_the_optimum():
    above = [
        makespan(model, growing_schedule(model)) / makespan(model, optimal_schedule(model)) - 1
        for model in random_steps()
    ]
    assert np.mean(above) < 0.005
    assert max(above) < 0.05


def test_a_reserve_costs_less_than_a_slower_host_without_it():
    longer, saved = [], []
    for model in random_steps():
        slower = replace(model, host=model.host.times(1.5))
        bold, careful = growing_schedule(model), growing_with_reserve(model)
        longer.append(makespan(model, careful) / makespan(model, bold) - 1)
        saved.append(1 - makespan(slower, careful) / makespan(slower, bold))
    assert np.mean(longer) == pytest.approx(0.0177, abs=0.001)
    assert np.mean(saved) == pytest.approx(0.0529, abs=0.001)
    assert min(*longer, *saved) > -1e-9


def test_a_reserve_where_all_hides():
    # A host of 8 us and 0.55 us a node, and 5 us more until the device begins: 3,000 nodes of 9 us.
    host, ready = HostCost.linear(8_000, 550), HostCost.linear(13_000, 550)
    model = ChunkModel(host, 3_000, 9_000.0, cut_gap_ns=1_500, ready=ready)
    slower = replace(model, host=host.times(1.5), ready=ready.times(1.5))
    bold, careful = growing_schedule(model), growing_with_reserve(model)

    alone = model.device_only_ns
    assert makespan(model, careful) / alone - makespan(model, bold) / alone < 0.0001
    assert makespan(slower, bold) / alone > 1.0046
    assert makespan(slower, careful) / alone < 1.0011


@untimed
@given(steps(longest=30))
def test_a_schedule_with_reserve_is_no_worse_at_both_ends_than_one_without(fields):
    model = model_of(fields)
    ready = model.ready and model.ready.times(1.5)
    ends = model, replace(model, host=model.host.times(1.5), ready=ready)
    bold, careful = (
        sum(makespan(end, sizes) for end in ends)
        for sizes in (growing_schedule(model), growing_with_reserve(model))
    )
    assert careful <= bold * (1 + 1e-9)


def test_growing_begins_with_what_hides_behind_earlier_work():
    # F + 3c <= 1000 at c = 316; then E_1 + g' - H_1 = 2600 - 998 hides 517, then 5205 - 2599 hides
    # 852, which is just the rest.
    model = ChunkModel(HostCost.linear(50, 3), 1685, 5, cut_gap_ns=20, device_free_ns=1000)
    assert growing_schedule(model) == (316, 517, 852)


def test_growing_knows_that_a_chunk_behind_a_cut_through_branches_takes_longer():
    # As above, with 30 of overlap lost by each cut: 5205 + 30 - 2599 hides 862, ten nodes more.
    host = HostCost.linear(50, 3)
    model = ChunkModel(host, 1695, 5, cut_gap_ns=20, device_free_ns=1000, overlap_ns=30)
    assert growing_schedule(model) == (316, 517, 862)


# Published and derived figures. Node counts, spans and launch times of the first two rows are those
# of sgl-project/sglang#29960; all rows assume g' = 3 us.


def linear(nodes, fixed, slope, node, gap=3.0):
    """A model from microseconds."""
    host = HostCost.linear(fixed * 1e3, slope * 1e3)
    return ChunkModel(host, nodes, node * 1e3, cut_gap_ns=gap * 1e3)


SGLANG = linear(2876, 2.5, 2826 / 2876, 12_049 / 2876)


@pytest.mark.parametrize(
    ("model", "chunks_us", "best", "best_us", "growing", "growing_us"),
    [
        (
            SGLANG,
            {2876: 14_878, 1024: 13_064, 512: 12_570, 128: 12_243, 547: 12_592},
            202,
            12_141,
            (2, 9, 38, 163, 695, 1969),
            12_068,
        ),
        (
            linear(2187, 2.5, 1983 / 2187, 9399 / 2187),
            {2187: 11_384, 1024: 10_336, 512: 9_878, 128: 9_569},
            195,
            9_473,
            (4, 19, 91, 431, 1642),
            9_417,
        ),
        (
            linear(1500, 6, 1.2, 16.4),
            {1500: 26_406, 1024: 25_838, 512: 25_226, 128: 24_793},
            212,
            24_646,
            (1, 11, 148, 1340),
            24_616,
        ),
    ],
)
def test_published_workloads(model, chunks_us, best, best_us, growing, growing_us):
    for chunk, expected in chunks_us.items():
        sizes = [547, 2329] if chunk == 547 else last(model.nodes, chunk)
        assert makespan(model, sizes) / 1e3 == close(expected, abs=1)
    times = uniform(model)
    assert plateau(times).best == best
    assert times.min() / 1e3 == close(best_us, abs=1)
    assert uniform_sizes(model, best)[0] == model.nodes % best  # remainder first
    assert growing_schedule(model) == growing
    assert makespan(model, growing) / 1e3 == close(growing_us, abs=1)


def test_sglang_range_and_round_number():
    found = plateau(uniform(SGLANG))
    assert (found.lo, found.hi, found.recommended) == (198, 203, 200)


def test_constant_time_launch_wants_one_graph():
    # 2.5 us + 1 ns a node: 512-chunks cost 7 gaps of 3 us, and save 3584 nodes of launch.
    model = linear(4096, 2.5, 0.001, 3)
    assert makespan(model, last(4096, 512)) - makespan(model, [4096]) == close(7 * 3e3 - 3584)
    assert plateau(uniform(model)).recommended == 4096


def test_a_long_call_with_a_short_exposed_latency_leaves_nothing_to_gain():
    # The call takes 3,776 us but the device starts 30 us after it began, then runs 55.86 ms.
    host = HostCost.linear(0, 3776e3 / 4096)
    step = {"nodes": 4096, "node_ns": 55_860e3 / 4096, "cut_gap_ns": 3e3}
    exposed = ChunkModel(host, **step, ready=HostCost.linear(30e3, 0))
    assert makespan(exposed, [4096]) == close(30e3 + 55_860e3)
    assert plateau(uniform(exposed)).recommended == 4096
    api_time_taken_as_exposed = uniform(ChunkModel(host, **step))
    assert api_time_taken_as_exposed[-1] - api_time_taken_as_exposed.min() > 3e6


def test_no_gain_where_earlier_work_covers_the_launch():
    model = ChunkModel(HostCost.linear(10, 1), 100, 5, cut_gap_ns=2, device_free_ns=110)
    assert growing_schedule(model) == optimal_schedule(model) == (100,)
    assert makespan(model, [100]) == model.device_only_ns == 610
    assert plateau(uniform(model)).best == 100


def test_the_remainder_is_last_where_it_costs_the_same_in_front():
    model = ChunkModel(HostCost.linear(10, 1), 100, 5, cut_gap_ns=2, device_free_ns=110)
    assert makespan(model, [10, 30, 30, 30]) == makespan(model, [30, 30, 30, 10])
    assert uniform_sizes(model, 30) == (30, 30, 30, 10)
    with pytest.raises(ValueError, match="at least one node, not 0"):
        uniform_sizes(model, 0)


@pytest.mark.parametrize("chunk", [1, 4, 10, 25, 50, 100])
@pytest.mark.parametrize(("fixed", "slope"), [(7, 2), (90, 2), (7, 30)])
def test_equal_chunks_match_the_closed_form(chunk, fixed, slope):
    # T(c) = a(c) + delta + b(c) + (k - 1) max(a(c), b(c) + g) where c divides N.
    e, inner, cut, delta = 11, 2, 5, 3
    host = HostCost.linear(fixed, slope)
    gaps = {"in_graph_gap_ns": inner, "cut_gap_ns": cut}
    model = ChunkModel(host, 100, e, **gaps, delta_ns=delta)
    a, b = fixed + slope * chunk, chunk * e + (chunk - 1) * inner
    expected = a + delta + b + (100 // chunk - 1) * max(a, b + inner + cut)
    assert makespan(model, last(100, chunk)) == expected
    assert uniform(model)[chunk - 1] == expected


def test_closed_form_explains_each_regime():
    # sqrt(900*16/4) = 60 and sqrt(900*64/(5+1)) = 98
    model = ChunkModel(HostCost.linear(64, 4), 900, 5, in_graph_gap_ns=1, cut_gap_ns=16)
    assert closed_form(model) == (60.0, close(97.98, abs=0.01))
    # Slack: (E_0 - F)/p = (864 - 64)/4
    slack = ChunkModel(HostCost.linear(64, 4), 900, 6, cut_gap_ns=16, device_free_ns=864)
    assert closed_form(slack)[0] == 200.0
    # Constant-time launch: one graph. A free one, or a free cut: single nodes.
    assert closed_form(ChunkModel(HostCost.linear(64, 0), 900, 6, cut_gap_ns=4))[0] == 900.0
    assert closed_form(ChunkModel(HostCost.linear(0, 9), 900, 6)) == (1.0, 1.0)


def test_uniform_of_a_hundred_thousand_nodes_agrees_with_the_recurrence():
    nodes = 100_000
    times = np.random.default_rng(1).exponential(4000, nodes)
    model = ChunkModel(HostCost.linear(2500, 980), nodes, times, 200, 3000)
    result = uniform(model)
    for chunk in (1, 7, 316, 4096, 33_333, nodes):
        assert result[chunk - 1] == close(makespan(model, uniform_sizes(model, chunk)))


def test_plateau_is_the_run_around_the_round_number():
    times = np.full(40, 200.0)
    times[20:30] = [100.4, 100, 100, 103, 100.1, 100.2, 100.3, 100.5, 100.6, 100]  # 21 .. 30
    found = plateau(times)
    assert (found.best, found.recommended, found.lo, found.hi) == (30, 30, 30, 30)
    times[0:2] = 100.45, 100.4  # far away, but round and as good
    times[29] = 150
    found = plateau(times)  # around the best there is no round number: 21, 22, 23
    assert (found.best, found.recommended, found.lo, found.hi) == (23, 2, 1, 2)
    times[19] = 100.45
    found = plateau(times)
    assert (found.best, found.recommended, found.lo, found.hi) == (23, 20, 20, 23)
    assert plateau(times, fraction=0.0).recommended == 23
    times[39] = 100.45
    assert plateau(times).recommended == 40  # one graph is as good


def test_of_round_numbers_that_cost_the_same_the_largest_is_taken():
    times = np.full(40, 200.0)
    times[9:20] = 100  # 10, 16 and 20 are round
    assert plateau(times).recommended == 20
    times[15] = 99.9
    assert plateau(times).recommended == 16


@pytest.mark.parametrize(
    ("lo", "hi", "recommended"),
    [(45, 55, 50), (60, 70, 64), (95, 110, 100), (190, 220, 200), (480, 510, 500), (21, 31, 31)],
)
def test_round_are_powers_of_two_and_one_two_or_five_times_a_power_of_ten(lo, hi, recommended):
    times = np.full(1000, 200.0)
    times[lo - 1 : hi] = 100
    assert plateau(times).recommended == recommended


@untimed
@given(st.lists(st.integers(900, 1100), min_size=1, max_size=40), st.sampled_from([0, 0.01, 0.1]))
def test_plateau_holds_what_it_says(times, fraction):
    found = plateau(np.array(times, float), fraction=fraction)
    limit = min(times) * (1 + fraction)
    assert 1 <= found.lo <= found.recommended <= found.hi <= len(times)
    assert times[found.best - 1] == min(times)
    assert all(t > min(times) for t in times[found.best :])
    assert all(t <= limit for t in times[found.lo - 1 : found.hi])
    assert found.lo == 1 or times[found.lo - 2] > limit
    assert found.hi == len(times) or times[found.hi] > limit


def test_the_exact_search_refuses_a_queue_that_could_fill_up():
    model = {"host": HostCost.linear(1, 1), "nodes": 4, "node_ns": 5}
    with pytest.raises(ValueError, match="queue"):
        optimal_schedule(ChunkModel(**model, queue_depth=3))
    assert optimal_schedule(ChunkModel(**model, queue_depth=3, cuts=[2])) == (2, 2)
