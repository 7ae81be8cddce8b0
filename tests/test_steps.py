"""Steps: what repeats in a trace, and what each repeat costs."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from real_traces import FOLDER, needs_folder
from rows import PROCESS, THREAD, call, graph, node, nvtx, op, trace

from gaptrace import gaps, graphs, launches, ranges, steps
from gaptrace.periods import MIN_REPEATS, bounds, copies, find_repetition
from gaptrace.read import read
from gaptrace.render.words import outlier
from gaptrace.repeats import device_work
from gaptrace.sequences import repeating_kernels


def pieces_of(given_trace):
    all_gaps = [gaps.device_gaps(given_trace), gaps.edge_gaps(given_trace)]
    return gaps.idle_pieces(given_trace, pl.concat(all_gaps))


def launches_of(given_trace):
    return launches.launches(given_trace, gaps.device_gaps(given_trace))


def steps_of(given_trace):
    made = launches_of(given_trace)
    windows = ranges.range_windows(given_trace, ranges.range_tree(given_trace.nvtx), made)
    return steps.find_steps(given_trace, windows, graphs.graph_executions(given_trace))


def spans_of(found):
    return found.frame.select("start_ns", "end_ns").rows()


# Sequences, without any trace.


def repetition_of(text, least_period=1, weights=None):
    tokens = np.array([ord(letter) for letter in text], dtype=np.int64)
    weighed = np.ones_like(tokens) if weights is None else np.array(weights, dtype=np.int64)
    return find_repetition(tokens, weighed, least_period)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("abcabcabc", (3, 0, 9)),
        ("xyzabababq", (2, 3, 9)),
        ("abcabcab", None),  # two copies and a bit
        ("aaaaab", (1, 0, 5)),
        ("", None),
        ("llllhllllhllllh", (5, 0, 15)),  # the step, not the layers in it
        ("ababababXcdecdecde", (3, 9, 18)),  # 9 tokens against 8
    ],
)
def test_the_repetition_of_the_greatest_weight_is_found(text, expected):
    found = repetition_of(text)

    assert (found and (found.period, found.begin, found.end)) == expected


def test_weights_decide_and_short_periods_can_be_left_out():
    assert repetition_of("ababababXcdecdecde", weights=[9] * 8 + [1] * 10).period == 2
    assert repetition_of("aaaaaaaaabcbcbc", least_period=2).period == 2
    assert repetition_of("aaaaaaaaa", least_period=2) is None


def stretches_by_hand(tokens, least_period):
    """All (period, begin, end) that repeat often enough; period is the smallest of its stretch."""
    found = set()
    for period in range(least_period, len(tokens) // MIN_REPEATS + 1):
        begin = 0
        while begin < len(tokens):
            end = begin
            while end + period < len(tokens) and tokens[end] == tokens[end + period]:
                end += 1
            length = end + period - begin
            inner = tokens[begin : begin + length]
            smaller = any(inner[p:] == inner[:-p] for p in range(1, period))
            if length >= MIN_REPEATS * period and not smaller:
                found.add((period, begin, begin + length))
            begin = end + 1
    return found


unit_drawn = st.lists(st.integers(0, 2), min_size=1, max_size=6)
sequence_drawn = st.lists(st.tuples(unit_drawn, st.integers(1, 5)), min_size=1, max_size=4).map(
    lambda parts: [token for unit, times in parts for token in unit * times]
)


@settings(max_examples=400, deadline=None)
@given(sequence_drawn, st.integers(1, 2), st.data())
def test_the_repetition_is_the_one_that_trying_all_periods_finds(tokens, least_period, data):
    weights = data.draw(
        st.lists(st.integers(0, 3), min_size=len(tokens), max_size=len(tokens)), label="weights"
    )
    every = stretches_by_hand(tokens, least_period)
    found = find_repetition(np.array(tokens), np.array(weights), least_period)

    if not every:
        assert found is None
        return
    heaviest = max(sum(weights[begin:end]) for _, begin, end in every)
    best = {s for s in every if sum(weights[s[1] : s[2]]) == heaviest}
    assert (found.period, found.begin, found.end) in best
    assert found.period == min(period for period, _, _ in best)


@settings(max_examples=400, deadline=None)
@given(sequence_drawn, st.data())
def test_copies_are_those_that_stand_in_a_row(tokens, data):
    found = find_repetition(np.array(tokens), np.ones(len(tokens), dtype=np.int64))
    assume(found is not None)
    period = found.period
    at = found.begin + data.draw(
        st.integers(0, found.end - found.begin - MIN_REPEATS * period), label="offset"
    )
    begins = copies(found, at).tolist()
    unit = tokens[at : at + period]

    in_row = {
        first + number * period
        for first in range(len(tokens))
        if tokens[first : first + MIN_REPEATS * period] == unit * MIN_REPEATS
        for number in range(MIN_REPEATS)
    }
    assert set(begins) <= in_row
    assert at in in_row and len(begins) >= MIN_REPEATS
    assert all(later - earlier >= period for earlier, later in pairwise(begins))
    # Only such copies are left out as overlap an earlier one.
    assert all(
        any(0 < begin - other < period for other in in_row) for begin in in_row - set(begins)
    )


@pytest.mark.parametrize(
    ("begins", "expected"),
    [
        ([0, 4, 8], [(0, 4), (4, 8), (8, 12)]),
        ([0, 5], [(0, 5), (5, 9)]),  # one token more: part of the step
        ([0, 8], [(0, 4), (4, 8), (8, 12)]),  # a step with something replaced
        ([0, 6], [(0, 4), (4, 6), (6, 10)]),  # one with half of it left out
        ([0, 10], [(0, 4), (4, 10), (10, 14)]),  # one with half as much added
        ([0, 11], [(0, 4), (11, 15)]),  # no step at all
    ],
)
def test_what_lies_between_copies_is_judged_by_its_length(begins, expected):
    first, last = bounds(np.array(begins), 4, np.ones(20, dtype=np.int64))

    assert list(zip(first.tolist(), last.tolist(), strict=True)) == expected


def test_what_lies_between_copies_is_judged_by_its_weight_too():
    weights = np.array([1, 1, 1, 1, 3, 1, 1, 1, 1, 7, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1])
    first, last = bounds(np.array([0, 5, 13]), 4, weights)

    assert list(zip(first.tolist(), last.tolist(), strict=True)) == [(0, 4), (5, 9), (13, 17)]


# NVTX.


def looped(names, *, times=4, **own):
    """A loop of one kernel each 100 ns, and ranges per iteration: name -> start and end in it."""
    return trace(
        [op(100 * i + 40, 100 * i + 60, i) for i in range(times)],
        [call("cudaLaunchKernel", 100 * i + 20, 100 * i + 30, i) for i in range(times)],
        nvtx=[
            nvtx(name, 100 * i + start, 100 * i + end, **own)
            for i in range(times)
            for name, (start, end) in names.items()
        ],
    )


def test_a_range_that_repeats_gives_the_steps_and_their_windows():
    found = steps_of(looped({"train": (0, 90)}, domain=None))

    assert (found.source, found.unit, found.reason, found.work_fraction) == (
        "nvtx",
        "train",
        "",
        1.0,
    )
    assert found.frame.schema == steps.STEPS
    assert (
        found.frame.select("key", "unit", "device_id", "thread_id", "stream_id").rows()
        == [(0, "train", 0, THREAD, None)] * 4
    )
    assert found.frame["step"].to_list() == [0, 1, 2, 3]
    assert found.frame["is_first"].to_list() == [True, False, False, False]
    assert spans_of(found) == [(0, 90), (100, 190), (200, 290), (300, 390)]


def test_two_ranges_are_no_repetition():
    found = steps_of(looped({"train": (0, 90)}, times=2))

    assert (found.source, found.unit, found.work_fraction) == (None, None, None)
    assert found.frame.schema == steps.STEPS
    assert found.frame.is_empty()
    assert found.reason == (
        "no NVTX range repeats on a thread; no graph was launched; no sequence of kernels repeats"
    )


def test_the_outermost_range_that_repeats_is_the_step():
    """Also where the inner one, on two threads, holds more of the work."""
    rows = looped({"train": (0, 90), "forward": (10, 80)}, domain=None)
    late = [op(390, 395, 9)]
    launch = [call("cudaLaunchKernel", 391, 392, 9, thread_id=THREAD + 1)]
    others = [
        nvtx("forward", t, t + 90, thread_id=THREAD + 1, domain=None) for t in (200, 300, 390)
    ]
    outer = [nvtx("loop", -5, 600, thread_id=THREAD + 1, domain=None)]
    found = steps_of(
        trace(
            rows.ops.drop("call_id").to_dicts() + late,
            rows.api.drop("call_id").to_dicts() + launch,
            nvtx=rows.nvtx.to_dicts() + others + outer,
        )
    )

    assert found.unit == "train"
    assert found.work_fraction == 80 / 85


def test_a_launch_at_the_very_begin_of_a_range_is_inside_and_one_at_its_end_is_not():
    at = range(0, 400, 100)
    calls = [call("cudaLaunchKernel", t, t + 10, t) for t in at]
    calls += [call("cudaLaunchKernel", t + 80, t + 85, t + 1) for t in at]
    ops = [op(t + 10, t + 40, t) for t in at] + [op(t + 86, t + 96, t + 1) for t in at]
    found = steps_of(trace(ops, calls, nvtx=[nvtx("train", t, t + 80, domain=None) for t in at]))

    assert found.work_fraction == 0.75


def test_what_is_marked_as_a_step_is_believed_against_ranges_around_it():
    rows = looped({"outer": (0, 95)})
    inner = [nvtx("step", 100 * i + 60, 100 * i + 80) for i in range(4)]
    found = steps_of(replace(rows, nvtx=pl.concat([rows.nvtx, trace(nvtx=inner).nvtx])))

    assert found.unit == "step"
    assert found.work_fraction == 0.0
    assert found.frame["unit"].unique().to_list() == ["outer/step"]


def test_a_payload_that_counts_marks_steps_of_any_name():
    ours = [nvtx("decode", 100 * i, 100 * i + 5, payload=float(i + 3)) for i in range(4)]
    other = [nvtx("size", 100 * i + 6, 100 * i + 95, payload=8.0) for i in range(4)]
    bare = looped({})
    found = steps_of(replace(bare, nvtx=trace(nvtx=ours + other).nvtx))

    assert found.unit == "decode"


def test_names_given_through_gaptrace_come_before_others():
    rows = looped({"ours": (10, 80)})
    outer = [nvtx("theirs", 100 * i, 100 * i + 90, domain=None) for i in range(4)]
    found = steps_of(replace(rows, nvtx=pl.concat([rows.nvtx, trace(nvtx=outer).nvtx])))

    assert found.unit == "ours"


def test_ranges_that_gaptrace_puts_around_graphs_are_no_steps():
    found = steps_of(looped({"replay": (0, 90)}, payload=1.0))

    assert found.source is None


def test_an_operator_that_is_called_again_and_again_is_no_step():
    found = steps_of(looped({"aten::mm": (15, 35)}, domain=None))

    assert found.source is None
    assert found.reason.startswith(
        "NVTX range aten::mm repeats but holds 100.0% of the device time of kernels and graphs and "
        "fills 25.0% of the time from its first to its last; "
    )


def test_a_range_that_holds_little_of_the_work_is_no_step():
    rows = looped({"log": (35, 95)}, domain=None)
    found = steps_of(rows)

    assert found.source is None
    assert "NVTX range log repeats but holds 0.0%" in found.reason


def test_work_that_another_thread_of_the_process_launches_counts():
    """As PyTorch's backward pass does."""
    rows = looped({"train": (0, 90)}, domain=None)
    launched = [
        call("cudaLaunchKernel", 100 * i + 20, 100 * i + 30, i, thread_id=THREAD + 1)
        for i in range(4)
    ]
    found = steps_of(trace(rows.ops.to_dicts(), launched, nvtx=rows.nvtx.to_dicts()))

    assert (found.unit, found.work_fraction) == ("train", 1.0)


