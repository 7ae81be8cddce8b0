"""From a path on the command line to a `Trace`."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gaptrace.trace import Trace


def load(path: Path) -> "Trace":
    """Read an export; a .nsys-rep report is exported first, with a progress bar on a terminal."""
    from gaptrace.read import read

    return read(exported(path))


def exported(path: Path) -> Path:
    """Return the export itself, of a .nsys-rep report or a .cupti recording after exporting it."""
    if path.suffix == ".cupti":
        from gaptrace.record.cupti_file import convert_kept

        return convert_kept(path)
    if path.suffix != ".nsys-rep":
        return path
    from gaptrace.cli.progress import percentage_bar
    from gaptrace.record.export import export

    with percentage_bar("exporting") as progress:
        return export(path, progress=progress)
