"""``gaptrace profile SCRIPT``."""

import json
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from gaptrace.cli import one_line
from gaptrace.cli.arms import arms_of, recorded_arms, sizes_of, time_arms
from gaptrace.cli.target import Form, TargetCommand, streams
from gaptrace.errors import GaptraceError, NotRecordedError, RecorderError

if TYPE_CHECKING:
    from gaptrace.record.cupti import Cupti
    from gaptrace.record.machine import Driver
    from gaptrace.record.nsys import Nsys
    from gaptrace.record.recording import Granularity, Recording


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
    from gaptrace.record.machine import probe_driver, versions
    from gaptrace.record.nsys import Nsys
    from gaptrace.record.recorders import choose
    from gaptrace.record.recording import launcher
    from gaptrace.record.run_folder import create_run_folder, write_versions

    if chunks and not arms:
        raise click.UsageError("--chunks says how to cut the graphs of --arms: name both")
    driver = probe_driver()
    chosen = choose(recorder, form, driver)
    folder = create_run_folder(output, target[0], datetime.now())
    name = "nsys" if isinstance(chosen, Nsys) else "cupti"
    write_versions(folder, versions(name, chosen.version, driver))
    called = "nsys" if name == "nsys" else "CUPTI, cupti-python"
    _say(f"recording with {called} {chosen.version} into {_short(folder)}")

    launched, timed = launcher(target, form=form), dict[str, Any]()
    if arms:
        status, timed = time_arms(launched, arms, chunks, folder, as_json=as_json)
        if status != 0:
            _say(f"{target[0]} ended with status {status}")
            return status
    told = recorded_arms(arms, chunks)
    wanted: tuple[Granularity, ...] = ("graph", "node") if granularity == "both" else (granularity,)
    objects: dict[str, Any] = {}
    status = 0
    for each in wanted:
        place = folder / each if granularity == "both" else folder
        place.mkdir(exist_ok=True)
        recording = _record(folder, place, each, chosen, launched, told, as_json=as_json)
        status = recording.status
        try:
            exported = _export(recording, folder, chosen, driver)
            objects[each] = _analyze(exported, place, driver, target[0], timed, as_text=not as_json)
        except GaptraceError as error:
            if status == 0:
                raise
            _say(f"error: {one_line(error)}")
        if status != 0:
            _say(f"{target[0]} ended with status {status}")
            break
    if as_json and objects:
        found = objects if granularity == "both" else objects[granularity]
        click.echo(json.dumps(found | ({"arms": timed} if timed else {}), indent=1))
    _say(f"everything is in {_short(folder)}")
    return status


def _record(
    folder: Path,
    place: Path,
    granularity: "Granularity",
    recorder: "Nsys | Cupti",
    command: list[str],
    told: dict[str, str],
    *,
    as_json: bool,
) -> "Recording":
    """Record; the command is written down before it runs."""
    from gaptrace.record.cupti import VARIABLE, cupti_task, record_with_cupti
    from gaptrace.record.nsys import Nsys
    from gaptrace.record.recording import nsys_command, record
    from gaptrace.record.run_folder import add_command

    stem = place / granularity
    output = streams(as_json=as_json)
    if isinstance(recorder, Nsys):
        command = nsys_command(command, stem, granularity=granularity, nsys=recorder)
        add_command(folder, command)
        recording = record(command, stem, nsys=recorder, output=output, told=told)
        name = f"nsys {recorder.version}"
    else:
        add_command(folder, command, {VARIABLE: cupti_task(stem, granularity)})
        recording = record_with_cupti(
            command, stem, granularity=granularity, output=output, told=told
        )
        name = f"cupti-python {recorder.version}"
    if recording.notes.get("output_in_log"):
        _say(f"warning: {name} kept the program's output; it is in {recording.log}")
    if recording.notes.get("nvtx", {}).get("state") == "silent":
        _say(
            f"warning: nvtx {recording.notes['nvtx']['version']} and {name} do not work together: "
            "no NVTX range of Python code is in this recording; run gaptrace doctor"
        )
    return recording


def _export(
    recording: "Recording", folder: Path, recorder: "Nsys | Cupti", driver: "Driver"
) -> Path:
    from gaptrace.cli.progress import percentage_bar
    from gaptrace.record.cupti_file import convert
    from gaptrace.record.export import export, export_command
    from gaptrace.record.nsys import Nsys
    from gaptrace.record.run_folder import add_command

    report = recording.report
    if isinstance(recorder, Nsys):
        add_command(folder, export_command(report, report.with_suffix(".sqlite"), recorder))
        with percentage_bar("exporting") as progress:
            return export(report, nsys=recorder, progress=progress)
    ended = recording.notes.get("status") is not None
    exported = convert(report, report.with_suffix(".sqlite"), driver, ended=ended)
    report.unlink()  # the export holds all of it
    return exported


def _analyze(
    exported: Path,
    place: Path,
    driver: "Driver",
    program: str,
    timed: dict[str, Any],
    *,
    as_text: bool,
) -> dict[str, Any]:
    """Analyse one recording, keep reports and JSON beside it, and print the text if asked to."""
    from gaptrace.analysis import analyze
    from gaptrace.cli.calibrations import calibration_for
    from gaptrace.cli.progress import working
    from gaptrace.cli.terminal import color, width
    from gaptrace.read import read
    from gaptrace.record.run_folder import REPORT_WIDTH, write_result
    from gaptrace.render.html import html_report
    from gaptrace.render.json import analysis_object
    from gaptrace.render.text import report
    from gaptrace.timings import measurement_of

    try:
        trace = read(exported)
        calibration = calibration_for(trace, None)
        analysis = analyze(trace, calibration=calibration)
    except NotRecordedError as error:
        if driver.problem is not None:
            raise RecorderError(
                f"{program} left no CUDA work to analyse, since CUDA cannot start on this machine: "
                f"{driver.problem}"
            ) from error
        raise RecorderError(f"{program} left no CUDA work to analyse: {error}") from error
    found = analysis_object(analysis)
    measured = {name: measurement_of(result) for name, result in timed.items()}
    with working("drawing"):
        page = html_report(analysis, calibration=calibration, measured=measured)
    write_result(place, report(analysis, width=REPORT_WIDTH, color=False), page, found)
    if as_text:
        click.echo(report(analysis, width=width(), color=color(sys.stdout)), nl=False)
    return found


def _say(message: str) -> None:
    click.echo(f"gaptrace: {message}", err=True)


def _short(folder: Path) -> str:
    here = Path.cwd()
    return str(folder.relative_to(here) if folder.is_relative_to(here) else folder)
