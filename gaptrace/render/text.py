"""The report as text, for a terminal or a file."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gaptrace import __version__
from gaptrace.analysis import Analysis
from gaptrace.recommend import Recommendation
from gaptrace.render import words
from gaptrace.render.units import count, duration, instant, share

#: Gaps shown one by one: enough to see whether they are alike.
_MOST_GAPS = 5
#: Rows of a table that people still read; the rest is in the JSON.
_MOST_ROWS = 16
_WIDE = 120


def report(analysis: Analysis, *, width: int, color: bool) -> str:
    """Return the whole report.

    Args:
        analysis: what to report.
        width: columns of the terminal; meant for 80 and up.
        color: whether to write ANSI colours.
    """
    parts = [
        _head(analysis),
        *(_device(analysis, device) for device in analysis.devices.to_dicts()),
        _largest_gaps(analysis, width),
        _ranges(analysis, width),
        _steps(analysis),
        _graphs(analysis, width),
        _findings(analysis),
        _recommendation(analysis.recommendation),
    ]
    return printed([part for part in parts if part is not None], width, color)


def recommendation_text(analysis: Analysis, *, width: int, color: bool) -> str:
    """Return the head and the recommendation of the report alone."""
    return printed([_head(analysis), _recommendation(analysis.recommendation)], width, color)


def printed(parts: Sequence[RenderableType], width: int, color: bool) -> str:
    """Return what rich makes of the parts, without spaces at the ends of lines."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        highlight=False,
        # Names of kernels and ranges hold brackets, which are no markup.
        markup=False,
        legacy_windows=False,
    )
    for part in parts:
        console.print(part)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _head(analysis: Analysis) -> RenderableType:
    meta = analysis.trace.meta
    gpus = " + ".join(dict.fromkeys(name or "GPU" for name in analysis.devices["name"]))
    recorder = f"Nsight Systems {meta.product_version or 'before 2022'}"
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


