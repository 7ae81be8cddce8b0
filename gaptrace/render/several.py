"""Several traces side by side: one row per device of each, and a total."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from gaptrace.analysis import Analysis
from gaptrace.render.idle import caused
from gaptrace.render.json import analysis_object
from gaptrace.render.page import printed, table
from gaptrace.render.units import count, duration, share
from gaptrace.totals import DeviceTotals, over_devices

SCHEMA = "gaptrace.analyses/1"


def overview(
    analyses: Sequence[tuple[str, Analysis]], failed: int, *, width: int, color: bool
) -> str:
    """Return a table of all devices of all traces.

    The total adds up busy and idle time over devices: with one rank per file, that of the job.
    There is none where the traces differ in granularity.

    Args:
        analyses: (name to show, analysis).
        failed: how many more traces could not be analysed.
        width: columns of the terminal.
        color: whether to write ANSI colours.
    """
    rows = table("trace", "+device", "+ops", "+span", "+busy", "+idle", "idle because of")
    for name, analysis in analyses:
        for device in analysis.devices.to_dicts():
            rows.add_row(
                name,
                str(device["device_id"]),
                count(device["op_count"]),
                duration(device["span_ns"]),
                share(device["busy_ns"], device["span_ns"]),
                duration(device["idle_ns"]),
                caused(analysis.cause_totals, device["idle_ns"], 2, device_id=device["device_id"]),
            )
    notes = []
    known = {analysis.trace.meta.granularity for _, analysis in analyses} - {None}
    if len(known) > 1:
        notes.append(
            "no total: graph and node granularity are both in this table; the one hides idle time "
            "inside graphs, the other lengthens gaps, so do not compare these rows with each other"
        )
    else:
        _add_total(rows, over_devices([analysis.devices for _, analysis in analyses]))
    notes += [
        f"warning: {name}: {each.message}"
        for name, analysis in analyses
        for each in analysis.warnings
    ]
    if failed:
        missing = "is" if failed == 1 else "are"
        notes.append(f"{failed} of {len(analyses) + failed} traces {missing} not in this table")
    windows = dict.fromkeys(analysis.window_name for _, analysis in analyses)
    only = [Text(f"only {name}", style="bold") for name in windows if name]
    return printed([*only, rows, *(Text(note, style="yellow") for note in notes)], width, color)


def _add_total(rows: Table, total: DeviceTotals) -> None:
    rows.add_section()
    rows.add_row(
        "total",
        str(total.devices),
        count(total.op_count),
        duration(total.span_ns),
        share(total.busy_ns, total.span_ns),
        duration(total.idle_ns),
        "",
    )


def overview_object(analyses: Sequence[Analysis], failed: Sequence[str]) -> dict[str, Any]:
    """Return all analyses as one JSON object: schema, analyses, errors."""
    return {
        "schema": SCHEMA,
        "analyses": [analysis_object(analysis) for analysis in analyses],
        "errors": list(failed),
    }
