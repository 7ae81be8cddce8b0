"""Output that appears whole or not at all.

Everything is written under a hidden name beside the target, which gets its own name at the end.
A new file or folder never takes the place of what is there; `replace_file` is for what may.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gaptrace.errors import GaptraceError


def check_is_free(target: Path) -> None:
    """Make sure that something new can be written there.

    Raises:
        GaptraceError: something is there, or the folder that is to hold it is not, or nothing can
            be written there.
    """
    try:
        is_folder, is_there = target.is_dir(), target.exists() or target.is_symlink()
    except OSError as error:  # a folder that must not be entered, or a name that is too long
        raise _not_written(target, error) from error
    if is_there:
        what = "is a folder" if is_folder else "exists already"
        raise GaptraceError(f"{target}: {what}; choose a name that does not exist yet")
    check_folder(target.parent)


def check_folder(folder: Path) -> None:
    """Make sure that there is a folder in which something can be made.

    Raises:
        GaptraceError: there is none, or it cannot be written.
    """
    if not folder.is_dir():
        raise GaptraceError(f"{folder}: no such folder; make it, or name another")
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
        raise GaptraceError(f"{folder}: nothing can be written in this folder; name another")


@contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """Give the name of a draft, which becomes the target once the block has ended without error.

    Raises:
        GaptraceError: the target exists, or it or the draft cannot be written.
    """
    check_is_free(target)
    draft = _draft_of(target)
    try:
        yield draft
        _move(draft, target)
    except OSError as error:
        raise _not_written(target, error) from error
    finally:
        _remove(draft)


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Give an empty folder, which becomes the target once the block has ended without error.

    Raises:
        GaptraceError: the target exists, or it or what is in it cannot be written.
    """
    check_is_free(target)
    draft = _draft_of(target)
    try:
        draft.mkdir()
        yield draft
        check_is_free(target)
        draft.rename(target)
    except OSError as error:
        raise _not_written(target, error) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def replace_file(target: Path, text: str) -> None:
    """Write a text in the place of an older one, which stays where the new one cannot be written.

    Of a link, what it leads to is replaced; a pipe or a device is written to.

    Raises:
        OSError: it cannot be written.
    """
    if target.exists() and not target.is_file():
        target.write_text(text, encoding="utf-8")
        return
    place = target.resolve()
    draft = _draft_of(place)
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(place)
    finally:
        _remove(draft)


def _remove(draft: Path) -> None:
    with suppress(OSError):  # what could not be made, as for a name that is too long
        draft.unlink(missing_ok=True)


def _draft_of(target: Path) -> Path:
    return target.with_name(f".{target.name}.{os.getpid()}.part")


def _not_written(target: Path, error: OSError) -> GaptraceError:
    reason = error.strerror or str(error)
    return GaptraceError(f"{target}: cannot be written: {reason}; name another place with -o")


def _move(draft: Path, target: Path) -> None:
    """Give the draft its name, unless somebody else took that name in the meantime."""
    try:
        os.link(draft, target)
    except FileExistsError as error:
        raise GaptraceError(f"{target}: exists already; name a file that does not") from error
    except OSError:  # a file system without hard links
        check_is_free(target)
        draft.rename(target)
