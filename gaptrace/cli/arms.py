"""The pass of ``gaptrace profile --arms`` that times steps without a recorder."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from gaptrace.cli import one_line, say, show
from gaptrace.cli.target import streams

#: Rounds without a recorder; and under one, where only the shape of each arm is wanted.
_TIMED_ROUNDS, _RECORDED_ROUNDS, _RECORDED_STEPS = 9, 1, 10


def arms_of(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    """Return the arms in a list with commas."""
    from gaptrace.timings import KINDS

    names = tuple(name.strip() for name in value.split(",")) if value is not None else ()
    if unknown := [name for name in names if name not in KINDS]:
        raise click.BadParameter(f"{', '.join(unknown)!r} is none of {', '.join(KINDS)}")
    return names


def sizes_of(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, ...]:
    """Return the sizes in a list with commas."""
    try:
        sizes = tuple(map(int, value.split(","))) if value is not None else ()
    except ValueError:
        raise click.BadParameter("whole numbers with commas between them, as 100,50") from None
    if min(sizes, default=1) < 1:
        raise click.BadParameter("chunks hold at least one node")
    return sizes


def recorded_arms(arms: Sequence[str], chunks: Sequence[int]) -> dict[str, str]:
    """Return what a recorded run is told, so that each arm appears in the recording."""
    if not arms:
        return {}
    return _told(arms, chunks, rounds=_RECORDED_ROUNDS, steps=_RECORDED_STEPS)


def _told(arms: Sequence[str], chunks: Sequence[int], **more: int) -> dict[str, str]:
    return {"GAPTRACE_ARMS": json.dumps({"arms": list(arms), "chunks": list(chunks)} | more)}


def time_arms(
    command: Sequence[str],
    arms: Sequence[str],
    chunks: Sequence[int],
    folder: Path,
    *,
    as_json: bool,
) -> tuple[int, dict[str, Any]]:
    """Run the program without a recorder; keep and print what its steps took.

    Returns:
        exit status of the program; its steps' measurements, by name.

    Raises:
        GpuError: no step was measured, or one could not be; the message says why.
    """
    from gaptrace.cli.terminal import color, width
    from gaptrace.errors import GpuError
    from gaptrace.record.children import run_program
    from gaptrace.record.run_folder import REPORT_WIDTH, add_command, write_arms
    from gaptrace.render.arms import arms_text
    from gaptrace.timings import measurement_of

    told = _told(arms, chunks, rounds=_TIMED_ROUNDS)
    add_command(folder, command, told)
    notes_path = folder / "arms.script.json"
    status, notes = run_program(command, notes_path, told, streams(as_json=as_json))
    found: dict[str, Any] = notes.get("arms", {})
    problems = [result["error"] for result in found.values() if "error" in result]
    sound = {name: result for name, result in found.items() if "error" not in result}
    if sound:
        measured = [(name, measurement_of(result)) for name, result in sound.items()]
        if not as_json:
            show(arms_text(measured, width=width(), color=color(sys.stdout)))
        write_arms(folder, sound, arms_text(measured, width=REPORT_WIDTH, color=False))
    if problems and status == 0:
        raise GpuError("; ".join(problems))
    for problem in problems:
        say(f"error: {one_line(GpuError(problem))}")
    if not sound and status == 0:
        raise GpuError(
            "no step was measured: --arms measures functions marked with @gaptrace.step, at their "
            "fourth call"
        )
    return status, sound
