"""How all figures look: one colour per cause, in light and dark alike."""

from collections.abc import Iterable
from math import ceil, floor, log10

import plotly.graph_objects as go

#: Colours of the causes everywhere. Okabe and Ito 2008, "Color Universal Design": eight colours
#: that people with any kind of colour blindness tell apart. Their black, which vanishes on dark
#: pages, is a grey here.
CAUSE_COLORS = {
    "launch_call": "#D55E00",
    "graph_build": "#CC79A7",
    "host_code": "#E69F00",
    "host_sync": "#0072B2",
    "api_other": "#009E73",
    "device_queued": "#56B4E9",
    "profiler": "#F0E442",
    "unrecorded": "#767676",
}
#: Work is no cause of waiting: it is grey, and darker or lighter than any page.
BUSY_COLOR = "rgba(128,128,128,0.35)"
OP_COLORS = {
    "kernel": "rgba(128,128,128,0.75)",
    "graph": "rgba(128,128,128,0.5)",
    "memcpy": "rgba(145,110,70,0.9)",
    "memset": "rgba(145,110,70,0.6)",
    "decompress": "rgba(145,110,70,0.4)",
    "range": "rgba(128,128,128,0.25)",
}
#: Two colours of the same source for what is no cause: two traces, prediction and measurement.
FIRST_COLOR, SECOND_COLOR = "#0072B2", "#D55E00"
#: Colours of the queued, starved and unknown gaps: device, host, neither.
KIND_COLORS = {
    "queued": CAUSE_COLORS["device_queued"],
    "starved": CAUSE_COLORS["launch_call"],
    "unknown": CAUSE_COLORS["unrecorded"],
}
#: Of a title; the legend begins below it.
TITLE_HEIGHT = 30
#: Of the smallest value on a logarithmic axis: further ones leave no room for ticks in between.
_MOST_MARKED = 200
#: Values closer than this factor might lie between two ticks.
_LEAST_SPREAD = 3
#: Text and lines that can be read on white (contrast 4.7) and on near-black (4.0) alike.
_INK = "#747474"
_LINE = "rgba(128,128,128,0.3)"
_AXIS = {
    **{"gridcolor": _LINE, "zerolinecolor": _LINE, "linecolor": _LINE, "automargin": True},
    **{"separatethousands": True, "exponentformat": "none"},
    "title": {"font": {"size": 12}, "standoff": 8},
}


def figure(*, height: int, title: str | None = None, **layout: object) -> go.Figure:
    """Return an empty figure in this style.

    Args:
        height: in pixels, without the title; the width is that of the page.
        title: above it.
        layout: more of plotly's layout.
    """
    drawn = go.Figure()
    above = TITLE_HEIGHT if title else 0
    drawn.update_layout(
        template=go.layout.Template(),  # else that of the notebook
        height=height + above,
        title={
            "text": title,
            **{"x": 0, "xref": "container", "y": 1, "yanchor": "top", "pad": {"t": 8, "l": 8}},
            "font": {"size": 14},
        }
        if title
        else None,
        font={"family": "system-ui, sans-serif", "size": 12, "color": _INK},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        margin={"l": 60, "r": 16, "t": 16 + above, "b": 44},
        # From the top down, and the plot begins below its last row, however many there are.
        legend={
            "orientation": "h", "xref": "container", "x": 0, "traceorder": "normal",
            "yref": "container", "y": 1 - above / (height + above), "yanchor": "top",
        },
        hoverlabel={"align": "left", "namelength": -1},
        # Else a dark box, which plotly takes for the contrast of a page that it cannot see.
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": _INK, "activecolor": _INK},
        **layout,
    )  # fmt: skip
    drawn.update_xaxes(_AXIS)
    drawn.update_yaxes(_AXIS)
    return drawn


def nothing(drawn: go.Figure, why: str) -> go.Figure:
    """Say in the place of marks why there are none, and return the figure."""
    drawn.update_xaxes(visible=False).update_yaxes(visible=False)
    drawn.add_annotation(text=why, x=0.5, xref="paper", y=0.5, yref="paper", showarrow=False)
    return drawn


def log_ticks(values: Iterable[float]) -> dict[str, object]:
    """Return the type and the ticks of an axis: 1, 2 and 5, or decades where there are many.

    Where the values lie close together, also a range that holds ticks.
    """
    known = [value for value in values if value > 0] or [1.0]
    first, last = floor(log10(min(known))) - 1, ceil(log10(max(known))) + 1
    digits = (1, 2, 5) if max(known) < _MOST_MARKED * min(known) else (1,)
    marked = [digit * 10.0**power for power in range(first, last + 1) for digit in digits]
    axis: dict[str, object] = {
        "type": "log",
        "tickvals": marked,
        "ticktext": [f"{value:,g}" for value in marked],
    }
    if max(known) < _LEAST_SPREAD * min(known):
        middle = log10(min(known) * max(known)) / 2
        axis["range"] = [middle - log10(_LEAST_SPREAD), middle + log10(_LEAST_SPREAD)]
    return axis


def axes(drawn: go.Figure) -> None:
    """Give axes that were added later the look of the others."""
    drawn.update_xaxes(_AXIS)
    drawn.update_yaxes(_AXIS)
