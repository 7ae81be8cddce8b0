"""Timed arms: names, medians, paired differences, break-even, and the way to JSON and back."""

import json
import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaptrace.errors import GaptraceError
from gaptrace.spread import difference_error, median_error
from gaptrace.timings import (
    Arm,
    ArmTiming,
    Measurement,
    as_object,
    default_chunks,
    gain,
    measurement_of,
)


@pytest.mark.parametrize(
    ("arm", "name", "chunk"),
    [
        (Arm("per_launch"), "per_launch", None),
        (Arm("graph", (600,)), "graph:600", 600),
        (Arm("chunks", (100, 100, 100)), "chunk:100", 100),
        # A remainder may be last or first.
        (Arm("chunks", (100, 100, 40)), "chunk:100", 100),
        (Arm("chunks", (40, 100, 100)), "chunk:100", 100),
        (Arm("chunks", (100, 40)), "chunk:100", 100),
        (Arm("chunks", (4, 12, 36)), "schedule:4+12+36", 36),
        (Arm("chunks", (100, 40, 100)), "schedule:100+40+100", 100),
        (Arm("chunks", (40, 100, 40)), "schedule:40+100+40", 100),
    ],
)
def test_names_of_arms(arm, name, chunk):
    assert (arm.name, arm.chunk) == (name, chunk)


def timing(kind, *rounds, schedule=(), **own):
    return ArmTiming(Arm(kind, schedule), tuple(rounds), tuple(rounds), (7,) * len(rounds), **own)


def test_a_step_takes_the_median_of_the_rounds_medians():
    found = timing("per_launch", (10, 12, 11), (30, 31, 90), (20, 20, 20))
    assert found.rounds_ns == (11, 31, 20)
    assert found.step_ns == 20
    assert found.queued_ns == 7


def test_a_gain_is_taken_within_each_round():
    # The machine slows down from round to round; the difference stays.
    slow = timing("per_launch", (100,), (200,), (300,), (400,))
    fast = timing("graph", (90,), (190,), (290,), (390,))
    found = gain(slow, fast)
    assert (found.gain_ns, found.error_ns, found.is_shown) == (10, 0, True)
    assert gain(fast, slow).gain_ns == -10


def test_a_gain_below_chance_is_not_shown():
    slow = timing("per_launch", (100,), (130,), (80,), (100,), (115,))
    fast = timing("graph", (99,), (100,), (99,), (120,), (100,))
    found = gain(slow, fast)
    assert abs(found.gain_ns) < found.error_ns
    assert not found.is_shown
    few = gain(timing("per_launch", (9,), (9,)), timing("graph", (1,), (1,)))
    assert (few.gain_ns, few.error_ns, few.is_shown) == (8, None, False)


def measured(per_launch_ns, graph_ns, capture_ns=900, instantiate_ns=101):
    return Measurement(
        (
            timing("per_launch", (per_launch_ns,)),
            timing("graph", (graph_ns,), schedule=(6,), instantiate_ns=instantiate_ns),
        ),
        nodes=6, capture_ns=capture_ns, steps=1, gpu="g", driver="d", cuda="13.0",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("per_launch_ns", "graph_ns", "replays"),
    # 1,001 ns to build: 10 ns a step pay for it in 101 steps, 1,001 ns in one.
    [(110, 100, 101), (1101, 100, 1), (1100, 100, 2), (100, 100, None), (90, 100, None)],
)
def test_break_even_counts_whole_steps(per_launch_ns, graph_ns, replays):
    assert measured(per_launch_ns, graph_ns).break_even_replays == replays


def test_break_even_needs_both_arms_and_a_capture():
    whole = measured(110, 100)
    alone = Measurement(whole.timings[:1], 6, 900, 1, "g", "d", "13.0")
    assert alone.break_even_replays is None
    assert measured(110, 100, capture_ns=None).break_even_replays is None


def test_the_fastest_arm():
    assert measured(110, 100).fastest.arm.kind == "graph"
    assert measured(90, 100).fastest.arm.kind == "per_launch"


