"""The HTML report in a real browser: draws, zooms, changes its theme, prints; no error anywhere."""

import pytest
from browser import QUIET, chromium
from playwright.sync_api import sync_playwright
from real_traces import SAMPLES

from gaptrace.analysis import analyze
from gaptrace.compare import compare
from gaptrace.read import read
from gaptrace.record.calibrations import load
from gaptrace.render.html import html_comparison, html_report

pytestmark = pytest.mark.browser

TIMELINE = "timeline-figure-1"
BANDS = f"document.getElementById('{TIMELINE}')"
SCROLLED_LEGENDS = (
    "[...document.querySelectorAll('.plot')].filter("
    "({_fullLayout: it}) => it.showlegend && it.legend._effHeight < it.legend._height).length"
)


@pytest.fixture(scope="module")
def browser():
    path = chromium()
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu", *QUIET]
        )
        yield started
        started.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    path = tmp_path_factory.mktemp("html") / "report.html"
    (sample,) = (path for path in SAMPLES if path.stem == "demo_node")
    found = analyze(read(sample), calibration=load(sample.parent / "h200_calibration.json"))
    path.write_text(html_report(found), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def opened(browser, report):
    """Open the report in a theme; afterwards nothing must have gone wrong or left the machine."""
    problems, pages = [], []

    def open_page(scheme="light", wanted=report, **context):
        page = browser.new_page(color_scheme=scheme, **context)
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: request.url == wanted or problems.append(request.url))
        page.goto(wanted)
        page.wait_for_selector("html[data-drawn=true]", timeout=60_000)
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert problems == []


def colors(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor"), page.evaluate(
        f"{BANDS}.layout.font.color"
    )


def buttons(page):
    return [it.get_attribute("data-title") for it in page.locator(".modebar-btn").all()]


def test_every_figure_is_drawn(opened):
    page = opened()

    drawn = page.locator(".plot .main-svg .plot .trace, .plot .main-svg .points, .plot .scatter")
    assert page.locator(".plot").count() == page.locator("script.figure").count() > 8
    assert page.locator(".plot:not(:has(.main-svg))").count() == 0
    assert drawn.count() > 20
    assert "Share" not in " ".join(buttons(page))
    # Nothing sticks out of the page.
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_theme_follows_the_system_and_the_button(opened):
    light, dark = ("rgb(255, 255, 255)", "#1c1f23"), ("rgb(20, 23, 26)", "#e6e8ea")
    page = opened("dark")
    button = page.locator("#theme")

    assert (colors(page), button.get_attribute("aria-pressed")) == (dark, "true")
    button.click()
    assert (colors(page), button.get_attribute("aria-pressed")) == (light, "false")
    button.press("Enter")
    assert colors(page) == dark
    assert colors(opened("light")) == light


def wait_for(page, condition):
    """Ask again and again: wait_for_function asks in the page, whose policy forbids eval."""
    for _ in range(200):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never came: {condition}")


def test_the_system_may_change_its_mind(opened):
    page = opened("light")
    page.emulate_media(color_scheme="dark")

    wait_for(page, "document.documentElement.dataset.theme === 'dark'")


def test_dragging_zooms_and_a_double_click_resets(opened):
    page = opened()
    before = page.evaluate(f"{BANDS}.layout.xaxis.range.slice()")
    box = page.locator(f"#{TIMELINE} .nsewdrag").first.bounding_box()
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.25 * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.75 * box["width"], y, steps=4)
    page.mouse.up()
    wait_for(page, f"{BANDS}.layout.xaxis.range[0] > {before[0]}")
    first, last = page.evaluate(f"{BANDS}.layout.xaxis.range.slice()")
    quarter = (before[1] - before[0]) / 4

    assert first == pytest.approx(before[0] + quarter, rel=1e-3)
    assert last == pytest.approx(before[1] - quarter, rel=1e-3)
    # The lanes go with the band.
    assert page.evaluate(f"{BANDS}.layout.xaxis2.range[0]") == pytest.approx(first)

    page.wait_for_timeout(400)  # else the next press would count with the drag's
    page.mouse.dblclick(box["x"] + box["width"] / 2, y)
    wait_for(page, f"Math.abs({BANDS}.layout.xaxis.range[0] - {before[0]}) < 1e-9")


def test_hovering_over_a_band_says_what_is_in_it(opened):
    page = opened()
    box = page.locator(f"#{TIMELINE} .nsewdrag").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 3, box["y"] + box["height"] / 2)

    hover = page.locator(f"#{TIMELINE} .hoverlayer .hovertext")
    hover.first.wait_for()
    assert "from 13" in hover.first.text_content()


def test_the_keyboard_reaches_what_there_is(opened):
    page = opened()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"

    summary = page.locator("details summary").first
    summary.press("Enter")
    assert not page.evaluate("document.querySelector('details').open")
    summary.press("Space")
    assert page.evaluate("document.querySelector('details').open")

    term = page.locator("th a.term").first
    term.focus()
    shown = term.evaluate("it => getComputedStyle(it, '::after').content")
    assert term.get_attribute("title") in shown
    # Beside its word a table that scrolls would cut it off.
    assert term.evaluate("it => getComputedStyle(it, '::after').position") == "fixed"


def test_paper_is_white_and_no_figure_is_wider(opened, tmp_path):
    page = opened("dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    widths = page.evaluate("[...document.querySelectorAll('.plot')].map(p => p._fullLayout.width)")
    assert page.evaluate(f"{BANDS}.layout.font.color") == "#1c1f23"
    assert set(widths) == {680}
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert colors(page)[1] == "#e6e8ea"
    assert page.pdf(path=tmp_path / "report.pdf", format="A4")[:5] == b"%PDF-"


def test_a_narrow_screen_keeps_everything_inside(opened):
    page = opened(viewport={"width": 400, "height": 800})

    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate(SCROLLED_LEGENDS) == 0


def test_figures_grow_with_their_legends(opened):
    page = opened()
    device = "document.querySelector('#device-0 .plot')"
    before = page.evaluate(f"{device}.clientHeight")
    page.set_viewport_size({"width": 400, "height": 800})

    wait_for(page, f"{device}.clientHeight > {before}")
    wait_for(page, f"{SCROLLED_LEGENDS} === 0")


def test_without_scripts_the_tables_are_there(browser, report):
    page = browser.new_page(java_script_enabled=False)
    page.goto(report)

    assert "The figures need JavaScript" in page.locator("noscript").inner_text()
    assert page.locator("table").count() > 4
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_comparison_is_drawn(opened, tmp_path, scheme):
    (sample,) = (path for path in SAMPLES if path.stem == "demo_graph")
    parts = [analyze(read(sample), range_name=name) for name in ("per_launch", "graph:75")]
    path = tmp_path / "compare.html"
    path.write_text(html_comparison(compare(*parts)), encoding="utf-8")
    page = opened(scheme, path.as_uri())

    bars = page.locator("#before-and-after .plot .trace.bars")
    assert bars.count() == page.evaluate("document.querySelector('.plot').data.length") > 3
    assert page.locator("html").get_attribute("data-theme") == scheme
