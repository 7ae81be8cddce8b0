"""What of a trace belongs to a window of time."""

from dataclasses import replace

import polars as pl

from gaptrace.gaps import recorded_extent
from gaptrace.ranges import range_tree
from gaptrace.trace import Trace
from gaptrace.windows import check_order, named_ranges, no_device_work

Window = tuple[int, int]
_STREAM = ["process_id", "context_id", "stream_id"]


def find_window(
    trace: Trace, range_name: str | None, from_ns: int | None, to_ns: int | None
) -> Window:
    """Return from and to in ns; what is not asked for reaches to the end of the recording.

    Several NVTX ranges of one name give one window, from the first to the end of the last.

    Raises:
        WindowError: there is no such range, or no device work in the window, or no window.
    """
    check_order(trace, from_ns, to_ns)
    first, last = recorded_extent(trace)
    begin = first if from_ns is None else from_ns
    end = last + 1 if to_ns is None else to_ns  # work of no length may be the last of all
    if range_name is not None:
        named = named_ranges(trace, range_tree(trace.nvtx), range_name)
        hull = named.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
        begin, end = max(begin, hull[0]), min(end, hull[1])
    if trace.ops.filter(overlaps((begin, end))).is_empty():
        is_window = begin < end
        where = f"between {begin} and {end} ns" if is_window else "in the window asked for"
        raise no_device_work(trace, where)
    return begin, end


def overlaps(window: Window) -> pl.Expr:
    """Say whether a row with start_ns and end_ns, of any length, is in a window."""
    begin, end = window
    start_ns = pl.col("start_ns")
    return (start_ns < end) & ((pl.col("end_ns") > begin) | (start_ns >= begin))


def narrow(trace: Trace, window: Window) -> Trace:
    """Return what of a trace belongs to a window.

    That is device work that overlaps it, and of the host

    - the calls that launched that work, and the waits for events that it stood behind, with the
      calls that recorded those events,
    - every call and overhead that overlaps the window, so that what a thread did at any time in it
      is all there,
    - whole captures that overlap it or made a graph that runs in it,
    - NVTX ranges that lie in it.

    Args:
        trace: the trace.
        window: from and to, in ns.
    """
    ops = trace.ops.filter(overlaps(window))
    inside = trace.api.filter(overlaps(window))
    waits = trace.event_waits.filter(
        pl.col("call_id").is_in(inside["call_id"].implode())
        | pl.col("call_id").is_in(_awaited_by(trace, ops).implode())
    )
    captures = pl.concat([inside["capture_id"].drop_nulls(), _captures_of(trace, ops)])
    calls = [inside["call_id"], ops["call_id"], waits["call_id"], waits["recorded_call_id"]]
    api = trace.api.filter(
        pl.col("call_id").is_in(pl.concat(calls).drop_nulls().unique().implode())
        | pl.col("capture_id").is_in(captures.unique().implode())
    ).with_columns(_new=pl.int_range(pl.len(), dtype=pl.Int64))
    new = dict(api.select("call_id", "_new").rows())
    return replace(
        trace,
        ops=_numbered(ops, "call_id", new).with_columns(
            op_id=pl.int_range(pl.len(), dtype=pl.Int64)
        ),
        api=_numbered(_numbered(api.drop("_new"), "call_id", new), "capture_id", new),
        nvtx=trace.nvtx.filter(_lies_in(window)),
        overhead=trace.overhead.filter(overlaps(window)),
        event_waits=_numbered(_numbered(waits, "call_id", new), "recorded_call_id", new),
    )


def _lies_in(window: Window) -> pl.Expr:
    begin, end = window
    start_ns = pl.col("start_ns")
    return (
        pl.when(pl.col("kind") == "mark")
        .then(start_ns.is_between(begin, end))
        .otherwise((start_ns >= begin) & (pl.col("end_ns") <= end))
    )


def _numbered(frame: pl.DataFrame, column: str, new: dict[int, int]) -> pl.DataFrame:
    return frame.with_columns(
        pl.col(column).replace_strict(new, default=None, return_dtype=pl.Int64)
    )


def _awaited_by(trace: Trace, ops: pl.DataFrame) -> pl.Series:
    """call_id of the waits for events given to a stream just before it got the work in ops."""
    waits = trace.event_waits
    launched = (
        trace.ops.filter(pl.col("call_id").is_not_null())
        .join(waits.select(_STREAM).unique(), on=_STREAM, how="semi")
        .unique("call_id", keep="first", maintain_order=True)
        .sort("call_id")
        .with_columns(_earlier=pl.col("call_id").shift(1).over(_STREAM))
    )
    return (
        waits.select(*_STREAM, "call_id", _wait="call_id")
        .sort("call_id")
        .join_asof(
            launched.select(*_STREAM, "call_id", "op_id"),
            on="call_id",
            by=_STREAM,
            strategy="forward",
            check_sortedness=False,
        )
        .filter(pl.col("op_id").is_in(ops["op_id"].implode()))["_wait"]
    )


def _captures_of(trace: Trace, ops: pl.DataFrame) -> pl.Series:
    """capture_id of the stream captures that made the graphs whose execs have ops."""
    graph = ["process_id", "graph_id"]
    used = ops.select("process_id", "graph_exec_id").drop_nulls().unique()
    events = trace.graph_events
    execs = events.filter(pl.col("event") == "exec").join(used, on=used.columns, how="semi")
    made = events.filter(pl.col("event") == "graph").join(execs, on=graph, how="semi")
    begun = trace.api.filter(pl.col("capture_id") == pl.col("call_id"))
    return (
        made.drop_nulls(["thread_id", "time_ns"])
        .sort("time_ns")
        .join_asof(
            begun.select("thread_id", "capture_id", "start_ns").sort("start_ns"),
            left_on="time_ns",
            right_on="start_ns",
            by="thread_id",
            strategy="backward",
            check_sortedness=False,
        )["capture_id"]
        .drop_nulls()
    )
