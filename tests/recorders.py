"""Recorders for tests: the stand-in as an executable, and the real one where there is one."""

import os
import sys
from pathlib import Path

import pytest

from gaptrace.errors import RecorderError
from gaptrace.record.nsys import Nsys, find_nsys

HERE = Path(__file__).parent


def install_fake_nsys(folder: Path) -> Path:
    """Put the stand-in into a folder as an executable called nsys."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "nsys"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HERE / "fake_nsys.py"}" "$@"\n')
    path.chmod(0o755)
    return path


def real_nsys() -> Nsys:
    """Return the installed nsys, or skip the test."""
    try:
        return find_nsys({key: value for key, value in os.environ.items() if "FAKE" not in key})
    except RecorderError as error:
        pytest.skip(f"needs a real Nsight Systems: {error}")
