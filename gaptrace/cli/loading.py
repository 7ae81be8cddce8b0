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
        return _of_cupti(path)
    if path.suffix != ".nsys-rep":
        return path
    from gaptrace.cli.progress import percentage_bar
    from gaptrace.record.export import export

    with percentage_bar("exporting") as progress:
        return export(path, progress=progress)


def _of_cupti(spool: Path) -> Path:
    """Export a recording that a run could not export itself, since it was ended or had no room."""
    from gaptrace.errors import GaptraceError
    from gaptrace.record.children import read_notes
    from gaptrace.record.cupti_file import convert
    from gaptrace.record.machine import Driver

    target = spool.with_suffix(".sqlite")
    if target.exists():
        raise GaptraceError(f"{target} is there already: name that, or move it away")
    # Both formats are JSON objects; the folder of a run has the first, and in folders of its own
    # the second granularity.
    said = read_notes(spool.with_name("versions.json"))
    said = said or read_notes(spool.parent.with_name("versions.json"))
    driver = Driver(
        said.get("driver"), said.get("cuda_driver"), tuple(said.get("gpus", ())), problem=None
    )
    ended = read_notes(spool.with_suffix(".script.json")).get("status") is not None
    return convert(spool, target, driver, ended=ended)
