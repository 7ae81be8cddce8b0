"""The recommendation: one sentence to act on, then what it rests on."""

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gaptrace.recommendation import Alternative, Parameter, Recommendation, Sensitivity
from gaptrace.render import verdicts
from gaptrace.render.app_nodes import converted
from gaptrace.render.page import Section, section
from gaptrace.render.units import count, duration, times
from gaptrace.render.words import STEP_FIGURES
from gaptrace.schedules import is_even

_ARMS = {
    "per_launch": "kernel by kernel",
    "one_graph": "one graph",
    "chunk": "chunks",
    "schedule": "growing chunks",
    "now": "as recorded",
}
#: Of inputs whose own names do not say it.
_NAMES = {"launch_api_ns": "launch calls of a step"}


def recommendation_section(recommendation: Recommendation, app_nodes: int | None = None) -> Section:
    """Return the section of a report.

    Args:
        recommendation: what to say.
        app_nodes: nodes that the application counts for the step.
    """
    found = recommendation
    lines: list[RenderableType] = [
        Text(verdicts.verdict(found), style="bold"),
        Text(f"verdict {found.verdict}, regime {verdicts.regime(found)}"),
    ]
    if step := verdicts.whose(found):
        lines.append(Text(step))
    lines += map(Text, _sizes(found, app_nodes))
    lines += map(Text, [*_gain(found), *_amortised(found)])
    if cap := verdicts.gain_cap(found):
        lines.append(Text(cap))
    if found.alternatives:
        lines.append(_alternatives(found, app_nodes))
    if found.sensitivity:
        lines.append(_sensitivity(found.sensitivity))
    several = len({each.device_id for each in found.ungraphed}) > 1
    for each in found.ungraphed:
        where = f"device {each.device_id}: " if several else ""
        lines.append(Text(where + verdicts.ungraphed(each)))
    lines += map(Text, _sources(found))
    lines += [Text(f"warning: {w.message}", style="yellow") for w in found.warnings]
    return section("Recommendation", *lines)


def _sizes(found: Recommendation, app_nodes: int | None) -> list[str]:
    lines = []
    if found.plateau and found.nodes and found.alternatives:
        lo, hi = found.plateau
        if lo < hi:
            uneven = found.schedule is not None and not is_even(found.schedule)
            good = "of equal chunks about as good as the best" if uneven else "about as good"
            lines.append(
                f"{good} (within 0.5 %): chunks of {count(lo)} to {count(hi)} CUDA nodes, "
                f"of {count(found.nodes)}"
            )
    if found.verdict == "chunk" and found.closed_form:
        device, host = (count(round(size)) for size in found.closed_form)
        lines.append(
            f"explained: about {device} CUDA nodes where the device is the slower side, "
            f"about {host} where the host is"
        )
    if found.schedule and not is_even(found.schedule):
        lines.append(f"chunks in launch order, CUDA nodes: {_listed(found.schedule)}")
    if app_nodes and found.nodes and found.chunk:
        own = converted(found.chunk, found.nodes, app_nodes)
        text = f"chunk: {count(found.chunk)} CUDA nodes = {count(own)} app nodes"
        if found.plateau and found.plateau[0] < found.plateau[1]:
            lo, hi = (converted(each, found.nodes, app_nodes) for each in found.plateau)
            ends = " to ".join(map(count, found.plateau))
            text += f"; about as good: {ends} CUDA nodes = {count(lo)} to {count(hi)} app nodes"
        lines.append(f"{text} (of {count(found.nodes)} CUDA nodes = {count(app_nodes)} app nodes)")
    elif app_nodes:
        lines.append("no size is advised that could be given in app nodes")
    return lines


def _listed(sizes: tuple[int, ...]) -> str:
    shown = ", ".join(map(count, sizes[:12]))
    return shown + (f" ... ({len(sizes)} graphs)" if len(sizes) > 12 else "")


def _gain(found: Recommendation) -> list[str]:
    if found.gain_ns is None or found.gain_interval_ns is None:
        return []
    low, high = found.gain_interval_ns
    if found.gain_ns == 0 and high <= 0:
        return ["with inputs at either end of their intervals no other size is faster"]
    if found.gain_ns == 0:
        return [
            "with inputs at whichever end of their intervals favours it, another size would save "
            f"{duration(high)} a step"
        ]
    lines = [f"gain {duration(found.gain_ns)} a step ({duration(low)} to {duration(high)})"]
    if found.break_even_replays is not None:
        lines.append(
            f"against launching kernel by kernel a graph pays for its capture and instantiation "
            f"after {count(found.break_even_replays)} replays"
        )
    return lines


def _amortised(found: Recommendation) -> list[str]:
    if not found.amortised_ns:
        return []
    shares = ", ".join(
        f"{duration(ns)} over {count(replays)}" for replays, ns in found.amortised_ns.items()
    )
    return [f"with its share of capture and instantiation a step costs {shares} replays"]


def _alternatives(found: Recommendation, app_nodes: int | None) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("a step without a recorder")
    for name in ("graphs", "predicted", "loss if chosen"):
        table.add_column(name, justify="right")
    for each in found.alternatives:
        graphs = count(each.graphs) if each.graphs else "-"
        loss = "-" if each.loss_ns == 0 else duration(each.loss_ns)
        way = _way(each, found.nodes, app_nodes)
        table.add_row(way, graphs, duration(each.step_ns), loss)
    if "device_only" in found.predicted_ns:
        table.add_row("device alone", "", duration(found.predicted_ns["device_only"]), "")
    return table


def _way(each: Alternative, nodes: int | None, app_nodes: int | None) -> str:
    text = _ARMS[each.name]
    if each.chunk:
        text += ", chunks of" if each.name == "now" else " of"
        text += f" {count(each.chunk)} CUDA nodes"
        if app_nodes and nodes:
            text += f" = {count(converted(each.chunk, nodes, app_nodes))} app nodes"
    if each.first is not None:
        text += f", {count(each.first)} first"
    return f"{text} (as recorded)" if each.is_now and each.name != "now" else text


def _sensitivity(rows: tuple[Sensitivity, ...]) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("the advice changes if")
    for name in ("taken as", "is smaller by", "or larger by"):
        table.add_column(name, justify="right")
    for each in rows:
        smaller = times(1 / each.smaller) if each.smaller else "> 16 x"
        larger = times(each.larger) if each.larger else "> 16 x"
        table.add_row(STEP_FIGURES[each.name], duration(each.value), smaller, larger)
    return table


def _sources(found: Recommendation) -> list[str]:
    lines = []
    for source, title in (("trace", "from this trace"), ("calibration", "from the calibration")):
        items = [each for each in found.inputs if each.source == source]
        if items:
            lines.append(f"{title}: {', '.join(map(_input, items))}")
    if found.calibration:
        known = found.calibration
        machine = [
            known["gpu"],
            known["driver"] and f"driver {known['driver']}",
            known["cuda"] and f"CUDA {known['cuda']}",
            known["cpu"],
        ]
        made = (known["date"] or "")[:10]
        lines.append(f"calibration of {', '.join(filter(None, machine))}, made {made}")
    return lines


def _input(item: Parameter) -> str:
    name = _NAMES.get(item.name) or item.name.removesuffix("_ns").replace("_", " ")
    if not item.name.endswith("_ns"):
        shown = count(round(item.value)) if item.value.is_integer() else f"{item.value:.3g}"
        return f"{name} {shown}"
    text = f"{name} {duration(item.value)}"
    if item.low is not None and item.high is not None and item.low < item.high:
        text += f" ({duration(item.low)} to {duration(item.high)})"
    return text
