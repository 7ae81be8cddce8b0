"""Tiny copies that wait until a large copy of another stream has left the copy engine."""

import polars as pl

from gaptrace import intervals
from gaptrace.launches import TINY_COPY_BYTES, calls_by_id
from gaptrace.trace import Trace

#: A copy that begins this soon after another one ended has followed it on one engine. A judgement:
#: several times the gap between queued ops.
FOLLOWS_WITHIN_NS = 10_000


def delayed_copies(trace: Trace, windows: pl.DataFrame) -> pl.DataFrame:
    """Return the tiny copies that large copies in the same direction held up.

    A tiny copy is ready when it was submitted and the op before it on its stream has ended. Of the
    time from then to its start counts what copies of more bytes, in its direction, took on the
    device, provided that one of them ended just before it began (`FOLLOWS_WITHIN_NS`).

    Args:
        trace: the trace.
        windows: device_id, start_ns, end_ns; copies that start inside count.

    Returns:
        device_id, op_id, name: the direction, start_ns, delayed_ns: more than 0.
    """
    key = ["device_id", "name"]
    stream = ["process_id", "device_id", "context_id", "stream_id"]
    is_copy = (pl.col("kind") == "memcpy") & pl.col("graph_exec_id").is_null()
    is_tiny = is_copy & (pl.col("bytes") <= TINY_COPY_BYTES)
    large = trace.ops.filter(is_copy & (pl.col("bytes") > TINY_COPY_BYTES)).select(
        *key, "start_ns", "end_ns"
    )
    ready = (
        trace.ops.with_columns(_ended_ns=pl.col("end_ns").cum_max().shift(1).over(stream))
        .filter(is_tiny)
        .join(calls_by_id(trace).select("call_id", "call_end_ns"), on="call_id", how="inner")
        .select(
            *key,
            "op_id",
            begun_ns="start_ns",
            ready_ns=pl.max_horizontal("_ended_ns", "call_end_ns"),
        )
        .filter(pl.col("ready_ns") < pl.col("begun_ns"))
        .sort("begun_ns")
        .join_asof(
            large.select(*key, _left_ns="end_ns").sort("_left_ns"),
            left_on="begun_ns",
            right_on="_left_ns",
            by=key,
            check_sortedness=False,
        )
        .filter(
            (pl.col("_left_ns") > pl.col("ready_ns"))
            & (pl.col("begun_ns") - pl.col("_left_ns") <= FOLLOWS_WITHIN_NS)
        )
    )
    waiting = ready.select(*key, "op_id", "begun_ns", start_ns="ready_ns", end_ns="begun_ns")
    held = intervals.intersect(waiting, intervals.merge(large, key), key)
    found = held.group_by("device_id", "op_id", "name", "begun_ns", maintain_order=True).agg(
        delayed_ns=(pl.col("end_ns") - pl.col("start_ns")).sum()
    )
    starts = found.with_columns(start_ns="begun_ns", end_ns=pl.col("begun_ns") + 1)
    return intervals.intersect(starts, windows, ["device_id"]).select(
        "device_id", "op_id", "name", "start_ns", "delayed_ns"
    )
