"""The target of a command that runs a program: a script, a module or another command."""

import shutil
from pathlib import Path
from typing import Any, Literal

import click

Form = Literal["script", "module", "command"]


class TargetCommand(click.Command):
    """A command that ends in another command line, of which it takes no option for its own.

    Its function gets `target`, the words of that command line, `form`, what the first of them
    names, and `as_json`, besides the options of its own.
    """

    allow_interspersed_args = False

    def __init__(self, name: str | None, **attributes: Any) -> None:
        super().__init__(name, **attributes)
        is_module = click.Option(
            ["-m", "is_module"], is_flag=True, help="The target is a module, as in python -m."
        )
        as_json = click.Option(
            ["--json", "as_json"],
            is_flag=True,
            help="Print one JSON object on stdout; the program's own stdout then goes to stderr.",
        )
        target = click.Argument(
            ["target"], nargs=-1, required=True, type=click.UNPROCESSED, metavar="TARGET..."
        )
        self.params = [is_module, *self.params, as_json, target]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, and say what the target is, by -m or a `--` before it."""
        given = list(args)
        rest = super().parse_args(ctx, args)
        is_module, target = ctx.params.pop("is_module"), ctx.params["target"]
        if target:  # none while a shell completes the line
            is_command = given[: len(given) - len(target)][-1:] == ["--"]
            ctx.params["form"] = _form(target[0], is_module=is_module, is_command=is_command)
        return rest


def _form(program: str, *, is_module: bool, is_command: bool) -> Form:
    """Return what the first word of a target names; a usage error when there is no such thing."""
    if is_module and is_command:
        raise click.UsageError("-m names a module and -- a command: use one of them")
    if is_module:
        return "module"
    if is_command:
        if shutil.which(program) is None:
            raise click.UsageError(f"there is no command {program} that can be run")
        return "command"
    if not _is_file(program):
        raise click.UsageError(
            f"there is no script {program}; for a module write -m MODULE, for another command "
            "-- COMMAND"
        )
    return "script"


def _is_file(program: str) -> bool:
    try:
        return Path(program).is_file()
    except OSError:  # in a folder that must not be entered, or with a name that is too long
        return False


def streams(*, as_json: bool) -> tuple[int, int]:
    """Return where the program's stdout and stderr go: a JSON object has stdout for itself."""
    return (2, 2) if as_json else (1, 2)
