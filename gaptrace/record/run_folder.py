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
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

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
    folder = output if output is not None else _new_name(program, now)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise RecorderError(
                f"{folder} is not empty and nothing in it shall be overwritten; name a new folder "
                "with --output"
            )
        (folder / "commands.txt").touch()
    except OSError as error:
        raise RecorderError(
            f"cannot write to the run folder {folder}: {error.strerror}; choose a writable one "
            "with --output"
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
    with (folder / "commands.txt").open("a", encoding="utf-8") as file:
        file.write(settings + shlex.join(command) + "\n")


def add_cell(folder: Path, line: str, source: str) -> None:
    """Add a cell of a notebook to commands.txt.

    Args:
        folder: of the run.
        line: what follows `%%gaptrace`.
        source: the cell.
    """
    with (folder / "commands.txt").open("a", encoding="utf-8") as file:
        file.write(f"%%gaptrace {line}".strip() + f"\n{source.rstrip()}\n")


def write_versions(folder: Path, versions: dict[str, object]) -> None:
    """Write versions.json."""
    _write_json(folder / "versions.json", versions)


def write_result(folder: Path, report: str, page: str, analysis: dict[str, Any]) -> None:
    """Write report.txt, report.html and analysis.json."""
    (folder / "report.txt").write_text(report, encoding="utf-8")
    (folder / "report.html").write_text(page, encoding="utf-8")
    _write_json(folder / "analysis.json", analysis)


def write_arms(folder: Path, measured: dict[str, Any], text: str) -> None:
    """Write arms.json and arms.txt."""
    (folder / "arms.txt").write_text(text, encoding="utf-8")
    _write_json(folder / "arms.json", measured)


def _new_name(program: str, now: datetime) -> Path:
    name = re.sub(r"[^\w.-]+", "_", Path(program).name.removesuffix(".py")) or "run"
    first = RUNS / f"{name}-{now:%Y%m%d-%H%M%S}"
    folder, number = first, 2
    while folder.exists():
        folder = first.with_name(f"{first.name}-{number}")
        number += 1
    return folder


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
