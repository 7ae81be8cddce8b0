"""Idle time by cause: of devices, ranges, steps, and of gaps by their length."""

from collections.abc import Sequence
from typing import Literal

import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from gaptrace.analysis import Analysis
from gaptrace.detail import bin_length
from gaptrace.gap_lengths import GAP_KINDS, gap_length_causes, gap_lengths, of_all_devices
from gaptrace.render.figures.hover import plain
from gaptrace.render.figures.style import (
    BUSY_COLOR,
    CAUSE_COLORS,
    KIND_COLORS,
    axes,
    figure,
    nothing,
)
from gaptrace.render.units import count, duration, share
from gaptrace.step_strip import steady_causes
from gaptrace.timelines import CAUSES

#: Bars that people still read; those with most idle time are drawn.
_MOST_BARS = 16
_BAR_HEIGHT, _MARGIN = 28, 140
#: Gaps that are counted one by one on their axis.
_FEW_GAPS = 5
_MS = 1e-6
_MISSING = {
    "device": "no device activity",
    "range": "no NVTX ranges",
    "step": "no repeated steps found",
}
_MEASURES = {
    "device": "ms",
    "range": "ms, all instances",
    "step": "ms, average steady step",
}


def idle_by_cause(
    analysis: Analysis,
    of: Literal["device", "range", "step"] = "device",
    *,
    title: str | None = None,
) -> go.Figure:
    """Draw busy time, and idle time by cause, as a bar for each device, range or step.

    Args:
        analysis: of the trace.
        of: `device`: the windows as a whole; `range`: all instances of each NVTX range; `step`: an
            average steady step of each sequence.
        title: above the figure.
    """
    match of:
        case "device":
            rows = _of_devices(analysis)
        case "range":
            rows = _of_ranges(analysis)
        case "step":
            rows = _of_steps(analysis)
    if rows.is_empty():
        return nothing(figure(height=_MARGIN, title=title), _MISSING[of])
    labels = rows["label"].unique(maintain_order=True).to_list()
    drawn = figure(
        height=_BAR_HEIGHT * len(labels) + _MARGIN,
        title=title,
        barmode="stack",
        bargap=0.3 if len(labels) > 1 else 0.5,
    )
    for state in ("busy", *CAUSES.categories):
        mine = rows.filter((pl.col("state") == state) & (pl.col("ns") > 0))
        if mine.is_empty():
            continue
        drawn.add_bar(
            orientation="h",
            y=mine["label"].to_list(),
            x=(mine["ns"] * _MS).to_numpy(),
            name=state,
            marker={
                "color": BUSY_COLOR if state == "busy" else CAUSE_COLORS[state],
                "line": {"width": 0},
            },
            hovertext=[
                f"<b>{plain(row['label'])}</b><br>{state} {duration(row['ns'])}, "
                f"{share(row['ns'], row['total'])} of the span"
                for row in mine.to_dicts()
            ],
            hoverinfo="text",
        )
    drawn.update_xaxes(title={"text": _MEASURES[of]})
    drawn.update_yaxes(
        type="category",  # names may be numbers or dates
        categoryorder="array",
        categoryarray=labels[::-1],
        # The whole name tells bars apart, however little of it is shown.
        tickvals=labels,
        ticktext=[plain(label) for label in labels],
        showgrid=False,
        title=None,
    )
    return drawn


def _stacked(totals: pl.DataFrame, causes: pl.DataFrame) -> pl.DataFrame:
    """label, state, ns, total: busy time and every cause of each bar."""
    busy = totals.select("label", state=pl.lit("busy"), ns="busy_ns")
    waited = causes.select("label", pl.col("cause").cast(pl.String).alias("state"), ns="idle_ns")
    order = totals.select("label", total="span_ns").with_row_index("_order")
    return (
        pl.concat([busy.cast({"ns": pl.Float64}), waited.cast({"ns": pl.Float64})])
        .join(order, on="label", maintain_order="left")
        .sort("_order", maintain_order=True)
    )


def _of_devices(analysis: Analysis) -> pl.DataFrame:
    label = pl.format("device {}", "device_id")
    return _stacked(
        analysis.devices.with_columns(label=label), analysis.cause_totals.with_columns(label=label)
    )


def _of_ranges(analysis: Analysis) -> pl.DataFrame:
    several = analysis.ranges["device_id"].n_unique() > 1
    domains = analysis.ranges["domain"].n_unique() > 1
    label = pl.concat_str(
        pl.col("path"),
        *([pl.format(" ({})", pl.col("domain").fill_null("default"))] if domains else []),
        *([pl.format(" on device {}", "device_id")] if several else []),
    )
    shown = (
        analysis.ranges.with_row_index("_order")
        .sort("idle_ns", descending=True)
        .head(_MOST_BARS)
        .sort("_order")
    )
    causes = analysis.range_cause_totals.join(
        shown, on=["path", "domain", "device_id"], how="semi", nulls_equal=True
    )
    return _stacked(shown.with_columns(label=label), causes.with_columns(label=label))


