"""What each single instance of an NVTX range cost the device."""

import polars as pl

from gaptrace import intervals
from gaptrace.timelines import CAUSES

_KEY = ["path", "domain", "device_id"]
_LENGTH = pl.col("end_ns") - pl.col("start_ns")


def range_instances(windows: pl.DataFrame, pieces: pl.DataFrame) -> pl.DataFrame:
    """Say what the device did during each instance of each range.

    Args:
        windows: `ranges.range_windows`, cut to a window or not; they may overlap. One that several
            windows cut into pieces (several rows of one range_id) is still one instance.
        pieces: `gaps.idle_pieces`, disjoint per device.

    Returns:
        path, domain, device_id; instance: from 0 on in order of start, within these; payload,
        process_id, thread_id, start_ns, end_ns, launches, graph_launches: of the range; span_ns,
        busy_ns, idle_ns; and a column for each cause, by its name: idle ns, which sum to idle_ns
        exactly. In order of start.
    """
    of_range = ("payload", "process_id", "thread_id", "launches", "graph_launches")
    numbered = (
        windows.sort("start_ns", maintain_order=True)
        .group_by(*_KEY, "range_id", maintain_order=True)
        .agg(
            pl.col(*of_range).first(),
            pl.col("start_ns").min(),
            pl.col("end_ns").max(),
            span_ns=_LENGTH.sum(),
        )
        .with_columns(instance=pl.int_range(pl.len(), dtype=pl.Int64).over(_KEY))
    )
    inside = intervals.intersect(
        windows.select("range_id", "device_id", "start_ns", "end_ns"),
        pieces.select("device_id", "start_ns", "end_ns", "cause"),
        ["device_id"],
    )
    of_cause = {
        cause: _LENGTH.filter(pl.col("cause") == cause).sum() for cause in CAUSES.categories
    }
    idle = inside.group_by("range_id", "device_id").agg(idle_ns=_LENGTH.sum(), **of_cause)
    sums = ["idle_ns", *of_cause]
    return (
        numbered.join(idle, on=["range_id", "device_id"], how="left", maintain_order="left")
        .with_columns(pl.col(sums).fill_null(0))
        .with_columns(busy_ns=pl.col("span_ns") - pl.col("idle_ns"))
        .select(
            *_KEY,
            *("instance", "payload", "process_id", "thread_id", "start_ns", "end_ns"),
            *("launches", "graph_launches", "span_ns", "busy_ns", *sums),
        )
    )
