"""Figures of literal rows: which marks, with which numbers, in which colour."""

import re
import subprocess
import sys

import pytest
from real_traces import SAMPLES
from rows import call, graph, node, nvtx, op, trace

from gaptrace.analysis import analyze
from gaptrace.calibration import Calibration, Figure, Machine
from gaptrace.compare import compare
from gaptrace.cost import ChunkModel, HostCost
from gaptrace.read import read
from gaptrace.recommendation import Alternative, Recommendation, Sensitivity, SizeTime
from gaptrace.render import figures
from gaptrace.render.figures.chunks import has_sizes
from gaptrace.render.figures.style import BUSY_COLOR, CAUSE_COLORS, TITLE_HEIGHT, log_ticks
from gaptrace.schedules import uniform
from gaptrace.timelines import CAUSES
from gaptrace.timings import Arm, ArmTiming, Measurement

SMALL = analyze(
    trace(
        [op(0, 10_000, 1), graph(60_000, 100_000, 2)],
        [
            call("cudaLaunchKernel", -5_000, -1_000, 1),
            call("cudaMalloc", 10_000, 30_000),
            call("cudaGraphLaunch", 50_000, 58_000, 2),
        ],
        nvtx=[nvtx("step", 0, 110_000)],
    )
)
#: What the device does in SMALL, in ms.
STATES = {
    "busy": 0.05,
    "device_queued": 0.002,
    "launch_call": 0.008,
    "api_other": 0.02,
    "host_code": 0.02,
}


def named(figure, **wanted):
    return [
        mark
        for mark in figure.data
        if all(getattr(mark, name) == value for name, value in wanted.items())
    ]


def in_mode(mark):
    return mark.marker.color if mark.type == "bar" else mark.fillcolor


def test_every_cause_has_a_colour_of_its_own():
    assert set(CAUSE_COLORS) == set(CAUSES.categories)
    assert len(set(CAUSE_COLORS.values())) == len(CAUSE_COLORS)


@pytest.mark.parametrize("of", ["device", "range"])
def test_idle_by_cause_stacks_to_the_span(of):
    figure = figures.idle_by_cause(SMALL, of)

    bars = {mark.name: list(mark.x) for mark in figure.data}
    expected = STATES if of == "device" else STATES | {"host_code": 0.03}
    assert {name: pytest.approx([ms]) for name, ms in expected.items()} == bars
    assert [tuple(mark.y) for mark in figure.data] == [
        ("device 0",) if of == "device" else ("step",)
    ] * len(bars)
    assert [in_mode(mark) for mark in figure.data] == [
        BUSY_COLOR if name == "busy" else CAUSE_COLORS[name] for name in bars
    ]


def test_idle_by_cause_of_a_bar_says_its_share():
    (launch,) = named(figures.idle_by_cause(SMALL), name="launch_call")

    assert launch.hovertext == ("<b>device 0</b><br>launch_call 8.00 us, 8.0% of the span",)


def test_the_band_of_a_device_is_shares_of_each_bin():
    figure = figures.timeline(SMALL, 0, 100_000)
    bands = [mark for mark in figure.data if mark.type == "scatter"]

    assert [mark.name for mark in bands] == [
        "busy",
        "device_queued",
        "launch_call",
        "api_other",
        "host_code",
    ]
    assert {in_mode(mark) for mark in bands} == {
        BUSY_COLOR,
        *(CAUSE_COLORS[mark.name] for mark in bands[1:]),
    }
    for mark in bands:
        # Bins of 100 ns; the last edge is named twice.
        assert sum(mark.y[:-1]) * 100 * 1e-6 == pytest.approx(STATES[mark.name])


def test_long_pieces_of_gaps_say_op_launch_lead_and_cause():
    (host,) = named(figures.timeline(SMALL, 0, 100_000), name="gaps: host_code")

    assert host.hovertext == (
        "<b>host_code</b><br>20.0 us from 0.030 ms<br>of a gap of 50.0 us<br>after scale<br>"
        "before graph<br>launch: cudaGraphLaunch, lead 2.00 us",
    )
    assert host.marker.color == CAUSE_COLORS["host_code"]
    assert (host.x[0], host.width[0]) == pytest.approx((0.04, 0.02))


