"""What the terminal can show."""

import os
import shutil
from typing import TextIO

#: A report in a file is read in an editor: wide enough for its tables, narrow enough not to wrap.
_FILE_WIDTH = 100


def width() -> int:
    """Return the columns to write for: the terminal's or $COLUMNS, at least 80."""
    return max(80, shutil.get_terminal_size((_FILE_WIDTH, 24)).columns)


def color(stream: TextIO) -> bool:
    """Say whether to colour: only on a terminal, and never with NO_COLOR (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR")
