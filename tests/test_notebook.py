"""`gaptrace.open`: the summary of a cell, and the ways to narrow it."""

from html.parser import HTMLParser
from pathlib import Path

import pytest
from exports import api, export, kernel, push

import gaptrace
from gaptrace.errors import TraceFormatError, WindowError

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


def test_what_is_no_trace_is_refused(tmp_path):
    with pytest.raises(TraceFormatError, match="no such file"):
        gaptrace.open(tmp_path / "missing.sqlite")