def test_lanes_show_ops_calls_and_ranges_where_they_are():
    figure = figures.timeline(SMALL)
    (graphs,) = named(figure, name="graph")
    (ranges,) = named(figure, name="range")

    assert (graphs.base[0], graphs.x[0]) == pytest.approx((0.06, 0.04))
    assert graphs.hovertext == (
        "<b>graph</b><br>40.0 us from 0.060 ms<br>launch: cudaGraphLaunch, 8.00 us<br>"
        "lead 2.00 us<br>after a gap of 50.0 us, mostly api_other",
    )
    assert ranges.text == ("step",)
    assert figure.layout.yaxis2.ticktext == ("stream 7", "CUDA calls", "NVTX")


def test_names_are_shown_as_they_are():
    name = "void k<int, 3>(a&) <b>"
    found = analyze(trace([op(0, 50, name=name), op(60, 90, name=name)]))
    texts = [text for mark in figures.timeline(found).data for text in mark.hovertext or ()]

    assert any("void k&lt;int, 3&gt;(a&amp;) &lt;b&gt;" in text for text in texts)
    assert not any(name in text for text in texts)


def test_a_histogram_holds_all_gaps_and_all_idle_time():
    figure = figures.gap_histogram(SMALL)

    counts = {mark.name: sum(mark.y) for mark in figure.data if mark.legend == "legend2"}
    idle = {mark.name: sum(mark.y) for mark in figure.data if mark.legend == "legend"}
    assert counts == {"starved": 1}
    assert idle == {name: pytest.approx(ms) for name, ms in STATES.items() if name != "busy"}
    (mark,) = named(figure, name="starved")
    assert mark.hovertext == ("1 starved<br>in gaps of 39.8 us to 63.1 us",)


def test_launch_costs_are_those_of_each_size_and_of_a_calibration():
    ops, calls = [], []
    for number, nodes in enumerate((2, 2, 5), 1):
        begin = 10_000 * number
        ops += [
            node(begin + 10 * i, begin + 10 * i + 5, number, i, graph_exec=nodes)
            for i in range(nodes)
        ]
        calls.append(call("cudaGraphLaunch", begin - 1_000 * nodes, begin - 500, number))
    found = analyze(trace(ops, calls, granularity="node"))
    points = [
        Figure("graph_launch_api_ns", nodes, 1, None, 100.0 * nodes, 90.0, 110.0, 3)
        for nodes in (1, 10)
    ]
    saved = Calibration(Machine(*[None] * 5), "2026", "0", {}, tuple(points))
    figure = figures.launch_costs(found, saved)

    (recorded,) = named(figure, name="launch call, as recorded")
    assert (recorded.x, recorded.y) == ((2, 5), (1.5, 4.5))
    (untraced,) = named(figure, name="launch call, untraced")
    assert (untraced.x, untraced.y) == ((1, 10), (pytest.approx(0.1), pytest.approx(1.0)))


def test_steps_stand_in_a_row_and_the_first_stands_out():
    spans, now, rows = [3_000, 1_000, 1_000, 1_000], 0, ([], [], [])
    for number, span in enumerate(spans, 1):
        rows[0].append(op(now + 200, now + 700, number))
        rows[1].append(call("cudaLaunchKernel", now + 50, now + 100, number))
        rows[2].append(nvtx("step", now, now + span))
        now += span
    figure = figures.steps(analyze(trace(rows[0], rows[1], nvtx=rows[2])))

    (span,) = named(figure, name="span")
    assert span.y == pytest.approx([ns * 1e-6 for ns in spans])
    (first,) = named(figure, name="first")
    assert (first.x, first.hovertext) == ((0,), ("step 0, first<br>span 3.00 us",))


def test_a_part_that_grew_by_more_than_the_step_is_not_called_a_part_of_it():
    """Steps of 100 us of which 40 are an allocation; the last lacks it and lasts 130 us."""
    rows, api, ranges = [], [], []
    for number in range(9):
        at = number * 100_000
        rows.append(op(at + 1_000, at + 11_000, number))
        api.append(call("cudaLaunchKernel", at, at + 1_000, number))
        if number < 8:
            api.append(call("cudaMalloc", at + 20_000, at + 60_000))
        ranges.append(nvtx("step", at, at + (100_000 if number < 8 else 130_000)))
    rows.append(op(930_500, 931_000, 99))  # so that the window holds all of the last step
    api.append(call("cudaLaunchKernel", 930_000, 930_400, 99))
    figure = figures.steps(analyze(trace(rows, api, nvtx=ranges)))

    (outlier,) = named(figure, name="outlier")
    assert outlier.hovertext == (
        "step 8, outlier<br>span 130 us<br>30.0 us above the median, while host_code grew by "
        "70.0 us",
    )


