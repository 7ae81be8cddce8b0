"""Two traces side by side: pairing, changes, what chance alone would do, and what is refused."""

import json
import re
from pathlib import Path

import pytest
from rows import call, graph, nvtx, op, trace

from gaptrace.analysis import analyze
from gaptrace.cli import main
from gaptrace.compare import compare
from gaptrace.errors import ComparisonError
from gaptrace.read import read
from gaptrace.render.comparison import comparison

US = 1000
SAMPLES = Path(__file__).parent.parent / "sample_traces"
GRAPH, NODE = (str(SAMPLES / f"demo_{kind}.sqlite") for kind in ("graph", "node"))


def steps(*spans_us, name="step", device=0, granularity="graph", malloc=False):
    """A kernel of 10 us at the begin of each step; the host is in its own code, or allocates."""
    api, ops, ranges = [], [], []
    at = 0
    for number, span_us in enumerate(spans_us):
        end = at + span_us * US
        api.append(call("cudaLaunchKernel", at, at + 1 * US, number))
        if malloc:
            api.append(call("cudaMalloc", at + 12 * US, at + 17 * US))
        ops.append(op(at + 1 * US, at + 11 * US, number, device_id=device))
        ranges.append(nvtx(name, at, end))
        at = end
    return analyze(trace(ops, api, nvtx=ranges, granularity=granularity))


def changes(frame, *columns):
    return {row["figure"]: tuple(row[c] for c in columns) for row in frame.to_dicts()}


SLOW = steps(50, 30, 31, 29, 30, 32, malloc=True)
FAST = steps(45, 20, 21, 19, 20, 22)


def test_steps_are_compared_by_the_medians_of_steady_ones():
    compared = compare(SLOW, FAST)
    (unit,) = (
        compared.steps.select("unit", "after_unit", "device_id", "before_steps", "after_steps")
        .unique()
        .rows()
    )
    # The first step of each is its warm-up.
    assert unit == ("step", "step", 0, 5, 5)
    found = changes(compared.steps, "before_ns", "after_ns", "change_ns")
    assert found["span_ns"] == (30 * US, 20 * US, -10 * US)
    assert found["busy_ns"] == (10 * US, 10 * US, 0)
    assert found["idle_ns"] == (20 * US, 10 * US, -10 * US)
    # A cause of one of the two took no time in the other.
    assert found["api_other"] == (5 * US, 0, -5 * US)


def test_what_medians_of_so_many_steps_differ_by_chance():
    # Median absolute deviations are 1 us in both, of five values 1.206 times too small; Student t:
    # 2.770 * 1.2533 * 1.4826 * 1.206 * sqrt(1/5 + 1/5) us.
    assert changes(compare(SLOW, FAST).steps, "noise_ns")["span_ns"] == (3926,)
    assert changes(compare(steps(50, 30, 30), FAST).steps, "noise_ns")["span_ns"] == (None,)


def test_sequences_of_one_name_are_not_mixed():
    """Two processes on one device: steps of 20 and of 90 us, of which only the numbers change."""

    def of_two(*counts):
        ops, api, ranges = [], [], []
        for process, (count, span_us) in enumerate(zip(counts, (20, 90), strict=True), 1):
            own = {"process_id": process, "thread_id": 100 + process}
            for number in range(count):
                at = 5_000 * process * US + number * span_us * US
                launch = len(api)
                api.append(call("cudaLaunchKernel", at, at + US, launch, **own))
                ops.append(op(at + US, at + 11 * US, launch, process_id=process))
                ranges.append(nvtx("step", at, at + span_us * US, **own))
        return analyze(trace(ops, api, nvtx=ranges))

    before, after = of_two(30, 9), of_two(9, 30)
    assert before.step_units.height == after.step_units.height == 2
    assert compare(before, after).steps.is_empty()


def test_totals_hold_every_figure_and_cause():
    compared = compare(SLOW, FAST)
    found = changes(compared.totals, "before_ns", "after_ns", "change_ns")
    # From the first op to the last: the last step ends with its op.
    assert found["span_ns"] == (180 * US, 135 * US, -45 * US)
    causes = [name for name in found if not name.endswith("_ns")]
    assert causes == ["launch_call", "api_other", "host_code"]
    for column in (0, 1, 2):
        assert sum(found[cause][column] for cause in causes) == found["idle_ns"][column]


