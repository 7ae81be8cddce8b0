"""The HTML report as a file: self-contained, safe, small, and saying what the text report says."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from contents import names_in
from real_traces import SAMPLES
from rich.text import Text
from rows import call, graph, nvtx, op, trace

from gaptrace.analysis import analyze
from gaptrace.cli import main
from gaptrace.read import read
from gaptrace.record.calibrations import load
from gaptrace.render import html, verdicts
from gaptrace.render.html import page as page_module
from gaptrace.render.html import report as report_module
from gaptrace.render.html.blocks import Grid, Paragraph, Run, blocks
from gaptrace.render.json import analysis_object
from gaptrace.render.page import section, table
from gaptrace.render.terms import COLUMNS, TERMS
from gaptrace.render.text import sections
from gaptrace.timelines import CAUSES
from gaptrace.timings import Arm, ArmTiming, Measurement

EVIL = '</script><script>alert(1)</script><img src="http://evil/x" onerror=alert(2)>{{7*7}}&amp;'


class Page(HTMLParser):
    """What a browser would see: elements, links, texts of scripts by id, visible text."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.links, self.scripts, self.text = [], [], {}, []
        self._script = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.elements.append((tag, found))
        self.links += [found[name] for name in ("src", "href", "action", "data") if name in found]
        self._script = None
        if tag == "script":
            self._script = found.get("id") or found.get("data-plot") or ""
            self.scripts.setdefault(self._script, "")
        elif tag == "style":
            self._script = "style"
            self.scripts.setdefault("style", "")

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self._script = None

    def handle_data(self, data):
        if self._script is None:
            self.text.append(data)
        else:
            self.scripts[self._script] += data

    @property
    def words(self):
        return " ".join("".join(self.text).split())


def small(name="scale", path="step"):
    return analyze(
        trace(
            [op(0, 10_000, 1, name=name), graph(60_000, 100_000, 2)],
            [
                call("cudaLaunchKernel", -5_000, -1_000, 1),
                call("cudaGraphLaunch", 50_000, 58_000, 2),
            ],
            nvtx=[nvtx(path, 0, 110_000)],
        )
    )


@pytest.fixture(scope="module", params=SAMPLES, ids=lambda path: path.stem)
def sample(request):
    found = analyze(read(request.param))
    return found, html.html_report(found)


