"""A calibration, and one against another, as text."""

from collections.abc import Callable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from gaptrace.calibration import (
    Calibration,
    Check,
    Figure,
    Machine,
    line,
    spread_fraction,
)
from gaptrace.render.page import printed, section, table
from gaptrace.render.units import count, duration, share

_SINGLE = {
    "launch_api_ns": "launch call, device idle",
    "launch_latency_ns": "launch to start of the kernel, device idle",
    "launch_queued_api_ns": "launch call, device busy",
    "kernel_gap_ns": "gap between kernels launched in time",
    "node_gap_ns": "gap between nodes of a graph",
    "small_node_ns": "small kernel in a graph, with its gap",
    "sm_clock_hz": "clock of the multiprocessors",
    "launch_queue_depth": "launches until the host blocks",
    "graph_queue_depth": "graph launches until the host blocks",
    "binding_call_ns": "an empty call from Python (in none of these)",
    "host_loop_ns": "5,000 passes of an empty loop in Python",
}
_LAUNCHES = {
    "graph_launch_api_ns": "launch",
    "graph_launch_latency_ns": "to start",
    "graph_first_launch_api_ns": "first",
    "graph_first_launch_latency_ns": "to start",
    "graph_updated_launch_api_ns": "updated",
    "graph_updated_launch_latency_ns": "to start",
}
_BUILDS = {
    "capture_ns": "capture",
    "instantiate_ns": "instantiate",
    "upload_ns": "upload",
    "exec_update_ns": "update",
    "destroy_exec_ns": "free exec",
    "destroy_graph_ns": "free graph",
}
_GAPS = {
    "graph_gap_ns": "gap",
    "cut_gap_ns": "more than in a graph",
    "graph_launch_queued_api_ns": "launch, device busy",
}
_ADDED = {
    "recorder_call_ns": "to a launch, device busy",
    "recorder_node_ns": "to a graph launch, each node",
    "recorder_kernel_gap_ns": "to the gap between kernels",
    "recorder_node_gap_ns": "to the gap between nodes",
    "recorder_small_node_ns": "to a small kernel in a graph",
    "recorder_graph_gap_ns": "to the gap between graphs",
}
_MACHINE = {"gpu": "GPU", "driver": "driver", "cuda": "CUDA", "os": "system", "cpu": "processor"}


def calibration_text(calibration: Calibration, *, width: int, color: bool) -> str:
    """Return the calibration as text.

    Args:
        calibration: what to show.
        width: columns of the terminal.
        color: whether to write ANSI colours.
    """
    parts: list[RenderableType] = [_head(calibration), section("One kernel", _single(calibration))]
    shapes = sorted({each.branches for each in calibration.figures})
    for branches in shapes:
        shape = "nodes in a line" if branches == 1 else f"nodes in {branches} branches"
        parts.append(
            section(
                f"Graph launches on an idle device, {shape}",
                _by_nodes(calibration, _LAUNCHES, branches),
            )
        )
        parts.append(
            section(f"Building graphs, {shape}", _by_nodes(calibration, _BUILDS, branches))
        )
    parts.append(section("Graphs launched in time", _by_nodes(calibration, _GAPS, 1)))
    parts += [
        section(f"What {recorder} {version} adds", _added(calibration, recorder))
        for recorder, version in calibration.recorders.items()
    ]
    parts.append(Text(f"\n{_WORDS}"))
    return printed(parts, width, color)


_WORDS = (
    "Medians. Low and high: of the runs, a tenth left out at each end; spread: high less low, by "
    "the median, typical of its column. To start: from the begin of the launch call to the first "
    "instruction on the device. First: of a new exec, updated: after an exec update. Fixed and "
    "each node: the line through the first and the last row."
)


