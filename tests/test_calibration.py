"""Calibrations as records: samples to figures, recorder costs, tables, comparison, JSON."""

import json
import statistics
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaptrace.calibration import (
    LEAST_FRACTION,
    REGIMES,
    Calibration,
    Figure,
    Line,
    Machine,
    compare,
    line,
    spread_fraction,
)
from gaptrace.cost import NotIdentifiableError
from gaptrace.errors import CalibrationError
from gaptrace.machine_costs import host_costs
from gaptrace.record.calibration_json import from_object, to_object
from gaptrace.render.calibration import calibration_text
from gaptrace.samples import Sample, figures_of, recorder_costs

H200 = Machine("NVIDIA H200", "580.159.03", "13.0", "Linux-6.1", "AMD EPYC 9654")


def figure(name, value, *, nodes=None, branches=1, recorder=None, spread=0.0):
    low, high = value - spread, value + spread
    return Figure(name, nodes, branches, recorder, value, low, high, 20)


def calibration(*figures, recorders=None):
    return Calibration(H200, "2026-01-31T12:00:00+00:00", "0.1.0", recorders or {}, figures)


# From samples to figures


def test_samples_of_processes_are_put_together():
    found = figures_of(
        [
            [Sample("capture_ns", 8, 1, (10.0, 30.0)), Sample("capture_ns", 8, 4, (7.0,))],
            [Sample("capture_ns", 8, 1, (20.0,)), Sample("sm_clock_hz", None, 1, ())],
        ]
    )
    assert found == (
        Figure("capture_ns", 8, 1, None, 20.0, 10.0, 30.0, 3),
        Figure("capture_ns", 8, 4, None, 7.0, 7.0, 7.0, 1),
    )


def test_a_tenth_of_the_runs_at_each_end_does_not_widen_the_spread():
    runs = tuple(float(each) for each in (900, *range(10, 28), -900))
    (found,) = figures_of([[Sample("capture_ns", 8, 1, runs)]], recorder="nsys-node")
    assert (found.value, found.low, found.high) == (18.5, 11.0, 26.0)
    assert (found.recorder, found.runs) == ("nsys-node", 20)


VALUES = st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=40)


@given(VALUES)
def test_the_median_lies_in_the_spread(runs):
    (found,) = figures_of([[Sample("capture_ns", 8, 1, tuple(runs))]])
    assert min(runs) <= found.low <= found.value <= found.high <= max(runs)
    assert found.value == statistics.median(runs)


def test_what_a_recorder_adds():
    plain = (
        figure("launch_queued_api_ns", 2_000, spread=100),
        figure("kernel_gap_ns", 900),
        figure("node_gap_ns", 500),
        figure("graph_gap_ns", 1_600, nodes=16),
        figure("graph_launch_api_ns", 2_000, nodes=1, spread=10),
        figure("graph_launch_api_ns", 2_100, nodes=101, spread=20),
        figure("graph_launch_api_ns", 9_000, nodes=8_192),
        figure("capture_ns", 5_000, nodes=1),
    )
    recorded = tuple(
        replace(figure(*each[:2], nodes=each[2]), recorder="nsys-graph")
        for each in (
            ("launch_queued_api_ns", 5_000, None),
            ("kernel_gap_ns", 1_000, None),
            ("node_gap_ns", 500, None),
            ("graph_gap_ns", 2_800, 16),
            ("graph_launch_api_ns", 7_000, 1),
            ("graph_launch_api_ns", 27_100, 101),
            ("capture_ns", 6_000, 1),
        )
    )
    other = replace(recorded[0], recorder="nsys-node")
    found = {each.name: each for each in recorder_costs((*plain, *recorded, other), "nsys-graph")}
    assert {name: each.value for name, each in found.items()} == {
        "recorder_call_ns": 3_000,
        "recorder_kernel_gap_ns": 100,
        "recorder_node_gap_ns": 0,
        "recorder_graph_gap_ns": 1_200,
        "recorder_node_ns": 200,  # ((27,100 - 7,000) - (2,100 - 2,000)) / 100
    }
    call, node = found["recorder_call_ns"], found["recorder_node_ns"]
    assert (call.low, call.high) == (2_900, 3_100)
    assert (node.low, node.high) == pytest.approx((199.7, 200.3))
    assert found["recorder_graph_gap_ns"].nodes == 16
    assert {each.recorder for each in found.values()} == {"nsys-graph"}


def test_branches_have_their_own_cost_of_a_node():
    figures = [
        figure("graph_launch_api_ns", value, nodes=nodes, branches=branches, recorder=recorder)
        for branches, recorder, values in (
            (1, None, (100, 100)),
            (1, "r", (100, 200)),
            (4, None, (100, 200)),
            (4, "r", (100, 600)),
        )
        for nodes, value in zip((8, 18), values, strict=True)
    ]
    assert {each.branches: each.value for each in recorder_costs(figures, "r")} == {
        1: pytest.approx(10),
        4: pytest.approx(40),
    }


