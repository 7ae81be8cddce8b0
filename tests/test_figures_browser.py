"""Figures in a real browser: nothing runs into anything else, however long a legend is."""

import pytest
from browser import QUIET, chromium
from playwright.sync_api import sync_playwright
from plotly.offline import get_plotlyjs
from real_traces import SAMPLES

import gaptrace
from gaptrace.render import figures

pytestmark = pytest.mark.browser

#: Tops and bottoms of the title, of the legend below it, and of the uppermost plot.
PLACES = """
async ([figure, width]) => {
    const { data, layout } = JSON.parse(figure);
    const plot = document.body.appendChild(document.createElement("div"));
    await Plotly.newPlot(plot, data, { ...layout, width });
    const found = [".gtitle", ".legend .bg", ".nsewdrag"].map((name) => {
        const { top, bottom } = plot.querySelector(name).getBoundingClientRect();
        return [top, bottom];
    });
    const rows = new Set([...plot.querySelectorAll(".legend .traces")].map(
        (it) => Math.round(it.getBoundingClientRect().top)));
    plot.remove();
    return [found, rows.size];
}
"""


@pytest.fixture(scope="module")
def page():
    path = chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu", *QUIET]
        )
        opened = browser.new_page()
        opened.set_content(f"<script>{get_plotlyjs()}</script><body></body>")
        yield opened
        browser.close()


@pytest.fixture(scope="module")
def opened():
    (sample,) = (path for path in SAMPLES if path.stem == "decoder_node")
    return gaptrace.open(sample, calibration=sample.parent / "h200_calibration.json")


@pytest.mark.parametrize("width", [1200, 860, 400, 320])
@pytest.mark.parametrize(
    "draw",
    [
        figures.timeline,
        figures.idle_by_cause,
        figures.gap_histogram,
        figures.steps,
        figures.launch_costs,
    ],
)
def test_title_legend_and_plot_stand_below_each_other(page, opened, draw, width):
    extra = [opened.calibration] if draw is figures.launch_costs else []
    figure = draw(opened.analysis, *extra, title="What is seen here")
    (title, legend, plot), rows = page.evaluate(PLACES, [figure.to_json(), width])

    assert title[1] <= legend[0] < legend[1] <= plot[0] + 1 < plot[1]
    if draw is figures.launch_costs:
        assert rows > 1
