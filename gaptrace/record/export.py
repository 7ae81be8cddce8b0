"""Exports a report (.nsys-rep) of Nsight Systems to SQLite, once.

An export is recognised again by two numbers in its SQLite header, which SQLite leaves to the
application: `application_id` holds a checksum of the report and `user_version` the version of
the exporter. So no file is needed beside it, and a `.sqlite` that the user made is never taken for
one of these, nor overwritten.
"""

import os
import re
import sqlite3
import subprocess
import zlib
from collections.abc import Callable
from itertools import chain, count
from pathlib import Path

from gaptrace.errors import RecorderError, TraceFormatError
from gaptrace.record.nsys import Nsys, find_nsys

#: Called with the percentage that is done.
Progress = Callable[[int], None]

_CHUNK = 1 << 20


def export(report: Path, *, nsys: Nsys | None = None, progress: Progress | None = None) -> Path:
    """Return the SQLite export of a report, made now unless an earlier one serves.

    It lies beside the report under its name, or in the user's cache folder where the report's
    folder cannot be written. An earlier export serves if it was made from these bytes, by an
    exporter at least as new. Any other file of that name is left alone and another name is taken.

    Args:
        report: a `.nsys-rep` file.
        nsys: the exporter; by default the one that `find_nsys` finds.
        progress: told how far it is.

    Raises:
        TraceFormatError: there is no such report, or nsys cannot read it.
        RecorderError: there is no nsys, or no place to write to.
    """
    checksum = _checksum(report)
    if nsys is None:
        try:
            nsys = find_nsys()
        except RecorderError:
            path = _place(report, checksum, (0,))
            if path.exists():
                return path
            raise
    path = _place(report, checksum, nsys.number)
    if not path.exists():
        _make(report, path, checksum, nsys, progress)
    return path


def export_command(report: Path, target: Path, nsys: Nsys) -> list[str]:
    """Return the command that exports a report to a file."""
    return [str(nsys.path), "export", "--type=sqlite", f"--output={target}", str(report)]


def _checksum(report: Path) -> int:
    checksum = 0
    try:
        with report.open("rb") as file:
            while chunk := file.read(_CHUNK):
                checksum = zlib.crc32(chunk, checksum)
    except OSError as error:
        raise TraceFormatError(
            f"{report}: cannot be read ({error.strerror}); check the path"
        ) from error
    return checksum or 1  # 0 is what a file that nobody stamped holds


def _place(report: Path, checksum: int, number: tuple[int, ...]) -> Path:
    """Return an export that serves, or else the first name that is free."""
    folder, stem = report.parent, report.stem
    if not os.access(folder, os.W_OK):
        # Not of the Path, which raises where the user has no home.
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111
        if cache.startswith("~"):
            raise RecorderError(
                f"nothing can be written beside {report}, and this user has no home folder: set "
                "XDG_CACHE_HOME to one for the export"
            )
        folder, stem = Path(cache) / "gaptrace", f"{stem}.{checksum:08x}"
    endings = chain(["", ".gaptrace"], (f".gaptrace-{n}" for n in count(2)))
    paths = (folder / f"{stem}{ending}.sqlite" for ending in endings)
    return next(
        path for path in paths if not path.exists() or _is_from(path, report, checksum, number)
    )


def _is_from(path: Path, report: Path, checksum: int, number: tuple[int, ...]) -> bool:
    # Offsets of the SQLite file format: user_version at 60, application_id at 68, big-endian.
    try:
        if not path.is_file() or path.stat().st_mtime < report.stat().st_mtime:
            return False
        with path.open("rb") as file:
            header = file.read(100)
    except OSError:  # somebody else's
        return False
    version, application = (int.from_bytes(header[at : at + 4], "big") for at in (60, 68))
    return application == checksum and version >= _as_integer(number)


def _as_integer(number: tuple[int, ...]) -> int:
    """Pack year, release and patch of a version into the 31 bits of user_version."""
    year, release, patch = (*number, 0, 0)[:3]
    return (year * 100 + release) * 10000 + patch


def _make(report: Path, target: Path, checksum: int, nsys: Nsys, progress: Progress | None) -> None:
    # Written under another name, so that an interrupted export leaves no half file.
    draft = target.with_name(f".{target.stem}.{os.getpid()}.sqlite")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        said = _run(export_command(report, draft, nsys), report, nsys, progress)
        _stamp(draft, checksum, nsys, said)
        draft.rename(target)
    except OSError as error:
        raise RecorderError(f"cannot write the export {target}: {error}") from error
    finally:
        draft.unlink(missing_ok=True)


def _run(command: list[str], report: Path, nsys: Nsys, progress: Progress | None) -> str:
    """Return the end of what it said."""
    said = ""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        try:
            while chunk := os.read(process.stdout.fileno(), 4096):
                said = (said + chunk.decode(errors="replace"))[-4096:]
                percentages = re.findall(r"(\d{1,3})%", said)
                if progress is not None and percentages:
                    progress(int(percentages[-1]))
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise TraceFormatError(
            f"{report}: nsys {nsys.version} cannot export it: {_reason(said)}; check that it is "
            "whole, and that this nsys is not older than the one that recorded it"
        )
    return said


def _reason(said: str) -> str:
    """Return the last line by which nsys says what went wrong."""
    lines = [line.strip() for line in re.split(r"[\r\n]", said)]
    told = (line for line in reversed(lines) if re.search("rror|full", line))
    return next(told, "it did not say why").rstrip(".")


def _stamp(path: Path, checksum: int, nsys: Nsys, said: str) -> None:
    """Mark an export as made from a report, once it is seen to hold tables.

    On a full disk nsys 2023.4 says so and ends as if it had made one.
    """
    if not path.is_file():
        raise RecorderError(f"nsys {nsys.version} said that it exported, but left no {path}")
    signed = checksum - 2**32 if checksum >> 31 else checksum
    connection = sqlite3.connect(path)
    try:
        if not connection.execute("PRAGMA table_info(StringIds)").fetchone():
            raise RecorderError(
                f"nsys {nsys.version} left an export without tables, and said: {_reason(said)}; "
                "make room on that disk and try again"
            )
        connection.execute(f"PRAGMA application_id = {signed}")
        connection.execute(f"PRAGMA user_version = {_as_integer(nsys.number)}")
    except sqlite3.DatabaseError as error:
        raise RecorderError(f"nsys {nsys.version} wrote no SQLite file: {error}") from error
    finally:
        connection.close()
