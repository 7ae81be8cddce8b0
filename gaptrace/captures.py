"""Stream captures, each from its begin call to its end call."""

import polars as pl

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
