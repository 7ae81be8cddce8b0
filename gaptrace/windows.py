"""The time an analysis is about: of each device the whole trace, or the part that was asked for."""

from difflib import get_close_matches

import polars as pl

from gaptrace import intervals
from gaptrace.errors import WindowError
from gaptrace.gaps import recorded_extent
from gaptrace.trace import Trace


def find_windows(
    trace: Trace,
    range_windows: pl.DataFrame,
    range_name: str | None,
    from_ns: int | None,
    to_ns: int | None,
) -> tuple[pl.DataFrame, str | None]:
    """Return the windows, and what they were asked as.

    Args:
        trace: the trace.
        range_windows: `ranges.range_windows` of it.
        range_name: only inside ranges of this name or path.
        from_ns: only from this time on.
        to_ns: only until this time.

    Returns:
        device_id, start_ns, end_ns, disjoint on a device: from its first op to its last unless
        something was asked for; and a name such as `range step`, null for the whole trace.

    Raises:
        WindowError: there is no such range, or no device work in the window, or no window.
    """
    check_order(trace, from_ns, to_ns)
    windows = (
        trace.ops.group_by("device_id")
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max())
        .sort("device_id")
    )
    names = []
    if from_ns is not None or to_ns is not None:
        windows = _between(trace, windows, from_ns, to_ns)
        end = "the end" if to_ns is None else f"{to_ns} ns"
        names.append(f"from {from_ns or 0} ns to {end}")
    if range_name is not None:
        named = named_ranges(trace, range_windows, range_name)
        ranged = intervals.merge(named, ["device_id"])
        windows = intervals.intersect(ranged, windows, ["device_id"]) if names else ranged
        names.insert(0, f"range {range_name}")
    if windows.is_empty():
        raise WindowError(f"{trace.meta.path}: nothing lies in {' and '.join(names)}; take more")
    return windows, " and ".join(names) or None


def _between(
    trace: Trace, active: pl.DataFrame, from_ns: int | None, to_ns: int | None
) -> pl.DataFrame:
    """Return the asked window per device; an open end is the device's own first or last op."""
    # Beyond the last row nothing is known, and what is unknown must not count as busy or idle.
    begin, end = recorded_extent(trace)
    asked = active.with_columns(
        start_ns=pl.col("start_ns") if from_ns is None else pl.lit(max(from_ns, begin), pl.Int64),
        end_ns=pl.col("end_ns") if to_ns is None else pl.lit(min(to_ns, end), pl.Int64),
    ).filter(pl.col("end_ns") > pl.col("start_ns"))
    if intervals.intersect(asked, active, ["device_id"]).is_empty():
        raise no_device_work(trace, "in the window asked for")
    return asked


def check_order(trace: Trace, from_ns: int | None, to_ns: int | None) -> None:
    """Make sure that a window ends after it begins, which a swapped pair of times does not.

    Raises:
        WindowError: it does not.
    """
    if from_ns is not None and to_ns is not None and to_ns <= from_ns:
        raise WindowError(
            f"{trace.meta.path}: the window asked for begins at {from_ns} ns and ends at {to_ns} "
            "ns; let it end after it begins"
        )


def named_ranges(trace: Trace, ranges: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return the ranges that a name means: it is their path, or the end of it.

    Args:
        trace: the trace.
        ranges: rows with the path that `ranges.range_tree` gives them.
        name: the name, or as much of the path as tells them from others.

    Raises:
        WindowError: there are none.
    """
    path = pl.col("path")
    named = ranges.filter((path == name) | path.str.ends_with(f"/{name}"))
    if named.is_empty():
        known = ranges["path"].unique(maintain_order=True).to_list()
        listed = ", ".join(known[:8]) + (" ..." if len(known) > 8 else "")
        if (trace.nvtx["name"] == name.rpartition("/")[2]).any():
            # Of a process without device work, or on another device than the one asked for.
            problem = f"nothing on the devices looked at belongs to NVTX range {name}; "
        else:
            problem = f"no NVTX range is named {name}; "
        there_are = f"there are: {listed}" if known else "it holds no NVTX ranges"
        alike = get_close_matches(name, known[8:], 1, 0.8)
        if alike:
            there_are = f"there is {alike[0]}, and {listed}"
        raise WindowError(f"{trace.meta.path}: {problem}{there_are}")
    return named


def no_device_work(trace: Trace, where: str) -> WindowError:
    """Return the error that there is no device work at a time, with the time when there is."""
    first, last = trace.ops.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    return WindowError(
        f"{trace.meta.path}: no device work {where}; device work runs from {first} ns to {last} ns"
    )


def starting_inside(
    rows: pl.DataFrame, windows: pl.DataFrame, *, start: str = "start_ns"
) -> pl.DataFrame:
    """Keep the rows (device_id, start_ns and others) that start in a window.

    Args:
        rows: the rows.
        windows: device_id, start_ns, end_ns; disjoint on a device.
        start: column of the start; where it is null, start_ns is.
    """
    at_start = (
        rows.select("device_id", start_ns=pl.coalesce(start, "start_ns"))
        .with_columns(end_ns=pl.col("start_ns") + 1)
        .with_row_index()
    )
    inside = intervals.intersect(at_start, windows, ["device_id"])["index"]
    return rows[inside]
