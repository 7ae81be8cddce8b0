"""From a path on the command line to a `Trace`."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gaptrace.trace import Trace


def load(path: Path) -> "Trace":
    """Read an export; a .nsys-rep report is exported first, with a progress bar on a terminal."""
    from gaptrace.read import read

    if path.suffix == ".nsys-rep":
        from gaptrace.cli.progress import percentage_bar
        from gaptrace.record.export import export

        with percentage_bar("exporting") as progress:
            path = export(path, progress=progress)
    return read(path)
