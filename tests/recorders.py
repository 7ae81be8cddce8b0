"""Recorders for tests: the stand-in as an executable, and the real one where there is one."""

import sys
from pathlib import Path

import pytest

import gaptrace.live
from gaptrace.errors import RecorderError
from gaptrace.record.nsys import Nsys, find_nsys

HERE = Path(__file__).parent
#: What runs a program for a recorder, as the recorders start it.
RUNNER = str(Path(gaptrace.live.__file__).with_name("run.py"))


def install_fake_nsys(folder: Path) -> Path:
    """Put the stand-in into a folder as an executable called nsys."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "nsys"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HERE / "fake_nsys.py"}" "$@"\n')
    path.chmod(0o755)
    return path


def write_nsys(path: Path, version: str) -> Path:
    """Write an executable that only tells its version."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho NVIDIA Nsight Systems version {version}-1v0\n")
    path.chmod(0o755)
    return path


def program_that_lacks_a_library(path: Path) -> Path:
    """Write a real program that needs libq.so.6, which is nowhere: libc.so.6 under a wrong name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    program = Path("/bin/true").read_bytes()
    assert b"libc.so.6\0" in program
    path.write_bytes(program.replace(b"libc.so.6\0", b"libq.so.6\0"))
    path.chmod(0o755)
    return path


def real_nsys() -> Nsys:
    """Return the installed nsys, or skip the test."""
    try:
        return find_nsys()
    except RecorderError as error:
        pytest.skip(f"needs a real Nsight Systems: {error}")
