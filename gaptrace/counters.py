"""What changes over time on a device, as values that hold until the next row."""

import polars as pl

from gaptrace import intervals


def busy_changes(windows: pl.DataFrame, gaps: pl.DataFrame) -> pl.DataFrame:
    """Return when each device begins and ceases to be busy.

    Args:
        windows: device_id, start_ns, end_ns; disjoint.
        gaps: `gaps.device_gaps`, cut to the windows.

    Returns:
        device_id, time_ns, value: 1 from here on busy, 0 not. Sorted; neighbours differ. Exact:
        the time with value 1 is the busy time, to the nanosecond.
    """
    key = ["device_id"]
    busy = intervals.merge(intervals.subtract(windows, gaps, key), key)
    changes = [
        busy.select("device_id", time_ns=time, value=pl.lit(value, pl.Int64))
        for time, value in (("start_ns", 1), ("end_ns", 0))
    ]
    return pl.concat(changes).sort("device_id", "time_ns")


def queue_depth(launches: pl.DataFrame) -> pl.DataFrame:
    """Return how many launches each device has before it that it has not begun to work on.

    A launch counts from the return of its call to the start of its first op: what then passes is
    the device's time, as in the cause `device_queued`. One that began before its call returned
    never counts; a graph launch counts once.

    Args:
        launches: `launches.launches`.

    Returns:
        device_id, time_ns, value. Sorted; neighbours differ; 0 before the first row.
    """
    waited = launches.filter(pl.col("lead_ns") > 0)
    changes = [
        waited.select("device_id", time_ns=time, change=pl.lit(change, pl.Int64))
        for time, change in (("call_end_ns", 1), ("start_ns", -1))
    ]
    return (
        pl.concat(changes)
        .group_by("device_id", "time_ns")
        .agg(pl.col("change").sum())
        .filter(pl.col("change") != 0)
        .sort("device_id", "time_ns")
        .select("device_id", "time_ns", value=pl.col("change").cum_sum().over("device_id"))
    )
