"""Steps one after the other, and what launching graphs of each size costs."""

import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from gaptrace.analysis import Analysis
from gaptrace.calibration import Calibration, Figure
from gaptrace.render import words
from gaptrace.render.figures.hover import plain
from gaptrace.render.figures.style import (
    BUSY_COLOR,
    CAUSE_COLORS,
    FIRST_COLOR,
    SECOND_COLOR,
    axes,
    figure,
    log_ticks,
    nothing,
)
from gaptrace.render.units import count, duration
from gaptrace.step_strip import notable_steps, step_strip

_STRIP_HEIGHT, _NAME_HEIGHT, _MARGIN = 130, 22, 110
_MOST_STRIPS = 8
#: Steps that each get a tick.
_FEW = 10
_MS, _US = 1e-6, 1e-3
_NOTABLE = {
    "first": ("diamond-open", "#767676"),
    "warm-up": ("circle-open", "#767676"),
    "outlier": ("x", SECOND_COLOR),
}


def steps(analysis: Analysis, *, title: str | None = None) -> go.Figure:
    """Draw how long the steps of each sequence are, one after the other.

    Of very many steps, bunches: their median, between the shortest and the longest. The first,
    warm-up and outlier steps stand out, and say which cause has grown.

    Args:
        analysis: of the trace.
        title: above the figure.
    """
    shown = analysis.step_units.head(_MOST_STRIPS)
    if shown.is_empty():
        return nothing(figure(height=_MARGIN, title=title), "no repeated steps found")
    rows = shown.height
    # Threads that run the same ranges have sequences of one name.
    alike = shown.select(pl.col("key").n_unique().over("unit", "device_id") > 1).to_series()
    names = [
        plain(unit) + (f" #{key}" if is_alike else "")
        for unit, key, is_alike in zip(shown["unit"], shown["key"], alike, strict=True)
    ]
    if shown["device_id"].n_unique() > 1:
        names = [f"{n} on device {d}" for n, d in zip(names, shown["device_id"], strict=True)]
    drawn = make_subplots(
        rows=rows,
        cols=1,
        subplot_titles=names,
        vertical_spacing=42 / (_STRIP_HEIGHT * rows + 42),
        figure=figure(height=_STRIP_HEIGHT * rows + _MARGIN, title=title),
    )
    axes(drawn)
    strip, notable = step_strip(analysis.step_summary), notable_steps(analysis.step_summary)
    for row, (key, device_id) in enumerate(shown.select("key", "device_id").rows(), 1):
        mine = (pl.col("key") == key) & (pl.col("device_id") == device_id)
        _strip(drawn, row, strip.filter(mine))
        if strip.filter(mine).height < _FEW:
            drawn.update_xaxes(row=row, col=1, dtick=1)
        for what, found in notable.filter(mine).partition_by("what", as_dict=True).items():
            _notable(drawn, row, str(what[0]), found)
    seen = set[str]()
    for trace in drawn.data:
        trace.showlegend = trace.name in ("span", "busy", *_NOTABLE) and trace.name not in seen
        seen.add(trace.name)
    drawn.update_yaxes(rangemode="tozero", title={"text": "ms"})
    drawn.update_xaxes(row=rows, col=1, title={"text": "step"})
    # Of the uppermost row the name stands below the legend, not in it.
    lower = 1 - _NAME_HEIGHT / (_STRIP_HEIGHT * rows)
    drawn.for_each_yaxis(lambda axis: axis.update(domain=[lower * end for end in axis.domain]))
    drawn.for_each_annotation(lambda note: note.update(y=lower * note.y))
    drawn.update_annotations(x=0, xanchor="left", font={"size": 12})
    return drawn


def _strip(drawn: go.Figure, row: int, strip: pl.DataFrame) -> None:
    middle = ((strip["first_step"] + strip["last_step"]) / 2).to_numpy()
    if (strip["first_step"] != strip["last_step"]).any():
        for name, fill in (("shortest_ns", None), ("longest_ns", "tonexty")):
            drawn.add_scatter(
                row=row,
                col=1,
                x=middle,
                y=(strip[name] * _MS).to_numpy(),
                mode="lines",
                line={"width": 0},
                fill=fill,
                fillcolor="rgba(86,180,233,0.3)",
                hoverinfo="skip",
                name=name,
            )
    drawn.add_bar(
        row=row,
        col=1,
        x=middle,
        y=(strip["busy_ns"] * _MS).to_numpy(),
        marker={"color": BUSY_COLOR, "line": {"width": 0}},
        hoverinfo="skip",
        name="busy",
        legendgroup="busy",
    )
    drawn.add_scatter(
        row=row,
        col=1,
        x=middle,
        y=(strip["median_ns"] * _MS).to_numpy(),
        mode="lines+markers" if strip.height <= 200 else "lines",
        marker={"size": 4},
        line={"width": 1.5, "color": FIRST_COLOR},
        hovertext=[_bunch(found) for found in strip.to_dicts()],
        hoverinfo="text",
        name="span",
        legendgroup="span",
    )


