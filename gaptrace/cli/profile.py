"""``gaptrace profile SCRIPT``."""

import fcntl
import json
import os
import termios
from array import array
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from gaptrace.cli import say
from gaptrace.cli.arms import arms_of, recorded_arms, sizes_of, time_arms
from gaptrace.cli.target import Form, TargetCommand

if TYPE_CHECKING:
    from gaptrace.record.cupti import Cupti
    from gaptrace.record.machine import Driver
    from gaptrace.record.nsys import Nsys
    from gaptrace.record.recording import Granularity


@click.command(cls=TargetCommand)
@click.option(
    "--granularity",
    type=click.Choice(["graph", "node", "both"]),
    default="graph",
    show_default=True,
    help="Record CUDA graphs as wholes, node by node, or once each way in two runs.",
)
@click.option(
    "--arms",
    callback=arms_of,
    metavar="LIST",
    help="First time each @gaptrace.step without a recorder, in these ways: "
    "per_launch,graph,chunks.",
)
@click.option(
    "--chunks",
    callback=sizes_of,
    metavar="LIST",
    help="Chunk sizes for --arms in CUDA nodes, as 100,50.  [default: halves, quarters ...]",
)
@click.option(
    "--recorder",
    type=click.Choice(["nsys", "cupti"]),
    help="Nsight Systems, or CUPTI inside the program itself, which needs no installation but "
    "records Python programs only.  [default: nsys where it is installed]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Folder for all results, new or empty.  [default: gaptrace-runs/TARGET-TIME]",
)
def command(
    form: Form,
    granularity: Literal["graph", "node", "both"],
    arms: tuple[str, ...],
    chunks: tuple[int, ...],
    recorder: Literal["nsys", "cupti"] | None,
    output: Path | None,
    as_json: bool,
    target: tuple[str, ...],
) -> int:
    """Record a program with Nsight Systems or CUPTI, then say where its GPU stood idle, and why.

    \b
    gaptrace profile [OPTIONS] SCRIPT.py [ARGS]...
    gaptrace profile [OPTIONS] -m MODULE [ARGS]...
    gaptrace profile [OPTIONS] -- COMMAND [ARGS]...

    The program keeps its input, output and exit status. Ctrl-C ends it and keeps what was
    recorded. The recording, its export, the report, the analysis as JSON, the commands and the
    versions of everything involved stay in one folder. With --arms the program runs once more
    before that, without a recorder.
    """  # noqa: D301 - \b keeps click from joining the lines
    from gaptrace.cli.recorded_pass import Run, recorded_pass
    from gaptrace.record.machine import probe_driver
    from gaptrace.record.recorders import choose
    from gaptrace.record.recording import launcher

    if chunks and "chunks" not in arms:
        raise click.UsageError("--chunks says how to cut the graphs of --arms chunks: name both")
    if arms and form == "command":
        raise click.UsageError("--arms measures steps of a Python script or of -m MODULE")
    driver = probe_driver()
    chosen = choose(recorder, form, driver)
    folder = _folder(output, target[0], chosen, driver)
    launched, timed = launcher(target, form=form), dict[str, Any]()
    rewind = _input_for_each_run(runs=bool(arms) + (2 if granularity == "both" else 1))
    if arms:
        status, timed = time_arms(launched, arms, chunks, folder, as_json=as_json)
        if status != 0:
            say(f"{target[0]} ended with status {status}")
            return status
    told = recorded_arms(arms, chunks)
    run = Run(target[0], launched, told, timed, folder, chosen, driver, as_json)
    wanted: tuple[Granularity, ...] = ("graph", "node") if granularity == "both" else (granularity,)
    objects: dict[str, Any] = {}
    status = 0
    for each in wanted:
        rewind()
        status, found = recorded_pass(run, each, folder / each if len(wanted) > 1 else folder)
        if found is not None:
            objects[each] = found
        if status != 0:
            break
    if as_json and objects:
        shown = objects if len(wanted) > 1 else objects[granularity]
        click.echo(json.dumps(shown | ({"arms": timed} if timed else {}), indent=1))
    say(f"everything is in {_short(folder)}")
    return status


def _input_for_each_run(runs: int) -> Callable[[], object]:
    """Return what makes a file on stdin begin anew; say so where only the first run can have it."""
    try:
        begin = os.lseek(0, 0, os.SEEK_CUR)
    except OSError:
        if runs > 1 and _is_there_input():
            say("warning: the input is no file, so that only the first of the runs can have it")
        return lambda: None
    return lambda: os.lseek(0, begin, os.SEEK_SET)


def _is_there_input() -> bool:
    waiting = array("i", [0])
    try:
        fcntl.ioctl(0, termios.FIONREAD, waiting)
    except OSError:  # closed
        return False
    return waiting[0] > 0 and not os.isatty(0)


def _folder(output: Path | None, program: str, recorder: "Nsys | Cupti", driver: "Driver") -> Path:
    """Make the folder for all results, with the versions of everything involved in it."""
    from gaptrace.record.machine import versions
    from gaptrace.record.nsys import Nsys
    from gaptrace.record.run_folder import create_run_folder, write_versions

    folder = create_run_folder(output, program, datetime.now())
    is_nsys = isinstance(recorder, Nsys)
    write_versions(folder, versions("nsys" if is_nsys else "cupti", recorder.version, driver))
    called = "nsys" if is_nsys else "CUPTI, cupti-python"
    say(f"recording with {called} {recorder.version} into {_short(folder)}")
    return folder


def _short(folder: Path) -> str:
    here = Path.cwd()
    return str(folder.relative_to(here) if folder.is_relative_to(here) else folder)