def test_ranges_of_both_by_the_mean_of_one_instance():
    (row,) = compare(SLOW, FAST).ranges.to_dicts()
    assert (row["path"], row["before_count"], row["after_count"]) == ("step", 6, 6)
    assert (row["before_ns"], row["after_ns"]) == (202 * US // 6, 147 * US // 6)
    assert row["change_ns"] == row["after_ns"] - row["before_ns"]
    assert compare(SLOW, steps(45, 20, 21, 19, 20, name="other")).ranges.is_empty()


def test_single_sequences_of_steps_pair_by_themselves_and_others_by_name():
    other = steps(45, 20, 21, 19, 20, name="token")
    assert compare(SLOW, other).steps.select("unit", "after_unit").row(0) == ("step", "token")

    demo = json.loads(run_json(GRAPH, GRAPH))
    units = {(row["unit"], row["after_unit"]) for row in demo["steps"]}
    arms = ("per_launch", "graph:75", "graph:25", "graph:10")
    assert units == {(f"{arm}/step", f"{arm}/step") for arm in arms}


def test_one_device_each_is_paired_whatever_its_number():
    compared = compare(SLOW, steps(45, 20, 21, 19, 20, 22, device=1))
    assert compared.totals["device_id"].unique().to_list() == [0]
    assert changes(compared.totals, "change_ns")["busy_ns"] == (0,)
    assert compared.ranges.height == 1


def test_devices_that_cannot_be_paired_are_refused():
    both = analyze(
        trace(
            [op(0, 10, 1), op(5, 30, 2, device_id=1)],
            [call("cudaLaunchKernel", 0, 1, 1), call("cudaLaunchKernel", 1, 2, 2)],
        )
    )
    assert compare(both, both).totals["device_id"].unique().sort().to_list() == [0, 1]
    with pytest.raises(ComparisonError, match=r"different devices \(0 and 0, 1\).*--device"):
        compare(SLOW, both)


@pytest.mark.parametrize(("one", "other"), [("graph", "node"), ("node", "graph")])
def test_another_granularity_is_refused_with_the_reason(one, other):
    with pytest.raises(ComparisonError, match="would be the recorder's"):
        compare(steps(20, 20, granularity=one), steps(20, 20, granularity=other))


def test_a_trace_without_graphs_goes_with_either_granularity():
    assert compare(steps(20, 20, granularity=None), FAST).totals.height


def test_what_else_differs_is_warned_of():
    from dataclasses import replace

    meta = replace(FAST.trace.meta, driver="580", product_version="2025.3.1")
    newer = replace(FAST, trace=replace(FAST.trace, meta=meta))
    older = replace(newer, trace=replace(newer.trace, meta=replace(meta, driver="570")))
    assert [w.code for w in compare(older, newer).warnings] == ["other_driver"]
    # Of what is not known nothing is said.
    assert compare(SLOW, newer).warnings == ()


def printed(before, after):
    return " ".join(comparison(compare(before, after), width=100, color=False).split())


def test_steps_of_other_names_and_what_limits_either_trace_are_warned_of():
    other = steps(45, 20, 21, 19, 20, 22, name="token")
    unlinked = trace([op(0, 10), op(20, 30, 1)], [call("cudaLaunchKernel", 11, 12, 1)])
    whole = trace([op(0, 10, 1)], [call("cudaLaunchKernel", -2, -1, 1)])
    found = compare(SLOW, other).warnings

    assert [each.code for each in found] == ["other_steps"]
    assert "different names, step, then token: " in found[0].message
    assert compare(SLOW, FAST).warnings == ()
    (limited,) = compare(analyze(unlinked), analyze(whole)).warnings
    assert limited.message.startswith("before: 1 of 2 device rows (50.0%) have no launch row")


def test_files_of_one_name_are_told_apart(capsys, tmp_path):
    paths = [tmp_path / run / "graph.sqlite" for run in ("first", "second")]
    for path in paths:
        path.parent.mkdir()
        path.symlink_to(GRAPH)

    assert main(["compare", *map(str, paths)]) == 0
    assert "before: first/graph.sqlite, after: second/graph.sqlite" in capsys.readouterr().out
    assert main(["analyze", *map(str, paths)]) == 0
    assert "second/graph.sqlite" in capsys.readouterr().out


def test_the_text_says_whether_the_change_is_more_than_chance():
    assert "Steps are 10.0 us shorter, give or take 3.93 us" in printed(SLOW, FAST)
    assert "Steps are 10.0 us longer" in printed(FAST, SLOW)
    assert "No difference shown" in printed(FAST, FAST)
    assert "Too few steps to tell" in printed(steps(50, 30, 30), FAST)


def test_the_text_says_when_no_steps_pair():
    lone = analyze(trace([graph(0, 10 * US, 1)], [call("cudaGraphLaunch", 0, 1 * US, 1)]))
    assert "nothing is told per step" in printed(FAST, lone)


def run_json(*paths):
    import io
    from contextlib import redirect_stdout

    out = io.StringIO()
    with redirect_stdout(out):
        assert main(["compare", *paths, "--json"]) == 0
    return out.getvalue()


def test_text_and_json_of_the_command(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["compare", GRAPH, GRAPH, "--range", "graph:75"]) == 0
    text = capsys.readouterr().out
    assert "only range graph:75" in text
    assert main(["compare", GRAPH, GRAPH, "--range", "graph:75", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)

    assert found["schema"] == "gaptrace.comparison/1"
    assert found["granularity"] == "graph"
    span = next(row for row in found["totals"] if row["figure"] == "span_ns")
    assert span["before_ns"] == span["after_ns"] > 0
    assert all(row["change_ns"] == 0 for row in found["totals"] + found["steps"])


def test_the_command_says_how_many_ranges_it_leaves_out(capsys):
    assert main(["compare", GRAPH, GRAPH, "--json"]) == 0
    every = len(json.loads(capsys.readouterr().out)["ranges"])
    assert main(["compare", GRAPH, GRAPH]) == 0
    text = capsys.readouterr().out
    assert every == 19
    assert "means of one instance. ... and 3 more that changed less; --json has them all." in text


def test_the_command_refuses_another_granularity_in_one_line(capsys):
    assert main(["compare", GRAPH, NODE]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"gaptrace: error: {GRAPH} was recorded in graph granularity and {NODE} ")
    assert err.count("\n") == 1


def test_the_command_leaves_a_page(capsys, tmp_path):
    page = tmp_path / "compare.html"
    assert main(["compare", GRAPH, GRAPH, "--json", "-o", str(page)]) == 0
    out, err = capsys.readouterr()
    assert err == f"gaptrace: the comparison is in {page}\n"
    text = page.read_text()
    assert len(text.encode()) < 8_000_000
    (inside,) = re.findall(r'<script type="application/json" id="comparison">(.*?)</script>', text)
    assert json.loads(inside) == json.loads(out)
    assert "The comparison as JSON, schema gaptrace.comparison/1, is in this file" in text
    (figure,) = re.findall(r'data-plot="before-and-after-figure-1">(.*?)</script>', text)
    assert "launch_call" in {mark["name"] for mark in json.loads(figure)["data"]}
    # Every table of the text is there, and every head is explained.
    assert text.count("<table") == comparison_tables(GRAPH)
    heads = re.findall(r"<th [^>]*>(.*?)</th>", text, re.DOTALL)
    assert [head for head in heads if "title=" not in head and head.strip()] == []

    page.write_text("something else")
    assert main(["compare", GRAPH, GRAPH, "-o", str(page)]) == 1
    assert capsys.readouterr().out == ""
    assert page.read_text() == "something else"


def comparison_tables(path):
    """One for a device, one for each sequence of steps, one for the ranges."""
    found = analyze(read(Path(path)))
    return found.devices.height + found.step_units.height + 1


def test_steps_hold_all_of_their_idle_time_where_a_part_is_asked_for():
    def loading(shift_us):
        at = range(0, 2_000 * US, 100 * US)
        ops = [op(each + 2 * US, each + 12 * US, each) for each in at]
        api = [call("cudaLaunchKernel", each, each + (1 + shift_us) * US, each) for each in at]
        ranges = [nvtx("step", each, each + 99 * US) for each in at]
        ranges += [nvtx("load", each, each + 30 * US) for each in at]
        return analyze(trace(ops, api, nvtx=ranges), range_name="load")

    compared = compare(loading(0), loading(1))
    found = changes(compared.steps, "before_ns", "after_ns")
    causes = found.keys() - {"span_ns", "busy_ns", "idle_ns"}
    assert found["idle_ns"] == (89 * US, 89 * US)
    assert sum(found[cause][0] for cause in causes) == pytest.approx(89 * US, rel=0.01)


def test_where_the_host_runs_ahead_the_step_of_the_host_is_compared():
    """Kernels of 28 us, of which each begins when the one before ends; the host needs 20 us."""

    def ahead(*spans_us):
        at, free, ops, api, ranges = 0, 0, [], [], []
        for number, span_us in enumerate(spans_us):
            api.append(call("cudaLaunchKernel", at, at + 1 * US, number))
            begin = max(at + 1 * US, free)
            free = begin + 28 * US
            ops.append(op(begin, free, number))
            ranges.append(nvtx("step", at, at + span_us * US))
            at += span_us * US
        return analyze(trace(ops, api, nvtx=ranges, granularity="graph"))

    waits, runs_ahead = ahead(50, 30, 31, 29, 30, 32), ahead(45, 20, 21, 19, 20, 22)
    assert set(compare(waits, waits).steps["host_ahead"]) == {False}
    assert set(compare(waits, runs_ahead).steps["host_ahead"]) == {True}
    assert set(compare(runs_ahead, waits).steps["host_ahead"]) == {True}
    assert "Steps are" not in printed(waits, runs_ahead)
    said = "The host takes 10.0 us less for a step, give or take 3.93 us; but it runs ahead"
    assert said in printed(waits, runs_ahead)
    assert "takes 10.0 us more for a step" in printed(runs_ahead, waits)


def test_steps_of_two_lengths_in_turn_show_no_difference():
    one, other = steps(50, *[100, 150] * 9, 100), steps(50, *[150, 100] * 9, 150)
    assert "No difference shown" in printed(one, other)


def test_instances_on_several_threads_at_once_are_as_long_as_each_is():
    def loading(*threads):
        ranges = [nvtx("load", 0, 100 * US, thread_id=thread) for thread in threads]
        launches = [call("cudaLaunchKernel", 0, 1, n, thread_id=t) for n, t in enumerate(threads)]
        ops = [op(10 * US + n * US, 11 * US + n * US, n) for n in range(len(threads))]
        return analyze(trace(ops, launches, nvtx=ranges, granularity="graph"))

    found = compare(loading(1), loading(1, 2, 3, 4)).ranges.row(0, named=True)
    assert (found["before_count"], found["after_count"]) == (1, 4)
    assert found["change_ns"] == 0
    assert found["before_ns"] > 80 * US


def test_steps_that_are_not_compared_are_named():
    def both(*units):
        api, ops, ranges = [], [], []
        for number in range(6 * len(units)):
            at = number * 20 * US
            api.append(call("cudaLaunchKernel", at, at + US, number))
            ops.append(op(at + US, at + 11 * US, number))
            ranges.append(nvtx("step", at, at + 20 * US))
        for number, name in enumerate(units):
            ranges.append(nvtx(name, number * 120 * US, (number + 1) * 120 * US))
        return analyze(trace(ops, api, nvtx=ranges, granularity="graph"))

    compared = compare(both("train", "eval"), both("train", "test"))
    assert set(compared.steps["unit"]) == {"train/step"}
    (warning,) = (each for each in compared.warnings if each.code == "steps_left_out")
    assert warning.message.startswith(
        "steps not compared: eval/step, test/step; they are in one of"
    )
    assert compare(both("train", "eval"), both("train", "eval")).warnings == ()
