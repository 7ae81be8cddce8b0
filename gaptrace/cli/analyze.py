"""``gaptrace analyze TRACE``."""

import json
import sys
from pathlib import Path

import click

from gaptrace.cli.options import TIME


@click.command()
@click.argument("trace", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@click.option("--device", "device_id", type=int, metavar="N", help="Only this physical GPU.")
@click.option(
    "--range", "range_name", metavar="NAME", help="Only NVTX ranges of this name or path."
)
@click.option("--from", "from_ns", type=TIME, metavar="TIME", help="Only from this time on (1.5s).")
@click.option("--to", "to_ns", type=TIME, metavar="TIME", help="Only until this time (1600ms).")
def command(
    trace: Path,
    as_json: bool,
    device_id: int | None,
    range_name: str | None,
    from_ns: int | None,
    to_ns: int | None,
) -> None:
    """Say where the GPU stands idle in TRACE, and why.

    TRACE is an SQLite export of Nsight Systems, or a .nsys-rep report, which is exported first with
    the nsys that is found. Times count from the start of the session; a bare number is nanoseconds.
    """
    from gaptrace.analysis import analyze
    from gaptrace.cli.loading import load

    analysis = analyze(
        load(trace),
        device_id=device_id,
        range_name=range_name,
        from_ns=from_ns,
        to_ns=to_ns,
    )
    if as_json:
        from gaptrace.render.json import analysis_object

        click.echo(json.dumps(analysis_object(analysis), indent=1))
    else:
        from gaptrace.cli.terminal import color, width
        from gaptrace.render.text import report

        click.echo(report(analysis, width=width(), color=color(sys.stdout)), nl=False)
