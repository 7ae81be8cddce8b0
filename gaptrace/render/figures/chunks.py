"""Chunks: how long a step takes at each size."""

import numpy as np
import plotly.graph_objects as go

from gaptrace.cost import ChunkModel
from gaptrace.recommendation import Recommendation
from gaptrace.render.figures.style import FIRST_COLOR, SECOND_COLOR, log_ticks, nothing
from gaptrace.render.figures.style import figure as empty
from gaptrace.render.units import count, duration
from gaptrace.schedules import uniform
from gaptrace.timings import Measurement

_US = 1e-3
#: Points of a curve: as many as a screen can tell apart on a logarithmic axis.
_MOST_POINTS = 600
#: The size that made people ask (ggml-org/llama.cpp#11867).
_REFERENCE = 512
#: Times of which the largest is as many times the smallest are told apart on a linear axis.
_MOST_LINEAR = 5
#: Sizes whose labels do not run into each other, as a factor.
_APART = 1.6
_ARMS = ("graph:", "chunk:")


def step_by_chunk(
    recommendation: Recommendation | None = None,
    *,
    model: ChunkModel | None = None,
    added_ns: float = 0.0,
    measurement: Measurement | None = None,
    title: str | None = None,
) -> go.Figure:
    """Draw the time of a step against the size of its chunks.

    Args:
        recommendation: its predicted and measured times, and the plateau of sizes about as good.
        model: its makespan at every uniform size, as a curve.
        added_ns: what a step takes beyond the makespan of the model, such as `fit.Fit.notice_ns`.
        measurement: the arms of the step, timed without a recorder unless it says otherwise.
        title: above the figure.
    """
    drawn = empty(height=360, title=title)
    sizes = set[int]()
    if model is not None:
        sizes |= _curve(drawn, model, added_ns)
    if recommendation is not None:
        sizes |= _interval(drawn, recommendation) | _predicted(drawn, recommendation)
    if measurement is not None:
        sizes |= _measured(drawn, measurement)
    elif recommendation is not None:
        sizes |= _told(drawn, recommendation)
    if recommendation is not None and recommendation.plateau:
        low, high = recommendation.plateau
        _mark(drawn, low, high)
    if sizes and min(sizes) <= _REFERENCE <= max(sizes):
        drawn.add_vline(x=_REFERENCE, line={"dash": "dot", "width": 1, "color": "#767676"})
        drawn.add_annotation(
            x=float(np.log10(_REFERENCE)), y=1, yref="paper", yanchor="top", xanchor="left",
            text="512 (llama.cpp)", showarrow=False,
        )  # fmt: skip
    whole = next((it.nodes for it in (recommendation, model, measurement) if it and it.nodes), None)
    if not sizes:
        return nothing(drawn, "no times by chunk size")
    _size_axis(drawn, max(sizes), whole)
    drawn.update_yaxes(title={"text": "step, us"})
    _spread_out(drawn)
    return drawn


def _size_axis(drawn: go.Figure, largest: int, whole: int | None) -> None:
    """Mark powers of two, and the size at which the step is one graph."""
    marked = {2**power: f"{2**power:,}" for power in range(largest.bit_length())}
    if whole is not None:
        marked = {size: text for size, text in marked.items() if size * _APART < whole}
        marked[whole] = f"{whole:,}<br>one graph"
    drawn.update_xaxes(
        title={"text": "CUDA nodes of a chunk"}, type="log",
        tickvals=list(marked), ticktext=list(marked.values()),
    )  # fmt: skip


def _spread_out(drawn: go.Figure) -> None:
    """Make the vertical axis logarithmic where small chunks would squeeze all others flat."""
    times = [us for mark in drawn.data for us in mark.y]
    if not times or max(times) < _MOST_LINEAR * min(times):
        return
    drawn.update_yaxes(log_ticks(times))
    for note in drawn.layout.annotations:
        if note.yref in (None, "y"):
            note.y = float(np.log10(note.y))  # as plotly wants it of notes, but not of lines


def has_sizes(recommendation: Recommendation) -> bool:
    """Say whether a recommendation holds two times of different sizes, so that there is a line."""
    known = _known_sizes(recommendation).keys() | _timed_sizes(recommendation).keys()
    return len(known | {each.chunk for each in recommendation.by_size}) > 1


def _known_sizes(recommendation: Recommendation) -> dict[int, float]:
    """Predicted times by chunk size."""
    ways = {each.chunk: float(each.step_ns) for each in recommendation.alternatives if each.chunk}
    if ways:
        return ways
    found = recommendation.predicted_ns
    sizes = {"one_graph": recommendation.nodes, "chunk": recommendation.chunk}
    return {size: found[arm] for arm, size in sizes.items() if size and arm in found}


def _timed_sizes(recommendation: Recommendation) -> dict[int, float]:
    """Measured times by chunk size: those of arms named graph:N and chunk:N."""
    return {
        int(name.split(":")[1]): ns
        for name, ns in recommendation.measured_ns.items()
        if name.startswith(_ARMS)
    }


