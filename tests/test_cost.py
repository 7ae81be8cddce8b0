"""What chunks cost, against hand-worked cases and a second recurrence; and what is refused."""

from itertools import pairwise

import numpy as np
import pytest
from chunk_steps import allowed, compositions, model_of, oracle, steps
from hypothesis import given, settings
from hypothesis import strategies as st

from gaptrace.cost import (
    ChunkModel,
    ChunkTimes,
    HostCost,
    NotIdentifiableError,
    amortised_ns,
    break_even_replays,
    chunk_times,
    makespan,
    per_launch_ns,
)

untimed = settings(deadline=None)  # a busy machine must not fail a test
close = pytest.approx  # model values are sums of floats in another order than the expected ones


# Literal cases: a(c) = 10 + c, nodes of 5, in-graph gap 1, a cut adds 2 (so g = 3).
SMALL = ChunkModel(HostCost.linear(10, 1), 4, 5, in_graph_gap_ns=1, cut_gap_ns=2)


@pytest.mark.parametrize(
    ("changes", "sizes", "expected"),
    [
        # H=14; b = 4*5 + 3*1 = 23
        ({}, [4], 37),
        # H=12,24; b=11: E_1=23, S_2=max(24, 26)=26
        ({}, [2, 2], 37),
        # H=11,22,33,44; each waits for the host: E = 44 + 5
        ({}, [1, 1, 1, 1], 49),
        # H=11,24; E_1=16, S_2=max(24, 19)=24; b_2=17
        ({}, [1, 3], 41),
        # The device is busy until 40, then 23, or 11 + 3 + 11.
        ({"device_free_ns": 40}, [4], 63),
        ({"device_free_ns": 40}, [2, 2], 65),
        # The device starts 4 before the call returns: H + delta = 10; 8 and 20.
        ({"delta_ns": -4}, [4], 33),
        ({"delta_ns": -4}, [2, 2], 33),
        # It starts 6 after: 20 + 23.
        ({"delta_ns": 6}, [4], 43),
        # Never before the host begins the chunk: S_1 = 0, S_2 = max(H_1 = 12, 11 + 3).
        ({"delta_ns": -100}, [2, 2], 25),
        # S_2 = H_1 = 100, not 200 - 1000 nor 11 + 3.
        ({"delta_ns": -1000, "host": HostCost.linear(100, 0)}, [2, 2], 111),
        # Exposed latency from a table instead: S_1 = 3, S_2 = max(12 + 3, 14 + 3).
        ({"ready": HostCost.linear(3, 0)}, [2, 2], 28),
        # One launch ahead, 6 to start: E_1 = 12 = H_2, E_2 = 12 + 6 + 5 = H_3, then 6 and 11.
        ({"queue_depth": 1, "host": HostCost.linear(1, 0), "delta_ns": 6}, [1, 1, 2], 40),
        ({"queue_depth": 2, "host": HostCost.linear(1, 0), "delta_ns": 6}, [1, 1, 2], 34),
        # The first node takes 50: S_2 = 11 + 50 + 3, then 3 nodes of 5 and 2 gaps.
        ({"node_ns": [50, 5, 5, 5]}, [1, 3], 81),
        # A cut after two nodes takes 7 of overlap: E_2 = 26 + 11 + 7. None before the step.
        ({"overlap_ns": [9, 8, 7, 6, 9]}, [2, 2], 44),
        # It lengthens a chunk for which the host was late as well: E_2 = 24 + 17 + 8.
        ({"overlap_ns": [9, 8, 7, 6, 9]}, [1, 3], 49),
        ({"overlap_ns": [9, 8, 7, 6, 9]}, [4], 37),
    ],
)
def test_recurrence_by_hand(changes, sizes, expected):
    fields = {name: getattr(SMALL, name) for name in SMALL.__dataclass_fields__}
    assert makespan(ChunkModel(**(fields | changes)), sizes) == expected