MODEL = ChunkModel(HostCost.linear(2_000, 200), 600, 1_500, cut_gap_ns=1_100)


def test_the_curve_is_the_makespan_of_every_size():
    (curve,) = figures.step_by_chunk(model=MODEL, added_ns=500.0).data
    expected = uniform(MODEL)

    assert (curve.x[0], curve.x[-1]) == (1, 600)
    for size, us in zip(curve.x, curve.y, strict=True):
        assert us == pytest.approx((expected[size - 1] + 500) / 1_000)


def test_predictions_plateau_and_512_are_marked():
    advice = Recommendation(
        "chunk",
        nodes=600,
        chunk=100,
        plateau=(64, 150),
        predicted_ns={"one_graph": 701_000, "chunk": 611_000, "device_only": 570_000},
        measured_ns={"per_launch": 900_000, "graph:600": 709_000, "schedule:4+12": 1},
    )
    figure = figures.step_by_chunk(advice, model=MODEL)

    (points,) = named(figure, mode="markers", name="predicted")
    assert dict(zip(points.x, points.y, strict=True)) == {600: 701.0, 100: 611.0}
    (measured,) = named(figure, name="measured")
    assert (measured.x, measured.y) == ((600,), (709.0,))
    texts = {note.text for note in figure.layout.annotations}
    assert texts == {"about as good: 64 to 150", "512 (llama.cpp)", "device alone 570 us"}
    assert has_sizes(advice)
    assert not has_sizes(Recommendation("one_graph", nodes=600, predicted_ns={"one_graph": 1}))


def test_the_way_it_is_now_is_marked():
    def drawn(chunk, graphs, plateau):
        now = Alternative("now", graphs, chunk, 650_000, 0, is_now=True)
        other = Alternative("one_graph", 1, 600, 701_000, 51_000)
        advice = Recommendation(
            "no_difference_shown", nodes=600, plateau=plateau, alternatives=(other, now)
        )
        return figures.step_by_chunk(advice)

    same, mixed = drawn(200, 3, (64, 150)), drawn(None, 2, (600, 600))
    (mark,) = named(same, name="as recorded")
    assert (mark.x, mark.y) == ((200,), (650.0,))
    assert "about as good: 64 to 150" in {note.text for note in same.layout.annotations}
    # Graphs of different sizes have no place on the axis.
    assert named(mixed, name="as recorded") == []
    assert {note.text for note in mixed.layout.annotations} == {
        "as recorded, 2 graphs 650 us",
        "best: 600",
    }


@pytest.mark.parametrize(("most_ns", "scale", "at"), [(4_000, None, 1.0), (6_000, "log", 0.0)])
def test_times_far_from_each_other_are_on_a_log_axis(most_ns, scale, at):
    sizes = tuple(SizeTime(size, ns, ns, ns) for size, ns in ((1, most_ns), (4, 1_000)))
    known = {"one_graph": 1_000, "device_only": 1_000}
    figure = figures.step_by_chunk(
        Recommendation("chunk", nodes=4, by_size=sizes, predicted_ns=known)
    )

    (note,) = figure.layout.annotations
    (line,) = figure.layout.shapes
    assert (figure.layout.yaxis.type, note.y, line.y0) == (scale, at, 1.0)