def _of_steps(analysis: Analysis) -> pl.DataFrame:
    means = steady_causes(analysis.steps, analysis.step_summary, analysis.pieces)
    several = means["device_id"].n_unique() > 1
    named = pl.concat_str(
        pl.col("unit"), *([pl.format(" on device {}", "device_id")] if several else [])
    )
    # Threads that run the same ranges have sequences of one name.
    label = (
        pl.when(pl.col("key").n_unique().over("unit", "device_id") > 1)
        .then(pl.format("{} #{}", named, "key"))
        .otherwise(named)
    )
    keys = means.select("key", "device_id").unique(maintain_order=True).head(_MOST_BARS)
    rows = means.join(keys, on=["key", "device_id"], how="semi", maintain_order="left")
    return rows.select(
        label=label,
        state=pl.col("cause").fill_null("busy"),
        ns="idle_ns",
        total="span_ns",
    )


def gap_histogram(
    analysis: Analysis, device_id: int | None = None, *, title: str | None = None
) -> go.Figure:
    """Draw how many gaps are how long, and which causes hold the idle time in them.

    Above, the idle time in gaps of each length, by cause; below, how many there are: queued (the
    next op had been launched before the gap began), starved (the host was late), or unknown. The
    lengths are logarithmic, five bins to a factor of ten.

    Args:
        analysis: of the trace.
        device_id: of one device; else of all together.
        title: above the figure.
    """
    gaps, idle = analysis.gaps, analysis.idle
    if device_id is not None:
        gaps, idle = (frame.filter(pl.col("device_id") == device_id) for frame in (gaps, idle))
    counts = of_all_devices(gap_lengths(gaps, idle))
    if counts.is_empty():
        return nothing(figure(height=_MARGIN, title=title), "no gaps")
    drawn = make_subplots(
        rows=2,
        cols=1,
        shared_xaxes=True,
        vertical_spacing=0.06,
        figure=figure(height=380, title=title, barmode="stack", bargap=0.05),
    )
    axes(drawn)
    causes = of_all_devices(gap_length_causes(gaps, idle))
    for cause in CAUSES.categories:
        mine = causes.filter(pl.col("cause") == cause)
        said = [f"{cause} {duration(ns)}" for ns in mine["idle_ns"]]
        _bars(drawn, 1, cause, mine, mine["idle_ns"] * _MS, CAUSE_COLORS[cause], said, "legend")
    for kind in GAP_KINDS:
        mine = counts.filter(pl.col("kind") == kind)
        said = [f"{count(number)} {kind}" for number in mine["gap_count"]]
        _bars(drawn, 2, kind, mine, mine["gap_count"], KIND_COLORS[kind], said, "legend2")
    _length_axis(drawn, counts["bin"].to_list())
    drawn.update_yaxes(row=1, col=1, title={"text": "idle, ms"})
    drawn.update_yaxes(row=2, col=1, title={"text": "gaps"})
    if max(counts["gap_count"].to_list()) < _FEW_GAPS:
        drawn.update_yaxes(row=2, col=1, dtick=1)
    below = {"orientation": "h", "x": 0, "y": 0.47, "yanchor": "bottom", "traceorder": "normal"}
    # plotly adds the height of the lower legend to that of the upper, which is margin enough.
    drawn.update_layout(legend2=below, margin={"t": 0})
    drawn.update_yaxes(row=1, col=1, domain=[0.58, 1]).update_yaxes(row=2, col=1, domain=[0, 0.44])
    return drawn


def _bars(
    drawn: go.Figure,
    row: int,
    name: str,
    mine: pl.DataFrame,
    values: pl.Series,
    color: str,
    said: Sequence[str],
    legend: str,
) -> None:
    if mine.is_empty():
        return
    bounds = [(bin_length(number), bin_length(number + 1)) for number in mine["bin"]]
    drawn.add_bar(
        row=row,
        col=1,
        x=mine["bin"].to_list(),
        y=values.to_list(),
        name=name,
        legend=legend,
        marker={"color": color, "line": {"width": 0}},
        hovertext=[
            f"{text}<br>in gaps of {duration(low)} to {duration(high)}"
            for text, (low, high) in zip(said, bounds, strict=True)
        ],
        hoverinfo="text",
    )


def _length_axis(drawn: go.Figure, bins: Sequence[int]) -> None:
    lowest, highest = min(bins), max(bins)
    every = 5 if highest - lowest > 9 else 1
    marked = [number for number in range(lowest, highest + 2) if number % every == 0]
    # A bar stands in the middle of its bin, a bin's lower bound half a bin before that.
    drawn.update_xaxes(row=2, col=1, title={"text": "length of a gap"})
    drawn.update_xaxes(
        range=[lowest - 0.6, highest + 0.6],
        tickvals=[number - 0.5 for number in marked],
        ticktext=[duration(bin_length(number)) for number in marked],
    )