@settings(max_examples=200)
@given(steps())
def test_chunk_times_tell_how_the_makespan_comes_about(fields):
    model = model_of(fields)
    for sizes in compositions(len(fields["node_ns"]), allowed(fields)):
        times = chunk_times(model, sizes)

        assert [each.nodes for each in times] == list(sizes)
        assert times[-1].device_end_ns == pytest.approx(makespan(model, sizes))
        for before, after in pairwise(times):
            assert after.host_start_ns >= before.host_end_ns - 1e-6
            assert after.device_start_ns >= before.device_end_ns - 1e-6
        assert all(each.device_start_ns >= each.host_start_ns - 1e-6 for each in times)


def test_chunk_times_by_hand():
    model = ChunkModel(HostCost.linear(10.0, 1.0), 4, 20.0, cut_gap_ns=2.0)

    assert chunk_times(model, (1, 3)) == (
        ChunkTimes(1, 0.0, 11.0, 11.0, 31.0),
        ChunkTimes(3, 11.0, 24.0, 33.0, 93.0),
    )


def test_a_full_queue_takes_the_lead_that_a_later_long_launch_needs():
    # One long node, then short ones; the last chunk of 4 costs the host 400. Without a limit it is
    # ready at 403, long before E_3 = 1003. At most one launch ahead, H_3 = E_2 = 1002, and the
    # device waits for H_4 = 1402.
    host = HostCost(0, (1, 4), (1, 400))
    step = {"host": host, "nodes": 7, "node_ns": [1000, 1, 1, 1, 1, 1, 1]}
    assert makespan(ChunkModel(**step), [1, 1, 1, 4]) == 1 + 1002 + 4
    assert makespan(ChunkModel(**step, queue_depth=1), [1, 1, 1, 4]) == 1002 + 400 + 4


@untimed
@given(steps())
def test_makespan_is_the_recurrence(fields):
    model = model_of(fields)
    for sizes in compositions(len(fields["node_ns"]), allowed(fields)):
        assert makespan(model, sizes) == close(oracle(fields, sizes))


@untimed
@given(steps())
def test_a_deeper_queue_never_costs_and_a_deep_one_does_nothing(fields):
    nodes = len(fields["node_ns"])
    sizes = [1] * nodes if fields["cuts"] is None else [nodes]
    times = [
        makespan(model_of(fields | {"queue_depth": depth}), sizes)
        for depth in (*range(1, nodes + 1), None)
    ]
    assert all(shallow >= deep for shallow, deep in pairwise(times))
    assert times[-2] == times[-1]


# Host cost.


def test_a_table_interpolates_and_goes_on_with_its_last_slope():
    table = HostCost(4, (2, 10, 20), (10, 18, 58))
    assert table([0, 1, 2, 6, 10, 15, 20, 30]).tolist() == [4, 7, 10, 14, 18, 38, 58, 98]


def test_fit_takes_a_low_quantile_and_lets_larger_chunks_correct_smaller_ones():
    fit = HostCost.fit(
        [10, 20, 10, 20, 40, 10, 40], [100, 170, 999, 150, 130, 110, 190], quantile=0
    )
    assert (fit.nodes, fit.ns) == ((10, 20, 40), (100, 130, 130))  # 150 at 20 was disturbed
    assert fit.fixed_ns == 70
    middle = HostCost.fit([1, 1, 1, 3], [5, 7, 90, 11], quantile=0.5)
    assert (middle.fixed_ns, middle.ns) == (5, (7, 11))
    assert HostCost.fit([1, 1, 1, 1, 1, 2], [40, 0, 30, 10, 20, 50]).ns == (10, 50)


def test_a_fit_never_has_a_negative_fixed_part():
    fit = HostCost.fit([10, 20], [10, 90])
    assert fit.fixed_ns == 0
    assert fit([5, 10, 30]).tolist() == [5, 10, 170]


def test_one_node_count_cannot_be_identified():
    with pytest.raises(NotIdentifiableError, match=r"node counts \[300\]"):
        HostCost.fit([300, 300, 300], [10, 11, 12])


samples = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 1000)), min_size=2, max_size=30)