def test_paths_threads_and_ranks_are_sequences_of_their_own():
    other = {"process_id": PROCESS + 1, "thread_id": THREAD + 7}
    at = range(0, 400, 100)
    found = steps_of(
        trace(
            [op(t + 40, t + 60, t) for t in at]
            + [op(t + 40, t + 60, t, device_id=1, process_id=PROCESS + 1) for t in at],
            [call("cudaLaunchKernel", t + 20, t + 30, t) for t in at]
            + [call("cudaLaunchKernel", t + 20, t + 30, t, **other) for t in at],
            nvtx=[nvtx("step", t, t + 90) for t in at]
            + [nvtx("step", t + 1, t + 90, **other) for t in at],
        )
    )

    rows = found.frame.select("key", "device_id", "process_id", "step").rows()
    assert rows == [(0, 0, PROCESS, i) for i in range(4)] + [
        (1, 1, PROCESS + 1, i) for i in range(4)
    ]


def test_steps_inside_steps_are_not_counted_again():
    rows = looped({"step": (0, 90)})
    inner = [nvtx("step", 100 * i + 10, 100 * i + 50) for i in range(4)]
    found = steps_of(replace(rows, nvtx=trace(nvtx=rows.nvtx.to_dicts() + inner).nvtx))

    assert found.frame["unit"].unique().to_list() == ["step"]
    assert found.frame.height == 4


