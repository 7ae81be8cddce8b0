"""The timeline of a notebook in a real browser; only what carries messages is a stand-in."""

import json
from pathlib import Path

import pytest
from browser import QUIET, chromium
from playwright.sync_api import sync_playwright

import gaptrace

pytestmark = pytest.mark.browser

DEMO = Path(__file__).parent.parent / "sample_traces" / "demo_node.sqlite"

#: The model of a Jupyter front end, as far as a widget sees it.
MODEL = """
async ([source, state]) => {
    const listeners = {};
    window.model = {
        get: (name) => state[name],
        set: (name, value) => { state[name] = value; },
        on: (event, heard) => { listeners[event] = heard; },
        off: (event) => { delete listeners[event]; },
        save_changes: async () => {
            state.picture = await window.askPython(state.window);
            listeners["change:picture"]?.();
        },
    };
    const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    const widget = (await import(url)).default;
    window.cleanUp = widget.render({ model: window.model, el: document.body });
}
"""


@pytest.fixture(scope="module")
def opened():
    """A page that shows the timeline, the widget in Python, and what was asked of it."""
    path = chromium()
    shown, asked, problems = gaptrace.open(DEMO).timeline(), [], []

    def answer(window):
        asked.append(window)
        shown.window = window
        return shown.picture

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu", *QUIET]
        )
        page = browser.new_page()
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.expose_function("askPython", answer)
        page.evaluate(MODEL, [shown._esm, {"window": None, "picture": shown.picture}])
        wait_for(page, None)
        yield page, shown, asked
        browser.close()
    assert problems == []


def wait_for(page, window):
    page.wait_for_function(
        "window => document.querySelector('.gaptrace-timeline')?.dataset.window === window",
        arg="null" if window is None else json.dumps(list(window), separators=(",", ":")),
    )


def zoom(opened, begin, end):
    """Drag over the band of the first device, by shares of its width, and wait for the answer."""
    page, shown, asked = opened
    before = len(asked)
    box = page.locator(".nsewdrag").first.bounding_box()
    y = box["y"] + box["height"] / 2
    page.wait_for_timeout(400)  # else it would be the second click of a double one
    page.mouse.move(box["x"] + begin * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], y, steps=4)
    page.mouse.up()
    for _ in range(200):
        if len(asked) > before:
            break
        page.wait_for_timeout(50)
    wait_for(page, shown.window)
    assert asked[before:] == [list(shown.window)]
    assert of_plot(page, "data.map(trace => trace.name)") == [t.name for t in shown.figure.data]
    assert of_plot(page, "layout.xaxis.range") == list(shown.figure.layout.xaxis.range)


def of_plot(page, what):
    return page.evaluate(f"document.querySelector('.gaptrace-timeline').{what}")


def test_dragging_asks_for_a_window_and_a_double_click_for_the_whole(opened, tmp_path):
    page, shown, asked = opened
    first, last = (round(ms * 1e6) for ms in shown.figure.layout.xaxis.range)
    traces = len(shown.figure.data)
    zoom(opened, 0.25, 0.75)
    quarter = (last - first) / 4
    assert shown.window == pytest.approx((first + quarter, last - quarter), abs=(last - first) / 99)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    # Deeper, until there are other lanes and traces than before.
    for _ in range(4):
        zoom(opened, 0.5, 0.55)
    assert len(shown.figure.data) != traces
    page.screenshot(path=tmp_path / "zoomed.png")

    box = page.locator(".nsewdrag").first.bounding_box()
    page.wait_for_timeout(400)
    page.mouse.dblclick(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    wait_for(page, None)
    assert (asked[5:], shown.window) == ([None], None)
    assert of_plot(page, "layout.xaxis.range") == pytest.approx([first / 1e6, last / 1e6])


def test_the_buttons_show_the_whole_and_send_nothing_away(opened):
    page, shown, asked = opened
    titles = [it.get_attribute("data-title") for it in page.locator(".modebar-btn").all()]
    assert titles == ["Download plot as a PNG", "Zoom", "Pan", "Zoom in", "Zoom out", "The whole"]
    zoom(opened, 0.1, 0.2)
    before = len(asked)
    page.locator("[data-title='The whole']").first.click()
    wait_for(page, None)

    assert (shown.window, asked[before:]) == (None, [None])


def test_a_page_of_another_width_keeps_the_window(opened):
    page, shown, asked = opened
    before = len(asked)
    page.set_viewport_size({"width": 700, "height": 700})
    page.wait_for_function("document.querySelector('.main-svg').clientWidth <= 700")
    page.wait_for_timeout(200)

    assert (shown.window, len(asked)) == (None, before)
