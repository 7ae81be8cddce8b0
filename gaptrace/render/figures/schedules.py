"""How chunks hide their launches: what the host and the device do, and when."""

from collections.abc import Sequence

import plotly.graph_objects as go

from gaptrace.cost import ChunkModel, chunk_times
from gaptrace.render.figures.style import BUSY_COLOR, CAUSE_COLORS, figure
from gaptrace.render.units import count, duration

_US = 1e-3


def schedule_lanes(
    model: ChunkModel,
    schedules: Sequence[Sequence[int]],
    *,
    names: Sequence[str] | None = None,
    added_ns: float = 0.0,
    title: str | None = None,
) -> go.Figure:
    """Draw when the host launches each chunk and the device runs it: how chunks hide launches.

    Args:
        model: of the step.
        schedules: chunk sizes in CUDA nodes, in launch order; a pair of lanes for each.
        names: of the schedules, before what they are.
        added_ns: what a step takes beyond the makespan of the model, for the times that are told.
        title: above the figure.
    """
    drawn = figure(height=74 * len(schedules) + 110, title=title, barmode="overlay", bargap=0.2)
    labels = []
    for number, sizes in enumerate(schedules):
        times = chunk_times(model, sizes)
        graphs = "one graph" if len(sizes) == 1 else f"{count(len(sizes))} graphs"
        step = duration(times[-1].device_end_ns + added_ns)
        called = f"{names[number]}<br>" if names and names[number] else ""
        labels += [f"{called}{graphs}, {step}: host", "device"]
        lanes = (
            ("launch", CAUSE_COLORS["launch_call"], "host_start_ns", "host_end_ns"),
            ("run", BUSY_COLOR, "device_start_ns", "device_end_ns"),
        )
        for lane, (what, color, start, end) in enumerate(lanes):
            spans = [(getattr(each, start), getattr(each, end), each.nodes) for each in times]
            drawn.add_bar(
                orientation="h",
                base=[begin * _US for begin, _, _ in spans],
                x=[(stop - begin) * _US for begin, stop, _ in spans],
                y=[2 * number + lane] * len(spans),
                marker={"color": color, "line": {"width": 1, "color": "rgba(128,128,128,0.9)"}},
                name=what,
                showlegend=number == 0,
                hovertext=[
                    f"{what} of {count(nodes)} CUDA nodes: {duration(stop - begin)}<br>"
                    f"from {duration(begin)} to {duration(stop)}"
                    for begin, stop, nodes in spans
                ],
                hoverinfo="text",
            )
    drawn.update_yaxes(
        tickvals=list(range(len(labels))), ticktext=labels, range=[len(labels) - 0.4, -0.6]
    )
    drawn.update_xaxes(title={"text": "us since the host began the step"})
    return drawn
