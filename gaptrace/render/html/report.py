"""From an analysis to the text of an HTML file."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from plotly.offline import get_plotlyjs

from gaptrace import __version__
from gaptrace.analysis import Analysis
from gaptrace.calibration import Calibration
from gaptrace.prepared import Prepared, prepare
from gaptrace.render.html import pictures
from gaptrace.render.html.blocks import Block, blocks
from gaptrace.render.html.pictures import Picture
from gaptrace.render.json import analysis_object
from gaptrace.render.terms import COLUMNS, TERMS
from gaptrace.render.text import head, sections
from gaptrace.render.units import duration, share
from gaptrace.timings import Measurement

#: Columns of the text report at which no table leaves anything out.
_WIDTH = 1_000
#: No file is larger. The library that draws is 4.8 MB of it.
_MOST_BYTES = 8_000_000
#: Of which figures: with many devices and threads timelines are drawn in fewer bins to keep it.
_MOST_FIGURE_BYTES = 1_900_000
_COARSENESS = (1, 2, 4, 8)
#: Beyond these only the busy fraction of further devices stands at the top.
_MOST_TILES = 4
#: Around the JSON.
_FRAME = 1_000
#: Lists of the JSON that grow with a trace, in the order in which they are left out where it would
#: make the file too large.
_GROWING = (
    ("range_instances", "instances"),
    ("steps", "builds"),
    ("steps", "steps"),
    ("graphs",),
    ("ranges",),
    ("steps", "sequences"),
)
_WORDS = re.compile(
    r"\b(?:" + "|".join(sorted(map(re.escape, TERMS), key=len, reverse=True)) + r")\b"
)
#: Cells hold names of kernels and ranges, where only words with an underscore are meant.
_CAUSE_WORDS = re.compile(r"\b(?:" + "|".join(term for term in TERMS if "_" in term) + r")\b")


@dataclass(frozen=True)
class Part:
    """A section of the page.

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


def html_report(
    analysis: Analysis,
    *,
    calibration: Calibration | None = None,
    measured: Mapping[str, Measurement] | None = None,
) -> str:
    """Return the whole report as one HTML document.

    It holds the library that draws, the figures, the tables of the text report and the analysis as
    JSON, asks nothing of any network, and stays below 8 MB whatever the length of the trace.

    Args:
        analysis: what to report.
        calibration: of the machine, drawn beside what graph launches took.
        measured: by name of the step, ways to run it, timed in the process.
    """
    environment = _environment()
    template = environment.get_template("report.html.jinja")
    prepared = prepare(analysis)
    for coarseness in _COARSENESS:
        parts = _parts(prepared, calibration, measured or {}, coarseness)
        if sum(len(it.json) for part in parts for it in part.pictures) <= _MOST_FIGURE_BYTES:
            break
    page = template.render(
        version=__version__,
        name=Path(analysis.trace.meta.path).name,
        head=blocks([head(analysis)]),
        tiles=_tiles(analysis),
        parts=parts,
        columns=COLUMNS | TERMS,
        terms=TERMS | COLUMNS,
        plotly_js=Markup(get_plotlyjs()),  # the library's own source
    )
    whole, left_out = _fitting(analysis_object(analysis), _MOST_BYTES - len(page.encode()))
    footer = environment.get_template("footer.html.jinja").render(
        version=__version__, left_out=left_out, analysis_json=Markup(whole)
    )
    # The analysis comes last, since it takes the room that the others leave.
    return page + footer


def _parts(
    prepared: Prepared,
    calibration: Calibration | None,
    measured: Mapping[str, Measurement],
    coarseness: int,
) -> list[Part]:
    analysis = prepared.analysis
    timeline = Part("timeline", "Timeline", pictures.overview(prepared, coarseness), [])
    several = pictures.devices(analysis)
    parts = [timeline, *([Part("devices", "Devices", several, [])] if several else [])]
    for section in sections(analysis, _WIDTH):
        drawn = pictures.of_section(section.title, prepared, calibration, measured, coarseness)
        slug = re.sub(r"\W+", "-", section.title.split(" (")[0].lower())
        parts.append(Part(slug, section.title, drawn, blocks(section.parts)))
    return parts


def _tiles(analysis: Analysis) -> list[dict[str, str]]:
    """The figures of each device that people look for first."""
    several = analysis.devices.height > 1
    tiles = []
    for device in analysis.devices.to_dicts():
        where = f" of device {device['device_id']}" if several else ""
        causes = analysis.cause_totals.filter(device_id=device["device_id"])
        tiles.append(
            {
                "term": "busy fraction",
                "name": f"busy fraction{where}",
                "value": share(device["busy_ns"], device["span_ns"]),
                "more": f"{duration(device['busy_ns'])} of {duration(device['span_ns'])}",
            }
        )
        if causes.height and len(tiles) < _MOST_TILES:
            first = causes.row(0, named=True)
            tiles.append(
                {
                    "term": str(first["cause"]),
                    "name": f"largest cause of idle time{where}",
                    "value": str(first["cause"]),
                    "more": f"{duration(first['idle_ns'])}, "
                    f"{share(first['idle_ns'], device['idle_ns'])} of {duration(device['idle_ns'])}"
                    " idle",
                }
            )
    return tiles


def _fitting(whole: dict[str, Any], most_bytes: int) -> tuple[str, list[str]]:
    """Return the analysis as JSON, and which lists are left out of it to keep it small enough."""
    left_out = list[str]()
    for path in _GROWING:
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
        "term_id": _term_id,
        "figure_json": lambda picture: Markup(picture.json),
        "kind": lambda block: type(block).__name__,
    }
    return environment
