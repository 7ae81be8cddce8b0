"""The arms of a step, timed side by side, as text."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from gaptrace.render.page import printed, table
from gaptrace.render.units import change, count, duration
from gaptrace.timings import ArmTiming, Measurement


def arms_text(measured: Sequence[tuple[str, Measurement]], *, width: int, color: bool) -> str:
    """Return a table of arms for each step, and what follows from it.

    Args:
        measured: (name of the step, its measurement).
        width: columns of the terminal.
        color: whether to write ANSI colours.
    """
    parts = [part for name, measurement in measured for part in _step(name, measurement)]
    return printed(parts, width, color)


def _step(name: str, measurement: Measurement) -> list[RenderableType]:
    rounds = len(measurement.timings[0].alone_ns)
    head = Text.assemble(
        (f"\nArms of {name}, {_how(measurement)}", "bold"),
        f"\n  {measurement.gpu}, driver {measurement.driver}, CUDA {measurement.cuda}; "
        f"{count(rounds)} rounds of {count(measurement.steps)} steps each way",
    )
    rows = table("arm", "+graphs", "+step", "+±", "+queued", "+device", "+gain", "+±", "results")
    first = measurement.timings[0]
    for timing in measurement.timings:
        against = measurement.gain_of(timing) if timing is not first else None
        rows.add_row(
            timing.arm.name,
            count(len(timing.arm.schedule) or None),
            duration(timing.step_ns),
            duration(timing.error_ns),
            duration(timing.queued_ns),
            duration(timing.step_device_ns),
            change(round(against.gain_ns)) if against else "-",
            duration(against.error_ns) if against else "-",
            _agreement(timing.difference),
        )
    notes = [
        "medians of the rounds. Step: one at a time, until the host knows that the device is done; "
        "queued: one after the other without a wait; device: between two events; gain: per step, "
        f"against {first.arm.name}.",
        _fastest(measurement),
        *_break_even(measurement),
    ]
    warnings = [Text(f"warning: {w}", style="yellow") for w in measurement.warnings]
    body = Group(rows, Text(), *(Text(note) for note in notes), *warnings)
    return [head, Padding(body, (0, 0, 0, 2))]


def _how(measurement: Measurement) -> str:
    if measurement.is_recorded:
        return "timed UNDER A RECORDER, which lengthens graph launches: not to choose by"
    return "timed without a recorder"


def _agreement(difference: float | None) -> str:
    if difference is None:
        return "not compared"
    return "the same" if difference == 0 else f"within {difference:.2g}"


def _fastest(measurement: Measurement) -> str:
    """Name the fastest arm, and those that are as fast as far as this shows."""
    fastest = measurement.fastest
    if len(measurement.timings) == 1:
        return f"{fastest.arm.name} is the only arm."
    if not measurement.as_fast:
        return f"{fastest.arm.name} is the fastest."
    names = ", ".join(timing.arm.name for timing in measurement.as_fast)
    return f"{fastest.arm.name} is the fastest, with no difference shown from {names}."


def _break_even(measurement: Measurement) -> list[str]:
    graph: tuple[ArmTiming, ...] = measurement.of("graph")
    if not graph or measurement.capture_ns is None or not measurement.of("per_launch"):
        return []
    built = (
        f"capturing takes {duration(measurement.capture_ns)}, instantiating and uploading "
        f"one graph {duration(graph[0].instantiate_ns)}"
    )
    replays = measurement.break_even_replays
    if replays is None:
        return [f"{built}, which it never earns back."]
    return [f"{built}: earned back after {count(replays)} steps."]
