"""Readers: one module per format, each turning a file into a `Trace`."""

from pathlib import Path

from gaptrace.trace import Trace

__all__ = ["read"]


def read(path: str | Path) -> Trace:
    """Read a trace; the file is opened read-only and never changed.

    Args:
        path: an SQLite export of Nsight Systems, any version from before 2022 to 2026.

    Raises:
        TraceFormatError: missing, unreadable, damaged, or not such an export.
        NotRecordedError: a sound export in which no device activity was recorded.
    """
    from gaptrace.read.nsys import read_nsys

    return read_nsys(Path(path))
