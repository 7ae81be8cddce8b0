"""``gaptrace compare BEFORE AFTER``."""

import json
import sys
from pathlib import Path

import click

from gaptrace.cli.pages import check_is_free, write_page

_TRACE = click.Path(path_type=Path, readable=False)


@click.command()
@click.argument("before", type=_TRACE)
@click.argument("after", type=_TRACE)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write it, with a figure, as one HTML file.",
)
@click.option("--device", "device_id", type=int, metavar="N", help="Only this physical GPU.")
@click.option(
    "--range", "range_name", metavar="NAME", help="Only NVTX ranges of this name or path."
)
def command(
    before: Path,
    after: Path,
    as_json: bool,
    output: Path | None,
    device_id: int | None,
    range_name: str | None,
) -> None:
    """Say what changed between two traces of one program, BEFORE a change and AFTER it.

    Both must be recorded in the same granularity: else the recorder's own cost would show as a
    change of the program.
    """
    from gaptrace.analysis import analyze
    from gaptrace.cli.loading import load
    from gaptrace.compare import compare

    if output is not None:
        check_is_free(output)
    compared = compare(
        *(
            analyze(load(path), device_id=device_id, range_name=range_name)
            for path in (before, after)
        )
    )
    if output is not None:
        from gaptrace.render.html import html_comparison

        write_page(output, html_comparison(compared), "comparison")
    if as_json:
        from gaptrace.render.comparison import comparison_object

        click.echo(json.dumps(comparison_object(compared), indent=1))
    else:
        from gaptrace.cli.terminal import color, width
        from gaptrace.render.comparison import comparison

        click.echo(comparison(compared, width=width(), color=color(sys.stdout)), nl=False)
