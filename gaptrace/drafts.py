"""Output that appears whole or not at all, and never takes the place of what is there.

Everything is written under a hidden name beside the target, which gets its own name at the end.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gaptrace.errors import GaptraceError


def check_is_free(target: Path) -> None:
    """Make sure that something new can be written there.

    Raises:
        GaptraceError: something is there, or the folder that is to hold it is not.
    """
    if target.exists() or target.is_symlink():
        what = "is a folder" if target.is_dir() else "exists already"
        raise GaptraceError(f"{target}: {what}; name a file that does not exist yet")
    if not target.parent.is_dir():
        raise GaptraceError(f"{target.parent}: no such folder; make it, or name another")


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
        draft.unlink(missing_ok=True)


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
