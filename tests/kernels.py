"""Runs notebooks in a real Jupyter kernel."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

#: Far above what any cell takes, so that one that hangs fails instead of hanging the tests.
_PATIENCE_S = 300


def run_notebook(notebook: Any, folder: Path, own: Path, *, allow_errors: bool = False) -> Any:
    """Run all cells, with the modules of this process, and return the notebook with its outputs.

    Args:
        notebook: of nbformat, or a list of sources.
        folder: where it runs.
        own: an empty folder for settings and data of IPython and Jupyter.
        allow_errors: go on behind a cell that fails.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed.
    """
    if isinstance(notebook, list):
        cells = [nbformat.v4.new_code_cell(source) for source in notebook]
        notebook = nbformat.v4.new_notebook(cells=cells)
    client = nbclient.NotebookClient(
        notebook,
        kernel_name="python3",
        # A kernel warns of its own local port: fine for a test, and no part of what is tested.
        extra_arguments=["--log-level=ERROR"],
        timeout=_PATIENCE_S,
        resources={"metadata": {"path": str(folder)}},
        allow_errors=allow_errors,
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JUPYTER_")}
    return client.execute(
        env=kept
        | {
            "PYTHONPATH": os.pathsep.join(filter(None, map(os.path.abspath, sys.path))),
            "IPYTHONDIR": str(own),
            "JUPYTER_CONFIG_DIR": str(own),
            "JUPYTER_DATA_DIR": str(own),
        }
    )


def outputs(notebook: Any) -> list[list[Any]]:
    """Return the outputs of each code cell."""
    return [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]


def printed(found: list[Any], stream: str = "stdout") -> str:
    """Return what a cell wrote to a stream."""
    return "".join(each.text for each in found if each.get("name") == stream)
