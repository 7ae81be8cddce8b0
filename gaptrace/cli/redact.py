"""``gaptrace redact TRACE -o COPY``."""

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gaptrace.cli.options import TIME

if TYPE_CHECKING:
    from gaptrace.redact import Redaction


@click.command()
@click.argument("trace", type=click.Path(path_type=Path, readable=False))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    metavar="COPY",
    help="The file to write; it must not exist.",
)
@click.option(
    "--range",
    "range_name",
    metavar="NAME",
    help="Only from the first NVTX range of this name or path to the end of the last.",
)
@click.option("--from", "from_ns", type=TIME, metavar="TIME", help="Only from this time on (1.5s).")
@click.option("--to", "to_ns", type=TIME, metavar="TIME", help="Only until this time (1600ms).")
def command(
    trace: Path, output: Path, range_name: str | None, from_ns: int | None, to_ns: int | None
) -> None:
    """Write a copy of TRACE that can be shared: all figures, nothing personal.

    A recording holds the whole environment with its tokens, command lines, names of hosts, users
    and threads, all processes of the machine, paths, and what programs printed. The copy holds only
    what the analysis needs. Names of kernels and NVTX ranges stay, but for those that look like a
    path, an address or a secret, or hold the name of the user or the host: they are numbered.

    Before the copy gets its name, source and copy are analysed, and compared. TRACE is not changed;
    a .nsys-rep report is exported first, and that export is not changed either.
    """
    from gaptrace.cli.loading import exported
    from gaptrace.cli.progress import percentage_bar
    from gaptrace.cli.terminal import width
    from gaptrace.redact import redact

    source = exported(trace)
    with percentage_bar("copying and comparing") as progress:
        done = redact(
            source,
            output,
            range_name=range_name,
            from_ns=from_ns,
            to_ns=to_ns,
            progress=progress,
        )
    for line in _lines(done, source, width()):
        click.echo(line)


def _lines(done: "Redaction", source: Path, width: int) -> Iterator[str]:
    from gaptrace.render.units import count, file_size

    yield f"{done.target}: {file_size(done.target_bytes)}, from {file_size(done.source_bytes)}"
    yield from _same(done, source, width)
    dropped = _dropped(done)
    yield "left out (tables with their numbers of rows)" if dropped else "nothing was to leave out"
    for what, text in dropped:
        yield _wrapped(text, width, f"  {what:<11}", 15)
    numbered = f", {count(done.hidden)} of them as hidden 1, hidden 2 ..." if done.hidden else ""
    kept = (
        f"kept: names of kernels, CUDA calls and NVTX ranges{numbered}; what the recorder "
        "complained of; numbers of processes, threads and streams; GPU, driver, CPU and system"
    )
    yield _wrapped(kept, width, "", 0)


def _same(done: "Redaction", source: Path, width: int) -> Iterator[str]:
    from gaptrace.render.units import count, counted, duration

    window = ""
    if done.window_ns is not None:
        begin, end = done.window_ns
        window = f" for all ops from {begin} to {end} ns ({_whole(duration(end - begin))})"
    if "refused" in done.figures:
        text = f"same answer as {source.name}{window}, no figures: {done.figures['refused']}"
        yield _wrapped(text, width, "", 2)
        return
    yield _wrapped(f"same figures as {source.name}{window}", width, "", 2)
    for device in done.figures["devices"]:
        causes = sorted(
            ((ns, cause) for cause, ns in device["causes"].items() if ns),
            key=lambda item: -item[0],
        )
        name = f" ({device['name']})" if device["name"] else ""
        text = (
            f"device {device['device']}{name}: busy {_whole(duration(device['busy_ns']))}, "
            f"idle {_whole(duration(device['idle_ns']))} in {counted(device['gap_count'], 'gap')}"
            + (": " if causes else "")
            + ", ".join(_whole(f"{cause} {duration(ns)}") for ns, cause in causes)
        )
        yield _wrapped(text, width, "  ", 4)
    ranges, graphs = len(done.figures["ranges"]), len(done.figures["graphs"])
    yield f"  {count(ranges)} rows of NVTX ranges, {count(graphs)} of graphs"


def _dropped(done: "Redaction") -> list[tuple[str, str]]:
    """What is left out, by kind; a kind has several lines when each of its tables has one."""
    from gaptrace.render.units import count

    gone = done.dropped
    secret = f"; like secrets: {', '.join(done.secrets)}" if done.secrets else ""
    found = [
        ("tables", ", ".join(f"{name} ({count(rows)})" for name, rows in gone.tables.items())),
        (
            "rows",
            ", ".join(
                f"{name} ({count(n)} of {count(all_)})" for name, (n, all_) in gone.rows.items()
            ),
        ),
        (
            "variables",
            f"{count(len(done.variables))} of environments and command lines{secret}"
            if done.variables
            else "",
        ),
        ("texts", ", ".join(f"{count(number)} {kind}" for kind, number in gone.texts.items())),
    ]
    for number, (table, columns) in enumerate(gone.columns.items()):
        found.append(("columns" if number == 0 else "", f"{table}: {', '.join(columns)}"))
    return [(what, text) for what, text in found if text]


def _whole(text: str) -> str:
    """Keep a number and its unit on one line."""
    return text.replace(" ", "\u00a0")


def _wrapped(text: str, width: int, first: str, indent: int) -> str:
    lines = textwrap.fill(
        " ".join(text.splitlines()),  # names may hold breaks that are no white space to textwrap
        width,
        initial_indent=first,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines.replace("\u00a0", " ")
