"""The timeline: what every device and host thread does, and why a device stands idle."""

import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from gaptrace.analysis import Analysis
from gaptrace.render.figures import hover
from gaptrace.render.figures.style import (
    BUSY_COLOR,
    CAUSE_COLORS,
    OP_COLORS,
    axes,
    figure,
)
from gaptrace.timelines import CAUSES
from gaptrace.view import View, view

_DEVICE_HEIGHT, _LANE_HEIGHT, _MARGIN = 90, 26, 110
#: A bin in which hardly anything happened is still to be seen.
_LEAST_THICKNESS = 0.12
#: Names that would have to be smaller to fit into their range are hidden.
_LEAST_LETTERS = 11
_STATES = ("busy", *CAUSES.categories)
_MS = 1e-6


def timeline(
    analysis: Analysis,
    from_ns: int | None = None,
    to_ns: int | None = None,
    *,
    title: str | None = None,
) -> go.Figure:
    """Draw devices, streams, graph executions, CUDA calls and NVTX ranges over time.

    The band of a device says of each bin of time how much of it was busy, and idle for which
    cause: exact sums, however many ops there are. Below it, spans of at least a bin are drawn as
    they are; shorter ones as one block a bin, as thick as the share of the bin that they cover.
    Calls of the host have the colour of the cause that they are while a device waits for them.

    Args:
        analysis: of the trace.
        from_ns: time since the session began; without it, from the first device work on.
        to_ns: likewise; without it, to the last.
        title: above the figure.
    """
    return draw(view(analysis, from_ns, to_ns), title=title)


def draw(seen: View, *, title: str | None = None) -> go.Figure:
    """Draw a view."""
    bands, lanes = seen.devices.height, seen.lanes.height
    heights = [_DEVICE_HEIGHT] * bands + ([_LANE_HEIGHT * lanes + 10] if lanes else [])
    drawn = make_subplots(
        rows=len(heights),
        cols=1,
        shared_xaxes=True,
        row_heights=heights,
        vertical_spacing=14 / (sum(heights) + 1),
        figure=figure(
            height=sum(heights) + _MARGIN,
            title=title,
            barmode="overlay",
            uniformtext={"mode": "hide", "minsize": _LEAST_LETTERS},
        ),
    )
    axes(drawn)
    present = set(seen.bins["state"].unique())
    shown = seen.bins["device_id"].unique()
    named = next((row for row, it in enumerate(seen.devices["device_id"], 1) if it in shown), 1)
    for row, device_id in enumerate(seen.devices["device_id"], 1):
        _band(drawn, row, seen, device_id, present, is_named=row == named)
        drawn.update_yaxes(
            row=row,
            col=1,
            title={"text": f"device {device_id}", "standoff": 4},
            range=[0, 1],
            tickvals=[0, 1],
            ticktext=["0%", "100%"],
            fixedrange=True,
        )
    if lanes:
        _lanes(drawn, len(heights), seen)
    drawn.update_xaxes(range=[seen.start_ns * _MS, seen.end_ns * _MS], tickformat=".6~f")
    drawn.update_xaxes(row=len(heights), col=1, title={"text": "time since the session began, ms"})
    return drawn


def _band(
    drawn: go.Figure, row: int, seen: View, device_id: int, present: set[str], *, is_named: bool
) -> None:
    """Shares of each bin as stacked areas; above them, to hover on, bins and long pieces."""
    bins = _by_state(seen.bins.filter(pl.col("device_id") == device_id))
    if bins.is_empty():
        return
    width = bins["end_ns"] - bins["start_ns"]
    edges = pl.concat([bins["start_ns"], bins["end_ns"].tail(1)]).to_numpy() * _MS
    for state in _STATES:
        if state not in present:
            continue
        shares = bins[state] / width if state in bins.columns else pl.zeros(bins.height, eager=True)
        # A step keeps its height until the next edge, so that the last one is named twice.
        drawn.add_scatter(
            row=row,
            col=1,
            x=edges,
            y=pl.concat([shares, shares.tail(1)]).to_numpy().astype("float32"),
            name=state,
            legendgroup=state,
            showlegend=is_named,
            stackgroup=str(device_id),
            mode="none",
            fillcolor=BUSY_COLOR if state == "busy" else CAUSE_COLORS[state],
            line={"shape": "hv", "width": 0},
            hoverinfo="skip",
        )
    _hover_bins(drawn, row, bins)
    _long_pieces(drawn, row, seen.pieces.filter(pl.col("device_id") == device_id))


