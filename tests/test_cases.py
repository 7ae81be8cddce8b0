"""The public cases: each as a real export, read, analysed and reported."""

import importlib
from pathlib import Path

import polars as pl
import pytest
from exports import export

from gaptrace.analysis import analyze
from gaptrace.read import read
from gaptrace.render.text import report

FOLDER = Path(__file__).parent / "cases"
MODULES = {
    path.stem: importlib.import_module(f"cases.{path.stem}")
    for path in sorted(FOLDER.glob("c*.py"))
}
STORIES = {
    f"{name}-{title}": story
    for name, module in MODULES.items()
    for title, story in module.STORIES.items()
}
NUMBERS = [1, 3, 5, 6, 7, 8, 10, 11, 12, 13, 15, 17, 19, 20, 22, 23, 24, 25, 27, 28, 31]
NUMBERS += [32, 33, 34, 36, 38, 40]


def test_every_case_of_the_collection_is_there():
    assert [int(name[1:3]) for name in MODULES] == NUMBERS


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
def test_case(story, tmp_path):
    path = export(tmp_path / "case.sqlite", granularity=story.granularity, **story.rows)
    analysis = analyze(read(path))
    found = analysis.recommendation
    by_code = {finding.code: finding.evidence for finding in analysis.findings}
    causes = dict(analysis.causes.group_by("cause").agg(pl.col("idle_ns").sum()).rows())

    assert tuple(finding.code for finding in analysis.findings) == story.findings
    assert causes == story.causes
    assert (found.verdict, found.cause, found.regime) == (story.verdict, story.cause, story.regime)
    for code, figures in story.evidence.items():
        assert {key: by_code[code].get(key) for key in figures} == figures
    assert {key: getattr(found, key) for key in story.recommendation} == story.recommendation
    text = " ".join(report(analysis, width=160, color=False).split())
    for piece in story.says:
        assert piece in text
    for piece in story.never:
        assert piece not in text


@pytest.mark.parametrize(
    "check",
    [module.model for module in MODULES.values() if hasattr(module, "model")],
    ids=[name for name, module in MODULES.items() if hasattr(module, "model")],
)
def test_the_numbers_of_the_case_follow_from_the_model(check):
    check()
