"""Make the pictures of the README and of these pages, from the sample traces.

    python docs/pictures/make.py [NAME ...]

Each in a light and a dark variant, drawn by Chromium. All figures are those of
`gaptrace.render.figures`; times in them come from recordings and clock readings of an H200.
"""

import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import plotly.graph_objects as go
import polars as pl
from playwright.sync_api import Page, sync_playwright

import gaptrace
from gaptrace.machine_costs import chunk_model
from gaptrace.recommendation import Recommendation, SizeTime
from gaptrace.render import figures
from gaptrace.render.html import html_report
from gaptrace.schedules import growing_schedule, plateau, uniform, uniform_sizes

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent.parent
SAMPLES = ROOT / "sample_traces"
CALIBRATION = SAMPLES / "h200_calibration.json"
RUNS = ROOT / "benchmarks/results/recommend_h200.jsonl"

#: CSS pixels; about as wide as a README is shown, and twice as sharp.
WIDTH, SHARPNESS = 860, 2
#: Of the report so much as fits into a small file.
REPORT_SIZE = {"width": 960, "height": 790}
#: Text and page by theme: those of the HTML report.
THEMES = {"light": ("#1c1f23", "#ffffff"), "dark": ("#e6e8ea", "#14171a")}


def timeline_launches() -> go.Figure:
    """A step of which every kernel waits for its launch."""
    return _step("per_launch/step", "75 kernels launched one by one")


def timeline_graph() -> go.Figure:
    """The same step as one graph."""
    return _step("graph:75/step", "the same 75 kernels as one CUDA graph")


def _step(unit: str, what: str, number: int = 10) -> go.Figure:
    analysis = gaptrace.open(SAMPLES / "demo_graph.sqlite").analysis
    step = analysis.step_summary.row(
        by_predicate=(pl.col("unit") == unit) & (pl.col("step") == number), named=True
    )
    title = f"One step, {what}: {step['span_ns'] / 1000:.0f} us"
    return figures.timeline(analysis, step["start_ns"], step["end_ns"], title=title)


def idle_by_cause() -> go.Figure:
    """Steps of a decoder in three programs: why the device waits in each."""
    analysis = gaptrace.open(SAMPLES / "decoder_node.sqlite").analysis
    return figures.idle_by_cause(analysis, "step")


def gap_lengths() -> go.Figure:
    """Gaps by length."""
    analysis = gaptrace.open(SAMPLES / "decoder_node.sqlite").analysis
    return figures.gap_histogram(analysis)


def launch_costs() -> go.Figure:
    """What a graph launch takes, as recorded and without a recorder."""
    opened = gaptrace.open(SAMPLES / "demo_graph.sqlite", calibration=CALIBRATION)
    return figures.launch_costs(opened.analysis, opened.calibration)


def chunk_size() -> go.Figure:
    """Predicted and measured time of a step by chunk size; see benchmarks/RESULTS.md."""
    runs = pl.read_ndjson(RUNS).filter(nodes=1000, node="2.5 us", regime="update")
    predicted, measured = (_by_size(runs, name) for name in ("predicted_ns", "measured_ns"))
    points = Recommendation(
        "chunk",
        nodes=1000,
        by_size=tuple(SizeTime(size, ns, ns, ns) for size, ns in predicted.items()),
        measured_ns={f"chunk:{size}": ns for size, ns in measured.items()},
    )
    title = "1,000 CUDA nodes of 2.5 us, captured and updated at every step"
    return figures.step_by_chunk(points, title=title)


def _by_size(runs: pl.DataFrame, column: str) -> dict[int, float]:
    times = runs.select(pl.col(column).struct.unnest()).median().row(0, named=True)
    times["1000"] = times.pop("one")
    known = {int(size): ns for size, ns in times.items() if size.isdigit() and ns is not None}
    return dict(sorted(known.items()))


def chunks_hide() -> go.Figure:
    """How chunks hide their launches behind the device."""
    opened = gaptrace.open(
        SAMPLES / "decoder_node.sqlite", range_name="graph_sync_item", calibration=CALIBRATION
    )
    advice = opened.analysis.recommendation
    assert opened.calibration and advice.nodes
    node_ns = advice.predicted_ns["device_only"] / advice.nodes
    model = chunk_model(opened.calibration, 2000, node_ns, "update")
    best = plateau(uniform(model)).recommended
    schedules = [
        [model.nodes],
        uniform_sizes(model, 512),
        uniform_sizes(model, best),
        growing_schedule(model),
    ]
    title = f"2,000 nodes updated at every step: whole, chunks of 512, of {best}, growing"
    return figures.schedule_lanes(model, schedules, title=title)


FIGURES: tuple[Callable[[], go.Figure], ...] = (
    timeline_launches,
    timeline_graph,
    idle_by_cause,
    gap_lengths,
    launch_costs,
    chunk_size,
    chunks_hide,
)


def main(names: Sequence[str]) -> None:
    """Make the named pictures, or all."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        raise SystemExit("needs Chromium: apt install chromium")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"]
        )
        for theme in THEMES:
            page = browser.new_page(device_scale_factor=SHARPNESS)
            for make in FIGURES:
                if not names or make.__name__ in names:
                    _draw(page, make(), theme, FOLDER / f"{make.__name__}_{theme}.png")
            if not names or "report" in names:
                page = browser.new_page(color_scheme=theme, viewport=REPORT_SIZE)
                _report(page, Path(folder), FOLDER / f"report_{theme}.png")
        browser.close()


def _draw(page: Page, figure: go.Figure, theme: str, target: Path) -> None:
    ink, paper = THEMES[theme]
    figure.update_layout(font={"color": ink, "size": 13}, paper_bgcolor=paper, width=WIDTH)
    figure.for_each_xaxis(lambda axis: axis.update(title_font_size=13))
    figure.for_each_yaxis(lambda axis: axis.update(title_font_size=13))
    figure.update_traces(insidetextfont={"color": ink}, selector={"type": "bar"})
    page.set_content(figure.to_html(config={"staticPlot": True}))
    page.add_style_tag(content=f"body {{ margin: 0; background: {paper} }}")
    drawn = page.locator(".main-svg").first
    drawn.wait_for()
    page.locator(".svg-container").screenshot(path=target)
    _said(target)


def _report(page: Page, folder: Path, target: Path) -> None:
    path = folder / "report.html"
    path.write_text(
        html_report(gaptrace.open(SAMPLES / "demo_graph.sqlite").analysis), encoding="utf-8"
    )
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-drawn=true]")
    page.screenshot(path=target)
    _said(target)


def _said(target: Path) -> None:
    sys.stdout.write(f"{target.name}: {target.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main(sys.argv[1:])