def test_sensitivity_is_a_bar_until_the_advice_changes():
    rows = (
        Sensitivity("host_fixed_ns", 2_000.0, 0.25, 4.0),
        Sensitivity("cut_gap_ns", 1_200.0, None, None),
    )
    bars, turns = figures.sensitivity(Recommendation("chunk", sensitivity=rows)).data

    labels = (
        "host cost of a chunk, whatever its size, 2.00 us",
        "device gap that a cut adds, 1.20 us",
    )
    assert (bars.y, bars.base, bars.x) == (labels, (0.25, 1 / 16), (3.75, 16 - 1 / 16))
    assert (turns.x, turns.y) == ((0.25, 4.0), (labels[0],) * 2)
    assert [text.strip() for text in turns.text] == ["500 ns", "8.00 us"]
    assert turns.hovertext[0].endswith("the advice changes at 500 ns, 4 x smaller")
    assert bars.hovertext[1].endswith("<br>below and above: not tried")
    without = figures.sensitivity(Recommendation("chunk", sensitivity=rows[1:]))
    assert [mark.name for mark in without.data] == ["the advice stays"]


def test_measured_arms_have_their_spread():
    def timing(arm, us):
        rounds = tuple((1_000 * (us + i),) for i in (0, 1, 2, 3, 4))
        return ArmTiming(arm, rounds, rounds, tuple(ns for (ns,) in rounds))

    measurement = Measurement(
        (
            timing(Arm("per_launch"), 900),
            timing(Arm("graph", (600,)), 570),
            timing(Arm("chunks", (100,) * 6), 580),
        ),
        nodes=600, capture_ns=None, steps=1, gpu="GPU", driver="1", cuda="13.0",
    )  # fmt: skip
    figure = figures.step_by_chunk(measurement=measurement)

    (measured,) = named(figure, name="measured")
    assert (measured.x, measured.y) == ((100, 600), (582.0, 572.0))
    assert all(error > 0 for error in measured.error_y.array)
    assert "per launch 902 us" in {note.text for note in figure.layout.annotations}


def test_lanes_of_a_schedule_show_when_launches_hide():
    model = ChunkModel(HostCost.linear(10_000, 1_000), 4, 20_000, cut_gap_ns=2_000)
    launch, run, *rest = figures.schedule_lanes(model, [[1, 3], [4]]).data

    assert (launch.base, launch.x) == ((0.0, 11.0), (11.0, 13.0))
    assert (run.base, run.x) == ((11.0, 33.0), (20.0, 60.0))
    assert [list(mark.y) for mark in rest] == [[2], [3]]
    named_lanes = figures.schedule_lanes(model, [[4]], names=["advised"], added_ns=1_000.0)
    assert named_lanes.layout.yaxis.ticktext == ("advised<br>one graph, 95.0 us: host", "device")


def test_before_and_after_stand_under_each_other():
    faster = analyze(
        trace(
            [op(0, 10_000, 1), graph(20_000, 60_000, 2)],
            [
                call("cudaLaunchKernel", -5_000, -1_000, 1),
                call("cudaGraphLaunch", 11_000, 19_000, 2),
            ],
        )
    )
    figure = figures.before_after(compare(SMALL, faster))

    (host,) = named(figure, name="host_code")
    assert dict(zip(host.y, host.x, strict=True)) == pytest.approx(
        {"device 0, before": 0.02, "device 0, after": 0.001}
    )
    assert host.hovertext[0] == (
        "<b>device 0</b><br>host_code: 20.0 us before, 1.00 us after<br>change -19.0 us"
    )


@pytest.mark.parametrize("draw", [figures.timeline, figures.idle_by_cause, figures.gap_histogram])
def test_a_title_has_its_own_height_above_the_legend(draw):
    plain, titled = draw(SMALL).layout, draw(SMALL, title="this one").layout

    assert (plain.title.text, titled.title.text) == (None, "this one")
    assert titled.height - plain.height == TITLE_HEIGHT
    legends = [(1 - layout.legend.y) * layout.height for layout in (plain, titled)]
    assert legends == pytest.approx([0, TITLE_HEIGHT])


@pytest.mark.parametrize(
    ("draw", "why"),
    [
        (lambda found: figures.idle_by_cause(found, "range"), "no NVTX ranges"),
        (lambda found: figures.idle_by_cause(found, "step"), "no repeated steps found"),
        (figures.steps, "no repeated steps found"),
        (figures.gap_histogram, "no gaps"),
        (figures.launch_costs, "no launches of graphs of known size"),
        (lambda _: figures.step_by_chunk(Recommendation("one_graph")), "no times by chunk size"),
    ],
)
def test_a_figure_of_nothing_says_so(draw, why):
    figure = draw(analyze(trace([op(0, 10_000, 1)], [call("cudaLaunchKernel", -9, -1, 1)])))

    assert not figure.data
    assert [note.text for note in figure.layout.annotations] == [why]
    assert not figure.layout.xaxis.visible


