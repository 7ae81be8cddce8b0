"""Runs cells one after the other in an IPython of its own: all of a notebook but its front end."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_RUNNER = """
import json, sys
from pathlib import Path
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance(colors="nocolor")
shell.history_manager.enabled = False
results = []
for cell in json.loads(Path(sys.argv[1]).read_text()):
    print(f"--- {cell}", flush=True)
    done = shell.run_cell(cell)
    error = done.error_before_exec or done.error_in_exec
    results.append({
        "value": None if done.result is None else repr(done.result),
        "error": error and type(error).__name__,
        "message": error and str(error),
        "notes": getattr(error, "__notes__", []),
    })
Path(sys.argv[2]).write_text(json.dumps(results))
"""


def run_cells(
    folder: Path, cells: list[str], **environment: str
) -> tuple[list[dict[str, Any]], str]:
    """Run cells in a folder.

    Returns:
        Of each cell value, error, message and notes; and what was printed.
    """
    (folder / "cells.json").write_text(json.dumps(cells))
    ran = subprocess.run(
        [sys.executable, "-c", _RUNNER, "cells.json", "results.json"],
        cwd=folder,
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join(filter(None, map(os.path.abspath, sys.path))),
            "IPYTHONDIR": str(folder / "ipython"),
        }
        | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    said = f"status {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
    assert ran.returncode == 0, said
    return json.loads((folder / "results.json").read_text()), said


def run_folders(folder: Path, name: str) -> list[Path]:
    """Return the folders that cells of a name left, the first one first."""
    return sorted(
        (folder / "gaptrace-runs").glob(f"{name}-*"), key=lambda path: path.stat().st_ctime_ns
    )
