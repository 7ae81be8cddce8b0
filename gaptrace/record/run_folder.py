"""The folder that holds all that one `gaptrace profile` leaves.

```
gaptrace-runs/demo-20260131-235959/
├── commands.txt          what was run, to be run again by hand
├── versions.json         recorder, driver, GPUs, packages
├── graph.nsys-rep        the recording, for Nsight Systems' own window
├── graph.sqlite          its export, for `gaptrace analyze`
├── graph.nsys.log        what nsys printed
├── graph.script.json     what the profiled process noted (gaptrace.live.notes)
├── arms.json, arms.txt   with --arms: what each step took without a recorder, in every way
├── arms.script.json      what that process noted
├── report.txt            the report
├── report.html           the same with figures, as one file for a browser
└── analysis.json         the same for programs
```

`%%gaptrace` in a notebook leaves the cell in `commands.txt`, and neither report nor notes.

A recording with CUPTI has neither report nor log of its own: `graph.sqlite` is all of it.

With both granularities the recordings lie in the folders `graph` and `node`, each with its own
report and analysis: figures of the two are not to be compared.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from gaptrace.drafts import replace_file
from gaptrace.errors import RecorderError

RUNS = Path("gaptrace-runs")

#: Columns of report.txt: wide enough for its tables, narrow enough for an editor.
REPORT_WIDTH = 100


def create_run_folder(output: Path | None, program: str, now: datetime) -> Path:
    """Create the folder of a run and return its absolute path.

    Args:
        output: where it shall be; must not hold anything yet. By default a new folder in
            `gaptrace-runs`, named after the program and the time.
        program: a script, a module or a command.
        now: local time of the start.

    Raises:
        RecorderError: it cannot be created, or it holds something.
    """
    try:
        if output is None:
            folder = _new_folder(program, now)
        else:
            folder = output
            folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise RecorderError(
                f"{folder} is not empty and nothing in it shall be overwritten; name a new folder "
                "with --output"
            )
        (folder / "commands.txt").touch()
    except OSError as error:
        raise RecorderError(
            f"cannot write to the run folder {output or RUNS}: {error.strerror}; choose a writable "
            "one with --output"
        ) from error
    return folder.resolve()


def add_command(
    folder: Path, command: Sequence[str], variables: Mapping[str, str] | None = None
) -> None:
    """Add a command, as a shell takes it, to commands.txt.

    Args:
        folder: of the run.
        command: words.
        variables: of the environment, set for this command alone.
    """
    settings = "".join(f"{key}={shlex.quote(value)} " for key, value in (variables or {}).items())
    # Words need not be text: they are written as the bytes that they are.
    with _adding(folder, errors="surrogateescape") as file:
        file.write(settings + shlex.join(command) + "\n")


def add_cell(folder: Path, line: str, source: str) -> None:
    """Add a cell of a notebook to commands.txt.

    Args:
        folder: of the run.
        line: what follows `%%gaptrace`.
        source: the cell.
    """
    with _adding(folder) as file:
        file.write(f"%%gaptrace {line}".strip() + f"\n{source.rstrip()}\n")


def write_versions(folder: Path, versions: dict[str, object]) -> None:
    """Write versions.json. Raises RecorderError where it cannot be written."""
    _write(folder, {"versions.json": _json(versions)})


def write_result(folder: Path, report: str, page: str, analysis: dict[str, Any]) -> None:
    """Write report.txt, report.html and analysis.json, each whole or not at all.

    Raises:
        RecorderError: one cannot be written.
    """
    files = {"report.txt": report, "report.html": page, "analysis.json": _json(analysis)}
    _write(folder, files)


def write_arms(folder: Path, measured: dict[str, Any], text: str) -> None:
    """Write arms.json and arms.txt. Raises RecorderError where one cannot be written."""
    _write(folder, {"arms.txt": text, "arms.json": _json(measured)})


def _new_folder(program: str, now: datetime) -> Path:
    """Make a folder that nobody else has made, such as another process at the same moment."""
    name = re.sub(r"[^\w.-]+", "_", Path(program).name.removesuffix(".py")) or "run"
    first = RUNS / f"{name}-{now:%Y%m%d-%H%M%S}"
    RUNS.mkdir(exist_ok=True)
    folder, number = first, 2
    while True:
        try:
            folder.mkdir()
        except FileExistsError:
            folder = first.with_name(f"{first.name}-{number}")
            number += 1
        else:
            return folder


@contextmanager
def _adding(folder: Path, errors: str = "strict") -> Iterator[TextIO]:
    place = folder / "commands.txt"
    try:
        with place.open("a", encoding="utf-8", errors=errors) as file:
            yield file
    except OSError as error:
        raise _not_written(place, error) from error


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        try:
            replace_file(folder / name, text)
        except OSError as error:
            raise _not_written(folder / name, error) from error


def _not_written(place: Path, error: OSError) -> RecorderError:
    return RecorderError(
        f"cannot write {place}: {error.strerror}; what was recorded until then is kept beside it, "
        "for gaptrace analyze and report"
    )


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=1) + "\n"