def test_tasks_that_run_at_the_same_time_are_no_sequence():
    rows = looped({"step": (0, 120)}, kind="start_end")
    one_after_the_other = looped({"step": (0, 90)}, kind="start_end")

    assert steps_of(rows).source is None
    assert steps_of(one_after_the_other).frame["thread_id"].to_list() == [None] * 4


# Graphs.


def test_one_exec_that_is_replayed_gives_the_steps():
    replays = [graph(0, 10, graph_exec=7)] + [graph(t, t + 30, graph_exec=5) for t in (20, 70, 150)]
    found = steps_of(trace(replays))

    assert (found.source, found.unit) == ("graph_exec", "graph exec 5")
    assert found.reason == "no NVTX range repeats on a thread"
    assert found.frame.select("stream_id", "thread_id").row(0) == (7, None)
    assert spans_of(found) == [(20, 70), (70, 150), (150, 180)]
    assert found.work_fraction == 0.9


def test_a_sequence_of_execs_gives_steps_that_begin_after_the_longest_wait():
    """Recorded from the middle of a step on: B | A B | A B | A B | A."""
    begin = (0, 30, 40, 70, 80, 110, 120, 150)
    replays = [
        graph(t, t + 9, graph_exec="BA".index("BABABABA"[i]) + 1) for i, t in enumerate(begin)
    ]
    found = steps_of(trace(replays))

    assert found.unit == "2 graph execs (2, 1)"
    assert spans_of(found) == [(30, 70), (70, 110), (110, 129)]


