"""The timeline of a notebook: in a real kernel, asked as a front end asks; without anywidget."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from kernels import outputs, printed, run_notebook

import gaptrace
from gaptrace.render.figures.timeline import draw
from gaptrace.view import view

DEMO = Path(__file__).parent.parent / "sample_traces" / "demo_node.sqlite"

#: What a browser sends when a user has chosen a window.
ZOOM = """
shown.comm.handle_msg({{"buffers": [], "content": {{"comm_id": shown.model_id, "data":
    {{"method": "update", "state": {{"window": {window}}}, "buffer_paths": []}}}}}})
print(shown.window)
"""


@pytest.fixture(scope="module")
def demo():
    return gaptrace.open(DEMO)


def middle(opened):
    """A window in which something happens."""
    first, last = opened.analysis.windows.select("start_ns", "end_ns").row(0)
    return first + (last - first) // 3, first + (last - first) // 2


def expected(opened, window):
    return json.loads(draw(view(opened.analysis, *(window or ()))).to_json())


@pytest.mark.parametrize("back", [False, True])
def test_a_kernel_draws_the_window_that_a_browser_asks_for(demo, tmp_path, back):
    window = middle(demo)
    cells = [
        f"import gaptrace; shown = gaptrace.open({str(DEMO)!r}).timeline(); shown",
        ZOOM.format(window=list(window)),
        *([ZOOM.format(window=None)] if back else []),
    ]
    shows = None if back else window
    ran = run_notebook(cells, tmp_path, tmp_path / "own")
    opened, *said = outputs(ran)
    assert printed(said[-1]) == f"{shows}\n"
    # What the front end has: the state that the kernel sent it.
    model = opened[0].data["application/vnd.jupyter.widget-view+json"]["model_id"]
    widgets = ran.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"]
    picture = json.loads(widgets[model]["state"]["picture"])
    assert picture["window"] == (shows and list(shows))
    assert picture["figure"] == expected(demo, shows)
    assert "export default" in widgets[model]["state"]["_esm"]


def test_python_chooses_windows_too(demo):
    window = middle(demo)
    shown = demo.timeline()
    assert shown.window is None
    assert json.loads(shown.picture)["figure"] == expected(demo, None)
    shown.window = window
    assert json.loads(shown.picture) == {
        "window": list(window),
        "figure": expected(demo, window),
    }
    assert json.loads(shown.figure.to_json()) == expected(demo, window)

    end = demo.analysis.windows["end_ns"].max()
    assert demo.timeline(*window).picture == shown.picture
    assert demo.timeline(from_ns=window[0]).window == (window[0], end)


def test_what_a_page_without_python_shows_is_the_figure(demo):
    data, _ = demo.timeline()._repr_mimebundle_()

    assert "application/vnd.jupyter.widget-view+json" in data
    assert "Plotly.newPlot" in data["text/html"]
    assert "CUDA calls" in data["text/html"]


def test_without_anywidget_one_line_says_what_to_install():
    code = (
        "import sys; sys.modules['anywidget'] = None\n"  # as if it could not be found
        f"import gaptrace; opened = gaptrace.open({str(DEMO)!r})\n"
        "try: opened.timeline()\n"
        "except gaptrace.errors.GaptraceError as error: print(error)"
    )
    said = subprocess.check_output([sys.executable, "-c", code], text=True)

    assert said == (
        "a timeline in a notebook needs the package anywidget, which is not installed: "
        "pip install 'gaptrace[notebook]'\n"
    )
