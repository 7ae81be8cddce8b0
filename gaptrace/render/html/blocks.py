"""Texts and tables of the text report, as plain records for a template.

Both reports are made of the same parts, so that they cannot say different things.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True)
class Run:
    """Text in one style.

    Attributes:
        text: without markup.
        style: strong, warning, severe, quiet, or empty.
    """

    text: str
    style: str = ""


@dataclass(frozen=True)
class Paragraph:
    """A line of text."""

    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Grid:
    """A table.

    Attributes:
        columns: (name, whether it holds numbers); no names where there is no head.
        rows: cells.
        has_head: whether the columns are named.
    """

    columns: tuple[tuple[str, bool], ...]
    rows: tuple[tuple[tuple[Run, ...], ...], ...]
    has_head: bool


Block = Paragraph | Grid
_STYLES = {"bold": "strong", "red": "severe", "yellow": "warning", "dim": "quiet"}
_CONSOLE = Console(width=10_000, markup=False, highlight=False)


def blocks(parts: Sequence[RenderableType]) -> list[Block]:
    """Return the texts and tables of rich renderables, in order; empty lines are left out."""
    return [block for part in parts for block in _blocks(part)]


def _blocks(part: RenderableType) -> Iterator[Block]:
    match part:
        case Group():
            yield from blocks(part.renderables)
        case Padding():
            yield from _blocks(part.renderable)
        case Table():
            yield _grid(part)
        case Text() | str():
            if runs := _runs(part):
                yield Paragraph(runs)
        case _:
            raise TypeError(f"no block for {type(part).__name__}")


def _grid(table: Table) -> Grid:
    columns = [
        ("".join(run.text for run in _runs(column.header)), column.justify == "right")
        for column in table.columns
    ]
    cells = [[_runs(cell) for cell in column.cells] for column in table.columns]
    return Grid(tuple(columns), tuple(zip(*cells, strict=True)), table.show_header)


def _runs(part: RenderableType) -> tuple[Run, ...]:
    text = part if isinstance(part, Text) else Text(str(part))
    if not text.plain.strip():
        return ()
    return tuple(
        # rich gives segments no style where the whole text has one.
        Run(segment.text.replace("\n", " "), _style(str(segment.style or text.style)))
        for segment in text.render(_CONSOLE)
        if segment.text
    )


def _style(style: str) -> str:
    return " ".join(_STYLES[word] for word in style.split() if word in _STYLES)
