"""The notebooks: each runs in a real kernel and shows what the analysis says; none holds output."""

import functools
import json
import re
from pathlib import Path

import pytest
from kernels import nbformat, outputs, printed, run_notebook

import gaptrace
from gaptrace.cost import makespan
from gaptrace.machine_costs import chunk_model
from gaptrace.record.machine import probe_driver
from gaptrace.render.units import duration
from gaptrace.schedules import growing_schedule

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "notebooks"
SAMPLES = ROOT / "sample_traces"
CALIBRATION = SAMPLES / "h200_calibration.json"
BOOKS = sorted(FOLDER.glob("*.ipynb"))
PLOTLY = "application/vnd.plotly.v1+json"


def test_there_are_five_and_they_sort():
    assert [path.name for path in BOOKS] == [
        *("1_first_look.ipynb", "2_why_idle.ipynb", "3_chunk_size.ipynb"),
        *("4_compare.ipynb", "5_live.ipynb"),
    ]


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_outputs_are_stripped(path):
    book = json.loads(path.read_text())
    nbformat.validate(book)
    assert (book["nbformat"], set(book["metadata"])) == (4, {"kernelspec", "language_info"})
    for cell in book["cells"]:
        assert cell["metadata"] == {}, cell["source"]
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None), cell["source"]


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_links_lead_somewhere(path):
    text = path.read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (FOLDER / target).is_file(), target
    for name in re.findall(r"[\w./]*\b(?:benchmarks|sample_traces)/[\w.]+\.\w+", text):
        assert (ROOT / name.removeprefix("../")).is_file(), name


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Run a notebook once; return the outputs of each code cell."""

    @functools.cache
    def run(number):
        (path,) = (path for path in BOOKS if path.name.startswith(f"{number}_"))
        book = nbformat.read(path, as_version=4)
        return outputs(run_notebook(book, FOLDER, tmp_path_factory.mktemp("own")))

    return run


def drawn(found):
    """Return the figures in order, as plotly's own objects."""
    return [each.data[PLOTLY] for cell in found for each in cell if PLOTLY in each.get("data", {})]


def table_with(found, column):
    """Return the table that has a column, as a dict for each row of texts."""
    for cell in found:
        for each in cell:
            text = each.get("data", {}).get("text/plain", "")
            lines = [line.strip("│").split("┆") for line in text.splitlines() if "┆" in line]
            if lines and column in (heads := [head.strip() for head in lines[0]]):
                return [dict(zip(heads, map(str.strip, line), strict=True)) for line in lines[3:]]
    raise AssertionError(f"no table with a column {column}")


def values(axis):
    """Return the numbers of an axis, which plotly may write as base64."""
    import base64

    import numpy as np

    if isinstance(axis, dict):
        return np.frombuffer(base64.b64decode(axis["bdata"]), axis["dtype"]).tolist()
    return axis


FIGURES = {1: 4, 2: 5, 3: 7, 4: 2}


@pytest.mark.parametrize("number", FIGURES)
def test_a_notebook_runs_without_a_word_on_stderr_and_shows_its_figures(ran, number):
    found = ran(number)
    assert [each for cell in found for each in cell if each.output_type == "error"] == []
    assert "".join(printed(cell, "stderr") for cell in found) == ""
    assert len(drawn(found)) == FIGURES[number]
    for figure in drawn(found):
        assert figure["data"]
        assert "gaptrace" not in figure["layout"].get("template", {})


def test_a_first_look(ran):
    analysis = gaptrace.open(SAMPLES / "demo_graph.sqlite").analysis
    rows = {row["unit"]: row for row in table_with(ran(1), "span us")}
    for unit in analysis.step_units.to_dicts():
        row = rows[unit["unit"]]
        for name in ("span", "busy", "idle"):
            assert float(row[f"{name} us"]) == round(unit[f"{name}_ns"]["p50"] / 1000, 1)
    summary = ran(1)[1][0].data["text/html"]
    assert "0 NVIDIA H200" in summary
    timeline, single, graph, _ = drawn(ran(1))
    assert {"busy", "launch_call"} <= {mark.get("name") for mark in timeline["data"]}
    steps = analysis.step_summary.filter(step=10)
    for figure, unit in ((single, "per_launch/step"), (graph, "graph:75/step")):
        start, end, span = steps.filter(unit=unit).select("start_ns", "end_ns", "span_ns").row(0)
        assert figure["layout"]["title"]["text"] == f"{unit}, step 10: {span / 1000:.0f} us"
        assert figure["layout"]["xaxis"]["range"] == pytest.approx([start / 1e6, end / 1e6])


