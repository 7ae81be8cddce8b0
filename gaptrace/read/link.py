"""Links inside a trace that every reader makes alike: ops to their launch, calls to captures."""

import polars as pl


def link_calls(ops: pl.DataFrame, api: pl.DataFrame) -> pl.DataFrame:
    """Give every op the call_id of the call that launched it.

    The key is (process_id, correlation_id): a correlation id is unique only within its process.
    Where several calls share one, the one that began first launched. Unified-memory migrations are
    launched by no call.

    Args:
        ops: columns of `trace.OPS` but for call_id.
        api: `trace.API`.

    Returns:
        ops with call_id, null where no launch was recorded; rows in the same order.
    """
    key = ["process_id", "correlation_id"]
    calls = (
        api.filter(pl.col("correlation_id").is_not_null() & pl.col("thread_id").is_not_null())
        .select(*key, "call_id")
        .unique(key, keep="first", maintain_order=True)
    )
    migration = pl.col("is_unified_memory").fill_null(False)
    return ops.join(calls, on=key, how="left", maintain_order="left").with_columns(
        call_id=pl.when(~migration).then("call_id")
    )


def mark_captures(api: pl.DataFrame, step: pl.Expr) -> pl.DataFrame:
    """Give every call made while its thread captured a stream the call_id that began the capture.

    A begin that failed begins nothing. A failed end does end its capture, which had been
    invalidated. Captures of the relaxed mode may end on another thread: an end without a begin on
    its thread ends the captures that never end on theirs, or one from before the recording.

    Args:
        api: sorted by start, with thread_id, call_id and return_code.
        step: +1 for calls that begin a capture, -1 for those that end one, else 0.

    Returns:
        api with capture_id: from the begin to the end call, both included, where both are of one
        thread; null outside.
    """
    begins = (step == 1) & (pl.col("return_code").fill_null(0) == 0)
    if not api.select(begins.any()).item():
        return api.with_columns(capture_id=pl.lit(None, pl.Int64))
    more = pl.when(begins).then(1).when(step == -1).then(-1).otherwise(0).cum_sum()
    depth = (more - pl.min_horizontal(more.cum_min(), 0)).over("thread_id")
    before = depth.shift(1, fill_value=0).over("thread_id")
    latest = pl.when(begins).then("call_id").forward_fill().over("thread_id")
    marked = api.with_columns(
        capture_id=pl.when((depth > 0) | (before > 0)).then(latest),
        _never_ends=(depth.last() > 0).over("thread_id"),
        _ends_elsewhere=(step == -1) & (before <= 0),
    )
    ends = marked.filter("_ends_elsewhere").select("process_id", "call_id", _ended="call_id")
    if ends.is_empty():
        return marked.drop("_never_ends", "_ends_elsewhere")
    open_ones = (
        marked.filter("_never_ends").select("process_id", "capture_id").drop_nulls().unique()
    )
    ended = open_ones.sort("capture_id").join_asof(
        ends.sort("call_id"),
        left_on="capture_id",
        right_on="call_id",
        by="process_id",
        strategy="forward",
        check_sortedness=False,
    )
    is_over = pl.col("_never_ends") & (pl.col("call_id") > pl.col("_ended")).fill_null(False)
    return (
        marked.join(
            ended.select("capture_id", "_ended"),
            on="capture_id",
            how="left",
            maintain_order="left",
        )
        .with_columns(capture_id=pl.when(~is_over).then("capture_id"))
        .drop("_never_ends", "_ends_elsewhere", "_ended")
    )


def unmark_what_ran(api: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """Take calls out of captures whose work the device did: their stream was not captured.

    Args:
        api: `trace.API`.
        ops: with call_id.
    """
    ran = pl.col("call_id").is_in(ops["call_id"].drop_nulls().unique().implode())
    return api.with_columns(capture_id=pl.when(~ran).then("capture_id"))
