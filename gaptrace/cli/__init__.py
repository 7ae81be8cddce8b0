"""The command line: the only place that prints, and the only one that exits."""

import errno
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import click

from gaptrace import __version__
from gaptrace.errors import GaptraceError

#: Why nothing more can be written, though it could be begun.
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


class LazyGroup(click.Group):
    """A group whose subcommands are imported only when they run, so that --help is instant."""

    #: name -> (module that defines a click command called ``command``, one line of help)
    lazy: ClassVar = {
        "analyze": ("gaptrace.cli.analyze", "Say where the GPU stands idle in a trace, and why."),
        "calibrate": (
            "gaptrace.cli.calibrate",
            "Measure what launches, graphs and gaps cost on this machine.",
        ),
        "compare": ("gaptrace.cli.compare", "Say what changed between two traces of a program."),
        "doctor": ("gaptrace.cli.doctor", "Say what this machine has and what is missing."),
        "export": ("gaptrace.cli.export", "Write a trace for Perfetto, as Parquet, CSV or JSON."),
        "profile": ("gaptrace.cli.profile", "Record a script, then analyze what was recorded."),
        "recommend": ("gaptrace.cli.recommend", "Say what CUDA graphs and chunks would change."),
        "redact": ("gaptrace.cli.redact", "Write a copy of a trace that can be shared."),
        "report": ("gaptrace.cli.report", "Write a report with figures as one HTML file."),
        "verify": ("gaptrace.cli.verify", "Say whether a program's steps can be graphs."),
    }

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all subcommands, sorted."""
        return sorted(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one subcommand."""
        if cmd_name not in self.lazy:
            return None
        from importlib import import_module

        command = import_module(self.lazy[cmd_name][0]).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in sorted(self.lazy.items())])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gaptrace")
def cli() -> None:
    """Find where a GPU stands idle, why, and what CUDA graphs would change."""


def one_line(error: GaptraceError) -> str:
    """Return the text of an error; names from a trace in it may hold line breaks of any kind."""
    return " ".join(str(error).splitlines())


def say(message: str) -> None:
    """Print a message beside the results, on stderr."""
    click.echo(f"gaptrace: {message}", err=True)


def show(text: str) -> None:
    """Print results on stdout; where nobody reads them any more, go on without.

    For what has more to do than to print.
    """
    try:
        click.echo(text, nl=False)
        sys.stdout.flush()
    except BrokenPipeError:
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0 done, 1 failed, 2 usage, 3 a gate failed.

    ``gaptrace profile`` returns the status of the profiled script when that script failed.
    """
    # Closed by who started it: then nobody reads them, and no other file shall get their numbers.
    sys.stdout = sys.stdout or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What a terminal of another encoding cannot show, such as lines of tables, is a question
        # mark there, and no reason to end.
        sys.stdout.reconfigure(errors="replace")
    try:
        status = cli.main(argv, prog_name="gaptrace", standalone_mode=False)
    except click.UsageError as error:
        error.show()
        return 2
    except GaptraceError as error:
        say(f"error: {one_line(error)}")
        return 1
    except click.exceptions.Abort:
        say("interrupted")
        return 130
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        what = error.filename or "the output"
        reason = (error.strerror or str(error)).lower()
        say(f"error: cannot write {what}: {reason}; make room, or write elsewhere")
        return 1
    return status if isinstance(status, int) else 0


if __name__ == "__main__":
    sys.exit(main())