def test_both_panels_of_a_histogram_have_the_same_grid():
    layout = figures.gap_histogram(SMALL).layout

    assert layout.xaxis.tickvals == layout.xaxis2.tickvals
    assert len(layout.xaxis.tickvals) > 0


def test_one_graph_has_a_tick_on_the_axis_of_chunk_sizes():
    axis = figures.step_by_chunk(model=MODEL).layout.xaxis

    assert axis.ticktext[:2] == ("1", "2")
    assert axis.ticktext[-2:] == ("256", "600<br>one graph")  # 512 would run into it
    assert axis.tickvals[-2:] == (256, 600)


def test_ranges_are_drawn_as_far_as_the_window_reaches():
    (ranges,) = named(figures.timeline(SMALL, 20_000, 100_000), name="range")

    assert (ranges.base[0], ranges.x[0]) == pytest.approx((0.02, 0.08))
    assert ranges.hovertext[0].startswith("<b>step</b><br>110 us from 0.000 ms")


@pytest.mark.parametrize(
    ("values", "marked"),
    [
        ((15, 1_600), ["1", "2", "5", "10", "20", "50", "100", "200", "500", "1,000", "2,000"]),
        ((15, 16_000), ["1", "10", "100", "1,000", "10,000"]),
    ],
)
def test_a_log_axis_has_as_many_ticks_as_there_is_room_for(values, marked):
    ticks = log_ticks(values)

    assert ticks["ticktext"][: len(marked)] == marked
    assert "range" not in ticks


def test_a_log_axis_of_one_value_holds_ticks():
    ticks = log_ticks([340.0])
    low, high = (10**end for end in ticks["range"])

    assert [tick for tick in ticks["tickvals"] if low <= tick <= high] == [200.0, 500.0, 1_000.0]


def test_predictions_without_an_interval_have_no_band():
    def drawn(low_ns):
        sizes = tuple(SizeTime(size, 9000, low_ns, 9000) for size in (1, 2))
        return figures.step_by_chunk(Recommendation("chunk", nodes=2, by_size=sizes)).data

    assert len(drawn(9000)) == 1
    assert len(drawn(8000)) == 3


def test_each_bar_is_named_after_its_own_steps():
    parts = [
        analyze(read(next(p for p in SAMPLES if p.stem == "demo_graph")), range_name=name)
        for name in ("per_launch", "graph:75")
    ]
    figure = figures.before_after(compare(*parts))
    assert figure.layout.yaxis.categoryarray == ("graph:75/step, after", "per_launch/step, before")
    assert figure.layout.xaxis.title.text == (
        "ms of a step, medians<br>before: demo_graph.sqlite, range per_launch; "
        "after: demo_graph.sqlite, range graph:75"
    )
    (busy,) = named(figure, name="busy")
    spans = dict(zip(busy.y, busy.x, strict=True))
    medians = [part.step_units["busy_ns"].struct.field("p50").item() / 1e6 for part in parts]
    assert spans == pytest.approx(
        dict(zip(("per_launch/step, before", "graph:75/step, after"), medians, strict=True))
    )


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_figures_of_real_traces_are_bounded_and_use_one_colour_per_cause(path):
    found = analyze(read(path))
    drawn = [
        figures.timeline(found),
        *(figures.idle_by_cause(found, of) for of in ("device", "range", "step")),
        figures.gap_histogram(found),
        figures.steps(found),
        figures.launch_costs(found),
        figures.before_after(compare(found, found)),
    ]
    for figure in drawn:
        assert figure.data
        assert sum(len(mark.x) for mark in figure.data if mark.x is not None) < 20_000
        for mark in figure.data:
            cause = re.sub("^gaps: ", "", mark.name or "")
            if cause in CAUSE_COLORS:
                assert in_mode(mark) == CAUSE_COLORS[cause]


