"""``gaptrace recommend TRACE``."""

import json
import sys
from pathlib import Path

import click


@click.command()
@click.argument("trace", type=click.Path(path_type=Path, readable=False))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@click.option("--device", "device_id", type=int, metavar="N", help="Only this physical GPU.")
@click.option(
    "--range", "range_name", metavar="NAME", help="Only NVTX ranges of this name or path."
)
def command(trace: Path, as_json: bool, device_id: int | None, range_name: str | None) -> None:
    """Say what CUDA graphs, whole or cut into chunks, would change for the work in TRACE."""
    from gaptrace.analysis import analyze
    from gaptrace.cli.loading import load

    analysis = analyze(load(trace), device_id=device_id, range_name=range_name)
    if as_json:
        from gaptrace.render.json import recommendation_object

        click.echo(json.dumps(recommendation_object(analysis.recommendation), indent=1))
    else:
        from gaptrace.cli.terminal import color, width
        from gaptrace.render.text import recommendation_text

        text = recommendation_text(analysis, width=width(), color=color(sys.stdout))
        click.echo(text, nl=False)
