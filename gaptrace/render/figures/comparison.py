"""Two traces of one program, before a change and after it."""

from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import polars as pl

from gaptrace.compare import Comparison
from gaptrace.render.figures.hover import plain
from gaptrace.render.figures.style import BUSY_COLOR, CAUSE_COLORS, figure
from gaptrace.render.units import change, duration
from gaptrace.timelines import CAUSES

_MS = 1e-6
_MOST_GROUPS = 8


def before_after(compared: Comparison, *, title: str | None = None) -> go.Figure:
    """Draw busy time, and idle time by cause, before and after a change.

    Of each sequence of steps that both traces hold, by the medians of steady steps; where there is
    none, of each device's whole window.

    Args:
        compared: the two traces.
        title: above the figure.
    """
    per_step = compared.steps.height > 0
    rows = compared.steps if per_step else compared.totals
    key = ["unit", "after_unit", "device_id"] if per_step else ["device_id"]
    groups = rows.partition_by(key, maintain_order=True)[:_MOST_GROUPS]
    several = len(compared.before.devices) > 1
    drawn = figure(height=64 * max(len(groups), 1) + 130, title=title, barmode="stack", bargap=0.25)
    named = [(_name(group.row(0, named=True), several), group) for group in groups]
    for state in ("busy", *CAUSES.categories):
        _state(drawn, state, named)
    categories = [_bar(name, side) for name, _ in named for side in ("before", "after")]
    drawn.update_yaxes(
        type="category", categoryorder="array", categoryarray=categories[::-1], showgrid=False
    )
    drawn.update_xaxes(title={"text": "ms of a step, medians" if per_step else "ms"})
    before, after = (Path(a.trace.meta.path).name for a in (compared.before, compared.after))
    drawn.add_annotation(
        x=1, y=1, xref="paper", yref="paper", xanchor="right", yanchor="bottom", showarrow=False,
        text=plain(f"before: {before}, after: {after}"),
    )  # fmt: skip
    return drawn


def _name(row: dict[str, Any], several: bool) -> str:
    if "unit" not in row:
        return f"device {row['device_id']}"
    unit, after = row["unit"], row["after_unit"]
    name = unit if unit == after else f"{unit} / {after}"
    return f"{name} on device {row['device_id']}" if several else str(name)


def _bar(name: str, side: str) -> str:
    return f"{plain(name)}, {side}"


def _state(drawn: go.Figure, state: str, named: list[tuple[str, pl.DataFrame]]) -> None:
    figure_name = "busy_ns" if state == "busy" else state
    bars, lengths, said = [], [], []
    for name, group in named:
        for row in group.filter(pl.col("figure") == figure_name).to_dicts():
            for side in ("before", "after"):
                bars.append(_bar(name, side))
                lengths.append(row[f"{side}_ns"] * _MS)
                said.append(
                    f"<b>{plain(name)}</b><br>{state}: {duration(row['before_ns'])} before, "
                    f"{duration(row['after_ns'])} after<br>change {change(row['change_ns'])}"
                )
    if not any(lengths):
        return
    drawn.add_bar(
        orientation="h",
        y=bars,
        x=lengths,
        name=state,
        marker={
            "color": BUSY_COLOR if state == "busy" else CAUSE_COLORS[state],
            "line": {"width": 0},
        },
        hovertext=said,
        hoverinfo="text",
    )
