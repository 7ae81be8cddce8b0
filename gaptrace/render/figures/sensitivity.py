"""Which figure the advice hinges on, and by how much it may be wrong."""

from textwrap import wrap

import plotly.graph_objects as go

from gaptrace.recommendation import Recommendation
from gaptrace.render.figures.style import FIRST_COLOR, SECOND_COLOR, figure, nothing
from gaptrace.render.units import duration, times
from gaptrace.render.words import STEP_FIGURES

#: The factors that were tried, see `gaptrace.sensitivity`.
_LOW, _HIGH = 1 / 16, 16
_TICKS = {1 / 16: "1/16", 1 / 4: "1/4", 1: "1", 4: "4", 16: "16"}
_BAR_HEIGHT, _MARGIN = 48, 80
#: Letters of a line beside a bar, which leaves room for the bar in a narrow window.
_LINE = 26
#: To either side of 1 as a power of ten: the factors, and room for what is written beside them.
_ROOM = 1.55


def sensitivity(recommendation: Recommendation, *, title: str | None = None) -> go.Figure:
    """Draw for each figure of the step the factors of it at which the advice stays the same.

    A bar that reaches an end of the axis goes on beyond: no more was tried.

    Args:
        recommendation: its sensitivity.
        title: above the figure.
    """
    rows = recommendation.sensitivity
    if not rows:
        return nothing(figure(height=_MARGIN, title=title), "no figure that the advice hinges on")
    drawn = figure(
        height=_BAR_HEIGHT * len(rows) + _MARGIN, title=title, barmode="overlay", bargap=0.5
    )
    labels = [f"{STEP_FIGURES[row.name]}, {duration(row.value)}" for row in rows]
    spans = [(row.smaller or _LOW, row.larger or _HIGH) for row in rows]
    drawn.add_bar(
        orientation="h",
        y=labels,
        base=[low for low, _ in spans],
        x=[high - low for low, high in spans],
        marker={"color": FIRST_COLOR, "opacity": 0.6, "line": {"width": 0}},
        name="the advice stays",
        hovertext=[
            f"{label}<br>the advice stays from {duration(row.value * low)} to "
            f"{duration(row.value * high)}" + _beyond(row.smaller, row.larger)
            for label, row, (low, high) in zip(labels, rows, spans, strict=True)
        ],
        hoverinfo="text",
    )
    turns = [
        (label, factor, row.value * factor)
        for label, row in zip(labels, rows, strict=True)
        for factor in (row.smaller, row.larger)
        if factor is not None
    ]
    if turns:
        drawn.add_scatter(
            x=[factor for _, factor, _ in turns],
            y=[label for label, _, _ in turns],
            mode="markers+text",
            cliponaxis=False,
            marker={"color": SECOND_COLOR, "symbol": "line-ns", "size": 18,
                    "line": {"width": 3, "color": SECOND_COLOR}},
            text=[f"  {duration(ns)}" if factor > 1 else f"{duration(ns)}  "
                  for _, factor, ns in turns],
            textposition=["middle right" if factor > 1 else "middle left"
                          for _, factor, _ in turns],
            name="here it changes",
            hovertext=[f"{label}<br>the advice changes at {duration(ns)}, {_times(factor)}"
                       for label, factor, ns in turns],
            hoverinfo="text",
        )  # fmt: skip
    drawn.add_vline(x=1, line={"dash": "dot", "width": 1, "color": "#767676"})
    drawn.update_xaxes(
        type="log", range=[-_ROOM, _ROOM], tickvals=list(_TICKS), ticktext=list(_TICKS.values()),
        title={"text": "multiple of the figure as taken"},
    )  # fmt: skip
    drawn.update_yaxes(
        type="category", categoryorder="array", categoryarray=labels[::-1], showgrid=False,
        tickvals=labels, ticktext=["<br>".join(wrap(label, _LINE)) for label in labels],
    )  # fmt: skip
    return drawn


def _times(factor: float) -> str:
    return f"{times(factor)} as large" if factor > 1 else f"{times(1 / factor)} smaller"


def _beyond(smaller: float | None, larger: float | None) -> str:
    sides = [name for name, end in (("below", smaller), ("above", larger)) if end is None]
    return f"<br>{' and '.join(sides)}: not tried" if sides else ""
