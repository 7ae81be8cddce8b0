"""``gaptrace recommend TRACE``."""

import json
import sys
from pathlib import Path

import click

from gaptrace.cli.calibrations import calibration_option
from gaptrace.cli.options import window_options


@click.command()
@click.argument("trace", type=click.Path(path_type=Path, readable=False))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@window_options
@calibration_option
@click.option(
    "--app-nodes",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many nodes the application counts for the whole step, as llama.cpp its ggml nodes: "
    "sizes are then given in those, too.",
)
def command(
    trace: Path,
    as_json: bool,
    device_id: int | None,
    range_name: str | None,
    from_ns: int | None,
    to_ns: int | None,
    calibration_file: Path | None,
    app_nodes: int | None,
) -> None:
    """Say what CUDA graphs, whole or cut into chunks, would change for the work in TRACE.

    Launch costs without a recorder come from a calibration of the machine (gaptrace calibrate);
    without one only what both ends of the possible agree on is said.
    """
    from gaptrace.analysis import analyze
    from gaptrace.cli.calibrations import calibration_for
    from gaptrace.cli.loading import load

    read = load(trace)
    analysis = analyze(
        read,
        device_id=device_id,
        range_name=range_name,
        from_ns=from_ns,
        to_ns=to_ns,
        calibration=calibration_for(read, calibration_file),
    )
    if as_json:
        from gaptrace.render.json import recommendation_object

        click.echo(json.dumps(recommendation_object(analysis.recommendation, app_nodes), indent=1))
    else:
        from gaptrace.cli.terminal import color, width
        from gaptrace.render.text import recommendation_text

        text = recommendation_text(
            analysis, width=width(), color=color(sys.stdout), app_nodes=app_nodes
        )
        click.echo(text, nl=False)
