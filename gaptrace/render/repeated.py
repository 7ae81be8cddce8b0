"""What a program does again and again: sections on steps and graphs."""

from typing import Any

import polars as pl
from rich.text import Text

from gaptrace.analysis import Analysis
from gaptrace.render import words
from gaptrace.render.page import MOST_ROWS, WIDE, Section, section, table
from gaptrace.render.units import count, counted, duration
from gaptrace.steps import run_ahead

#: Steps that stand out, one by one: enough to see whether they are alike.
_MOST_OUTLIERS = 3


def steps_section(analysis: Analysis) -> Section | None:
    """Return the steps of each unit, and those that stand out, or why there are none."""
    units = analysis.step_units
    if analysis.steps.source is None:
        return section("Steps", Text(words.step_source(analysis.steps)))
    if units.is_empty():
        return None
    several = units["device_id"].n_unique() > 1
    rows = table(
        "unit",
        *(["+device"] if several else []),
        "+steps",
        "+warm-up",
        "+first",
        "+span",
        "+busy",
        "+idle",
        "+outliers",
    )
    for row in units.head(MOST_ROWS).to_dicts():
        rows.add_row(
            row["unit"],
            *([str(row["device_id"])] if several else []),
            count(row["steps"]),
            count(row["warm_up_steps"]),
            duration(row["first_span_ns"]),
            duration(row["span_ns"]["p50"]),
            duration(row["busy_ns"]["p50"]),
            duration(row["idle_ns"]["p50"]),
            count(row["outlier_steps"]),
        )
    notes = [
        words.step_source(analysis.steps),
        *map(words.run_ahead, run_ahead(units.head(MOST_ROWS)).to_dicts()),
        *_outliers(analysis),
        *map(words.step_builds, _step_builds(analysis)),
    ]
    return section("Steps", rows, Text(), *(Text(note) for note in notes))


def _outliers(analysis: Analysis) -> list[str]:
    """The steps that stand out most, longest first, and how many others do."""
    found = analysis.step_summary.filter(pl.col("is_outlier"))
    longest = found.sort("excess_ns", descending=True, maintain_order=True).head(_MOST_OUTLIERS)
    named = [words.outlier(step) for step in longest.to_dicts()]
    others = found.height - len(named)
    return [*named, f"and {counted(others, 'other outlier')}."] if others else named


def _step_builds(analysis: Analysis) -> list[dict[str, Any]]:
    """The sequences whose steady steps build graphs, each with the phases of building."""
    shown = analysis.step_units.head(MOST_ROWS).select("key", "device_id", "unit", "steps")
    named = analysis.unit_builds.join(
        shown, on=["key", "device_id"], how="inner", maintain_order="right_left"
    )
    return [
        {"unit": rows["unit"][0], "steps": rows["steps"][0], "phases": rows.to_dicts()}
        for rows in named.partition_by("key", "device_id", maintain_order=True)
    ]


def graphs_section(analysis: Analysis, width: int) -> Section | None:
    """Return what graphs of each size cost; None without any graph."""
    sizes = analysis.graph_sizes
    if sizes.is_empty():
        return None
    wide = width >= WIDE
    several = sizes["device_id"].n_unique() > 1
    rows = table(
        *(["+device"] if several else []),
        "+nodes",
        "+execs",
        "+executions",
        "+duration",
        "+launch call",
        *(["+p90"] if wide else []),
        *(["+exposed", "+lead"] if wide else []),
        "+queued gap",
        *(["+how many"] if wide else []),
        "+starved gap",
        *(["+how many"] if wide else []),
    )
    for row in sizes.head(MOST_ROWS).to_dicts():
        queued, starved, api = row["queued_gap_ns"], row["starved_gap_ns"], row["launch_api_ns"]
        rows.add_row(
            *([str(row["device_id"])] if several else []),
            count(row["nodes"]),
            count(row["execs"]),
            count(row["executions"]),
            duration(row["duration_ns"]["p50"]),
            duration(api["p50"]),
            *([duration(api["p90"])] if wide else []),
            *([duration(row["exposed_latency_ns"]["p50"])] if wide else []),
            *([duration(row["lead_ns"]["p50"])] if wide else []),
            duration(queued["p50"]),
            *([count(queued["count"])] if wide else []),
            duration(starved["p50"]),
            *([count(starved["count"])] if wide else []),
        )
    built = words.builds(analysis.build_costs.to_dicts())
    note = Text(
        "medians; nodes are CUDA nodes. Queued: launched before the previous graph ended; "
        "starved: launched too late."
        + (
            " Exposed: from the launch call's begin to the first node, where the device was idle. "
            "Lead: from the call's end."
            if wide
            else ""
        )
    )
    notes = [note, Text(built)] if built else [note]
    return section("Graphs by size", rows, Text(), *notes)
