"""Parameter types that several subcommands share."""

import re

import click

_UNITS = {"": 1, "ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
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
        if match is None:
            self.fail(f"{value!r} is no time; write 1.5s, 200ms, 30us or 1500 (ns)", param, ctx)
        return round(float(match[1]) * _UNITS[match[2]])


TIME = TimeType()
