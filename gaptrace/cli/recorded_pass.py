"""A pass of ``gaptrace profile`` under a recorder: recorded, exported, analysed."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaptrace.cli import one_line, say, show
from gaptrace.cli.target import streams
from gaptrace.errors import GaptraceError, NotRecordedError, RecorderError

if TYPE_CHECKING:
    from gaptrace.record.cupti import Cupti
    from gaptrace.record.machine import Driver
    from gaptrace.record.nsys import Nsys
    from gaptrace.record.recording import Granularity, Recording


@dataclass(frozen=True)
class Run:
    """What all passes of a run have in common.

    Attributes:
        program: as the user calls it.
        command: runs it.
        told: what it is told while it is recorded, in environment variables.
        timed: what its steps took without a recorder, by their names.
        folder: for all results.
        recorder: records it.
        driver: of this machine.
        as_json: print nothing but one JSON object.
    """

    program: str
    command: list[str]
    told: dict[str, str]
    timed: dict[str, Any]
    folder: Path
    recorder: "Nsys | Cupti"
    driver: "Driver"
    as_json: bool


def recorded_pass(
    run: Run, granularity: "Granularity", place: Path
) -> tuple[int, dict[str, Any] | None]:
    """Record a program once, keep in `place` what the recording says, and print it.

    Returns:
        exit status of the program; the analysis as JSON, None where a program that failed left
        nothing to analyse.

    Raises:
        GaptraceError: a program that did not fail left nothing to analyse; or the recorder failed.
    """
    from gaptrace.record.children import read_notes

    place.mkdir(exist_ok=True)
    found = None
    try:
        recording = _record(run, granularity, place)
    except RecorderError as error:
        status = read_notes(place / f"{granularity}.script.json").get("status")
        if not status:
            raise
        say(f"error: {one_line(error)}")
        say(f"{run.program} ended with status {status}")
        return int(status), None
    try:
        found = _analyze(run, _export(run, recording), place)
    except GaptraceError as error:
        if recording.status == 0:
            raise
        say(f"error: {one_line(error)}")
    if recording.status != 0:
        say(f"{run.program} ended with status {recording.status}")
    return recording.status, found


def _record(run: Run, granularity: "Granularity", place: Path) -> "Recording":
    """Record; the command is written down before it runs."""
    from gaptrace.record.cupti import VARIABLE, cupti_task, record_with_cupti
    from gaptrace.record.nsys import Nsys
    from gaptrace.record.recording import nsys_command, record
    from gaptrace.record.run_folder import add_command

    stem, output = place / granularity, streams(as_json=run.as_json)
    if isinstance(run.recorder, Nsys):
        command = nsys_command(run.command, stem, granularity=granularity, nsys=run.recorder)
        add_command(run.folder, command)
        recording = record(command, stem, nsys=run.recorder, output=output, told=run.told)
        name = f"nsys {run.recorder.version}"
    else:
        add_command(run.folder, run.command, {VARIABLE: cupti_task(stem, granularity)})
        recording = record_with_cupti(
            run.command, stem, granularity=granularity, output=output, told=run.told
        )
        name = f"cupti-python {run.recorder.version}"
    _warn(recording, name)
    return recording


def _warn(recording: "Recording", recorder: str) -> None:
    if recording.notes.get("output_in_log"):
        say(f"warning: {recorder} kept the program's output; it is in {recording.log}")
    if recording.notes.get("nvtx", {}).get("state") == "silent":
        say(
            f"warning: nvtx {recording.notes['nvtx']['version']} and {recorder} do not work "
            "together: no NVTX range of Python code is in this recording; run gaptrace doctor"
        )


def _export(run: Run, recording: "Recording") -> Path:
    from gaptrace.cli.progress import percentage_bar
    from gaptrace.record.cupti_file import convert
    from gaptrace.record.export import export, export_command
    from gaptrace.record.nsys import Nsys
    from gaptrace.record.run_folder import add_command

    report = recording.report
    target = report.with_suffix(".sqlite")
    if isinstance(run.recorder, Nsys):
        add_command(run.folder, export_command(report, target, run.recorder))
        with percentage_bar("exporting") as progress:
            return export(report, nsys=run.recorder, progress=progress)
    ended = recording.notes.get("status") is not None
    exported = convert(report, target, run.driver, ended=ended)
    report.unlink()  # the export holds all of it
    return exported


def _analyze(run: Run, exported: Path, place: Path) -> dict[str, Any]:
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
        why = f": {error}"
        if run.driver.problem is not None:
            why = f", since CUDA cannot start on this machine: {run.driver.problem}"
        raise RecorderError(f"{run.program} left no CUDA work to analyse{why}") from error
    found = analysis_object(analysis)
    measured = {name: measurement_of(result) for name, result in run.timed.items()}
    with working("drawing"):
        page = html_report(analysis, calibration=calibration, measured=measured)
    if not run.as_json:
        show(report(analysis, width=width(), color=color(sys.stdout)))
    write_result(place, report(analysis, width=REPORT_WIDTH, color=False), page, found)
    return found