def test_graphs_instantiated_anew_repeat_by_their_sizes():
    """Shapes of 2 and 1 nodes in turn, every one a new exec."""
    ops, sizes = [], (2, 1, 2, 1, 2, 1)
    for number, size in enumerate(sizes):
        start = 100 * number
        ops += [
            node(start + 10 * k, start + 10 * k + 8, number, k, graph_exec=number)
            for k in range(size)
        ]
    found = steps_of(trace(ops, granularity="node"))

    assert (found.source, found.unit) == ("graph_exec", "2 graphs of 2, 1 nodes")
    assert spans_of(found) == [(0, 200), (200, 400), (400, 508)]


def test_graphs_of_unknown_size_that_never_repeat_give_no_steps():
    found = steps_of(trace([graph(100 * i, 100 * i + 9, i, graph_exec=i) for i in range(6)]))

    assert found.source is None
    assert "no sequence of graph execs repeats; no sequence of graph sizes repeats" in found.reason


def test_graphs_of_unknown_size_are_equal_only_where_they_are_one_exec():
    """A graph of one node, anew each time, in turn with one exec of which nothing is known."""
    ops = []
    for number in range(3):
        start = 100 * number
        ops += [node(start, start + 40, 2 * number, 0, graph_exec=10 + number)]
        ops += [graph(start + 50, start + 90, 2 * number + 1, graph_exec=5)]

    assert steps_of(trace(ops)).unit == "2 graphs of 1, ? nodes"


def test_graphs_that_are_a_small_part_of_the_work_are_not_believed():
    replays = [graph(t, t + 1, graph_exec=5) for t in (1000, 1010, 1020)]
    found = steps_of(trace([op(0, 900), *replays]))

    assert found.source is None
    assert "graph exec 5 repeated but with 0.3% of the device time" in found.reason


def test_the_stream_with_most_graph_work_is_searched():
    small = [graph(t, t + 5, graph_exec=3, stream_id=8) for t in (1, 51, 101, 151)]
    large = [graph(t, t + 30, graph_exec=5) for t in (0, 50, 100)]
    found = steps_of(trace(small + large))

    assert found.unit == "graph exec 5"


# Kernels.


def kernels(names, every=10, lasting=8):
    return [op(every * i, every * i + lasting, name=name) for i, name in enumerate(names)]


def test_kernel_names_that_repeat_after_a_warm_up_give_the_steps():
    found = steps_of(trace(kernels("xyabcabcabcz")))

    assert (found.source, found.unit) == ("kernels", "3 kernels from a")
    assert spans_of(found) == [(20, 50), (50, 80), (80, 108)]
    assert found.work_fraction == 9 / 12
    assert found.reason == "no NVTX range repeats on a thread; no graph was launched"


def test_a_kernel_more_or_another_one_does_not_end_the_steps():
    found = steps_of(trace(kernels("abcdabcdabcd-abcdabcdabcdabXdabcdabcdabcd")))

    # The addition belongs to the step before it; the step with another kernel is a step.
    begins = [0, 4, 8, 13, 17, 21, 25, 29, 33, 37]
    assert found.frame["start_ns"].to_list() == [10 * begin for begin in begins]
    assert found.frame["end_ns"].to_list() == [10 * begin for begin in begins[1:]] + [408]