def test_no_common_figures_no_costs():
    recorded = figure("capture_ns", 1, nodes=4, recorder="r")
    assert recorder_costs((figure("capture_ns", 1, nodes=8), recorded), "r") == ()
    one = figure("graph_launch_api_ns", 1, nodes=4)
    assert recorder_costs((one, replace(one, recorder="r")), "r") == ()


# Looking figures up


def test_a_figure_is_found_by_all_that_it_is_about():
    figures = (
        figure("graph_launch_api_ns", 1, nodes=8),
        figure("graph_launch_api_ns", 2, nodes=8, branches=4),
        figure("graph_launch_api_ns", 3, nodes=8, recorder="nsys-graph"),
        figure("launch_api_ns", 4),
    )
    made = calibration(*figures)
    assert made.figure("graph_launch_api_ns", nodes=8) == figures[0]
    assert made.figure("graph_launch_api_ns", nodes=8, branches=4) == figures[1]
    assert made.figure("graph_launch_api_ns", nodes=8, recorder="nsys-graph") == figures[2]
    assert made.figure("launch_api_ns") == figures[3]
    assert made.figure("graph_launch_api_ns") is None


def test_a_table_ascends():
    figures = [figure("capture_ns", nodes * 10, nodes=nodes) for nodes in (64, 1, 8)]
    other = figure("capture_ns", 5, nodes=2, branches=4)
    assert calibration(*figures, other).table("capture_ns") == (figures[1], figures[2], figures[0])
    assert calibration().table("capture_ns") == ()


def test_the_host_cost_of_a_regime():
    figures = [
        figure(name, per_node * nodes + 100, nodes=nodes)
        for per_node, name in enumerate(REGIMES["update"], start=1)
        for nodes in (1, 10, 100)
    ]
    lacking = figure("capture_ns", 10_000, nodes=1_000)
    starts = [
        figure("graph_updated_launch_latency_ns", ns, nodes=nodes)
        for nodes, ns in ((1, -5), (10, 20), (100, 200))
    ]
    cost, ready = host_costs(calibration(*figures, lacking, *starts), "update", "value", {})
    assert (cost.nodes, cost.ns) == ((1, 10, 100), (410.0, 500.0, 1_400.0))
    assert cost.fixed_ns == pytest.approx(400)
    # Capture and update take 203, 230 and 500 ns; a latency below nothing is nothing.
    assert ready.ns == (203.0, 250.0, 700.0)


@pytest.mark.parametrize("sizes", [(), (2,)])
def test_a_host_cost_needs_two_sizes(sizes):
    names = ("graph_launch_api_ns", "graph_launch_latency_ns")
    figures = [figure(name, 5, nodes=nodes) for name in names for nodes in sizes]
    with pytest.raises(NotIdentifiableError, match="at least one other size"):
        host_costs(calibration(*figures), "replay", "value", {})


def test_a_table_as_a_line():
    figures = [figure("capture_ns", value, nodes=nodes) for nodes, value in ((1, 12), (101, 212))]
    assert line(figures) == Line(10.0, 2.0)
    assert line([figures[0], replace(figures[1], value=2_012)]) == Line(0.0, 20.0)
    assert line(figures[:1]) is None


def test_the_typical_spread():
    spreads = [figure("capture_ns", -100, spread=each) for each in (1, 5, 50)]
    assert spread_fraction(spreads) == 0.1
    assert spread_fraction([figure("capture_ns", 0, spread=1)]) is None


# Then and now


@pytest.mark.parametrize(
    ("low", "high", "has_moved"),
    [
        (90, 110, False),
        (111, 121, False),  # apart by 1
        (130, 150, False),  # apart by 20, which is as wide as they are
        (131, 151, True),
        (50, 70, False),
        (49, 69, True),
    ],
)
def test_moved_is_further_apart_than_wide(low, high, has_moved):
    before = Figure("capture_ns", 8, 1, None, 100.0, 90.0, 110.0, 20)
    after = replace(before, value=(low + high) / 2, low=float(low), high=float(high))
    check = compare(calibration(before), calibration(after))
    assert (check.compared, len(check.moved)) == (1, has_moved)


def test_a_few_percent_are_no_move():
    before = figure("capture_ns", 1_000)
    for value, has_moved in ((1_000 / (1 - LEAST_FRACTION) - 1, False), (1_060, True)):
        check = compare(calibration(before), calibration(figure("capture_ns", value)))
        assert bool(check.moved) is has_moved


def test_what_cannot_be_compared():
    saved = calibration(
        figure("capture_ns", 1, nodes=8),
        figure("kernel_gap_ns", 1),
        figure("kernel_gap_ns", 1, recorder="nsys-graph"),
        figure("recorder_kernel_gap_ns", 0, recorder="nsys-graph"),
    )
    now = calibration(figure("kernel_gap_ns", 1), figure("node_gap_ns", 1))
    check = compare(saved, replace(now, machine=replace(H200, driver="590.1", cpu=None)))
    assert check.missing == (saved.figures[0],)
    assert (check.compared, check.moved) == (1, ())
    assert check.machine == {"driver": ("580.159.03", "590.1"), "cpu": ("AMD EPYC 9654", None)}


