"""Which figures stand in which section of the HTML report."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import plotly.graph_objects as go

from gaptrace.analysis import Analysis
from gaptrace.calibration import Calibration
from gaptrace.prepared import Prepared
from gaptrace.recommendation import Recommendation, Schedules
from gaptrace.render import figures
from gaptrace.render.figures.chunks import has_sizes
from gaptrace.render.figures.timeline import draw
from gaptrace.render.units import count, duration
from gaptrace.step_strip import typical_steps
from gaptrace.timings import Measurement
from gaptrace.view import view

#: Sequences of steps of which a typical one is drawn by itself.
_MOST_STEPS = 3
#: Bins of a device and of a lane in the finest timelines, and in close-ups.
_BINS, _CLOSE_BINS = (1000, 500), (600, 400)
#: Graphs of a step that can be told apart on a screen.
_MOST_CHUNKS = 500


@dataclass(frozen=True)
class Picture:
    """A figure with what it shows.

    Attributes:
        figure: it.
        caption: what it shows, and how to read it.
        is_close_up: whether it may be folded away.
    """

    figure: go.Figure
    caption: str
    is_close_up: bool = False

    @cached_property
    def json(self) -> str:
        """The figure as JSON that ends no script element, whatever names it holds."""
        return str(self.figure.to_json()).replace("<", "\\u003c").replace(">", "\\u003e")


def overview(prepared: Prepared, coarseness: int) -> list[Picture]:
    """Return the timelines: the whole, and a typical step of the longest sequences.

    Args:
        prepared: the analysis.
        coarseness: by how much fewer bins are drawn than would be best.
    """
    whole = Picture(
        _timeline(prepared, None, None, _BINS, coarseness),
        "What the devices and the host do over time. The band of a device says of each moment "
        "what share of it was busy, and idle for which cause; exact sums at any length of trace. "
        "Below, blocks that are not full height stand for many short ones, as thick as the share "
        "of time that they cover. Kernels and graphs are grey, copies and sets brown; CUDA calls "
        "have the colour of the cause that they are while the device waits for them. Drag to "
        "zoom, double-click to reset.",
    )
    return [whole, *_steps(prepared, coarseness)]


def _steps(prepared: Prepared, coarseness: int) -> list[Picture]:
    analysis = prepared.analysis
    found = typical_steps(analysis.step_summary).head(_MOST_STEPS)
    several = analysis.devices.height > 1
    return [
        Picture(
            _close_up(prepared, row["start_ns"], row["end_ns"], 0.05, coarseness),
            f"A typical step: number {row['step']} of {row['unit']}"
            + (f" on device {row['device_id']}" if several else "")
            + f", of median length ({duration(row['span_ns'])}).",
            is_close_up=True,
        )
        for row in found.to_dicts()
    ]


def _close_up(
    prepared: Prepared, start_ns: int, end_ns: int, margin: float, coarseness: int
) -> go.Figure:
    around = round((end_ns - start_ns) * margin)
    return _timeline(prepared, start_ns - around, end_ns + around, _CLOSE_BINS, coarseness)


def _timeline(
    prepared: Prepared,
    from_ns: int | None,
    to_ns: int | None,
    bins: tuple[int, int],
    coarseness: int,
) -> go.Figure:
    device_bins, lane_bins = (number // coarseness for number in bins)
    return draw(view(prepared, from_ns, to_ns, device_bins=device_bins, lane_bins=lane_bins))


def of_section(
    title: str,
    prepared: Prepared,
    calibration: Calibration | None,
    measured: Mapping[str, Measurement],
    coarseness: int,
) -> list[Picture]:
    """Return the figures of a section of the text report, by its title.

    Args:
        title: of the section.
        prepared: the analysis.
        calibration: of its machine, where there is one.
        measured: timed steps by name.
        coarseness: as for `overview`.
    """
    analysis = prepared.analysis
    match title:
        case "Largest gaps":
            return [_lengths(analysis), _largest(prepared, coarseness)]
        case "NVTX ranges":
            return [
                Picture(
                    figures.idle_by_cause(analysis, "range"),
                    "Busy time, and idle time by cause, in all instances of each range. Ranges "
                    "may lie inside each other.",
                )
            ]
        case "Steps" if analysis.step_units.height:
            return [
                Picture(
                    figures.idle_by_cause(analysis, "step"),
                    "What an average step, after the first and the warm-up, is made of.",
                ),
                Picture(
                    figures.steps(analysis),
                    "How long the steps are, one after the other; grey: busy.",
                ),
            ]
        case "Graphs by size":
            return _launch_costs(analysis, calibration)
        case "Recommendation":
            return _recommendation(analysis.recommendation, measured)
    if title.startswith("Device ") and analysis.devices.height == 1:
        return [_device(analysis)]
    return []


def devices(analysis: Analysis) -> list[Picture]:
    """Return one figure of all devices, where there are several."""
    return [_device(analysis)] if analysis.devices.height > 1 else []


def _device(analysis: Analysis) -> Picture:
    return Picture(
        figures.idle_by_cause(analysis, "device"),
        "Busy time, and idle time by cause; they sum to the span.",
    )


def _lengths(analysis: Analysis) -> Picture:
    return Picture(
        figures.gap_histogram(analysis),
        "How long the gaps are. Above, how much idle time lies in gaps of a length, by cause; "
        "below, how many there are: queued (the device alone made the gap), starved (the host was "
        "late) or unknown.",
    )


def _largest(prepared: Prepared, coarseness: int) -> Picture:
    row = prepared.analysis.largest_gaps.row(0, named=True)
    return Picture(
        _close_up(prepared, row["start_ns"], row["end_ns"], 0.5, coarseness),
        f"The largest gap, {duration(row['gap_ns'])}, and what is around it.",
        is_close_up=True,
    )


def _launch_costs(analysis: Analysis, calibration: Calibration | None) -> list[Picture]:
    if not analysis.graph_sizes["nodes"].is_not_null().any():
        return []
    lines = (
        " Lines: a calibration, without a recorder and under those that it knows."
        if calibration
        else " As recorded: recording lengthens the launch with every node."
    )
    return [
        Picture(
            figures.launch_costs(analysis, calibration),
            "What launching a graph takes, by its size: median, up to the 90th percentile." + lines,
        )
    ]


def _recommendation(found: Recommendation, measured: Mapping[str, Measurement]) -> list[Picture]:
    timed = {name: each for name, each in measured.items() if each.nodes}
    alike = [name for name, each in timed.items() if _is_of(each, found)]
    own = alike[0] if len(alike) == 1 else None
    shown = [_timed(name, each) for name, each in timed.items() if name != own]
    if has_sizes(found):
        caption = "The time of a step by the size of its chunks, as predicted without a recorder."
        if own is not None:
            caption += f" Crosses: {own}, which has as many CUDA nodes, timed without one."
        measurement = None if own is None else timed[own]
        shown.append(Picture(figures.step_by_chunk(found, measurement=measurement), caption))
    if found.sensitivity:
        shown.append(
            Picture(
                figures.sensitivity(found),
                "What the advice hinges on: by how much each figure may be wrong, all others being "
                "right, before another way to launch the step would be better by more than 0.5 %. "
                "Tried from a sixteenth to 16 times as large.",
            )
        )
    if found.schedules is not None:
        shown += _lanes(found.schedules)
    return shown


def _is_of(measurement: Measurement, found: Recommendation) -> bool:
    return has_sizes(found) and measurement.nodes == found.nodes and not measurement.is_recorded


def _timed(name: str, measurement: Measurement) -> Picture:
    how = "UNDER A RECORDER" if measurement.is_recorded else "without a recorder"
    return Picture(
        figures.step_by_chunk(measurement=measurement),
        f"Step {name}, {count(measurement.nodes or 0)} CUDA nodes, timed {how}.",
    )


def _lanes(found: Schedules) -> list[Picture]:
    """The step as advised, as one graph and as it is now; if that is all one, cut as well."""
    ways: dict[tuple[int, ...], str] = {}
    whole = (found.model.nodes,)
    for sizes, name in ((found.advised, "advised"), (whole, ""), (found.now, "as recorded")):
        if sizes is not None:
            ways[sizes] = " and ".join(filter(None, (ways.get(sizes), name)))
    if len(ways) == 1 and found.cut is not None:
        ways[found.cut] = "best cut"
    drawn = {sizes: name for sizes, name in ways.items() if len(sizes) <= _MOST_CHUNKS}
    if len(drawn) < 2:
        return []
    return [
        Picture(
            figures.schedule_lanes(
                found.model, list(drawn), names=list(drawn.values()), added_ns=found.added_ns
            ),
            "How chunks hide their launches, as predicted without a recorder: in each pair the "
            "host above, which prepares and launches the graphs of one step, and below it the "
            "device, which runs them. Times of steps count from when the device is free until the "
            "host knows that the step is done.",
        )
    ]