def test_a_stretch_that_is_no_step_is_left_out():
    found = steps_of(trace(kernels("abcabcabc" + "pqrstuv" + "abcabcabc")))

    assert found.frame.height == 6
    assert spans_of(found)[2:4] == [(60, 88), (160, 190)]


def test_a_step_before_a_stretch_that_is_none_ends_before_the_next_step():
    """Its last kernel is still running when that begins."""
    rows = kernels("abcabcabc" + "pqrstuv" + "abcabcabc")
    rows[8]["end_ns"] = 175
    found = steps_of(trace(rows))

    assert spans_of(found)[2:4] == [(60, 160), (160, 190)]


def test_one_kernel_over_and_over_shows_no_step():
    found = steps_of(trace(kernels("a" * 30)))

    assert found.source is None


def test_kernels_that_repeat_in_a_small_part_of_the_trace_are_no_steps():
    found = steps_of(trace(kernels("abababcdefghijklmnop")))

    assert found.source is None
    assert "2 kernels from a repeated but with 30.0% of the device time" in found.reason


def test_streams_of_one_device_are_not_mixed():
    main = [op(10 * i, 10 * i + 8, name="ab"[i % 2]) for i in range(8)]
    side = [op(10 * i + 3, 10 * i + 5, name=f"side {i}", stream_id=9) for i in range(8)]

    assert steps_of(trace(main + side)).unit == "2 kernels from a"


def test_a_graph_counts_as_one_kernel_in_either_granularity():
    """Two single kernels, then a graph whose kernels repeat inside."""
    ends = range(0, 400, 100)
    single = [op(t + k, t + k + 1, name=name) for t in ends for k, name in ((0, "a"), (2, "b"))]
    whole = [graph(t + 10, t + 40, t, graph_exec=5) for t in ends]
    nodes = [
        node(t + 10 + 5 * k, t + 14 + 5 * k, t, k, graph_exec=5, name="pq"[k % 2])
        for t in ends
        for k in range(6)
    ]
    for granularity, graph_ops in (("graph", whole), ("node", nodes)):
        given_trace = trace(single + graph_ops, granularity=granularity)
        found = repeating_kernels(
            given_trace, graphs.graph_executions(given_trace), device_work(given_trace)
        )
        assert found.unit == "3 kernels from a"
        assert found.rows["start_ns"].to_list() == list(ends)


# What steps cost.


def marked(spans, ops, api=()):
    return trace(ops, api, nvtx=[nvtx("step", start, end) for start, end in spans])


def test_each_step_costs_what_the_device_does_in_its_window():
    given_trace = marked(
        [(0, 40), (40, 90), (100, 130)],
        [op(10, 30, 1), op(60, 80, 2), op(105, 120, 3)],
        [
            call("cudaLaunchKernel", 2, 6, 1),
            call("cudaLaunchKernel", 50, 55, 2),
            call("cudaLaunchKernel", 90, 95, 3),
            call("cudaStreamSynchronize", 96, 128),
        ],
    )
    found, pieces = steps_of(given_trace), pieces_of(given_trace)
    summary = steps.step_summary(found, pieces)

    assert summary.select("step", "span_ns", "busy_ns", "idle_ns").rows() == [
        (0, 40, 20, 20),
        (1, 50, 20, 30),
        (2, 30, 15, 15),
    ]
    causes = steps.step_causes(found, pieces).select("step", "cause", "idle_ns").rows()
    assert causes[:3] == [(0, "host_code", 12), (0, "launch_call", 4), (0, "device_queued", 4)]
    # What no step covers: from 90 to 100.
    window = pl.DataFrame({"device_id": [0], "start_ns": [10], "end_ns": [120]})
    assert steps.outside_steps(found, window, pieces).rows() == [(0, 10, 0, 10)]


spans_drawn = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 12)), min_size=3, max_size=6)
ops_drawn = st.lists(
    st.tuples(st.integers(-5, 60), st.integers(0, 12), st.integers(0, 1)), min_size=1, max_size=9
)


