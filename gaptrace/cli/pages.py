"""HTML files that commands leave."""

from pathlib import Path

from gaptrace.cli import say
from gaptrace.drafts import check_folder, replace_file
from gaptrace.errors import GaptraceError

_START = b"<!doctype html>"


def check_is_free(output: Path) -> None:
    """Let a report take the place of an older one, and of nothing else.

    Before the work, so that it is not done for nothing.
    """
    try:
        is_file, is_there = output.is_file(), output.exists()
        start = _start_of(output) if is_file else b""
    except OSError as error:
        raise _not_written(output, error) from error
    if is_file and start.lower() != _START:
        raise GaptraceError(
            f"{output}: exists and is no HTML file; choose another place with --output"
        )
    if is_file or not is_there:
        check_folder(output.parent)


def write_page(output: Path, text: str, what: str) -> None:
    """Write a page, and say on stderr where it is."""
    try:
        replace_file(output, text)
    except OSError as error:
        raise _not_written(output, error) from error
    say(f"the {what} is in {output}")


def _start_of(output: Path) -> bytes:
    with output.open("rb") as file:
        return file.read(len(_START))


def _not_written(output: Path, error: OSError) -> GaptraceError:
    return GaptraceError(
        f"cannot write {output}: {error.strerror}; choose another place with --output"
    )
