"""HTML files that commands leave."""

from pathlib import Path

from gaptrace.cli import say
from gaptrace.errors import GaptraceError


def check_is_free(output: Path) -> None:
    """Let a report take the place of an older one, and of nothing else."""
    if output.is_file() and not output.read_bytes()[:15].lower().startswith(b"<!doctype html>"):
        raise GaptraceError(
            f"{output}: exists and is no HTML file; choose another place with --output"
        )


def write_page(output: Path, text: str, what: str) -> None:
    """Write a page, and say on stderr where it is."""
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise GaptraceError(
            f"cannot write {output}: {error.strerror}; choose another place with --output"
        ) from error
    say(f"the {what} is in {output}")
