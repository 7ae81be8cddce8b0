"""How a report is laid out: sections of text and tables."""

import io
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

#: Rows of a table that people still read; the rest is in the JSON.
MOST_ROWS = 16
#: Columns of a terminal from which on tables say more.
WIDE = 120


def printed(parts: Sequence[RenderableType], width: int, color: bool) -> str:
    """Return what rich makes of the parts, without spaces at the ends of lines."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        highlight=False,
        # Names of kernels and ranges hold brackets, which are no markup.
        markup=False,
        emoji=False,  # nor are words between colons
        legacy_windows=False,
    )
    for part in parts:
        console.print(part)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


@dataclass(frozen=True)
class Section:
    """A part of a report, which rich prints and `render.html` turns into HTML.

    Attributes:
        title: above it.
        parts: texts and tables, in order.
    """

    title: str
    parts: tuple[RenderableType, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Give rich the parts, indented, below the title and an empty line."""
        yield Text(f"\n{self.title}", style="bold")
        yield Padding(Group(*self.parts), (0, 0, 0, 2))


def section(title: str, *parts: RenderableType) -> Section:
    """Return a section."""
    return Section(title, parts)


def table(*columns: str) -> Table:
    """Return an empty table; a leading + marks columns of numbers."""
    empty = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for name in columns:
        numeric = name.startswith("+")
        empty.add_column(
            name.lstrip("+"),
            justify="right" if numeric else "left",
            no_wrap=numeric,
            overflow="fold",
        )
    return empty