@untimed
@given(samples.filter(lambda rows: len({nodes for nodes, _ in rows}) > 1))
def test_a_fit_to_minima_is_the_cheapest_chunk_at_least_as_large(rows):
    fit = HostCost.fit([n for n, _ in rows], [t for _, t in rows], quantile=0)
    for nodes in {n for n, _ in rows}:
        assert fit(nodes) == min(t for n, t in rows if n >= nodes)
    curve = fit(np.arange(80))
    assert curve[0] >= 0
    assert (np.diff(curve) >= -1e-9).all()


@pytest.mark.parametrize(
    "table",
    [
        (0, (), ()),
        (0, (1, 1), (2, 3)),
        (0, (2, 1), (2, 3)),
        (0, (0,), (2,)),
        (0, (1, 2), (3, 2)),
        (5, (1,), (4,)),
        (-1, (1,), (4,)),
        (0, (1, 2), (3,)),
        (float("nan"), (1,), (4,)),
    ],
)
def test_impossible_tables_are_refused(table):
    with pytest.raises(ValueError, match="host cost needs"):
        HostCost(*table)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes": 0}, "node_ns must be"),
        ({"node_ns": [1, 2]}, "node_ns must be"),
        ({"node_ns": [1, 2, -3, 4]}, "must not be negative"),
        ({"cut_gap_ns": -1}, "must not be negative"),
        ({"overlap_ns": [0, 1, -2, 1, 0]}, "must not be negative"),
        ({"overlap_ns": [0, 1, 1, 0]}, "overlap_ns must be 0 or one for each of 5 cuts"),
        ({"device_free_ns": -1}, "must not be negative"),
        ({"cuts": {2, 4}}, r"cuts must lie in 1\.\.3"),
        ({"cuts": [0, 1]}, r"cuts must lie in 1\.\.3"),
        ({"queue_depth": 0}, "queue_depth"),
    ],
)
def test_impossible_steps_are_refused(changes, message):
    fields = {"host": HostCost.linear(1, 1), "nodes": 4, "node_ns": 5.0}
    with pytest.raises(ValueError, match=message):
        ChunkModel(**(fields | changes))


def test_impossible_schedules_are_refused():
    model = ChunkModel(HostCost.linear(1, 1), 4, 5, cuts=[2])
    for sizes in ([], [2, 1], [4, 0], [5, -1], [2, 3]):
        with pytest.raises(ValueError, match="sum to 4"):
            makespan(model, sizes)
    with pytest.raises(ValueError, match="no cut is allowed"):
        makespan(model, [1, 3])


# Without graphs, and what a graph costs to build.


def test_per_launch_is_the_slower_of_host_and_device():
    # fangwei123456/spikingjelly#740: the host needs 77 ms a step; the device 15 ms at batch 8 and
    # 182 ms at batch 96, where graphs gained 1 %.
    for device, expected in ((15e6, 77e6), (182e6, 182e6)):
        model = ChunkModel(HostCost.linear(0, 0), 1000, device / 1000, cuts=[500])
        assert per_launch_ns(model, 77e3, 0) == close(expected, rel=0.01)


def test_per_launch_by_hand():
    # Launches return at 10, 20, 30; nodes of 4 wait for them, nodes of 25 follow each other.
    model = ChunkModel(HostCost.linear(99, 9), 3, 4, in_graph_gap_ns=50, cut_gap_ns=50)
    assert per_launch_ns(model, 10, 2) == 34
    slow = ChunkModel(HostCost.linear(99, 9), 3, 25, delta_ns=-3)
    assert per_launch_ns(slow, 10, 2) == 7 + 3 * 25 + 2 * 2


@pytest.mark.parametrize(
    ("build", "per_launch", "graph", "expected"),
    [
        # pytorch/executorch#18809: warm-up step 11.5 ms, capturing step 21.4 ms, replay 7.60 ms.
        (21.4e6 - 11.5e6, 11.5e6, 7.6e6, 3),
        (30, 20, 10, 3),
        (31, 20, 10, 4),
        (0, 20, 10, 0),
        (1, 1.5, 1, 2),
        (30, 10, 10, None),
        (30, 10, 11, None),
    ],
)
def test_break_even(build, per_launch, graph, expected):
    assert break_even_replays(build, per_launch, graph) == expected


def test_amortised():
    assert amortised_ns(7.0, 3_000.0) == {10: 307, 100: 37, 1_000: 10}
