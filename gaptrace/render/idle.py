"""Where the device stands idle and why: sections on devices, gaps and ranges."""

from typing import Any

import polars as pl
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gaptrace.analysis import Analysis
from gaptrace.render.page import MOST_ROWS, WIDE, Section, section, table
from gaptrace.render.units import count, counted, duration, instant, share
from gaptrace.timelines import CAUSES

#: Gaps, and instances of ranges, shown one by one: enough to see whether they are alike.
_MOST_GAPS = 5


def device_section(analysis: Analysis, device: dict[str, Any]) -> Section:
    """Return what one row of `Analysis.devices` says, and the causes of its idle time."""
    gap_ns = device["gap_ns"] or {}
    facts = Text.assemble(
        f"span {duration(device['span_ns'])}, busy ",
        (f"{duration(device['busy_ns'])} ({share(device['busy_ns'], device['span_ns'])})", "bold"),
        f", idle {duration(device['idle_ns'])} in {counted(device['gap_count'], 'gap')}, "
        f"{counted(device['op_count'], 'op')}",
    )
    quantiles = Text(
        "gap length: "
        + ", ".join(
            f"{label} {duration(gap_ns.get(key))}"
            for label, key in (("median", "p50"), ("p90", "p90"), ("p99", "p99"), ("max", "max"))
        )
    )
    name = f" ({device['name']})" if device["name"] else ""
    body: list[RenderableType] = [facts, quantiles] if device["gap_count"] else [facts]
    causes = _causes(analysis, device)
    if causes.row_count:
        body += [Text(), causes]
    return section(f"Device {device['device_id']}{name}", *body)


def _causes(analysis: Analysis, device: dict[str, Any]) -> Table:
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
    return rows


def largest_gaps_section(analysis: Analysis, width: int) -> Section | None:
    """Return the longest gaps one by one; None without any."""
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
            f"{_most_of_gap(row)} {share(row['cause_ns'], row['gap_ns'])}",
            row["previous_op"] or "-",
            row["next_op"] or "-",
            row["range"] or "-",
        )
    return section("Largest gaps", rows)


def _most_of_gap(row: dict[str, Any]) -> str:
    """The call or phase, which tells its cause; else the cause."""
    unknown = row["cause"] == "unrecorded"
    return str(row["cause"] if unknown else row["detail"] or row["cause"])


def ranges_section(analysis: Analysis, width: int) -> Section | None:
    """Return the ranges with most idle time and its causes; None without any range."""
    ranges = analysis.ranges
    if ranges.is_empty():
        return None
    several = ranges["device_id"].n_unique() > 1
    wide = width >= WIDE
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
    shown = numbered.sort("idle_ns", descending=True).head(MOST_ROWS).sort("index")
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
        parts.append(Text(f"... and {hidden} more; gaptrace analyze --json has them all"))
    return section("NVTX ranges", *parts)


def instances_section(analysis: Analysis) -> Section | None:
    """Return those instances of the range asked for that hold most idle time; None without one."""
    name, path = analysis.range_name, pl.col("path")
    if name is None:
        return None
    instances = analysis.range_instances.filter((path == name) | path.str.ends_with(f"/{name}"))
    several = analysis.devices.height > 1
    device = ["+device"] if several else []
    rows = table("range", "+instance", *device, "+at", "+span", "+idle", "idle because of")
    largest = instances.sort("idle_ns", descending=True, maintain_order=True).head(_MOST_GAPS)
    for row in largest.to_dicts():
        causes = sorted(CAUSES.categories, key=lambda cause: -row[cause])[:2]
        rows.add_row(
            row["path"],
            str(row["instance"]),
            *([str(row["device_id"])] if several else []),
            instant(row["start_ns"]),
            duration(row["span_ns"]),
            duration(row["idle_ns"]),
            ", ".join(f"{c} {share(row[c], row['idle_ns'])}" for c in causes if row[c]),
        )
    note = Text(
        f"of {count(instances.height)}, those with most idle time; gaptrace analyze --json has "
        "them all"
    )
    return section("Range instances", rows, note)


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