def test_arms_as_fast_as_the_fastest_and_gains_against_the_first():
    first = timing("per_launch", (300,), (310,), (290,))
    graph = timing("graph", (100,), (101,), (99,), schedule=(6,))
    alike = timing("chunks", (100,), (99,), (102,), schedule=(3, 3))
    whole = Measurement((first, graph, alike), 6, 900, 1, "g", "d", "13.0")
    assert whole.fastest is graph
    assert whole.as_fast == (alike,)
    assert whole.gain_of(graph).gain_ns == 200
    assert whole.gain_of(first).gain_ns == 0
    assert graph.error_ns == pytest.approx(6.690, abs=1e-3)
    assert measured(110, 100).timings[0].error_ns is None


@pytest.mark.parametrize(
    ("nodes", "sizes"),
    [(600, (300, 150, 75, 38, 19)), (16, (8,)), (15, (8,)), (14, ()), (1, ()), (33, (17, 9))],
)
def test_default_chunks_halve_down_to_eight_nodes(nodes, sizes):
    assert default_chunks(nodes) == sizes


def test_a_measurement_survives_json():
    whole = measured(110, 100)
    assert measurement_of(json.loads(json.dumps(as_object(whole)))) == whole


@pytest.mark.parametrize("found", [{}, {"timings": [{}], "warnings": []}, {"timings": 3}])
def test_what_is_no_measurement_is_refused_in_one_line(found):
    with pytest.raises(GaptraceError, match="not a measurement"):
        measurement_of(found)


def test_the_error_of_a_median():
    assert median_error([1, 2]) is None
    assert difference_error([1, 2, 3], [1, 2]) is None
    # 2.7696 * 1.2533 * 1.4826 * 1.206 * 1 / sqrt(5): Student's t of four, to 0.3 %
    assert median_error([29, 30, 30, 31, 32]) == pytest.approx(2.7755, abs=1e-3)
    assert difference_error([29, 30, 30, 31, 32], [9, 10, 10, 11, 12]) == pytest.approx(
        3.9251, abs=1e-3
    )
    # sqrt(2.7755^2 + (10 * 2.7755)^2), whichever is the noisier
    samples = [29, 30, 30, 31, 32], [90, 100, 100, 110, 120]
    assert difference_error(*samples) == pytest.approx(27.893, abs=1e-2)
    assert difference_error(*samples[::-1]) == difference_error(*samples)
    assert difference_error([1, 2], [1, 2, 3]) is None
    # Two of three are equal; the mean deviation is 1/3.
    assert median_error([100, 100, 101]) == pytest.approx(4.17 * 1.2533**2 / 3 / 3**0.5, rel=1e-2)
    assert median_error([7, 7, 7, 7]) == 0


@pytest.mark.parametrize(("number", "share"), [(3, 0.131), (9, 0.073), (20, 0.057), (40, 0.055)])
def test_errors_of_few_values_are_about_what_is_said(number, share):
    values = np.random.default_rng(1).normal(size=(4_000, number)).tolist()
    off = [abs(statistics.median(each)) > median_error(each) for each in values]

    assert statistics.mean(off) == pytest.approx(share, abs=0.015)


@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1))
def test_the_error_holds_the_median_of_normal_values_nineteen_times_in_twenty(seed):
    import numpy as np

    random = np.random.default_rng(seed)
    misses = 0
    for _ in range(300):
        values = random.normal(0, 1, 101)
        misses += abs(statistics.median(values)) > median_error(list(values))
    # 15 expected; 45 is far beyond chance.
    assert misses < 45


def test_medians_of_two_lengths_differ_by_chance_by_the_whole_way():
    """Of steps that are 100 and 150 long in turn the median is one or the other."""
    one, other = [100, 150] * 10 + [100], [150, 100] * 10 + [150]
    error = difference_error(one, other)
    assert error is not None
    assert statistics.median(other) - statistics.median(one) == 50 < error
    # Of 21 values the 6th and the 16th hold the median with 97 %.
    spread = list(range(1_000, 1_021))
    far = [*spread[:5], *[1_010] * 10, *spread[15:-1], 9_000]
    assert difference_error(far, far) == pytest.approx(math.hypot(5, 5), abs=1e-9)


def test_medians_of_normal_values_hold():
    values = np.random.default_rng(2).normal(size=(2_000, 2, 9)).tolist()
    misses = [
        abs(statistics.median(a) - statistics.median(b)) > difference_error(a, b) for a, b in values
    ]
    assert statistics.mean(misses) < 0.05
