"""How all figures look: one colour per cause, in light and dark alike."""

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
#: Of a title and the legend below it, which else takes its place.
TITLE_HEIGHT = 44
#: Text and lines that can be read on white (contrast 4.7) and on near-black (4.0) alike.
_INK = "#747474"
_LINE = "rgba(128,128,128,0.3)"
_AXIS = {"gridcolor": _LINE, "zerolinecolor": _LINE, "linecolor": _LINE, "automargin": True}


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
            **{"x": 0, "xref": "paper", "y": 1, "yanchor": "top", "pad": {"t": 8}},
            "font": {"size": 14},
        }
        if title
        else None,
        font={"family": "system-ui, sans-serif", "size": 12, "color": _INK},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        margin={"l": 60, "r": 16, "t": 16 + above, "b": 44},
        legend={"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
        hoverlabel={"align": "left", "namelength": -1},
        **layout,
    )
    drawn.update_xaxes(_AXIS)
    drawn.update_yaxes(_AXIS)
    return drawn


def axes(drawn: go.Figure) -> None:
    """Give axes that were added later the look of the others."""
    drawn.update_xaxes(_AXIS)
    drawn.update_yaxes(_AXIS)
