"""``gaptrace verify SCRIPT``."""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from gaptrace.cli import say
from gaptrace.cli.target import Form, TargetCommand, streams
from gaptrace.errors import GpuError


@click.command(cls=TargetCommand)
def command(form: Form, as_json: bool, target: tuple[str, ...]) -> int:
    """Say whether each step of a program would compute the same as a CUDA graph.

    Each function marked with @gaptrace.step is captured at its fourth call. From then on its graph
    is replayed beside each call, with the inputs of that call, and the results are compared; once
    also with changed inputs, and after memory was freed and taken again. Where they differ, the
    nodes and parameters are named that the graph has kept from its capture.

    Exit status 3 when a step would not compute the same.
    """
    from gaptrace.cli.terminal import color, width
    from gaptrace.record.children import run_program
    from gaptrace.record.recording import launcher
    from gaptrace.render.replays import replays_text

    if form == "command":
        raise click.UsageError("verify looks at steps of a Python script or of -m MODULE")
    with tempfile.TemporaryDirectory() as folder:
        status, notes = run_program(
            launcher(target, form=form),
            Path(folder) / "notes.json",
            {"GAPTRACE_VERIFY": "1"},
            streams(as_json=as_json),
        )
    found: dict[str, dict[str, Any]] = notes.get("verify", {})
    errors = [result["error"] for result in found.values() if "error" in result]
    sound = {name: result for name, result in found.items() if "error" not in result}
    if as_json:
        click.echo(json.dumps({"schema": "gaptrace.verification/1", "steps": found}, indent=1))
    elif sound:
        click.echo(replays_text(sound, width=width(), color=color(sys.stdout)), nl=False)
    if status != 0:
        say(f"{target[0]} ended with status {status}")
        return status
    if errors:
        raise GpuError("; ".join(errors))
    if not sound:
        raise GpuError(
            "no step was replayed: verify looks at functions marked with @gaptrace.step, from "
            "their fourth call on"
        )
    return 3 if any(result["problems"] for result in sound.values()) else 0
