"""Stream captures, each from its begin call to its end call."""

import polars as pl

from gaptrace import intervals
from gaptrace.trace import SUBMITTING


def captures(api: pl.DataFrame) -> pl.DataFrame:
    """Return the stream captures among API calls, in order.

    Returns:
        process_id, thread_id, capture_id, start_ns, end_ns; nodes: launch calls inside, each of
        which adds one; is_sound: no call inside failed. Disjoint on each thread.
    """
    return (
        api.filter(pl.col("capture_id").is_not_null())
        .group_by("process_id", "thread_id", "capture_id", maintain_order=True)
        .agg(
            pl.col("start_ns").min(),
            pl.col("end_ns").max(),
            nodes=pl.col("kind").is_in(SUBMITTING).sum().cast(pl.Int64),
            is_sound=(pl.col("return_code").fill_null(0) == 0).all(),
        )
        .sort("start_ns", maintain_order=True)
    )


def calls_beside(api: pl.DataFrame) -> pl.DataFrame:
    """Return the calls of other threads that begin while one of their process captures.

    They may be captured as well: PyTorch's backward pass launches from a thread of its own, also
    into a capture.

    Returns:
        process_id, call_id, kind; start_ns, end_ns: the nanosecond in which they begin.
    """
    spans = intervals.merge(captures(api), ["process_id"])
    begins = api.filter(pl.col("capture_id").is_null()).select(
        "process_id", "call_id", "kind", "start_ns", end_ns=pl.col("start_ns") + 1
    )
    return intervals.intersect(begins, spans, ["process_id"])
