"""The pages: their code runs, what they show is printed, their words are those of the code.

A comment right before a block says what is done with it.

- python: without a comment it is run, in order, in one namespace a page. `<!-- gpu -->`: it is
  compiled, and names and arguments of gaptrace are looked up. `<!-- cell -->`: compiled as IPython
  does.
- sh: every line, which is a gaptrace command, is run. `<!-- gpu -->`: its options are looked up.
  `<!-- install -->`: left alone.
- text: left alone. `<!-- output -->`: it is what the python block before it prints.
  `<!-- command: ARGUMENTS -->`: it is part of what gaptrace prints for these.
"""

import ast
import functools
import inspect
import os
import re
import shlex
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import gaptrace
from gaptrace.advice import OTHERS, TOPICS
from gaptrace.cli import main
from gaptrace.render.terms import TERMS
from gaptrace.render.words import CAUSES
from gaptrace.timelines import CAUSES as KNOWN_CAUSES

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").rglob("*.md"))
BLOCK = re.compile(
    r"(?:^<!-- (?!--8<--)(?P<mark>[^\n]*?) -->\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
MARKS = {"python": {None, "gpu", "cell"}, "sh": {None, "gpu", "install"}}


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    kind: str
    mark: str | None
    text: str


def blocks_of(path):
    text = path.read_text()
    return [
        Block(
            str(path.relative_to(ROOT)),
            text.count("\n", 0, found.start("kind")) + 1,
            found["kind"],
            found["mark"],
            found["text"],
        )
        for found in BLOCK.finditer(text)
    ]


BLOCKS = {path: blocks_of(path) for path in (*PAGES, ROOT / "README.md")}
ALL = [block for blocks in BLOCKS.values() for block in blocks]


def those(kind, *marks, readme=True):
    chosen = [b for b in ALL if b.kind == kind and (b.mark or "").split(":")[0] in marks]
    chosen = [block for block in chosen if readme or block.page != "README.md"]
    return pytest.mark.parametrize("block", chosen, ids=lambda it: f"{it.page}:{it.line}")


@pytest.fixture
def beside_samples(tmp_path, monkeypatch):
    """An empty folder in which the sample traces are where the pages say."""
    (tmp_path / "sample_traces").symlink_to(ROOT / "sample_traces")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


def test_every_block_says_what_is_done_with_it():
    for block in ALL:
        if block.kind == "text":
            known = block.mark in (None, "output") or block.mark.startswith(
                ("command: ", "report: ")
            )
        else:
            known = block.mark in MARKS[block.kind]
        assert known, block


@pytest.mark.parametrize("path", BLOCKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_python_runs_and_prints_what_is_shown(path, beside_samples, capsys):
    names = {"__name__": path.stem}
    printed = None
    for block in BLOCKS[path]:
        if (block.kind, block.mark) == ("python", None):
            exec(compile(block.text, f"{block.page}:{block.line}", "exec"), names)
            printed = capsys.readouterr().out
        elif block.mark == "output":
            assert block.text == printed, block


@those("python", "gpu")
def test_python_for_a_gpu_uses_what_there_is(block):
    tree = ast.parse(block.text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "gaptrace":
            assert node.attr in gaptrace.__all__, block
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("gaptrace."):
            called = getattr(gaptrace, node.func.attr)
            taken = {word.arg: word.value for word in node.keywords}
            inspect.signature(called).bind(*node.args, **taken)


@those("python", "cell")
def test_a_cell_is_one_that_ipython_takes(block):
    transform = pytest.importorskip("IPython.core.inputtransformer2").TransformerManager()
    compile(transform.transform_cell(block.text), block.page, "exec")


@those("sh", "", readme=False)
def test_commands_run(block, beside_samples, capsys):
    for line in block.text.splitlines():
        name, *words = shlex.split(line, comments=True)
        assert name == "gaptrace", block
        assert main(words) == 0, (line, capsys.readouterr().err)


@those("sh", "gpu", readme=False)
def test_commands_that_need_a_gpu_have_the_options_that_they_use(block, capsys):
    for line in block.text.splitlines():
        name, command, *words = shlex.split(line, comments=True)
        assert (name, main([command, "--help"])) == ("gaptrace", 0), block
        known = capsys.readouterr().out
        own = words[: words.index("--")] if "--" in words else words
        for option in (word for word in own if word.startswith("-")):
            assert option in known or option == "--my-own-options", line


@functools.cache
def what_is_printed(command):
    return subprocess.run(
        [sys.executable, "-m", "gaptrace", *shlex.split(command)],
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "100"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout


@those("text", "command", readme=False)
def test_what_is_shown_of_a_report_is_in_it(block):
    assert f"\n{block.text}" in what_is_printed(block.mark.removeprefix("command: ")), block


def rows_of(page):
    """Return the cells of all rows of all tables of a page."""
    lines = (ROOT / "docs" / page).read_text().splitlines()
    return [line.strip("|").split("|") for line in lines if line.startswith("| ")]


def test_the_glossary_says_what_the_code_says():
    rows = [[cell.strip() for cell in row] for row in rows_of("causes.md")]
    said = {row[0].strip("`"): row[1:] for row in rows}
    for word, meaning in TERMS.items():
        if word not in CAUSES:
            assert said[word] == [meaning], word
    for code, finding in (TOPICS | OTHERS).items():
        # Some causes are findings, too: their rows come in both tables.
        assert [f"`{code}`", *finding] in rows, code
    assert {row[0].strip("`") for row in rows if len(row) == 4} - {"cause"} == set(
        KNOWN_CAUSES.categories
    )


PICTURES = sorted((ROOT / "docs/pictures").glob("*.png"))


def test_pictures_are_small_and_come_in_pairs_of_one_size():
    names = {path.stem.rpartition("_")[0] for path in PICTURES}
    assert {path.name for path in PICTURES} == {
        f"{name}_{theme}.png" for name in names for theme in ("light", "dark")
    }
    sizes = {}
    for path in PICTURES:
        content = path.read_bytes()
        assert len(content) < 150_000, path
        sizes.setdefault(path.stem.rpartition("_")[0], set()).add(
            struct.unpack(">II", content[16:24])
        )
    assert all(len(found) == 1 for found in sizes.values()), sizes


def test_every_picture_is_shown_and_there():
    shown = {
        (path.parent / name).resolve()
        for path in BLOCKS
        for name in re.findall(r"(?:\]\(|src(?:set)?=\")([^)#\"]+\.png)", path.read_text())
    }
    assert shown == set(PICTURES)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert "WARNING" not in ran.stderr
    return folder


def test_the_site_is_built_without_a_warning_and_holds_every_page(site):
    for path in PAGES:
        assert (site / path.relative_to(ROOT / "docs")).with_suffix(".html").is_file()


def test_pages_load_nothing_from_elsewhere(site):
    for path in site.rglob("*.html"):
        text = path.read_text()
        loaded = re.findall(
            r"<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=\"?([^\s\">]+)", text
        )
        assert [each for each in loaded if re.match(r"(?:https?:)?//", each)] == [], path


def test_every_public_name_is_in_the_reference(site):
    text = "".join(path.read_text() for path in (site / "api").glob("*.html"))
    for name in set(gaptrace.__all__) - {"__version__"}:
        home = inspect.getmodule(getattr(gaptrace, name)).__name__
        assert f'id="{home}.{name}"' in text, name