def test_the_file_is_below_8_mb_and_loads_nothing(sample):
    _, text = sample
    page = Page(text)

    assert len(text.encode()) < 8_000_000
    assert page.links
    assert all(link.startswith("#") for link in page.links)
    assert "url(" not in page.scripts["style"]
    assert "@import" not in page.scripts["style"]
    policy = next(
        found["content"]
        for tag, found in page.elements
        if tag == "meta" and found.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy


def test_every_link_has_its_target_and_every_id_is_its_own(sample):
    page = Page(sample[1])
    ids = [found["id"] for _, found in page.elements if "id" in found]

    assert len(ids) == len(set(ids))
    assert {link.removeprefix("#") for link in page.links} <= set(ids)


def test_the_json_inside_is_that_of_analyze(sample):
    found, text = sample

    inside = json.loads(Page(text).scripts["analysis"])
    assert inside == json.loads(json.dumps(analysis_object(found)))


def test_sections_and_figures_of_the_text_report_are_there(sample):
    found, text = sample
    page = Page(text)

    titles = [part.title for part in sections(found, 1_000)]
    shown = page.words
    for title in titles:
        assert title in shown
    row = found.devices.row(0, named=True)
    assert f"in {row['gap_count']:,} gaps, {row['op_count']:,} ops" in shown
    for cause in found.cause_totals["cause"].unique():
        assert str(cause) in shown


def test_every_column_and_every_cause_has_its_definition(sample):
    page = Page(sample[1])
    titled = {
        found["title"] for tag, found in page.elements if tag in ("a", "abbr") and "title" in found
    }

    assert undefined_heads(sample[1]) == []
    assert TERMS["launch_call"] in titled
    assert set(CAUSES.categories) <= set(TERMS)
    assert set(COLUMNS) & set(TERMS) == set()


def undefined_heads(text):
    heads = re.findall(r"<th [^>]*>(.*?)</th>", text, re.DOTALL)
    assert heads
    return [head for head in heads if "title=" not in head and head.strip()]


def test_names_from_the_trace_do_nothing():
    found = small(EVIL, EVIL)
    text = html.html_report(found)
    page = Page(text)

    assert "alert(1)</script>" not in text
    assert [tag for tag, _ in page.elements].count("img") == 0
    assert "{{7*7}}" in page.words
    assert json.loads(page.scripts["analysis"])["ranges"][0]["path"] == EVIL
    assert all("evil" not in link for link in page.links)


def test_only_words_that_are_long_may_be_broken():
    short, long = "x" * 32, "y" * 33
    text = html.html_report(analyze(trace([op(0, 50, name=short), op(60, 90, name=long)])))

    assert f"<td>{short}</td>" in text
    assert f'<td class="long">{long}</td>' in text


def test_figures_are_json_of_their_own():
    page = Page(html.html_report(small()))
    drawn = {name: script for name, script in page.scripts.items() if "figure" in name}

    assert "timeline-figure-1" in drawn
    for name, script in drawn.items():
        assert json.loads(script)["data"], name
        assert any(found.get("id") == name for _, found in page.elements)


def test_a_long_analysis_leaves_lists_out_and_says_so(monkeypatch):
    found = small()
    whole = json.dumps(analysis_object(found), separators=(",", ":"))
    page_bytes = len(html.html_report(found).encode()) - len(whole)
    monkeypatch.setattr(page_module, "_MOST_BYTES", page_bytes + len(whole) - 20)
    text = html.html_report(found)

    inside = json.loads(Page(text).scripts["analysis"])
    assert inside["range_instances"] == {"count": 1, "instances": []}
    assert inside["ranges"] == analysis_object(found)["ranges"]
    assert "For its size it is without range_instances.instances" in Page(text).words


def test_many_lanes_are_drawn_more_coarsely(monkeypatch):
    ops = [
        op(100 * i + device, 100 * i + 90, device_id=device, stream_id=device)
        for i in range(2_000)
        for device in range(2)
    ]
    found = analyze(trace(ops))
    fine = len(html.html_report(found))
    monkeypatch.setattr(report_module, "_MOST_FIGURE_BYTES", 100_000)

    assert len(html.html_report(found)) < fine - 100_000


def test_texts_and_tables_become_blocks():
    rows = table("range", "+count")
    rows.add_row("a [b]", "1")
    mixed = Text.assemble(("first", "bold"), " then")

    assert blocks(section("x", "plain", Text("all", style="yellow"), mixed, rows).parts) == [
        Paragraph((Run("plain"),)),
        Paragraph((Run("all", "warning"),)),
        Paragraph((Run("first", "strong"), Run(" then"))),
        Grid((("range", False), ("count", True)), (((Run("a [b]"),), (Run("1"),)),), True),
    ]


def test_the_command_writes_the_file(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = str(SAMPLES[0])

    assert main(["report", source]) == 0
    assert main(["report", source, "-o", "other.html", "--from", "0", "--device", "0"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "gaptrace: the report is in report.html\ngaptrace: the report is in other.html\n"
    assert Path("report.html").read_text().startswith("<!doctype html>")
    assert "only from 0 ns" in Page(Path("other.html").read_text()).words


def test_a_dash_is_standard_output(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = str(SAMPLES[0])
    assert main(["report", source, "-o", "page.html"]) == 0
    capsys.readouterr()

    assert main(["report", source, "-o", "-"]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == (Path("page.html").read_text(), "")
    assert not Path("-").exists()


def test_a_place_that_cannot_be_written_is_an_error_in_a_line(tmp_path, capsys):
    for place, said in (
        (tmp_path / "no" / "x.html", "no: no such folder; make it, or name another"),
        (tmp_path / ("x" * 300), "File name too long; choose another place with --output"),
    ):
        # Before the trace is read, which may take long: there is none.
        assert main(["report", str(tmp_path / "t.sqlite"), "-o", str(place)]) == 1

        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert said in err


def test_several_devices_have_a_picture_in_common():
    ops = [op(0, 50), op(60, 90), op(0, 30, device_id=1), op(50, 90, device_id=1)]
    page = Page(html.html_report(analyze(trace(ops))))

    assert "devices-figure-1" in page.scripts
    assert "busy fraction of device 1" in page.words
    assert "Device 0" in page.words
    assert "Device 1" in page.words


def test_only_an_older_report_is_replaced(tmp_path, capsys):
    source, precious = str(SAMPLES[0]), tmp_path / "trace.sqlite"
    precious.write_bytes(b"SQLite format 3")

    assert main(["report", source, "-o", str(precious)]) == 1
    assert "exists and is no HTML file" in capsys.readouterr().err
    assert precious.read_bytes() == b"SQLite format 3"

    page = tmp_path / "report.html"
    page.write_text("<!DOCTYPE html>old")
    assert main(["report", source, "-o", str(page)]) == 0
    assert page.read_text().startswith("<!doctype html>\n<html")
    assert names_in(tmp_path) == ["report.html", "trace.sqlite"]


def test_a_calibration_adds_its_curve_and_its_lines(tmp_path):
    demo = next(path for path in SAMPLES if path.stem == "demo_node")
    saved = demo.parent / "h200_calibration.json"
    page = tmp_path / "report.html"
    assert main(["report", str(demo), "-o", str(page), "--calibration", str(saved)]) == 0
    scripts = Page(page.read_text()).scripts

    assert undefined_heads(page.read_text()) == []
    curve = json.loads(scripts["recommendation-figure-1"])
    (line,) = (it for it in curve["data"] if it.get("name") == "predicted without a recorder")
    assert (line["x"][0], line["x"][-1]) == (1, 75)
    hinges, lanes = (json.loads(scripts[f"recommendation-figure-{at}"]) for at in (2, 3))
    assert [mark["name"] for mark in hinges["data"]] == ["the advice stays", "here it changes"]
    assert [text.split(",")[0] for text in lanes["layout"]["yaxis"]["ticktext"][::2]] == [
        "advised and as recorded<br>one graph",
        "best cut<br>3 graphs",
    ]
    costs = json.loads(scripts["graphs-by-size-figure-1"])
    assert "launch call, untraced" in {it["name"] for it in costs["data"]}


def test_a_step_timed_without_a_recorder_is_drawn_with_its_prediction():
    rounds = ((580_000,),) * 3
    timing = ArmTiming(Arm("graph", (75,)), rounds, rounds, (580_000,) * 3)
    alike = Measurement((timing,), nodes=75, capture_ns=None, steps=1, gpu="", driver="", cuda="")
    demo = next(path for path in SAMPLES if path.stem == "demo_node")
    found = analyze(read(demo), calibration=load(demo.parent / "h200_calibration.json"))

    def named(**measured):
        scripts = Page(html.html_report(found, measured=measured)).scripts
        drawn = [scripts[f"recommendation-figure-{at}"] for at in (1, 2)]
        return [{mark.get("name") for mark in json.loads(text)["data"]} for text in drawn]

    together = {"predicted without a recorder", "predicted", "as recorded", "measured"}
    assert together <= named(a=alike)[0]
    # Of another step, or disturbed by a recorder: by itself.
    for other in (replace(alike, nodes=74), replace(alike, is_recorded=True)):
        by_itself, predicted = named(a=other)
        assert by_itself in ({"measured"}, {"measured under a recorder"})
        assert "predicted" in predicted
        assert "measured" not in predicted


def test_the_advice_is_said_first():
    analysis = analyze(read(next(each for each in SAMPLES if each.name == "demo_graph.sqlite")))
    text = " ".join(Page(html.html_report(analysis)).text)
    advice = " ".join(verdicts.verdict(analysis.recommendation).split())

    assert advice in " ".join(text.split("Timeline", 2)[1].split())
