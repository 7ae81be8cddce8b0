"""Steps in a row: bunches, the steps that stand out, a typical one, an average one."""

import polars as pl
import pytest
from rows import call, nvtx, op, trace

from gaptrace.analysis import analyze
from gaptrace.step_strip import notable_steps, steady_causes, step_strip, typical_steps

#: Spans of the steps: the first is long, one stands out.
SPANS = [3_000, 1_000, 1_010, 1_020, 1_000, 1_010, 9_000, 1_000]


@pytest.fixture(scope="module")
def found():
    ops, calls, ranges, now = [], [], [], 0
    for number, span in enumerate(SPANS, 1):
        ops.append(op(now + 200, now + 700, number))
        calls.append(call("cudaLaunchKernel", now + 50, now + 100, number))
        ranges.append(nvtx("step", now, now + span))
        now += span
    return analyze(trace(ops, calls, nvtx=ranges))


def test_few_steps_stay_single(found):
    strip = step_strip(found.step_summary)

    assert strip["first_step"].to_list() == strip["last_step"].to_list() == list(range(8))
    assert strip["median_ns"].to_list() == SPANS
    assert strip["busy_ns"].to_list() == [500] * 8


def test_many_steps_become_bunches_that_keep_their_extremes(found):
    strip = step_strip(found.step_summary, most=3)

    assert strip.select(
        "first_step", "last_step", "shortest_ns", "median_ns", "longest_ns"
    ).rows() == [
        (0, 2, 1_000, 1_010, 3_000),
        (3, 5, 1_000, 1_010, 1_020),
        (6, 7, 1_000, 5_000, 9_000),
    ]


def test_what_stands_out_is_named(found):
    assert notable_steps(found.step_summary).select(
        "step", "what", "span_ns", "excess_ns", "grown_cause"
    ).rows() == [(0, "first", 3_000, None, None), (6, "outlier", 9_000, 7_990, "host_code")]


def test_a_typical_step_is_one_of_median_span(found):
    (row,) = typical_steps(found.step_summary).to_dicts()

    assert row["span_ns"] == 1_010
    assert row["step"] in (2, 5)


def test_an_average_step_is_the_sum_of_what_it_waits_for(found):
    means = steady_causes(found.steps, found.step_summary, found.pieces)

    assert means["idle_ns"].sum() == pytest.approx(sum(SPANS[1:]) / 7)
    assert means.filter(pl.col("cause").is_null())["idle_ns"].item() == 500
    assert means.filter(cause="launch_call")["idle_ns"].item() == 50
