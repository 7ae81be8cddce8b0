"""`gaptrace.open`: the summary of a cell, and the ways to narrow it."""

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from exports import api, export, kernel, push

import gaptrace
from gaptrace.errors import CalibrationError, TraceFormatError, WindowError
from gaptrace.record.calibrations import load

DEMO = Path(__file__).parent.parent / "sample_traces" / "demo_graph.sqlite"


class Texts(HTMLParser):
    def __init__(self, html):
        super().__init__()
        self.texts, self.tags = [], []
        self.feed(html)

    def handle_data(self, data):
        self.texts.append(data)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)


def test_the_summary_of_a_sample():
    opened = gaptrace.open(DEMO)
    seen = Texts(opened._repr_html_())
    assert seen.texts[0] == "demo_graph.sqlite (graph granularity)"
    device = seen.texts.index("0 NVIDIA H200")
    assert seen.texts[device : device + 5] == [
        "0 NVIDIA H200",
        "26.7 ms",
        "22.4%",
        "20.7 ms",
        "1,758",
    ]
    assert seen.texts[device + 5].startswith("launch_call 47.0%, host_code 26.4%")
    assert seen.tags.count("li") == 3
    assert repr(opened) == f"gaptrace.open({str(DEMO)!r})"
    assert opened.report().startswith("gaptrace ")


def test_a_narrowed_summary_says_so():
    seen = Texts(gaptrace.open(DEMO, range_name="graph:75")._repr_html_())
    assert "only range graph:75" in seen.texts
    with pytest.raises(WindowError, match="no NVTX range is named nowhere"):
        gaptrace.open(str(DEMO), range_name="nowhere")


def test_names_of_a_trace_are_text_and_nothing_else(tmp_path):
    path = export(
        tmp_path / "<b>t.sqlite",
        kernels=[kernel(10, 20, correlation=1)],
        api=[api("cudaLaunchKernel_v7000", 0, 5, correlation=1)],
        nvtx=[push("<script>alert(1)</script>", 0, 30)],
    )
    html = gaptrace.open(path, range_name="<script>alert(1)</script>")._repr_html_()
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert Texts(html).texts[0].startswith("<b>t.sqlite")


CALIBRATION = DEMO.with_name("h200_calibration.json")


def test_a_calibration_that_is_named():
    plain, known = gaptrace.open(DEMO), gaptrace.open(DEMO, calibration=str(CALIBRATION))
    assert (plain.calibration, plain.analysis.recommendation.verdict) == (None, "needs_calibration")
    assert known.calibration == load(CALIBRATION)
    assert known.analysis.recommendation.verdict == "one_graph"
    other = CALIBRATION.parent / "missing.json"
    with pytest.raises(CalibrationError, match="there is no calibration"):
        gaptrace.open(DEMO, calibration=other)


def test_a_calibration_of_another_gpu_is_refused(tmp_path):
    content = json.loads(CALIBRATION.read_text())
    content["machine"]["gpu"] = "NVIDIA B200"
    other = tmp_path / "b200.json"
    other.write_text(json.dumps(content))
    with pytest.raises(CalibrationError, match=r"was made on NVIDIA B200, .* on NVIDIA H200"):
        gaptrace.open(DEMO, calibration=other)


def test_the_saved_calibration_of_the_machine_and_one_that_is_damaged(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    folder = tmp_path / "gaptrace" / "calibrations"
    folder.mkdir(parents=True)
    (folder / "h200.json").write_text(CALIBRATION.read_text())
    assert gaptrace.open(DEMO).calibration == load(CALIBRATION)
    (folder / "a.json").write_text("{")
    with pytest.warns(UserWarning, match=r"a\.json is not a calibration"):
        assert gaptrace.open(DEMO).calibration == load(CALIBRATION)


def test_what_is_no_trace_is_refused(tmp_path):
    with pytest.raises(TraceFormatError, match="no such file"):
        gaptrace.open(tmp_path / "missing.sqlite")