def _interval(drawn: go.Figure, recommendation: Recommendation) -> set[int]:
    """The curve of a recommendation, in the interval of its inputs."""
    found = recommendation.by_size
    if not found:
        return set()
    sizes = [each.chunk for each in found]
    is_wide = any(each.low_ns < each.high_ns for each in found)
    for low, fill in ((True, None), (False, "tonexty")) if is_wide else ():
        drawn.add_scatter(
            x=sizes,
            y=[(each.low_ns if low else each.high_ns) * _US for each in found],
            mode="lines",
            line={"width": 0},
            fill=fill,
            fillcolor="rgba(0,114,178,0.15)",
            hoverinfo="skip",
            showlegend=not low,
            name="with inputs at the ends of what is known of them",
        )
    drawn.add_scatter(
        x=sizes,
        y=[each.step_ns * _US for each in found],
        mode="lines",
        line={"color": FIRST_COLOR, "width": 2},
        name="predicted without a recorder",
        hovertext=[
            f"chunks of {count(each.chunk)} CUDA nodes: {duration(each.step_ns)}<br>"
            f"{duration(each.low_ns)} to {duration(each.high_ns)}"
            for each in found
        ],
        hoverinfo="text",
    )
    return set(sizes)


def _curve(drawn: go.Figure, model: ChunkModel, added_ns: float) -> set[int]:
    spaced = np.geomspace(1, model.nodes, _MOST_POINTS).round().astype(int)
    sizes = np.unique(spaced)
    drawn.add_scatter(
        x=sizes,
        y=(uniform(model)[sizes - 1] + added_ns) * _US,
        mode="lines",
        line={"color": FIRST_COLOR, "width": 2},
        name="predicted",
        hovertemplate="chunks of %{x} CUDA nodes: %{y:.4g} us<extra>predicted</extra>",
    )
    return set(sizes.tolist())


def _predicted(drawn: go.Figure, recommendation: Recommendation) -> set[int]:
    known = _known_sizes(recommendation)
    _points(drawn, "predicted", known, FIRST_COLOR, "circle-open")
    for each in recommendation.alternatives:
        if each.is_now and each.chunk:
            _points(
                drawn, "as recorded", {each.chunk: float(each.step_ns)}, "#767676", "diamond-open"
            )
        elif each.is_now:
            _line(drawn, each.step_ns, f"as recorded, {count(each.graphs)} graphs", "dot")
    least = recommendation.predicted_ns.get("device_only")
    if least is not None and known:
        _line(drawn, least, "device alone", "dash")
    return set(known)


def _line(drawn: go.Figure, ns: float, name: str, dash: str) -> None:
    drawn.add_hline(y=ns * _US, line={"dash": dash, "width": 1, "color": "#767676"})
    drawn.add_annotation(
        x=0, xref="paper", xanchor="left", y=ns * _US, yanchor="bottom",
        text=f"{name} {duration(ns)}", showarrow=False,
    )  # fmt: skip


def _told(drawn: go.Figure, recommendation: Recommendation) -> set[int]:
    timed = _timed_sizes(recommendation)
    _points(drawn, "measured", timed, SECOND_COLOR, "x")
    return set(timed)


def _points(drawn: go.Figure, name: str, times: dict[int, float], color: str, symbol: str) -> None:
    if not times:
        return
    drawn.add_scatter(
        x=list(times),
        y=[ns * _US for ns in times.values()],
        mode="markers",
        marker={"color": color, "symbol": symbol, "size": 10, "line": {"width": 2, "color": color}},
        name=name,
        hovertext=[
            f"{name}<br>chunks of {count(size)} CUDA nodes: {duration(ns)}"
            for size, ns in times.items()
        ],
        hoverinfo="text",
    )


def _measured(drawn: go.Figure, measurement: Measurement) -> set[int]:
    cut = [timing for timing in measurement.timings if timing.arm.chunk is not None]
    uniform_arms = sorted(
        (timing for timing in cut if timing.arm.name.startswith(_ARMS)),
        key=lambda timing: timing.arm.chunk or 0,
    )
    how = "measured under a recorder" if measurement.is_recorded else "measured"
    drawn.add_scatter(
        x=[timing.arm.chunk for timing in uniform_arms],
        y=[timing.step_ns * _US for timing in uniform_arms],
        error_y={"array": [(timing.error_ns or 0) * _US for timing in uniform_arms]},
        mode="lines+markers",
        line={"color": SECOND_COLOR, "width": 1, "dash": "dot"},
        marker={"symbol": "x", "size": 9, "color": SECOND_COLOR, "line": {"width": 0}},
        name=how,
        hovertext=[
            f"{timing.arm.name}, {how}<br>step {duration(timing.step_ns)}"
            + (f", give or take {duration(timing.error_ns)}" if timing.error_ns else "")
            for timing in uniform_arms
        ],
        hoverinfo="text",
    )
    for timing in measurement.of("per_launch"):
        drawn.add_hline(
            y=timing.step_ns * _US, line={"dash": "dot", "width": 1, "color": SECOND_COLOR}
        )
        drawn.add_annotation(
            x=1, xref="paper", xanchor="right", y=timing.step_ns * _US, yanchor="bottom",
            text=f"per launch {duration(timing.step_ns)}", showarrow=False,
        )  # fmt: skip
    return {timing.arm.chunk for timing in uniform_arms if timing.arm.chunk}


def _mark(drawn: go.Figure, low: int, high: int) -> None:
    """The sizes that are about as good; a line where there is but one."""
    is_one = low == high
    line = {"width": 2 if is_one else 0, "color": "#009E73"}
    drawn.add_vrect(x0=low, x1=high, fillcolor="rgba(0,158,115,0.15)", line=line)
    drawn.add_annotation(
        x=float(np.log10(high)), y=1, yref="paper", yshift=-14, xanchor="right", yanchor="top",
        text=f"best: {count(low)}" if is_one else f"about as good: {count(low)} to {count(high)}",
        showarrow=False,
    )  # fmt: skip
