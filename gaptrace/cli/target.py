"""The target of a command that runs a program: a script, a module or another command."""

import shutil
from pathlib import Path
from typing import Literal

import click

Form = Literal["script", "module", "command"]


class TargetCommand(click.Command):
    """A command that ends in another command line, of which it takes no option for its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, and note whether a `--` stood before the target."""
        given = list(args)
        rest = super().parse_args(ctx, args)
        before = given[: len(given) - len(ctx.params["target"])]
        ctx.params["is_command"] = before[-1:] == ["--"]
        return rest


def form_of(program: str, *, is_module: bool, is_command: bool) -> Form:
    """Return what the first word of a target names; a usage error when there is no such thing."""
    if is_module and is_command:
        raise click.UsageError("-m names a module and -- a command: use one of them")
    if is_module:
        return "module"
    if is_command:
        if shutil.which(program) is None:
            raise click.UsageError(f"there is no command {program}")
        return "command"
    if not Path(program).is_file():
        raise click.UsageError(
            f"there is no script {program}; for a module write -m MODULE, for another command "
            "-- COMMAND"
        )
    return "script"
