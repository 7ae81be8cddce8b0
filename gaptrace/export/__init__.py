"""A trace and its analysis in the formats of other programs; nothing here computes a statistic."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gaptrace.analysis import Analysis

    Writer = Callable[[Analysis, Path, Callable[[int], None] | None], None]


def writer(format_: str) -> "Writer":
    """Return the function that writes an analysis as perfetto, parquet, csv or json.

    Raises:
        GaptraceError: a package that the format needs is not installed.
    """
    from gaptrace.export import frames, objects, packets, perfetto

    if format_ == "perfetto":
        packets.schema()  # missing: that is to be said before a trace is read
    return {
        "perfetto": perfetto.write_perfetto,
        "parquet": frames.write_parquet,
        "csv": frames.write_csv,
        "json": objects.write_json,
    }[format_]