def _bunch(row: dict[str, int]) -> str:
    first, last = row["first_step"], row["last_step"]
    busy = f"busy {duration(row['busy_ns'])}"
    if first == last:
        return f"step {first}<br>span {duration(row['median_ns'])}, {busy}"
    return (
        f"steps {first} to {last}<br>median {duration(row['median_ns'])}, {busy}<br>"
        f"from {duration(row['shortest_ns'])} to {duration(row['longest_ns'])}"
    )


def _notable(drawn: go.Figure, row: int, what: str, found: pl.DataFrame) -> None:
    symbol, color = _NOTABLE[what]
    drawn.add_scatter(
        row=row,
        col=1,
        x=found["step"].to_list(),
        y=(found["span_ns"] * _MS).to_list(),
        mode="markers",
        marker={
            **{"symbol": symbol, "size": 9, "color": color},
            "line": {"width": 1.5, "color": color},
        },
        hovertext=[_said(step, what) for step in found.to_dicts()],
        hoverinfo="text",
        name=what,
        legendgroup=what,
    )


def _said(step: dict[str, int | str | None], what: str) -> str:
    text = f"step {step['step']}, {what}<br>span {duration(step['span_ns'])}"  # type: ignore[arg-type]
    if step["excess_ns"] is not None:
        text += f"<br>{duration(step['excess_ns'])} above the median"  # type: ignore[arg-type]
    return text + words.grown(step)


def launch_costs(
    analysis: Analysis, calibration: Calibration | None = None, *, title: str | None = None
) -> go.Figure:
    """Draw what launching a graph takes against the number of its CUDA nodes.

    For each size in the trace the launch call and the exposed latency, from the median to the 90th
    percentile. With a calibration the same without a recorder, and under the recorders that it
    knows.

    Args:
        analysis: of the trace.
        calibration: of the machine that it was recorded on.
        title: above the figure.
    """
    drawn = figure(height=380, title=title)
    us = list[float]()
    sizes = analysis.graph_sizes.filter(pl.col("nodes").is_not_null()).sort("nodes")
    several = sizes["device_id"].n_unique() > 1
    recorded = ("launch_api_ns", "launch call, as recorded", CAUSE_COLORS["launch_call"], "circle")
    exposed = (
        *("exposed_latency_ns", "exposed latency, as recorded"),
        *(CAUSE_COLORS["device_queued"], "diamond"),
    )
    for column, name, color, symbol in (recorded, exposed):
        known = sizes.filter(pl.col(column).struct.field("p50").is_not_null())
        if known.is_empty():
            continue
        p50, p90 = (known[column].struct.field(field) for field in ("p50", "p90"))
        us += [ns * _US for ns in (*p50, *p90)]
        drawn.add_scatter(
            x=known["nodes"].to_list(),
            y=(p50 * _US).to_list(),
            error_y={"array": ((p90 - p50) * _US).to_list(), "arrayminus": [0] * known.height},
            mode="markers",
            marker={"color": color, "symbol": symbol, "size": 9},
            name=name,
            hovertext=[
                f"{name}{f' on device {device_id}' if several else ''}<br>"
                f"{count(nodes)} CUDA nodes: median {duration(low)}, p90 {duration(high)}"
                for device_id, nodes, low, high in zip(
                    known["device_id"], known["nodes"], p50, p90, strict=True
                )
            ],
            hoverinfo="text",
        )
    for name, dash, color, table in _calibrated(calibration):
        _table(drawn, name, dash, color, table)
        us += [each.value * _US for each in table]
    if not drawn.data:
        return nothing(figure(height=_MARGIN, title=title), "no launches of graphs of known size")
    nodes = log_ticks(size for mark in drawn.data for size in mark.x)
    drawn.update_xaxes(title={"text": "CUDA nodes of the graph"}, **nodes)
    drawn.update_yaxes(title={"text": "us"}, **log_ticks(us))
    return drawn


def _calibrated(
    calibration: Calibration | None,
) -> list[tuple[str, str, str, tuple[Figure, ...]]]:
    """Name, dash, colour and points of each line."""
    if calibration is None:
        return []
    launched, exposed = CAUSE_COLORS["launch_call"], CAUSE_COLORS["device_queued"]
    found = [
        ("launch call, untraced", "solid", launched, calibration.table("graph_launch_api_ns")),
        (
            *("exposed latency, untraced", "solid", exposed),
            calibration.table("graph_launch_latency_ns"),
        ),
    ]
    dashes = ("dot", "dash", "dashdot", "longdash")
    for recorder, dash in zip(calibration.recorders, dashes, strict=False):
        table = calibration.table("graph_launch_api_ns", recorder=recorder)
        found.append((f"launch call under {recorder}", dash, "#767676", table))
    return [each for each in found if each[3]]


def _table(drawn: go.Figure, name: str, dash: str, color: str, table: tuple[Figure, ...]) -> None:
    drawn.add_scatter(
        x=[each.nodes for each in table],
        y=[each.value * _US for each in table],
        mode="lines",
        line={"dash": dash, "width": 2, "color": color},
        name=plain(name),
        hovertext=[
            f"{plain(name)}<br>{count(each.nodes)} CUDA nodes: {duration(each.value)}, "
            f"from {duration(each.low)} to {duration(each.high)}"
            for each in table
        ],
        hoverinfo="text",
    )
