"""A comparison of two traces as text and as JSON."""

from dataclasses import asdict
from typing import Any

import polars as pl
from rich.console import Group, RenderableType
from rich.text import Text

from gaptrace import __version__
from gaptrace.compare import Comparison
from gaptrace.render import words
from gaptrace.render.file_names import told_apart
from gaptrace.render.page import MOST_ROWS, Section, printed, section, table
from gaptrace.render.units import change, count, duration, share

SCHEMA = "gaptrace.comparison/1"


def comparison(compared: Comparison, *, width: int, color: bool) -> str:
    """Return the comparison as text.

    Args:
        compared: what to show.
        width: columns of the terminal.
        color: whether to write ANSI colours.
    """
    return printed([head(compared), *sections(compared)], width, color)


def sections(compared: Comparison) -> list[Section]:
    """Return the parts of the text below its head: totals and steps by device, then ranges."""
    devices = compared.before.devices.select("device_id", "name").rows()
    parts = []
    for device_id, name in devices:
        mine = pl.col("device_id") == device_id
        title = f"Device {device_id}{f' ({name})' if name else ''}, in all"
        parts.append(section(title, _figures(compared.totals.filter(mine))))
        steps = compared.steps.filter(mine)
        parts += map(_unit, steps.partition_by("unit", "after_unit", maintain_order=True))
    if compared.steps.is_empty():
        nothing = (
            "No sequence of steps is in both traces and has a name of its own on the device, so "
            "nothing is told per step."
        )
        parts.append(section("Steps", Text(nothing)))
    if compared.ranges.height:
        parts.append(_ranges(compared.ranges, several=len(devices) > 1))
    return parts


def names(compared: Comparison) -> tuple[str, str]:
    """Return the names of the two files, told apart."""
    before, after = told_apart([each.trace.meta.path for each in (compared.before, compared.after)])
    return before, after


def comparison_object(compared: Comparison) -> dict[str, Any]:
    """Return the comparison as one JSON object: before, after, warnings, totals, steps, ranges."""
    named = {"device_id": "device"}
    return {
        "schema": SCHEMA,
        "before": compared.before.trace.meta.path,
        "after": compared.after.trace.meta.path,
        "granularity": _granularity(compared),
        "warnings": [asdict(warning) for warning in compared.warnings],
        "totals": compared.totals.rename(named).to_dicts(),
        "steps": compared.steps.rename(named).to_dicts(),
        "ranges": compared.ranges.rename(named).to_dicts(),
    }


def _granularity(compared: Comparison) -> str | None:
    metas = (compared.before.trace.meta, compared.after.trace.meta)
    return next((meta.granularity for meta in metas if meta.granularity), None)


def head(compared: Comparison) -> Group:
    """Return what is compared, and what else differs between the two."""
    before, after = names(compared)
    lines = [
        Text.assemble((f"gaptrace {__version__}", "bold"), f"  before: {before}, after: {after}"),
        Text(f"granularity {words.granularity(_granularity(compared))}"),  # type: ignore[arg-type]
    ]
    if compared.before.window_name:
        lines.append(Text(f"only {compared.before.window_name}", style="bold"))
    lines += [Text(f"warning: {w.message}", style="yellow") for w in compared.warnings]
    return Group(*lines)


def _figures(rows: pl.DataFrame) -> RenderableType:
    shown = table("", "+before", "+after", "+change", "+of before")
    for row in rows.to_dicts():
        shown.add_row(
            row["figure"].removesuffix("_ns"),
            duration(row["before_ns"]),
            duration(row["after_ns"]),
            change(row["change_ns"]),
            _relative(row),
        )
    return shown


def _relative(row: dict[str, Any]) -> str:
    if not row["before_ns"]:
        return "-"
    sign = "-" if row["change_ns"] < 0 else "+" if row["change_ns"] > 0 else ""
    return sign + share(abs(row["change_ns"]), row["before_ns"])


def _unit(rows: pl.DataFrame) -> Section:
    first = rows.row(0, named=True)
    unit, after = first["unit"], first["after_unit"]
    name = unit if unit == after else f"{unit} before, {after} after"
    steps = f"{count(first['before_steps'])} and {count(first['after_steps'])} steady steps"
    verdict = Text(_verdict(first), style="bold")
    return section(f"Steps: {name}", Text(f"medians of {steps}"), _figures(rows), Text(), verdict)


def _verdict(span: dict[str, Any]) -> str:
    """Say whether the step time changed by more than the steps of one run vary."""
    noise_ns, change_ns = span["noise_ns"], span["change_ns"]
    if noise_ns is None:
        return "Too few steps to tell a change from chance."
    if abs(change_ns) <= noise_ns:
        return (
            f"No difference shown: medians of such steps differ by up to {duration(noise_ns)} by "
            "chance."
        )
    if span["host_ahead"]:
        return (
            f"The host takes {duration(abs(change_ns))} {'less' if change_ns < 0 else 'more'} for "
            f"a step, give or take {duration(noise_ns)}; but it runs ahead of the device, so that "
            "steps of the device may have changed otherwise: see its totals."
        )
    word = "shorter" if change_ns < 0 else "longer"
    return (
        f"Steps are {duration(abs(change_ns))} {word}, give or take {duration(noise_ns)}; how much "
        "runs differ from each other is not in that."
    )


def _ranges(ranges: pl.DataFrame, *, several: bool) -> Section:
    """Ranges that changed most; the JSON has all."""
    largest = (
        ranges.with_row_index()
        .sort(
            (pl.col("change_ns") * pl.col("after_count")).abs(),
            descending=True,
            maintain_order=True,
        )
        .head(MOST_ROWS)
    )
    device = ["+device"] if several else []
    rows = table(
        "range", *device, "+count", "+before", "+after", "+change", "+idle before", "+idle after"
    )
    for row in largest.sort("index").to_dicts():
        counts = [count(row["before_count"]), count(row["after_count"])]
        rows.add_row(
            row["path"],
            *([str(row["device_id"])] if several else []),
            counts[0] if counts[0] == counts[1] else ", then ".join(counts),
            duration(row["before_ns"]),
            duration(row["after_ns"]),
            change(row["change_ns"]),
            duration(row["before_idle_ns"]),
            duration(row["after_idle_ns"]),
        )
    hidden = ranges.height - largest.height
    more = (
        f" ... and {count(hidden)} more that changed less; --json has them all." if hidden else ""
    )
    return section("NVTX ranges in both", rows, Text(), Text(f"means of one instance.{more}"))