@settings(max_examples=80, deadline=None)
@given(spans_drawn, ops_drawn)
def test_busy_and_idle_of_steps_and_of_the_rest_add_up_to_the_window(spans, ops):
    at, ranges_drawn = 0, []
    for before, length in spans:
        ranges_drawn.append((at + before, at + before + length))
        at += before + length
    given_trace = marked(
        ranges_drawn,
        [op(a, a + length, n, device_id=d) for n, (a, length, d) in enumerate(ops)],
        [call("cudaLaunchKernel", a - 3, a - 1, n) for n, (a, _, _) in enumerate(ops)],
    )
    found, pieces = steps_of(given_trace), pieces_of(given_trace)
    summary = steps.step_summary(found, pieces)
    causes = steps.step_causes(found, pieces)
    busy = {(device, ns) for a, length, device in ops for ns in range(a, a + length)}

    for row in summary.to_dicts():
        inside = range(row["start_ns"], row["end_ns"])
        assert row["busy_ns"] == sum((row["device_id"], ns) in busy for ns in inside)
        assert row["busy_ns"] + row["idle_ns"] == row["span_ns"] == len(inside)
        mine = causes.filter(*(pl.col(k) == row[k] for k in ("key", "device_id", "step")))
        assert mine["idle_ns"].sum() == row["idle_ns"]

    # A window wider than the steps: begin to end of everything.
    low, high = gaps.recorded_extent(given_trace)
    devices = given_trace.ops["device_id"].unique().to_list()
    window = pl.DataFrame({"device_id": devices, "start_ns": low, "end_ns": high}).cast(pl.Int64)
    outside = steps.outside_steps(found, window, pieces)
    for row in outside.to_dicts():
        mine = summary.filter(pl.col("device_id") == row["device_id"])
        covered = {ns for a, b in mine.select("start_ns", "end_ns").rows() for ns in range(a, b)}
        left = set(range(low, high)) - covered
        assert row["span_ns"] == len(left)
        assert row["busy_ns"] == sum((row["device_id"], ns) in busy for ns in left)
        assert row["idle_ns"] == row["span_ns"] - row["busy_ns"]


# First steps, warm-up, outliers.


def lasting(spans, gap=10):
    """Steps of these lengths, one after the other; the device is busy in the last 20 ns of each."""
    at, windows, ops, api = 0, [], [], []
    for number, span in enumerate(spans):
        windows.append((at, at + span))
        ops.append(op(at + span - 20, at + span, number))
        api.append(call("cudaLaunchKernel", at + span - 30, at + span - 25, number))
        at += span + gap
    return marked(windows, ops, api)


@pytest.mark.parametrize(
    ("spans", "warm_up"),
    [
        ([900, 400, 100, 101, 99, 100, 100, 102], 2),
        ([100, 101, 99, 100, 102], 0),
        ([500, 100, 100, 100], 1),  # MAD is 0
        ([105, 100, 100, 100, 100], 0),  # far out by score, but by 5 %
        ([100, 900, 100, 100, 101, 100], 0),  # late, hence an outlier
        ([900] * 5 + [100] * 4, 4),  # at most the earlier half
        ([300, 100, 180], 0),  # later ones that differ as much say nothing
    ],
)
def test_leading_steps_far_above_the_later_half_are_warm_up(spans, warm_up):
    found = steps_of(lasting(spans))

    expected = [number < warm_up for number in range(len(spans))]
    assert found.frame["is_warm_up"].to_list() == expected
    assert found.frame["is_first"].to_list() == [number == 0 for number in range(len(spans))]


def test_outliers_are_named_with_the_cause_that_grew_most():
    given_trace = lasting([900, 100, 100, 101, 400, 99, 100])
    stalled = given_trace.nvtx["start_ns"][4]
    sync = call("cudaStreamSynchronize", stalled + 5, stalled + 205)
    given_trace = replace(given_trace, api=trace(api=[*given_trace.api.to_dicts(), sync]).api)
    # Linked again: the calls have other numbers now.
    given_trace = trace(
        given_trace.ops.drop("call_id").to_dicts(),
        given_trace.api.drop("call_id").to_dicts(),
        nvtx=given_trace.nvtx.to_dicts(),
    )
    summary = steps.step_summary(steps_of(given_trace), pieces_of(given_trace))

    assert summary["is_outlier"].to_list() == [False] * 4 + [True] + [False] * 2
    columns = ("excess_ns", "busy_excess_ns", "grown_cause", "grown_ns")
    assert summary.select(columns).row(4) == (300, 0, "host_sync", 200)
    assert summary.select(columns).row(3) == (None, None, None, None)


@pytest.mark.parametrize(
    ("cause", "grown_ns", "said"),
    [
        ("host_code", 35_000, ", of which host_code 35.0 us."),
        ("host_code", 90_000, ", while host_code grew by 90.0 us."),
        (None, None, "."),
    ],
)
def test_a_cause_that_grew_by_more_than_the_step_is_no_part_of_it(cause, grown_ns, said):
    step = {"step": 3, "unit": "token", "device_id": 0, "excess_ns": 35_000}
    text = outlier(step | {"grown_cause": cause, "grown_ns": grown_ns})
    assert text == f"step 3 of token on device 0 took 35.0 us longer than the median{said}"


