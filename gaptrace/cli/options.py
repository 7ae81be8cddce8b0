"""Parameter types and options that several subcommands share."""

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

_UNITS = {"": 1, "ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
#: Times are 64-bit integers.
_LAST_NS = 2**63 - 1
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(ns|us|ms|s|)")


class TimeType(click.ParamType[int]):
    """A time such as 1.5s, 200ms, 30us or 1500 (ns), as whole nanoseconds."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Return nanoseconds, or fail with a usage error."""
        if isinstance(value, int):
            return value
        match = _TIME.fullmatch(str(value))
        # A fraction of a nanosecond is no time; seconds were meant, say.
        if match is None or (match[2] == "" and "." in match[1]):
            self.fail(f"{value!r} is no time; write 1.5s, 200ms, 30us or 1500 (ns)", param, ctx)
        time_ns = Decimal(match[1]) * _UNITS[match[2]]
        if time_ns >= _LAST_NS:  # or infinite
            self.fail(f"{value!r} is later than any recording can be", param, ctx)
        return round(time_ns)


TIME = TimeType()

_WINDOW = (
    click.option("--device", "device_id", type=int, metavar="N", help="Only this physical GPU."),
    click.option(
        "--range", "range_name", metavar="NAME", help="Only NVTX ranges of this name or path."
    ),
    click.option(
        "--from", "from_ns", type=TIME, metavar="TIME", help="Only from this time on (1.5s)."
    ),
    click.option("--to", "to_ns", type=TIME, metavar="TIME", help="Only until this time (1600ms)."),
)


def window_options(command: Command) -> Command:
    """Give a command the options that narrow an analysis, in the order in which help shows them."""
    for option in reversed(_WINDOW):
        command = option(command)
    return command