def _title(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def table(*columns: str) -> Table:
    """Return an empty table; a leading + marks columns of numbers."""
    empty = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for name in columns:
        numeric = name.startswith("+")
        empty.add_column(
            name.lstrip("+"),
            justify="right" if numeric else "left",
            no_wrap=numeric,
            overflow="fold",
        )
    return empty


def _device(analysis: Analysis, device: dict[str, Any]) -> RenderableType:
    gap_ns = device["gap_ns"] or {}
    facts = Text.assemble(
        f"span {duration(device['span_ns'])}, busy ",
        (f"{duration(device['busy_ns'])} ({share(device['busy_ns'], device['span_ns'])})", "bold"),
        f", idle {duration(device['idle_ns'])} in {count(device['gap_count'])} gaps, "
        f"{count(device['op_count'])} ops",
    )
    quantiles = Text(
        "gap length: "
        + ", ".join(
            f"{label} {duration(gap_ns.get(key))}"
            for label, key in (("median", "p50"), ("p90", "p90"), ("p99", "p99"), ("max", "max"))
        )
    )
    rows = table("cause", "+idle", "+of idle", "+of span", "mostly")
    mine = pl.col("device_id") == device["device_id"]
    details: dict[str, list[str]] = {}
    for row in analysis.causes.filter(mine).to_dicts():
        if row["detail"]:
            shown = f"{row['detail']} {duration(row['idle_ns'])}"
            details.setdefault(row["cause"], []).append(shown)
    for row in analysis.cause_totals.filter(mine).to_dicts():
        rows.add_row(
            row["cause"],
            duration(row["idle_ns"]),
            share(row["idle_ns"], device["idle_ns"]),
            share(row["idle_ns"], device["span_ns"]),
            ", ".join(details.get(row["cause"], [])[:3]),
        )
    name = f" ({device['name']})" if device["name"] else ""
    body: list[RenderableType] = [facts, quantiles] if device["gap_count"] else [facts]
    if rows.row_count:
        body += [Text(), rows]
    return Group(_title(f"Device {device['device_id']}{name}"), Padding(Group(*body), (0, 0, 0, 2)))


def _largest_gaps(analysis: Analysis, width: int) -> RenderableType | None:
    gaps = analysis.largest_gaps.head(_MOST_GAPS)
    if gaps.is_empty():
        return None
    several = analysis.devices.height > 1
    rows = table(*(["+device"] if several else []), "+at", "+gap")
    rows.add_column("mostly", min_width=16, overflow="fold")
    for name in ("after", "before", "in range"):
        # Demangled names run to hundreds of letters; their beginning tells kernels apart.
        rows.add_column(name, no_wrap=True, overflow="ellipsis", max_width=(width - 60) // 3 + 2)
    for row in gaps.to_dicts():
        rows.add_row(
            *([str(row["device_id"])] if several else []),
            instant(row["start_ns"]),
            duration(row["gap_ns"]),
            f"{row['detail'] or row['cause']} {share(row['cause_ns'], row['gap_ns'])}",
            row["previous_op"],
            row["next_op"],
            row["range"] or "-",
        )
    return Group(_title("Largest gaps"), Padding(rows, (0, 0, 0, 2)))


def _ranges(analysis: Analysis, width: int) -> RenderableType | None:
    ranges = analysis.ranges
    if ranges.is_empty():
        return None
    several = ranges["device_id"].n_unique() > 1
    wide = width >= _WIDE
    rows = table(
        "range",
        *(["+device"] if several else []),
        "+count",
        "+span",
        "+busy",
        "+idle",
        *(["+launches", "+graphs"] if wide else []),
        "idle because of",
    )
    # The ranges that hold most idle time, in the order in which they come.
    numbered = ranges.with_row_index()
    shown = numbered.sort("idle_ns", descending=True).head(_MOST_ROWS).sort("index")
    for row in shown.to_dicts():
        rows.add_row(
            row["path"],
            *([str(row["device_id"])] if several else []),
            count(row["count"]),
            duration(row["span_ns"]),
            share(row["busy_ns"], row["span_ns"]),
            duration(row["idle_ns"]),
            *([count(row["launches"]), count(row["graph_launches"])] if wide else []),
            caused(
                analysis.range_cause_totals,
                row["idle_ns"],
                4 if wide else 2,
                path=row["path"],
                domain=row["domain"],
                device_id=row["device_id"],
            ),
        )
    parts: list[RenderableType] = [rows]
    if (hidden := ranges.height - shown.height) > 0:
        parts.append(Text(f"... and {hidden} more; --json has them all"))
    return Group(_title("NVTX ranges"), Padding(Group(*parts), (0, 0, 0, 2)))


def caused(totals: pl.DataFrame, idle_ns: int, most: int, **key: str | int | None) -> str:
    """Return the largest causes of one key's idle time, each with its share.

    Args:
        totals: `Analysis.cause_totals` or `Analysis.range_cause_totals`.
        idle_ns: all of that idle time.
        most: how many causes are named.
        key: columns that tell the key, and its values.
    """
    mine = totals.filter(
        pl.all_horizontal(pl.col(column).eq_missing(value) for column, value in key.items())
    )
    largest = mine.select("cause", "idle_ns").head(most).rows()
    return ", ".join(f"{cause} {share(ns, idle_ns)}" for cause, ns in largest)


def _steps(analysis: Analysis) -> RenderableType | None:
    units = analysis.step_units
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
    for row in units.head(_MOST_ROWS).to_dicts():
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
        *map(words.outlier, _outliers(analysis)),
        *map(words.step_builds, _step_builds(analysis)),
    ]
    body = Group(rows, Text(), *(Text(note) for note in notes))
    return Group(_title("Steps"), Padding(body, (0, 0, 0, 2)))


def _outliers(analysis: Analysis) -> list[dict[str, Any]]:
    """The steps that stand out most, longest first."""
    found = analysis.step_summary.filter(pl.col("is_outlier"))
    return found.sort("excess_ns", descending=True, maintain_order=True).head(3).to_dicts()


def _step_builds(analysis: Analysis) -> list[dict[str, Any]]:
    """The sequences whose steady steps build graphs, each with the phases of building."""
    shown = analysis.step_units.head(_MOST_ROWS).select("key", "device_id", "unit", "steps")
    named = analysis.unit_builds.join(
        shown, on=["key", "device_id"], how="inner", maintain_order="right_left"
    )
    return [
        {"unit": rows["unit"][0], "steps": rows["steps"][0], "phases": rows.to_dicts()}
        for rows in named.partition_by("key", "device_id", maintain_order=True)
    ]


def _graphs(analysis: Analysis, width: int) -> RenderableType | None:
    sizes = analysis.graph_sizes
    if sizes.is_empty():
        return None
    wide = width >= _WIDE
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
    for row in sizes.head(_MOST_ROWS).to_dicts():
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
    body: list[RenderableType] = [rows, Text(), note, *([Text(built)] if built else [])]
    return Group(_title("Graphs by size"), Padding(Group(*body), (0, 0, 0, 2)))


def _findings(analysis: Analysis) -> RenderableType | None:
    if not analysis.findings:
        return None
    style = {"high": "red", "medium": "yellow", "low": "dim"}
    several = analysis.devices.height > 1
    rows = Table.grid(padding=(0, 1))
    for number, finding in enumerate(analysis.findings[:_MOST_ROWS], 1):
        device_id = finding.evidence.get("device_id")
        where = f"device {device_id}: " if several and device_id is not None else ""
        what = Text.assemble(
            (f"[{finding.severity}] ", style[finding.severity]),
            f"{where}{finding.title}: ",
            (words.figures(finding), "bold"),
        )
        rows.add_row(f"{number}.", what)
        rows.add_row("", Text(f"Next: {finding.advice}."))
    return Group(_title("Findings"), Padding(rows, (0, 0, 0, 2)))


def _recommendation(recommendation: Recommendation) -> RenderableType:
    lines: list[RenderableType] = [
        Text(words.verdict(recommendation), style="bold"),
        Text(f"verdict {recommendation.verdict}, regime {words.regime(recommendation)}"),
    ]
    if cap := words.gain_cap(recommendation):
        lines.append(Text(cap))
    if recommendation.inputs:
        lines.append(
            Text(
                "from this trace: "
                + ", ".join(
                    f"{item.name.removesuffix('_ns').replace('_', ' ')} "
                    + (duration(item.value) if item.name.endswith("_ns") else f"{item.value:g}")
                    for item in recommendation.inputs
                )
            )
        )
    lines += [Text(f"warning: {w.message}", style="yellow") for w in recommendation.warnings]
    return Group(_title("Recommendation"), Padding(Group(*lines), (0, 0, 0, 2)))
