"""``gaptrace doctor``."""

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from gaptrace.doctor import Check

_STYLES = {"ok": "green", "missing": "yellow", "problem": "bold red"}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def command(as_json: bool) -> None:
    """Say what this machine has: recorder, driver, GPUs, packages.

    Each missing piece says what it would add and the command that adds it. Where nsys is found, it
    records a small program to see whether that works.
    """
    from gaptrace.doctor import examine

    checks = examine()
    if as_json:
        found = {"schema": "gaptrace.doctor/1", "checks": [asdict(check) for check in checks]}
        click.echo(json.dumps(found, indent=1))
    else:
        click.echo(_table(checks), nl=False)


def _table(checks: "tuple[Check, ...]") -> str:
    import io

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from gaptrace.cli.terminal import color, width

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    for check in checks:
        words = Text(check.detail)
        if check.advice is not None:
            words.append(f"\n{check.advice}", "dim")
        table.add_row(Text(check.state, _STYLES[check.state]), check.name, words)
    out = io.StringIO()
    colored = color(sys.stdout)
    Console(
        file=out,
        width=width(),
        force_terminal=colored,
        color_system="standard" if colored else None,
        highlight=False,
    ).print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"