def check_text(check: Check, saved: Calibration, *, width: int, color: bool) -> str:
    """Return what a check found as text.

    Args:
        check: what was found.
        saved: the calibration that was compared with.
        width: columns of the terminal.
        color: whether to write ANSI colours.
    """
    parts: list[RenderableType] = [
        Text(f"warning: {_MACHINE[field]} was {before or '-'} and is {after or '-'}", "yellow")
        for field, (before, after) in check.machine.items()
    ]
    parts += [Text(f"not measured now: {_about(each)}", style="yellow") for each in check.missing]
    if check.moved:
        shown = table("figure", "+saved", "+low", "+high", "+now", "+low", "+high")
        for moved in check.moved:
            shown.add_row(_about(moved.after), *_row(moved.before), *_row(moved.after))
        parts.append(shown)
    return printed([section(_outcome(check, saved), *parts)], width, color)


def _outcome(check: Check, saved: Calibration) -> str:
    since = f"the calibration of {saved.date}"
    if not check.moved:
        return f"None of {count(check.compared)} figures moved beyond its spread since {since}"
    return (
        f"{count(len(check.moved))} of {count(check.compared)} figures moved beyond their spread "
        f"since {since}: calibrate again"
    )


def _about(figure: Figure) -> str:
    parts = [figure.name]
    if figure.nodes is not None:
        parts.append(f"{count(figure.nodes)} nodes")
    if figure.branches > 1:
        parts.append(f"{figure.branches} branches")
    if figure.recorder:
        parts.append(f"under {figure.recorder}")
    return ", ".join(parts)


def _row(figure: Figure) -> tuple[str, str, str]:
    show = _shower(figure.name)
    return show(figure.value), show(figure.low), show(figure.high)


def _shower(name: str) -> Callable[[float], str]:
    if name.endswith("_ns"):
        return duration
    if name.endswith("_hz"):
        return lambda hertz: f"{hertz / 1e6:.0f} MHz"
    return lambda number: count(round(number))


def _head(calibration: Calibration) -> RenderableType:
    machine: Machine = calibration.machine
    runs = max(each.runs for each in calibration.figures)
    return Group(
        Text.assemble(
            (f"gaptrace {calibration.gaptrace}", "bold"), f"  calibration of {calibration.date}"
        ),
        Text(
            f"{machine.gpu or 'unknown GPU'}, driver {machine.driver or 'unknown'}, "
            f"CUDA {machine.cuda or 'unknown'}"
        ),
        Text(f"{machine.cpu or 'unknown processor'}, {machine.os or 'unknown system'}"),
        Text(f"without a recorder unless said; up to {runs} runs of each figure"),
    )


def _single(calibration: Calibration) -> RenderableType:
    shown = table("", "+median", "+low", "+high", "+runs")
    for name, words in _SINGLE.items():
        figure = calibration.figure(name)
        if figure is not None:
            shown.add_row(words, *_row(figure), count(figure.runs))
    return shown


def _by_nodes(calibration: Calibration, names: dict[str, str], branches: int) -> RenderableType:
    tables = {name: calibration.table(name, branches=branches) for name in names}
    tables = {name: figures for name, figures in tables.items() if figures}
    shown = table("+nodes", *(f"+{names[name]}" for name in tables))
    nodes = sorted({each.nodes or 0 for figures in tables.values() for each in figures})
    for number in nodes:
        values = {
            name: next((each.value for each in figures if each.nodes == number), None)
            for name, figures in tables.items()
        }
        shown.add_row(count(number), *map(duration, values.values()))
    shown.add_section()
    if len(nodes) > 2:
        lines = [line(figures) for figures in tables.values()]
        shown.add_row("fixed", *(duration(each.fixed_ns if each else None) for each in lines))
        shown.add_row("each node", *(duration(each.node_ns if each else None) for each in lines))
    shown.add_row("spread", *(_spread(figures) for figures in tables.values()))
    return shown


def _spread(figures: Sequence[Figure]) -> str:
    fraction = spread_fraction(figures)
    return "-" if fraction is None else share(fraction, 1)


def _added(calibration: Calibration, recorder: str) -> RenderableType:
    shown = table("", "+median", "+low", "+high")
    for each in calibration.figures:
        if each.recorder == recorder and each.name in _ADDED:
            about = [_ADDED[each.name]]
            if each.nodes is not None:
                about.append(f"of {count(each.nodes)} nodes")
            if each.branches > 1:
                about.append(f"in {each.branches} branches")
            shown.add_row(" ".join(about), *_row(each))
    return shown