@st.composite
def figures(draw):
    low, value, high = sorted(draw(st.lists(st.floats(-1e9, 1e9), min_size=3, max_size=3)))
    nodes = draw(st.none() | st.integers(1, 10_000))
    branches, runs = draw(st.sampled_from((1, 4))), draw(st.integers(1, 100))
    name = draw(st.sampled_from(("capture_ns", "sm_clock_hz")))
    recorder = draw(st.sampled_from((None, "nsys-graph", "nsys-node")))
    return Figure(name, nodes, branches, recorder, value, low, high, runs)


CALIBRATIONS = st.builds(
    Calibration,
    st.builds(Machine, *[st.none() | st.text()] * 5),
    st.text(),
    st.text(),
    st.dictionaries(st.text(), st.text(), max_size=2),
    st.lists(figures(), max_size=8, unique_by=lambda each: each.key).map(tuple),
)


@given(CALIBRATIONS)
def test_nothing_moved_against_itself(made):
    check = compare(made, made)
    assert (check.moved, check.missing, check.machine) == ((), (), {})
    assert check.compared == sum(each.recorder is None for each in made.figures)


@given(figures(), figures())
def test_moves_are_the_same_both_ways(one, other):
    pair = [
        calibration(replace(each, name="x", nodes=1, branches=1, recorder=None))
        for each in (one, other)
    ]
    assert bool(compare(*pair).moved) == bool(compare(*reversed(pair)).moved)


# JSON


@given(CALIBRATIONS)
def test_json_and_back(made):
    text = json.dumps(to_object(made))
    assert from_object(json.loads(text), name="c.json") == made


def test_the_json_by_the_letter():
    made = calibration(figure("capture_ns", 1.5, nodes=8), recorders={"nsys-graph": "2025.3.1"})
    assert to_object(made) == {
        "schema": "gaptrace.calibration/1",
        "machine": {
            "gpu": "NVIDIA H200",
            "driver": "580.159.03",
            "cuda": "13.0",
            "os": "Linux-6.1",
            "cpu": "AMD EPYC 9654",
        },
        "date": "2026-01-31T12:00:00+00:00",
        "gaptrace": "0.1.0",
        "recorders": {"nsys-graph": "2025.3.1"},
        "figures": [
            {
                "name": "capture_ns",
                "nodes": 8,
                "branches": 1,
                "recorder": None,
                "value": 1.5,
                "low": 1.5,
                "high": 1.5,
                "runs": 20,
            }
        ],
    }


@pytest.mark.parametrize(
    "damage",
    [
        {"machine": None},
        {"machine": {"gpu": "NVIDIA H200"}},
        {"date": 5},
        {"recorders": {"nsys-graph": 2025}},
        {"figures": None},
        {"figures": [{}]},
        {"figures": [{**to_object(calibration(figure("x", 1)))["figures"][0], "low": 2}]},
        {"figures": [{**to_object(calibration(figure("x", 1)))["figures"][0], "value": "much"}]},
        {
            "figures": [
                {**to_object(calibration(figure("x", 1)))["figures"][0], "low": float("-inf")}
            ]
        },
        *(
            {"figures": [to_object(calibration(figure("x", 1)))["figures"][0] | more]}
            for more in (
                {"value": 3, "low": 1, "high": 2},
                {"nodes": 0},
                {"nodes": -5},
                {"nodes": float("inf")},
                {"nodes": 10**30},
                {"runs": float("inf")},
                {"value": 10**400},
            )
        ),
    ],
)
def test_damaged_json(damage):
    content = to_object(calibration(figure("capture_ns", 1))) | damage
    with pytest.raises(CalibrationError, match=r"^c\.json is damaged \(.*\); make a new one"):
        from_object(content, name="c.json")


# As text


def test_the_text_shows_tables_by_nodes():
    made = calibration(
        figure("launch_api_ns", 2_000, spread=100),
        figure("sm_clock_hz", 1_980e6),
        figure("launch_queue_depth", 1_022),
        *(figure("graph_launch_api_ns", 2_500 + nodes, nodes=nodes) for nodes in (1, 2, 1_024)),
        figure("graph_launch_latency_ns", 6_000, nodes=1, spread=300),
        figure("recorder_node_ns", 200, branches=4, recorder="nsys-graph"),
        recorders={"nsys-graph": "2025.3.1"},
    )
    shown = [line.split() for line in calibration_text(made, width=80, color=False).splitlines()]
    for row in (
        "launch call, device idle 2.00 us 1.90 us 2.10 us 20",
        "clock of the multiprocessors 1980 MHz 1980 MHz 1980 MHz 20",
        "launches until the host blocks 1,022 1,022 1,022 20",
        "nodes launch to start",
        "1 2.50 us 6.00 us",
        "2 2.50 us -",
        "1,024 3.52 us -",
        "fixed 2.50 us -",
        "each node 1.00 ns -",
        "spread 0.0% 10.0%",
        "What nsys-graph 2025.3.1 adds",
        "to a graph launch, each node in 4 branches 200 ns 200 ns 200 ns",
    ):
        assert row.split() in shown, row
