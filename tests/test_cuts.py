"""Order, widths and schedules of cuts, against slow oracles."""

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaptrace import cuts
from gaptrace.errors import GaptraceError, ScheduleError


def as_edges(pairs):
    return np.array(pairs, np.int64).reshape(-1, 2)


@st.composite
def graphs(draw, most=12):
    """Node count and edges that all point forward."""
    nodes = draw(st.integers(1, most))
    pairs = [(a, b) for b in range(nodes) for a in range(b)]
    return nodes, draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []


@st.composite
def schedules(draw, nodes):
    inner = st.integers(1, nodes - 1) if nodes > 1 else st.nothing()
    ends = draw(st.sets(inner, max_size=nodes)) if nodes > 1 else set()
    return tuple(np.diff([0, *sorted(ends), nodes]).tolist())


def depends(nodes, pairs):
    """Return, for each pair of nodes, whether the second waits for the first: by closure."""
    found = np.zeros((nodes, nodes), bool)
    for a, b in pairs:
        found[a, b] = True
    for middle in range(nodes):
        found |= np.outer(found[:, middle], found[middle])
    return found


# Order


@given(graphs())
def test_the_order_of_creation_is_kept_where_it_can_be(graph):
    nodes, pairs = graph
    assert cuts.topological_order(nodes, as_edges(pairs)).tolist() == list(range(nodes))


@given(graphs(), st.randoms(use_true_random=False))
def test_the_next_node_is_the_smallest_that_may_run(graph, random):
    nodes, pairs = graph
    names = list(range(nodes))
    random.shuffle(names)
    renamed = [(names[a], names[b]) for a, b in pairs]
    done: list[int] = []
    while len(done) < nodes:
        waiting = {b for a, b in renamed if a not in done}
        done.append(min(set(range(nodes)) - waiting - set(done)))
    assert cuts.topological_order(nodes, as_edges(renamed)).tolist() == done


def test_a_cycle_has_no_order():
    with pytest.raises(ValueError, match="cycle"):
        cuts.topological_order(3, as_edges([(0, 1), (1, 2), (2, 1)]))
    with pytest.raises(ValueError, match="cycle"):
        cuts.topological_order(2, as_edges([(0, 1), (1, 1)]))


# Widths


@given(graphs())
def test_a_cut_is_narrow_where_everything_behind_waits_for_everything_before(graph):
    nodes, pairs = graph
    waits = depends(nodes, pairs)
    expected = [0] * (nodes + 1)
    for cut in range(1, nodes):
        last = [a for a in range(cut) if not waits[a, :cut].any()]
        first = [b for b in range(cut, nodes) if not waits[cut:, b].any()]
        narrow = waits[:cut, cut:].all()
        expected[cut] = 1 if narrow else max(2, len(last), len(first))
    assert cuts.widths(nodes, as_edges(pairs)).tolist() == expected


def test_widths_of_a_fork_that_joins():
    fork = [(0, 1), (1, 2), (2, 6), (0, 3), (3, 4), (4, 5), (5, 6), (6, 7)]
    assert cuts.widths(8, as_edges(fork)).tolist() == [0, 1, 2, 2, 2, 2, 1, 1, 0]


def test_two_chains_are_two_branches_even_between_them():
    assert cuts.widths(4, as_edges([(0, 1), (2, 3)])).tolist() == [0, 2, 2, 2, 0]


def test_an_edge_given_twice_counts_once():
    assert cuts.widths(2, as_edges([(0, 1), (0, 1)])).tolist() == [0, 1, 0]


@given(graphs())
def test_crossings_are_the_edges_across(graph):
    nodes, pairs = graph
    across = [sum(a < cut <= b for a, b in pairs) for cut in range(nodes + 1)]
    assert cuts.crossings(nodes, as_edges(pairs)).tolist() == across


@given(graphs(), st.data())
def test_dependents_wait_directly_or_through_others(graph, data):
    nodes, pairs = graph
    start = data.draw(st.integers(0, nodes - 1))
    expected = depends(nodes, pairs)[start].tolist()
    assert cuts.dependents(nodes, as_edges(pairs), start).tolist() == expected


# Schedules


def test_sizes():
    assert cuts.sizes(10, 4) == (4, 4, 2)
    assert cuts.sizes(10, 4, remainder_first=True) == (2, 4, 4)
    assert cuts.sizes(10, 5) == cuts.sizes(10, 5, remainder_first=True) == (5, 5)
    assert cuts.sizes(3, 100) == (3,)
    assert cuts.sizes(3, np.int64(1)) == (1, 1, 1)