def test_an_outlier_whose_kernels_ran_longer_has_no_cause_that_grew():
    spans = [(100 * i, 100 * i + 100) for i in range(6)]
    spans[5] = (500, 900)
    ops = [op(start, end - 10, n) for n, (start, end) in enumerate(spans)]
    summary = steps.step_summary(steps_of(marked(spans, ops)), pieces_of(marked(spans, ops)))

    columns = ("is_outlier", "excess_ns", "busy_excess_ns", "grown_cause", "grown_ns")
    assert summary.select(columns).row(5) == (True, 300, 300, None, None)


def far_by_hand(value, typical):
    """Iglewicz and Hoaglin's modified z-score, and a tenth of the median."""
    middle = median(typical)
    deviations = [abs(other - middle) for other in typical]
    sigma = median(deviations) / 0.6745 or sum(deviations) / len(deviations) / 0.7979
    return value - middle > 3.5 * sigma and value - middle > 0.1 * middle


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from([90, 100, 101, 110, 150, 400, 1000]), min_size=3, max_size=9))
def test_warm_up_and_outliers_agree_with_the_rule_written_out(spans):
    given_trace = lasting(spans)
    summary = steps.step_summary(steps_of(given_trace), pieces_of(given_trace))

    half = len(spans) // 2
    warm_up = 0
    while warm_up < half and far_by_hand(spans[warm_up], spans[half:]):
        warm_up += 1
    steady = spans[max(warm_up, 1) :]
    assert summary["is_warm_up"].to_list() == [n < warm_up for n in range(len(spans))]
    assert summary["is_outlier"].to_list() == [
        n >= max(warm_up, 1) and far_by_hand(span, steady) for n, span in enumerate(spans)
    ]


def test_a_sequence_is_summed_up_without_its_first_and_warm_up_steps():
    given_trace = lasting([900, 400, 100, 101, 99, 100, 300])
    summary = steps.step_summary(steps_of(given_trace), pieces_of(given_trace))
    row = steps.unit_summary(summary, launches_of(given_trace)).to_dicts()[0]

    assert row["behind_ns"] == 0
    assert (row["unit"], row["steps"], row["warm_up_steps"], row["outlier_steps"]) == (
        "step",
        7,
        2,
        1,
    )
    assert row["first_span_ns"] == 900
    assert row["span_ns"] == {"count": 5, "p50": 100, "p90": 300, "p99": 300, "max": 300}
    assert row["busy_ns"]["max"] == 20


def test_the_device_is_behind_until_the_longest_of_what_was_launched_is_done():
    begins = range(0, 500, 100)
    ops, api = [], []
    for at in begins:
        # A long kernel, and a short one on another stream after it.
        ops += [op(at + 10, at + 195, at), op(at + 20, at + 30, at + 1, stream_id=9)]
        api += [call("cudaLaunchKernel", at + i, at + i + 1, at + i) for i in (0, 1)]
    given_trace = trace(ops, api, [nvtx("step", at, at + 95) for at in begins])
    summary = steps.step_summary(steps_of(given_trace), pieces_of(given_trace))

    found = steps.unit_summary(summary, launches_of(given_trace))
    assert found["behind_ns"].to_list() == [100]


@pytest.mark.parametrize(("late_ns", "behind_ns"), [(0, 0), (150, 145), (1_000, 995)])
def test_a_host_that_runs_ahead_leaves_the_device_behind(late_ns, behind_ns):
    begins = range(0, 500, 100)
    given_trace = trace(
        [op(at + 10 + late_ns, at + 90 + late_ns, at) for at in begins],
        [call("cudaLaunchKernel", at, at + 5, at) for at in begins],
        [nvtx("step", at, at + 95) for at in begins],
    )
    summary = steps.step_summary(steps_of(given_trace), pieces_of(given_trace))
    found = steps.unit_summary(summary, launches_of(given_trace))

    assert found["behind_ns"].to_list() == [behind_ns]


def test_steps_of_the_device_are_never_behind():
    ops = [each | {"correlation_id": n} for n, each in enumerate(kernels("abcabcabcabcabc"))]
    api = [call("cudaLaunchKernel", -100 + n, -99 + n, n) for n in range(len(ops))]
    given_trace = trace(ops, api)
    summary = steps.step_summary(steps_of(given_trace), pieces_of(given_trace))

    assert steps.unit_summary(summary, launches_of(given_trace))["behind_ns"].to_list() == [None]