def test_why_idle(ran):
    analysis = gaptrace.open(SAMPLES / "decoder_node.sqlite").analysis
    (device,) = analysis.devices.to_dicts()
    bars = {mark["name"]: sum(values(mark["x"])) for mark in drawn(ran(2))[0]["data"]}
    assert bars.pop("busy") == pytest.approx(device["busy_ns"] / 1e6)
    assert sum(bars.values()) == pytest.approx(device["idle_ns"] / 1e6)
    largest = table_with(ran(2), "idle ms")[0]
    cause = analysis.causes.sort("idle_ns", descending=True).row(0, named=True)
    assert largest["cause"] == cause["cause"]
    assert float(largest["idle ms"]) == round(cause["idle_ns"] / 1e6, 2)
    said = "".join(printed(cell) for cell in ran(2))
    assert [f"[{finding.severity}] {finding.title}" in said for finding in analysis.findings] == [
        True
    ] * len(analysis.findings)


def test_the_chunk_size(ran):
    found = ran(3)
    opened = gaptrace.open(
        SAMPLES / "decoder_node.sqlite", range_name="graph_sync_item", calibration=CALIBRATION
    )
    advice = opened.analysis.recommendation
    assert found[0][0].data["text/plain"].startswith("('needs_calibration', ")
    said = "".join(printed(cell) for cell in found)
    assert f"{advice.verdict} {advice.chunk} of {advice.nodes} CUDA nodes" in said
    assert str(advice.plateau) in said
    ways = {row["name"]: row for row in table_with(found, "loss us")}
    assert float(ways["one_graph"]["step us"]) == round(advice.predicted_ns["one_graph"] / 1000, 1)
    # What the answer hinges on: launches that grow with nodes.
    _, turns = drawn(found)[2]["data"]
    (hinge,) = (each for each in advice.sensitivity if each.larger)
    assert (hinge.name, values(turns["x"])) == ("host_by_nodes_ns", [hinge.larger])
    # How chunks hide their launches: the last of the pairs is the growing schedule.
    node_ns = advice.predicted_ns["device_only"] / advice.nodes
    model = chunk_model(opened.calibration, 2000, node_ns, "update")
    growing = growing_schedule(model)
    names = drawn(found)[4]["layout"]["yaxis"]["ticktext"]
    assert names[-2] == f"{len(growing)} graphs, {duration(makespan(model, growing))}: host"
    assert names[0] == f"one graph, {duration(makespan(model, [2000]))}: host"
    # What the text says of the sweep.
    sweep = table_with(found, "% saved")
    assert {row["regime"]: row["chunk"] == row["nodes"] for row in sweep} == {
        "replay": True, "update": False, "instantiate": False,
    }  # fmt: skip
    assert all((float(row["% saved"]) > 0) == (row["regime"] != "replay") for row in sweep)


def test_the_comparison(ran):
    found = ran(4)
    parts = {
        name: gaptrace.open(SAMPLES / "demo_graph.sqlite", range_name=name).analysis
        for name in ("per_launch", "graph:75", "graph:25")
    }
    medians = {
        name: part.step_units["span_ns"].struct.field("p50").item() for name, part in parts.items()
    }
    (span,) = (row for row in table_with(found, "noise us") if row["figure"] == "span_ns")
    assert float(span["before us"]) == round(medians["per_launch"] / 1000, 1)
    assert float(span["after us"]) == round(medians["graph:75"] / 1000, 1)
    rows = {row["way"]: row for row in table_with(found, "predicted us")}
    recorded, predicted = (
        {way: float(rows[way][f"{kind} us"]) for way in rows} for kind in ("recorded", "predicted")
    )
    assert recorded["chunks of 25"] == round(medians["graph:25"] / 1000, 1)
    # What the text concludes.
    assert recorded["chunks of 25"] < recorded["one graph"]
    assert predicted["chunks of 25"] > predicted["one graph"]


def test_live_says_that_it_skips(ran):
    problem = probe_driver().problem
    if problem is None:
        pytest.skip("this machine has a GPU; tests/test_cell_gpu.py runs the notebook there")
    found = ran(5)
    assert printed(found[1]) == f"Skipping what needs a GPU: {problem}\n"
    assert [cell for at, cell in enumerate(found) if at != 1 and cell] == []
