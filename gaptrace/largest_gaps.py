"""The largest gaps one by one: what ran before and after, who launched, where in the program."""

import polars as pl

from gaptrace import intervals
from gaptrace.launches import calls_by_id
from gaptrace.trace import Trace


def largest_gaps(
    trace: Trace, gaps: pl.DataFrame, pieces: pl.DataFrame, tree: pl.DataFrame, *, count: int = 10
) -> pl.DataFrame:
    """Return the longest gaps, longest first.

    Args:
        trace: the trace.
        gaps: `gaps.device_gaps`, maybe cut to a window, and the parts of `gaps.edge_gaps` in that.
        pieces: `gaps.idle_pieces` of them.
        tree: `ranges.range_tree`.
        count: how many.

    Returns:
        device_id, start_ns, end_ns, gap_ns; cause, detail, cause_ns: the cause and detail that hold
        most of it, and how much; previous_op, next_op: names of the ops around it, null before the
        first of its device and after the last; call_name,
        thread_id: the launch of the op that ends it, null when unrecorded; range: path of the
        innermost NVTX range open on that thread as the launch began, null when there is none.
    """
    names = trace.ops.select("op_id", "call_id", "name")
    longest = (
        gaps.with_columns(gap_ns=pl.col("end_ns") - pl.col("start_ns"))
        .sort("gap_ns", descending=True, maintain_order=True)
        .head(count)
        .with_row_index("_rank")
    )
    previous = names.select(previous_op_id="op_id", previous_op="name")
    following = names.select("call_id", next_op_id="op_id", next_op="name")
    calls = calls_by_id(trace).select("call_id", "call_name", "call_start_ns", "thread_id")
    found = (
        longest.join(previous, on="previous_op_id", how="left")
        .join(following, on="next_op_id", how="left")
        .join(calls, on="call_id", how="left")
        .join(_main_cause(longest, pieces), on="_rank", how="left")
    )
    return (
        found.join(_open_range(found, tree), on="_rank", how="left")
        .sort("_rank")
        .with_columns(pl.col("previous_op", "next_op").cast(pl.String))
        .select(
            "device_id",
            "start_ns",
            "end_ns",
            "gap_ns",
            "cause",
            "detail",
            "cause_ns",
            "previous_op",
            "next_op",
            "call_name",
            "thread_id",
            "range",
        )
    )


def _main_cause(longest: pl.DataFrame, pieces: pl.DataFrame) -> pl.DataFrame:
    """_rank, cause, detail, cause_ns: what holds most of each gap."""
    spans = ["device_id", "start_ns", "end_ns"]
    return (
        intervals.intersect(
            longest.select("_rank", *spans), pieces.select(*spans, "cause", "detail"), ["device_id"]
        )
        .group_by("_rank", "cause", "detail", maintain_order=True)
        .agg(cause_ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
        .sort("cause_ns", descending=True, maintain_order=True)
        .unique("_rank", keep="first", maintain_order=True)
    )


def _open_range(found: pl.DataFrame, tree: pl.DataFrame) -> pl.DataFrame:
    """_rank, range: the innermost range open on the launching thread as its call began."""
    return (
        found.select("_rank", "thread_id", "call_start_ns")
        .join(tree.rename({"start_ns": "_begin", "end_ns": "_end"}), on="thread_id", how="inner")
        .filter(pl.col("call_start_ns").is_between("_begin", "_end", closed="left"))
        .sort("_begin", "depth")
        .unique("_rank", keep="last", maintain_order=True)
        .select("_rank", range="path")
    )
