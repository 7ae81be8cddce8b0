"""Two traces of one program, before a change and after it."""

from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import polars as pl

from gaptrace.analysis import Analysis
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
    named = [(_bars(group.row(0, named=True), several), group) for group in groups]
    for state in ("busy", *CAUSES.categories):
        _state(drawn, state, named)
    categories = [bar for bars, _ in named for bar in bars]
    drawn.update_yaxes(
        type="category",
        categoryorder="array",
        categoryarray=categories[::-1],
        # The whole name tells bars apart, however little of it is shown.
        tickvals=categories,
        ticktext=[_shown(bar) for bar in categories],
        showgrid=False,
    )
    what = "ms of a step, medians" if per_step else "ms"
    before, after = (plain(_source(each)) for each in (compared.before, compared.after))
    drawn.update_xaxes(title={"text": f"{what}<br>before: {before}; after: {after}"})
    return drawn


def _source(analysis: Analysis) -> str:
    """Name of the trace, with the part of it that was looked at."""
    name = Path(analysis.trace.meta.path).name
    return f"{name}, {analysis.window_name}" if analysis.window_name else name


def _bars(row: dict[str, Any], several: bool) -> tuple[str, str]:
    """What the two bars of a group are called."""
    if "unit" not in row:
        units = (f"device {row['device_id']}",) * 2
    else:
        device = f" on device {row['device_id']}" if several else ""
        units = (f"{row['unit']}{device}", f"{row['after_unit']}{device}")
    return f"{units[0]}, before", f"{units[1]}, after"


def _shown(bar: str) -> str:
    name, _, side = bar.rpartition(", ")
    return f"{plain(name)}, {side}"


def _state(drawn: go.Figure, state: str, named: list[tuple[tuple[str, str], pl.DataFrame]]) -> None:
    figure_name = "busy_ns" if state == "busy" else state
    bars, lengths, said = [], [], []
    for both, group in named:
        for row in group.filter(pl.col("figure") == figure_name).to_dicts():
            for bar, side in zip(both, ("before", "after"), strict=True):
                bars.append(bar)
                lengths.append(row[f"{side}_ns"] * _MS)
                said.append(
                    f"<b>{_shown(bar).rpartition(',')[0]}</b><br>"
                    f"{state}: {duration(row['before_ns'])} before, "
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
