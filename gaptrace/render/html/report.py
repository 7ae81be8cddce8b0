"""The report as one HTML file."""

import re
from collections.abc import Mapping
from pathlib import Path

from gaptrace.analysis import Analysis
from gaptrace.calibration import Calibration
from gaptrace.prepared import Prepared, prepare
from gaptrace.render import verdicts
from gaptrace.render.html import pictures
from gaptrace.render.html.blocks import blocks
from gaptrace.render.html.page import Data, Part, page
from gaptrace.render.json import analysis_object
from gaptrace.render.terms import COLUMNS
from gaptrace.render.text import head, sections
from gaptrace.render.units import duration, share
from gaptrace.timings import Measurement

#: Columns of the text report at which no table leaves anything out.
_WIDTH = 1_000
#: Of figures: with many devices and threads timelines are drawn in fewer bins to keep it.
_MOST_FIGURE_BYTES = 1_900_000
_COARSENESS = (1, 2, 4, 8, 16, 32)
#: Beyond these only the busy fraction of further devices stands at the top.
_MOST_TILES = 4
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
    prepared = prepare(analysis)
    for coarseness in _COARSENESS:
        parts = _parts(prepared, calibration, measured or {}, coarseness)
        if sum(len(it.json) for part in parts for it in part.pictures) <= _MOST_FIGURE_BYTES:
            break
    data = Data(
        "analysis", "The analysis", analysis_object(analysis), _GROWING, "gaptrace analyze --json"
    )
    name = Path(analysis.trace.meta.path).name
    tiles = _tiles(analysis)
    return page(name, blocks([head(analysis)]), parts, COLUMNS, data, tiles=tiles)


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
    """The figures of each device that people look for first, and the advice."""
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
    found = analysis.recommendation
    tiles.append(
        {
            "term": "",
            "name": "recommendation",
            "value": found.verdict,
            "more": verdicts.verdict(found),
        }
    )
    return tiles
