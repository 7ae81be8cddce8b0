"""``gaptrace analyze TRACE...``."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gaptrace.cli import one_line, say
from gaptrace.cli.calibrations import calibration_option
from gaptrace.cli.options import window_options
from gaptrace.errors import GaptraceError

if TYPE_CHECKING:
    from gaptrace.analysis import Analysis


@click.command()
@click.argument(
    "traces",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path, readable=False),
    metavar="TRACE...",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@window_options
@calibration_option
def command(
    traces: tuple[Path, ...],
    as_json: bool,
    device_id: int | None,
    range_name: str | None,
    from_ns: int | None,
    to_ns: int | None,
    calibration_file: Path | None,
) -> int:
    """Say where the GPU stands idle in TRACE, and why.

    TRACE is an SQLite export of Nsight Systems, or a .nsys-rep report, which is exported first with
    the nsys that is found. Times count from the start of the session; a bare number is nanoseconds.
    Of several traces (ranks, nodes) one row per device is printed, and their total.
    """
    from gaptrace.analysis import analyze
    from gaptrace.cli.calibrations import calibration_for
    from gaptrace.cli.loading import load

    def analyzed(path: Path) -> "Analysis":
        trace = load(path)
        return analyze(
            trace,
            device_id=device_id,
            range_name=range_name,
            from_ns=from_ns,
            to_ns=to_ns,
            calibration=calibration_for(trace, calibration_file),
        )

    if len(traces) > 1:
        return _several(traces, analyzed, as_json=as_json)
    analysis = analyzed(traces[0])
    if as_json:
        from gaptrace.render.json import analysis_object

        click.echo(json.dumps(analysis_object(analysis), indent=1))
    else:
        from gaptrace.cli.terminal import color, width
        from gaptrace.render.text import report

        click.echo(report(analysis, width=width(), color=color(sys.stdout)), nl=False)
    return 0


def _several(
    traces: tuple[Path, ...], analyzed: Callable[[Path], "Analysis"], *, as_json: bool
) -> int:
    """Analyse one after the other; one that fails does not lose the others."""
    from gaptrace.cli.terminal import color, width
    from gaptrace.render.file_names import told_apart
    from gaptrace.render.several import overview, overview_object

    done, failed = [], []
    for path, name in zip(traces, told_apart(traces), strict=True):
        try:
            done.append((name, analyzed(path)))
        except GaptraceError as error:
            failed.append(one_line(error))
    if as_json:
        click.echo(json.dumps(overview_object([a for _, a in done], failed), indent=1))
    elif done:
        click.echo(overview(done, len(failed), width=width(), color=color(sys.stdout)), nl=False)
    for message in failed:
        say(f"error: {message}")
    return 1 if failed else 0