@pytest.mark.parametrize("chunk", [0, -1, 1.5, "4", None, True])
def test_a_chunk_is_a_positive_whole_number(chunk):
    with pytest.raises(ScheduleError, match="must be a whole number of nodes, 1 or more"):
        cuts.sizes(10, chunk)


def test_nothing_to_cut():
    with pytest.raises(ScheduleError, match="the graph has no nodes"):
        cuts.sizes(0, 4)


def test_a_schedule_that_fits_is_taken_as_it_is():
    assert cuts.checked([1, np.int32(2), 3], 6) == (1, 2, 3)


@pytest.mark.parametrize("schedule", [[1, 0, 5], [7, -1], [2.0, 4], [True, 5], ["6"]])
def test_a_schedule_holds_positive_whole_numbers(schedule):
    with pytest.raises(ScheduleError, match=r"chunk [01] of the schedule must be a whole number"):
        cuts.checked(schedule, 6)


@pytest.mark.parametrize("schedule", [[1, 2], [5, 5], []])
def test_a_schedule_covers_all_nodes(schedule):
    with pytest.raises(ScheduleError, match=r"sum to \d+, but the graph has 6 nodes"):
        cuts.checked(schedule, 6)


def test_an_error_of_a_schedule_is_one_of_gaptrace_and_of_values():
    assert issubclass(ScheduleError, GaptraceError)
    assert issubclass(ScheduleError, ValueError)


# Moving to narrow places


@given(st.data())
def test_each_cut_moves_to_the_cheapest_place_in_reach(data):
    nodes = data.draw(st.integers(1, 40))
    schedule = data.draw(schedules(nodes))
    costs = data.draw(st.lists(st.integers(1, 3), min_size=nodes + 1, max_size=nodes + 1))
    moved = cuts.move_to_narrow(schedule, np.array(costs))
    assert len(moved) == len(schedule)
    assert sum(moved) == nodes
    assert all(2 * after >= before for before, after in zip(schedule, moved, strict=True))
    places = list(accumulate(schedule))[:-1]
    for index, (before, after) in enumerate(zip(places, accumulate(moved), strict=False)):
        reach = min(schedule[index], schedule[index + 1]) // 4
        near = range(before - reach, before + reach + 1)
        assert after == min(near, key=lambda cut: (costs[cut], abs(cut - before), cut))


def test_a_cut_leaves_a_fork():
    chain_with_a_fork = [(node, node + 1) for node in range(15) if node != 7] + [(6, 8)]
    widths = cuts.widths(16, as_edges(chain_with_a_fork))
    assert widths[[6, 7, 8, 9]].tolist() == [1, 1, 2, 2]
    assert cuts.move_to_narrow((8, 8), widths) == (7, 9)


# Halving


@given(st.lists(st.integers(1, 50), min_size=2, max_size=40))
def test_halves_are_as_even_as_they_can_be(schedule):
    chunks = cuts.halve(schedule)
    assert 1 <= chunks < len(schedule)
    difference = [abs(2 * sum(schedule[:n]) - sum(schedule)) for n in range(1, len(schedule))]
    assert difference[chunks - 1] == min(difference)


def copied(schedule):
    """Return how many nodes are copied in all if a graph is halved down to its chunks."""
    if len(schedule) == 1:
        return 0
    chunks = cuts.halve(schedule)
    return sum(schedule) + copied(schedule[:chunks]) + copied(schedule[chunks:])


@pytest.mark.parametrize(
    ("schedule", "nodes_copied"),
    [((100,) * 128, 7 * 12_800), (tuple(2**n for n in range(14)), 2 * 2**14)],
)
def test_halving_copies_few_nodes(schedule, nodes_copied):
    assert copied(schedule) <= nodes_copied


def test_a_hundred_thousand_nodes():
    nodes = 100_000
    chain = as_edges([(a, a + 1) for a in range(nodes - 1)])
    backward = nodes - 1 - chain
    assert cuts.topological_order(nodes, backward).tolist() == list(range(nodes))[::-1]
    widths = cuts.widths(nodes, chain)
    assert set(widths[1:-1].tolist()) == {1}
    assert cuts.move_to_narrow(cuts.sizes(nodes, 3), widths) == cuts.sizes(nodes, 3)
