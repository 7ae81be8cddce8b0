"""What the README shows is what the program prints."""

import re
import shlex
from pathlib import Path

import pytest

from gaptrace.analysis import analyze
from gaptrace.cli import main
from gaptrace.cost import makespan
from gaptrace.read import read
from gaptrace.record.calibrations import load

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_report_in_the_readme_is_the_report(capsys, monkeypatch):
    shown = re.search(r"<!-- report: (\S+) -->\n```text\n(.*?)```", README, re.DOTALL)
    assert shown
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(ROOT)

    assert main(["analyze", shown[1]]) == 0
    assert capsys.readouterr().out == shown[2]


def test_the_recommendation_in_the_readme_is_what_is_printed(capsys, monkeypatch):
    shown = re.search(r"<!-- command: (.*?) -->\n```text\n(.*?)```", README, re.DOTALL)
    assert shown
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(ROOT)

    assert main(shown[1].split()) == 0
    assert capsys.readouterr().out.endswith(shown[2])


def test_the_predicted_chunks_in_the_readme_are_those_of_the_model():
    recorded = read(ROOT / "sample_traces/demo_graph.sqlite")
    calibration = load(ROOT / "sample_traces/h200_calibration.json")
    schedules = analyze(recorded, calibration=calibration).recommendation.schedules
    graphs = ((75,), (25,) * 3, (10,) * 7 + (5,))
    us = [(makespan(schedules.model, sizes) + schedules.added_ns) / 1_000 for sizes in graphs]

    told = re.search(
        r"chunks of 25 and of 10 come out at ([\d.]+), ([\d.]+) and\s([\d.]+) us", README
    )
    assert told
    assert [f"{each:.1f}" for each in us] == list(told.groups())


SHELL = "".join(re.findall(r"```sh\n(.*?)```", README, re.DOTALL))


@pytest.mark.parametrize("line", re.findall(r"^gaptrace .*$", SHELL, re.MULTILINE))
def test_every_command_in_the_readme_has_the_options_it_uses(line, capsys):
    words = shlex.split(line, comments=True)[1:]
    assert main([words[0], "--help"]) == 0
    known = capsys.readouterr().out
    own = words[1 : words.index("--")] if "--" in words else words[1:]
    for option in (word for word in own if word.startswith("-") and word != "--my-own-options"):
        assert option in known, line
