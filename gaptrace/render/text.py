"""The report as text, for a terminal or a file."""

from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gaptrace import __version__
from gaptrace.analysis import Analysis
from gaptrace.render import words
from gaptrace.render.idle import (
    device_section,
    instances_section,
    largest_gaps_section,
    ranges_section,
)
from gaptrace.render.page import MOST_ROWS, Section, printed, section
from gaptrace.render.recommendation import recommendation_section
from gaptrace.render.repeated import graphs_section, steps_section
from gaptrace.render.units import duration


def report(analysis: Analysis, *, width: int, color: bool) -> str:
    """Return the whole report.

    Args:
        analysis: what to report.
        width: columns of the terminal; meant for 80 and up.
        color: whether to write ANSI colours.
    """
    return printed([head(analysis), *sections(analysis, width)], width, color)


def sections(analysis: Analysis, width: int) -> list[Section]:
    """Return the parts of the report below its head, without those that have nothing to say."""
    parts = [
        *(device_section(analysis, device) for device in analysis.devices.to_dicts()),
        largest_gaps_section(analysis, width),
        ranges_section(analysis, width),
        instances_section(analysis),
        steps_section(analysis),
        graphs_section(analysis, width),
        _findings(analysis),
        recommendation_section(analysis.recommendation),
    ]
    return [part for part in parts if part is not None]


def recommendation_text(
    analysis: Analysis, *, width: int, color: bool, app_nodes: int | None = None
) -> str:
    """Return the head and the recommendation of the report alone.

    Args:
        analysis: what to report.
        width: columns of the terminal.
        color: whether to write ANSI colours.
        app_nodes: nodes that the application counts for the step; sizes are given in them, too.
    """
    section = recommendation_section(analysis.recommendation, app_nodes)
    return printed([head(analysis), section], width, color)


def head(analysis: Analysis) -> Group:
    """Return what was recorded, where and how, and what limits the figures."""
    meta = analysis.trace.meta
    gpus = " + ".join(dict.fromkeys(name or "unnamed GPU" for name in analysis.devices["name"]))
    product = "CUPTI" if meta.format == "gaptrace-cupti" else "Nsight Systems"
    recorder = f"{product} {meta.product_version or 'before 2022'}"
    machine = [
        gpus,
        meta.driver and f"driver {meta.driver}",
        meta.cuda and f"CUDA {meta.cuda}",
        recorder + (f" (schema {meta.schema_version})" if meta.schema_version else ""),
        meta.duration_ns and f"{duration(meta.duration_ns)} recorded",
    ]
    lines: list[RenderableType] = [
        Text.assemble((f"gaptrace {__version__}", "bold"), f"  {Path(meta.path).name}"),
        Text(", ".join(part for part in machine if part)),
        Text(f"granularity {words.granularity(meta.granularity)}"),
    ]
    lines.append(Text(words.recording(analysis.recording)))
    if analysis.window_name:
        lines.append(Text(f"only {analysis.window_name}", style="bold"))
    lines += [Text(f"warning: {w.message}", style="yellow") for w in analysis.warnings]
    return Group(*lines)


def _findings(analysis: Analysis) -> Section | None:
    if not analysis.findings:
        return None
    style = {"high": "red", "medium": "yellow", "low": "dim"}
    several = analysis.devices.height > 1
    rows = Table.grid(padding=(0, 1))
    for number, finding in enumerate(analysis.findings[:MOST_ROWS], 1):
        device_id = finding.evidence.get("device_id")
        where = f"device {device_id}: " if several and device_id is not None else ""
        what = Text.assemble(
            (f"[{finding.severity}] ", style[finding.severity]),
            f"{where}{finding.title}: ",
            (words.figures(finding), "bold"),
        )
        rows.add_row(f"{number}.", what)
        rows.add_row("", Text(f"Next: {finding.advice}."))
    return section("Findings", rows)