def _by_state(bins: pl.DataFrame) -> pl.DataFrame:
    """start_ns, end_ns and a column for each state that occurs; no bin left out in between."""
    if bins.is_empty():
        return bins
    first, last = (int(bins["bin"].sort()[at]) for at in (0, -1))
    every = pl.DataFrame({"bin": pl.int_range(first, last + 1, eager=True)})
    wide = bins.pivot("state", index=["bin", "start_ns", "end_ns"], values="covered_ns")
    filled = every.join(wide, on="bin", how="left", maintain_order="left").with_columns(
        pl.coalesce("start_ns", pl.col("end_ns").shift(1).forward_fill()),
        pl.coalesce("end_ns", pl.col("start_ns").shift(-1).backward_fill()),
    )
    states = [state for state in _STATES if state in filled.columns]
    return filled.select("start_ns", "end_ns", pl.col(states).fill_null(0))


def _hover_bins(drawn: go.Figure, row: int, bins: pl.DataFrame) -> None:
    middle = (bins["start_ns"] + bins["end_ns"]) / 2
    drawn.add_bar(
        row=row,
        col=1,
        x=(middle * _MS).to_numpy(),
        y=pl.ones(bins.height, dtype=pl.Int8, eager=True).to_numpy(),
        width=((bins["end_ns"] - bins["start_ns"]) * _MS).to_numpy(),
        marker={"color": "rgba(0,0,0,0)", "line": {"width": 0}},
        hovertext=hover.of_bins(bins),
        hoverinfo="text",
        showlegend=False,
        name="bins",
    )


def _long_pieces(drawn: go.Figure, row: int, pieces: pl.DataFrame) -> None:
    for (cause,), mine in pieces.partition_by("cause", as_dict=True, maintain_order=True).items():
        length = mine["end_ns"] - mine["start_ns"]
        drawn.add_bar(
            row=row,
            col=1,
            x=((mine["start_ns"] + length / 2) * _MS).to_numpy(),
            y=pl.ones(mine.height, dtype=pl.Int8, eager=True).to_numpy(),
            width=(length * _MS).to_numpy(),
            marker={"color": CAUSE_COLORS[str(cause)], "line": {"width": 0}},
            hovertext=hover.of_pieces(mine),
            hoverinfo="text",
            showlegend=False,
            legendgroup=str(cause),
            name=f"gaps: {cause}",
        )


def _lanes(drawn: go.Figure, row: int, seen: View) -> None:
    # Nothing is known beyond the window; a range that begins before it has its name inside it.
    spans = seen.spans.with_columns(
        shown_start_ns=pl.col("start_ns").clip(lower_bound=seen.start_ns),
        shown_end_ns=pl.col("end_ns").clip(upper_bound=seen.end_ns),
        thickness=pl.when(pl.col("covered_ns").is_null())
        .then(0.8)
        .otherwise(
            0.8
            * (pl.col("covered_ns") / (pl.col("end_ns") - pl.col("start_ns")).clip(1)).clip(
                _LEAST_THICKNESS, 1
            )
        ),
    )
    groups = spans.partition_by("kind", as_dict=True, maintain_order=True)
    for (kind,), mine in groups.items():
        is_range = kind == "range"
        drawn.add_bar(
            row=row,
            col=1,
            orientation="h",
            base=(mine["shown_start_ns"] * _MS).to_numpy(),
            x=((mine["shown_end_ns"] - mine["shown_start_ns"]) * _MS).to_numpy(),
            y=mine["lane"].cast(pl.Int16).to_numpy(),
            width=mine["thickness"].cast(pl.Float32).to_numpy(),
            marker={
                "color": OP_COLORS.get(str(kind)) or CAUSE_COLORS.get(str(kind), BUSY_COLOR),
                "line": {"width": 0.5 if is_range else 0, "color": "rgba(128,128,128,0.8)"},
            },
            hovertext=hover.of_spans(mine),
            hoverinfo="text",
            text=_labels(mine, seen) if is_range else None,
            textposition="inside",
            insidetextanchor="start",
            textangle=0,
            name=str(kind or "shorter ones"),
            showlegend=False,
        )
    drawn.update_yaxes(
        row=row,
        col=1,
        tickvals=seen.lanes["lane"].to_list(),
        ticktext=[hover.plain(label) for label in seen.lanes["label"]],
        range=[seen.lanes.height - 0.5, -0.5],
        showgrid=False,
        zeroline=False,
        fixedrange=True,
    )


def _labels(ranges: pl.DataFrame, seen: View) -> list[str]:
    """Names of ranges that are long enough to hold them; letters are about 1/130 of the width."""
    window_ns = seen.end_ns - seen.start_ns
    labels = []
    for start, end, path in ranges.select("start_ns", "end_ns", "name").rows():
        name = (path or "").rsplit("/", 1)[-1]
        visible_ns = min(end, seen.end_ns) - max(start, seen.start_ns)
        labels.append(hover.plain(name) if len(name) * window_ns < 130 * visible_ns else "")
    return labels
