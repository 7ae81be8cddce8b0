"""``gaptrace report TRACE``."""

from pathlib import Path

import click

from gaptrace.cli.calibrations import calibration_option
from gaptrace.cli.options import window_options
from gaptrace.cli.pages import check_is_free, write_page


@click.command()
@click.argument("trace", type=click.Path(path_type=Path, readable=False))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("report.html"),
    show_default=True,
    metavar="FILE",
    help="Where to write it; - is standard output.",
)
@window_options
@calibration_option
def command(
    trace: Path,
    output: Path,
    device_id: int | None,
    range_name: str | None,
    from_ns: int | None,
    to_ns: int | None,
    calibration_file: Path | None,
) -> None:
    """Write the report on TRACE, with figures, as one HTML file.

    The file needs no network and no other file; it can be sent to somebody. It holds names of
    kernels, ranges and the trace, and the analysis as JSON.
    """
    from gaptrace.analysis import analyze
    from gaptrace.cli.calibrations import calibration_for
    from gaptrace.cli.loading import load
    from gaptrace.cli.progress import working
    from gaptrace.render.html import html_report

    is_stdout = output == Path("-")
    if not is_stdout:
        check_is_free(output)
    read = load(trace)
    calibration = calibration_for(read, calibration_file)
    analysis = analyze(
        read,
        device_id=device_id,
        range_name=range_name,
        from_ns=from_ns,
        to_ns=to_ns,
        calibration=calibration,
    )
    with working("drawing"):
        text = html_report(analysis, calibration=calibration)
    if is_stdout:
        click.echo(text, nl=False)
    else:
        write_page(output, text, "report")