def test_no_steps_cost_nothing():
    given_trace = trace(kernels("abc"))
    found, pieces = steps_of(given_trace), pieces_of(given_trace)
    summary = steps.step_summary(found, pieces)

    assert summary.is_empty()
    assert steps.unit_summary(summary, launches_of(given_trace)).is_empty()
    assert steps.step_causes(found, pieces).is_empty()
    window = pl.DataFrame({"device_id": [0], "start_ns": [0], "end_ns": [28]})
    assert steps.outside_steps(found, window, pieces).rows() == [(0, 28, 24, 4)]


# Real traces.


def real(name):
    return read(Path(FOLDER) / name)


def counts(found):
    return dict(found.frame.group_by("unit", maintain_order=True).len().rows())


@needs_folder
@pytest.mark.parametrize("name", ["demo_graph.sqlite", "demo_node.sqlite"])
def test_the_demo_has_five_steps_per_way_of_running(name):
    found = steps_of(real(name))

    assert (found.source, found.unit) == ("nvtx", "step")
    ways = ("per_launch", "graph:600", "graph:300", "graph:100", "graph:50", "graph:20")
    assert counts(found) == {f"{way}/step": 5 for way in ways}


@needs_folder
@pytest.mark.parametrize("name", ["demo_graph.sqlite", "demo_node.sqlite"])
def test_without_its_ranges_no_step_holds_most_of_the_demo(name):
    """One step runs in six ways, each a sixth of the work and none like the others."""
    given_trace = real(name)
    found = steps_of(replace(given_trace, nvtx=given_trace.nvtx.clear()))

    assert found.source is None


@needs_folder
def test_a_decoder_marked_by_gaptrace_has_its_decode_steps():
    found = steps_of(real("llm_node.sqlite"))

    assert found.unit == "decode"
    assert counts(found) == {
        "eager/decode": 10,
        "eager_sync_item/decode": 10,
        "graph/decode": 10,
        "graph_sync_item/decode": 10,
        "recapture_every_step/decode": 5,
    }


@needs_folder
@pytest.mark.parametrize("name", ["llamacpp_graph.sqlite", "llamacpp_node.sqlite"])
def test_a_decoder_without_ranges_has_a_step_per_replay(name):
    found = steps_of(real(name))

    assert (found.source, found.unit) == ("graph_exec", "graph exec 5")
    assert found.frame.height == 16


@needs_folder
def test_ranks_have_steps_of_their_own_and_nccl_is_none():
    found = steps_of(real("two_ranks_eager.sqlite"))

    assert found.frame.group_by("key", "unit", "device_id").len().sort("key").rows() == [
        (0, "eager/decode", 1, 5),
        (1, "eager/decode", 0, 5),
    ]


@needs_folder
@pytest.mark.parametrize(
    ("name", "unit", "sequences", "number"),
    [
        ("nsys2023.1_gtls", "909 kernels from cupy_copy__float32_float32", 1, 24),
        ("nsys2024.5_cloverleaf", "125 kernels from par_ranged2d_kernel", 1, 10),
        ("nsys2026.2_h100_2gpu_window", "62 kernels from vectorized_elementwise_kernel", 2, 23),
        ("nsys2026.2_mfu_2gpu", "119 kernels from unrolled_elementwise_kernel", 2, 16),
    ],
)
def test_public_traces_without_marks_repeat_by_kernel_names(name, unit, sequences, number):
    found = steps_of(real(f"public/{name}.sqlite"))

    assert (found.source, found.unit) == ("kernels", unit)
    assert found.frame.group_by("key").len()["len"].to_list() == [number] * sequences


@needs_folder
@pytest.mark.parametrize("name", ["mp.sqlite", "public/nsys2022.2_saxpy_mpi.sqlite"])
def test_real_traces_in_which_nothing_repeats_get_no_steps(name):
    found = steps_of(real(name))

    assert found.source is None
    assert found.reason


def test_what_begins_as_a_step_ends_is_not_the_steps():
    begins = range(0, 500, 100)
    given_trace = trace(
        [op(at + 10, at + 60, at) for at in begins],
        [call("cudaLaunchKernel", at, at + 5, at) for at in begins],
        [nvtx("step", at, at + 100) for at in begins],
    )
    summary = steps.step_summary(steps_of(given_trace), pieces_of(given_trace))
    assert steps.unit_summary(summary, launches_of(given_trace))["behind_ns"].to_list() == [0]


def test_a_first_step_outside_the_window_is_not_told():
    given_trace = lasting([900, 100, 101, 99, 100])
    summary = steps.step_summary(steps_of(given_trace), pieces_of(given_trace))
    cut = steps.unit_summary(summary.slice(1), launches_of(given_trace)).row(0, named=True)
    assert cut["first_span_ns"] is None
    assert cut["span_ns"]["p50"] == 100