def test_text_and_json_need_no_plotly():
    code = (
        "import sys; import gaptrace.render.text, gaptrace.render.json, gaptrace.cli.analyze; "
        "print('plotly' in sys.modules, 'jinja2' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False False\n"


def with_ranges(*names):
    """Ranges of 90 us, each name on a thread of its own, of which 10 us are busy."""
    ops, api, ranges = [], [], []
    for number, name in enumerate(names):
        at, own = 100_000 * number, {"thread_id": 2_001 + sorted(set(names)).index(name)}
        ops.append(op(at + 3_000, at + 13_000, number))
        api.append(call("cudaLaunchKernel", at + 100, at + 2_000, number, **own))
        ranges.append(nvtx(name, at, at + 90_000, **own))
    return analyze(trace(ops, api, nvtx=ranges))


@pytest.mark.parametrize(
    "names", [("1", "20", "warm"), ("2026-01-01", "2026-01-02"), ("x" * 95 + "A", "x" * 95 + "B")]
)
def test_each_range_has_its_bar_whatever_its_name(names):
    figure = figures.idle_by_cause(with_ranges(*names), "range")
    (busy,) = named(figure, name="busy")

    assert dict(zip(busy.y, busy.x, strict=True)) == dict.fromkeys(names, pytest.approx(0.01))
    axis = figure.layout.yaxis
    assert (axis.type, sorted(axis.tickvals)) == ("category", sorted(names))
    # What is shown of names keeps both ends.
    assert [shown[-1] for shown in axis.ticktext] == [name[-1] for name in axis.tickvals]
    assert all(len(shown) <= 90 for shown in axis.ticktext)


def test_bars_of_steps_with_long_names_on_several_devices_stay_apart():
    ops, api, ranges = [], [], []
    for at in range(0, 1_000_000, 100_000):
        ranges.append(nvtx("x" * 95, at, at + 90_000))
        for device in (0, 1):
            start = at + 1_000 + 2_000 * device
            api.append(call("cudaLaunchKernel", start, start + 1_000, len(api)))
            ops.append(op(start + 5_000, start + 15_000, len(ops), device_id=device))
    both = analyze(trace(ops, api, nvtx=ranges))
    figure = figures.before_after(compare(both, both))
    (busy,) = named(figure, name="busy")

    assert len(set(busy.y)) == len(busy.y) == 4
    assert [shown.rpartition("x ")[2] for shown in figure.layout.yaxis.ticktext] == [
        f"on device {device}, {side}" for device in (0, 1) for side in ("before", "after")
    ]


def test_the_legend_is_there_where_the_first_device_is_not():
    ops = [op(0, 1_000, 1), *(op(at, at + 500, device_id=1) for at in (5_000, 6_000, 8_000))]
    figure = figures.timeline(analyze(trace(ops)), 4_000, 9_000)

    shown = [mark.name for mark in figure.data if mark.type == "scatter" and mark.showlegend]
    assert shown[0] == "busy"
    assert len(shown) > 1
    both = figures.timeline(analyze(trace(ops)))
    shown = [mark.name for mark in both.data if mark.type == "scatter" and mark.showlegend]
    assert sorted(shown) == sorted(set(shown))


def test_sequences_of_one_name_are_numbered():
    ops, api, ranges = [], [], []
    for thread in (1, 2):
        for at in range(thread * 1_000, 500_000, 50_000):
            own = {"thread_id": 2_000 + thread}
            api.append(call("cudaLaunchKernel", at, at + 1_000, len(api), **own))
            ops.append(op(at + 2_000, at + 3_000, len(ops)))
            ranges.append(nvtx("step", at, at + 40_000, **own))
    figure = figures.steps(analyze(trace(ops, api, nvtx=ranges)))

    assert [text.text for text in figure.layout.annotations][:2] == ["step #0", "step #1"]


def test_sizes_of_several_devices_say_whose_they_are():
    ops, api = [], []
    for device in (0, 1):
        for at in range(0, 100_000, 10_000):
            api.append(call("cudaGraphLaunch", at, at + 1_000 * (1 + device), len(api)))
            ops += [
                node(at + 3_000 + 100 * n, at + 3_050 + 100 * n, len(api) - 1, n, device_id=device)
                for n in range(3)
            ]
    figure = figures.launch_costs(analyze(trace(ops, api, granularity="node")))
    (launched,) = named(figure, name="launch call, as recorded")

    assert ["device 0" in launched.hovertext[0], "device 1" in launched.hovertext[1]] == [True] * 2
