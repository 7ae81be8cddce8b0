"""A page: sections of figures and tables with the library that draws, and figures as JSON."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from plotly.offline import get_plotlyjs

from gaptrace import __version__
from gaptrace.render.html.blocks import Block, Run
from gaptrace.render.html.pictures import Picture
from gaptrace.render.terms import TERMS

#: No file is larger. The library that draws is 4.8 MB of it.
_MOST_BYTES = 8_000_000
#: Letters of a cell that stay in one line.
_LONGEST_WORD = 32
#: Around the JSON.
_FRAME = 1_000
_WORDS = re.compile(
    r"\b(?:" + "|".join(sorted(map(re.escape, TERMS), key=len, reverse=True)) + r")\b"
)
#: Cells hold names of kernels and ranges, where only words with an underscore are meant.
_CAUSE_WORDS = re.compile(r"\b(?:" + "|".join(term for term in TERMS if "_" in term) + r")\b")


@dataclass(frozen=True)
class Part:
    """A section of a page.

    Attributes:
        id: for links.
        title: above it.
        pictures: figures before the text.
        blocks: text and tables.
    """

    id: str
    title: str
    pictures: list[Picture]
    blocks: list[Block]


@dataclass(frozen=True)
class Data:
    """What a page says, for programs.

    Attributes:
        id: of the script element that holds it.
        what: it is.
        whole: it, with its schema.
        growing: paths of lists in it that grow with a trace, in the order in which they are left
            out where it would make the file too large.
        command: prints all of it.
    """

    id: str
    what: str
    whole: dict[str, Any]
    growing: Sequence[tuple[str, ...]]
    command: str


def page(
    name: str,
    head: Sequence[Block],
    parts: Sequence[Part],
    columns: dict[str, str],
    data: Data,
    *,
    tiles: Sequence[Mapping[str, str]] = (),
) -> str:
    """Return a document that loads nothing and stays below 8 MB, as far as its parts let it.

    Args:
        name: what it is about.
        head: texts at its top.
        parts: its sections.
        columns: what the heads of columns mean.
        data: the same as JSON.
        tiles: term, name, value and more of the figures that people look for first.
    """
    environment = _environment()
    shown = environment.get_template("page.html.jinja").render(
        version=__version__,
        name=name,
        head=head,
        tiles=tiles,
        parts=parts,
        columns=columns | TERMS,
        terms=TERMS | columns,
        plotly_js=Markup(get_plotlyjs()),  # the library's own source
    )
    # The JSON comes last, since it takes the room that the others leave.
    text, left_out = _fitting(data.whole, data.growing, _MOST_BYTES - len(shown.encode()))
    footer = environment.get_template("footer.html.jinja").render(
        version=__version__, data=data, left_out=left_out, json=Markup(text)
    )
    return shown + footer


def _fitting(
    whole: dict[str, Any], growing: Sequence[tuple[str, ...]], most_bytes: int
) -> tuple[str, list[str]]:
    """Return JSON, and which lists are left out of it to keep it small enough."""
    left_out = list[str]()
    for path in growing:
        text = _json(whole)
        if len(text) + _FRAME <= most_bytes:
            return text, left_out
        outer, *inner = path
        whole = whole | {outer: whole[outer] | {inner[0]: []} if inner else []}
        left_out.append(".".join(path))
    return _json(whole), left_out


def _json(value: Any) -> str:
    """Return JSON that ends no script element, whatever names it holds."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _defined(text: str, words: re.Pattern[str] = _WORDS) -> Markup:
    """Return text with each term carrying its definition."""
    found, end = Markup(), 0
    for match in words.finditer(text):
        term = match[0]
        found += escape(text[end : match.start()])
        found += Markup('<abbr title="{}">{}</abbr>').format(TERMS[term], term)
        end = match.end()
    return found + escape(text[end:])


def _in_cell(text: str) -> Markup:
    return _defined(text, _CAUSE_WORDS)


def _has_long_word(cell: Sequence[Run]) -> bool:
    """Whether a cell holds a word, such as the name of a kernel, that may have to be broken."""
    return any(len(word) > _LONGEST_WORD for run in cell for word in run.text.split())


def _term_id(term: str) -> str:
    return "term-" + re.sub(r"\W+", "-", term)


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("gaptrace.render.html", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "defined": _defined,
        "in_cell": _in_cell,
        "has_long_word": _has_long_word,
        "term_id": _term_id,
        "figure_json": lambda picture: Markup(picture.json),
        "kind": lambda block: type(block).__name__,
    }
    return environment
