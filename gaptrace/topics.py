"""Idle time by what to do about it: each cause, split where parts of it want different advice."""

import polars as pl

from gaptrace.graph_use import GraphUse
from gaptrace.launches import calls_by_id, is_for_tiny_copy
from gaptrace.trace import Trace

#: Causes that are the host's own doing: what a loop or a missing graph makes of them is one thing.
_HOST = ("launch_call", "host_sync", "host_code", "api_other")
#: A gap so many times longer than the wait before it, or than the usual time from one launch to the
#: next, is a pause: the program did something else. A judgement; in steps both are of one order.
PAUSE = 10


def with_topics(
    trace: Trace, gaps: pl.DataFrame, idle: pl.DataFrame, use: GraphUse
) -> pl.DataFrame:
    """Give every piece of idle time its topic.

    A topic is a cause, or `cause:detail`, or the name of a habit that makes several causes:
    value_loop (`graph_use.value_loops`), eager_bursts and eager_bursts:rebuilt
    (`bursts.eager_bursts`), no_graphs (`graph_use.ungraphed_kernels`). Details: of launch_call,
    graph or single; of graph_build, which here holds the host code of captures, a habit of
    `rebuilds.rebuilds`; of host_sync, tiny_copy; of host_code, after_wait where the device ran dry
    while the host waited for it, before_graphs where a graph ended the gap; of device_queued, what
    was waited behind; of unrecorded, why nothing is known.

    Args:
        trace: the trace.
        gaps: gaps inside the windows.
        idle: `gaps.idle_pieces` of them.
        use: `graph_use.graph_use`.

    Returns:
        the columns of idle; topic; waited: for host_code:after_wait, the wait.
    """
    cause, detail = pl.col("cause").cast(pl.String), pl.col("detail").cast(pl.String)
    # Code between the calls of a capture is part of building the graph, and goes when that goes.
    builds = (cause == "graph_build") | ((cause == "host_code") & (detail == "in capture"))
    with_detail = pl.concat_str(cause, detail, separator=":")
    topic = (
        pl.when(builds.fill_null(False))
        .then(pl.concat_str(pl.lit("graph_build"), "habit", separator=":", ignore_nulls=True))
        .when(cause.is_in(_HOST) & pl.col("claim").is_not_null())
        .then("claim")
        .when(cause.is_in(["launch_call", "host_code"]) & pl.col("is_ungraphed").fill_null(False))
        .then(pl.lit("no_graphs"))
        .when(cause == "launch_call")
        .then(
            pl.when(detail.str.contains("GraphLaunch"))
            .then(pl.lit("launch_call:graph"))
            .otherwise(pl.lit("launch_call:single"))
        )
        .when((cause == "host_sync") & is_for_tiny_copy(detail))
        .then(pl.lit("host_sync:tiny_copy"))
        .when((cause == "host_code") & pl.col("waited").is_not_null())
        .then(pl.lit("host_code:after_wait"))
        .when((cause == "host_code") & pl.col("is_before_graph").fill_null(False))
        .then(pl.lit("host_code:before_graphs"))
        .when(cause == "device_queued")
        .then(with_detail)
        .when(cause == "unrecorded")
        .then(pl.concat_str(cause, detail, separator=":", ignore_nulls=True))
        .otherwise(cause)
    )
    return (
        idle.join(_habits(trace, use), on="thread_id", how="left", maintain_order="left")
        .join(_next_ops(trace, gaps, use), on="gap_id", how="left", maintain_order="left")
        .join(
            _waits(trace, gaps, idle), on=["gap_id", "thread_id"], how="left", maintain_order="left"
        )
        .with_columns(topic=topic)
        .with_columns(waited=pl.when(pl.col("topic") == "host_code:after_wait").then("waited"))
        .select(*idle.columns, "topic", "waited")
    )


def _habits(trace: Trace, use: GraphUse) -> pl.DataFrame:
    threads = trace.api.select("thread_id", "process_id").unique("thread_id")
    habits = use.rebuilds.select("process_id", "habit").drop_nulls()
    return threads.join(habits, on="process_id", how="inner").select("thread_id", "habit")


def _next_ops(trace: Trace, gaps: pl.DataFrame, use: GraphUse) -> pl.DataFrame:
    """Per gap, what ends it: an op of a graph, of a habit, one of many small kernels."""
    calls = pl.concat(
        [
            use.loops.select("call_id", claim=pl.lit("value_loop")),
            use.bursts.select(
                "call_id",
                claim=pl.when("is_rebuilt")
                .then(pl.lit("eager_bursts:rebuilt"))
                .otherwise(pl.lit("eager_bursts")),
            ),
        ]
    ).unique("call_id", keep="first", maintain_order=True)
    reads = use.loops["read_op_id"].implode()
    ops = trace.ops.select("call_id", "graph_exec_id", next_op_id="op_id").join(
        calls, on="call_id", how="left", maintain_order="left"
    )
    claim = pl.when(pl.col("next_op_id").is_in(reads)).then(pl.lit("value_loop")).otherwise("claim")
    return (
        gaps.filter(pl.col("gap_id").is_not_null())
        .unique("gap_id", keep="first", maintain_order=True)
        .join(ops, on="next_op_id", how="inner", maintain_order="left")
        .join(use.ungraphed.select("device_id", "launch_ns"), on="device_id", how="left")
        .select(
            "gap_id",
            claim=claim,
            is_before_graph=pl.col("graph_exec_id").is_not_null(),
            is_ungraphed=_length() <= PAUSE * pl.col("launch_ns"),
        )
    )


def _waits(trace: Trace, gaps: pl.DataFrame, idle: pl.DataFrame) -> pl.DataFrame:
    """Per gap and thread, the wait that the thread was in as the gap began, unless it is a pause.

    Returns:
        gap_id, thread_id, waited: name of the wait.
    """
    waits = (
        calls_by_id(trace)
        .filter(pl.col("call_kind").is_in(["wait", "blocking_copy"]))
        .select("thread_id", "call_start_ns", "call_end_ns", waited="call_name")
        .sort("call_start_ns")
    )
    begun = (
        gaps.filter(pl.col("gap_id").is_not_null())
        .group_by("gap_id", maintain_order=True)
        .agg(began_ns=pl.col("previous_end_ns").first(), gap_ns=_length().sum())
    )
    blocked = pl.col("began_ns") - pl.col("call_start_ns")
    return (
        idle.filter(pl.col("cause") == "host_code")
        .select("gap_id", "thread_id")
        .unique(maintain_order=True)
        .join(begun, on="gap_id", how="inner")
        .sort("began_ns")
        .join_asof(
            waits,
            left_on="began_ns",
            right_on="call_start_ns",
            by="thread_id",
            check_sortedness=False,
        )
        .filter(
            (pl.col("call_end_ns") > pl.col("began_ns")) & (pl.col("gap_ns") <= PAUSE * blocked)
        )
        .select("gap_id", "thread_id", "waited")
    )


def _length() -> pl.Expr:
    return pl.col("end_ns") - pl.col("start_ns")
