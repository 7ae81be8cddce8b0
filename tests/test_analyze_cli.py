"""The whole command line: gaptrace analyze and gaptrace recommend."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from exports import api, export, graph_trace, kernel, push

from gaptrace import __version__
from gaptrace.cli import main
from gaptrace.cli.options import TIME

SAMPLES = Path(__file__).parent.parent / "sample_traces"
DEMO = str(SAMPLES / "demo_graph.sqlite")
LAUNCH = "cudaLaunchKernel_v7000"


@pytest.fixture
def small(tmp_path):
    """Two kernels 30 us apart, the second inside a range."""
    return str(
        export(
            tmp_path / "small.sqlite",
            kernels=[
                kernel(10_000, 20_000, correlation=1),
                kernel(50_000, 60_000, correlation=2),
            ],
            api=[
                api(LAUNCH, 1_000, 5_000, correlation=1),
                api(LAUNCH, 40_000, 45_000, correlation=2),
            ],
            nvtx=[push("warm", 0, 8_000), push("step", 30_000, 60_000, domain="app")],
            duration=100_000,
        )
    )


def test_analyze_prints_a_report_and_nothing_on_stderr(small, capsys):
    assert main(["analyze", small]) == 0

    out, err = capsys.readouterr()
    assert err == ""
    assert "span 50.0 us, busy 20.0 us (40.0%), idle 30.0 us in 1 gap, 2 ops" in out
    assert "Recommendation" in out


def test_analyze_json_is_one_object(small, capsys):
    assert main(["analyze", small, "--json"]) == 0

    found = json.loads(capsys.readouterr().out)
    (device,) = found["devices"]
    assert (device["busy_ns"], device["idle_ns"]) == (20_000, 30_000)
    assert device["causes"]["host_code"] == 20_000
    assert device["causes"]["launch_call"] == 5_000
    assert device["causes"]["device_queued"] == 5_000
    assert [row["path"] for row in found["ranges"]] == ["warm", "step"]


@pytest.mark.parametrize(
    ("options", "span_ns"),
    [
        (["--range", "step"], 30_000),
        (["--from", "15us"], 45_000),
        (["--from", "0.015ms", "--to", "55000"], 40_000),
        (["--range", "step", "--to", "40us"], 10_000),
        (["--device", "0"], 50_000),
    ],
)
def test_options_narrow_the_window(small, capsys, options, span_ns):
    assert main(["analyze", small, "--json", *options]) == 0

    assert json.loads(capsys.readouterr().out)["devices"][0]["span_ns"] == span_ns


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--range", "decode"], "no NVTX range is named decode; there are: warm, step"),
        (["--device", "3"], "device 3 ran nothing; devices with work: 0"),
        (["--from", "70us"], "no device work in the window asked for"),
    ],
)
def test_an_empty_window_is_an_error_in_one_line(small, capsys, options, said):
    assert main(["analyze", small, *options]) == 1

    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"gaptrace: error: {small}: {said}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["analyze"],
        ["analyze", "--from", "soon", DEMO],
        ["analyze", "--from", "1.64", DEMO],
        ["analyze", "--from", "9" * 400, DEMO],
        ["analyze", "--from", "9223372037s", DEMO],
        ["analyze", "--device", "first", DEMO],
        ["analyze", "--depth", DEMO],
        ["explain", DEMO],
    ],
)
def test_wrong_usage_is_status_2(arguments, capsys):
    assert main(arguments) == 2

    assert "Usage: gaptrace" in capsys.readouterr().err


def test_no_command_shows_help():
    assert main([]) in (0, 2)


def test_version(capsys):
    assert main(["--version"]) == 0
    assert __version__ in capsys.readouterr().out


def test_steps_say_where_the_host_runs_ahead_and_how_many_stand_out(capsys):
    def said(name):
        assert main(["analyze", str(SAMPLES / name)]) == 0
        return " ".join(capsys.readouterr().out.split())

    decoder, demo = said("decoder_node.sqlite"), said("demo_node.sqlite")
    assert (
        "the host runs ahead in graph/decode: when a step ends, the device works for 4." in decoder
    )
    assert decoder.count("the host runs ahead") == 1
    assert "the host runs ahead" not in demo
    assert demo.count("longer than the median") == 3
    assert "and 4 other outliers." in demo


def test_recommend_text_and_json_agree(capsys):
    arguments = ["recommend", DEMO, "--range", "graph:75"]
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)

    assert found["schema"] == "gaptrace.recommendation/1"
    assert f"verdict {found['verdict']}, regime {found['regime']}" in text


def test_the_width_is_the_terminals(small, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "90")
    assert main(["analyze", DEMO]) == 0

    assert 80 < max(map(len, capsys.readouterr().out.splitlines())) <= 90


def test_graphs_of_graph_granularity_appear(tmp_path, capsys):
    path = export(
        tmp_path / "graphs.sqlite",
        graph_traces=[graph_trace(10, 40, correlation=1), graph_trace(45, 75, correlation=2)],
        api=[
            api("cudaGraphLaunch_v10000", 0, 5, correlation=1),
            api("cudaGraphLaunch_v10000", 6, 9, correlation=2),
        ],
    )
    assert main(["analyze", str(path), "--json"]) == 0

    (graph,) = json.loads(capsys.readouterr().out)["graphs"]
    assert (graph["executions"], graph["queued_gap_ns"]["max"]) == (2, 5)


def test_several_traces_give_a_row_each_and_a_total(small, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["analyze", small, DEMO, small]) == 0

    out, err = capsys.readouterr()
    assert err == ""
    first_words = [line.split()[0] for line in out.splitlines() if line.split()]
    assert [word for word in first_words if word[0] != "─"] == [
        "trace",
        "small.sqlite",
        "demo_graph.sqlite",
        "small.sqlite",
        "total",
    ]


def test_traces_of_different_granularity_are_not_to_be_compared(capsys):
    node = DEMO.replace("demo_graph", "demo_node")
    assert main(["analyze", DEMO, node]) == 0

    out = capsys.readouterr().out
    assert "no total: graph and node granularity" in " ".join(out.split())
    assert not any(line.startswith("total ") for line in out.splitlines())


def test_what_limits_one_of_several_traces_is_told_below_the_table(tmp_path, capsys):
    cut = export(tmp_path / "cut.sqlite", kernels=[kernel(10, 20), kernel(30, 40)])
    assert main(["analyze", DEMO, str(cut)]) == 0

    out = " ".join(capsys.readouterr().out.split())
    assert "warning: cut.sqlite: 2 of 2 device rows (100.0%) have no launch row" in out


def test_a_bad_trace_does_not_lose_the_others(small, tmp_path, capsys):
    bad = tmp_path / "bad.sqlite"
    bad.write_text("nothing")

    assert main(["analyze", small, str(bad), DEMO]) == 1

    out, err = capsys.readouterr()
    assert "small.sqlite" in out
    assert "demo_graph.sqlite" in out
    assert "1 of 3 traces is not in this table" in out
    assert err.startswith(f"gaptrace: error: {bad}: not an SQLite file")


def test_without_a_single_trace_there_is_no_table(small, tmp_path, capsys):
    assert main(["analyze", str(tmp_path / "no.sqlite"), str(tmp_path / "none.sqlite")]) == 1

    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 2)


def test_several_traces_as_json(small, tmp_path, capsys):
    missing = tmp_path / "missing.sqlite"

    assert main(["analyze", "--json", small, str(missing), small]) == 1

    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "gaptrace.analyses/1"
    assert [a["devices"][0]["busy_ns"] for a in found["analyses"]] == [20_000, 20_000]
    assert found["errors"] == [f"{missing}: no such file; check the path"]


def test_line_breaks_in_names_do_not_break_the_line_of_an_error(tmp_path, capsys):
    path = export(
        tmp_path / "odd.sqlite",
        kernels=[kernel(10, 20)],
        nvtx=[push("a\nb\u2028c", 0, 30)],
    )
    assert main(["analyze", str(path), "--range", "step"]) == 1
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert "there are: a b c" in err


def run(*arguments: str, output: Path | None = None, **environment: str) -> tuple[int, str, str]:
    """Run the command as a user does: what Python itself makes of stdout counts."""
    command = [sys.executable, "-m", "gaptrace", *arguments]
    with contextlib.ExitStack() as stack:
        stdout = stack.enter_context(output.open("wb")) if output else subprocess.PIPE
        done = subprocess.run(
            command, stdout=stdout, stderr=subprocess.PIPE, env=os.environ | environment
        )
    return done.returncode, (done.stdout or b"").decode("ascii"), done.stderr.decode()


def test_a_terminal_of_another_encoding_shows_what_it_can():
    status, out, err = run("analyze", DEMO, PYTHONIOENCODING="latin-1:strict")

    assert (status, err) == (0, "")
    assert "  ?????????" in out  # the line below the head of a table
    assert "launch_call     9.75 ms" in out


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_a_full_disk_is_one_line():
    status, _, err = run("analyze", DEMO, "--json", output=Path("/dev/full"))

    assert status == 1
    assert err == (
        "gaptrace: error: cannot write the output: no space left on device; make room, or write "
        "elsewhere\n"
    )


@pytest.mark.parametrize("command", ["analyze", "report"])
def test_the_name_of_a_trace_need_not_be_utf8(small, tmp_path, command, monkeypatch, capsys):
    path = Path(small).rename(tmp_path / os.fsdecode(b"\xffrun.sqlite"))
    monkeypatch.chdir(tmp_path)
    assert main([command, str(path)]) == 0
    shown = capsys.readouterr().out if command == "analyze" else Path("report.html").read_text()
    assert "\ufffdrun.sqlite" in shown


def test_output_that_nobody_reads_is_no_error(tmp_path):
    page = tmp_path / "report.html"
    command = f'"{sys.executable}" -m gaptrace report "{DEMO}" -o "{page}" >&- 2>&-'
    assert subprocess.run(command, shell=True).returncode == 0
    assert page.read_text().startswith("<!doctype html>")


def test_the_table_of_several_narrowed_traces_says_so(small, capsys):
    narrowed = ["--from", "0", "--to", "1s"]
    assert main(["analyze", str(small), str(small), *narrowed]) == 0
    assert capsys.readouterr().out.startswith("only ")
    assert main(["analyze", str(small), str(small)]) == 0
    assert not capsys.readouterr().out.startswith("only ")


def test_times_are_whole_nanoseconds_however_large():
    assert TIME.convert("1700000000000001001", None, None) == 1_700_000_000_000_001_001
    assert TIME.convert("1700000000.000001001s", None, None) == 1_700_000_000_000_001_001
    assert TIME.convert("1.5ms", None, None) == 1_500_000
