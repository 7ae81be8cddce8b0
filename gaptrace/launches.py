"""Launches: host calls that submitted device work, joined to the ops they caused."""

import polars as pl

from gaptrace.trace import Trace

#: API calls that submit work; a blocking copy submits one op and waits for it.
SUBMITTING = ("launch", "graph_launch", "blocking_copy")


def launch_of_ops(trace: Trace) -> pl.DataFrame:
    """Return the launch call of every op that has one.

    The join key is (process_id, correlation_id): a correlation id is unique only within its
    process. Unified-memory migrations have none. When several calls share an id, the one that
    began first counts.

    Returns:
        op_id, call_id, thread_id, call_kind, call_name, call_start_ns, call_end_ns.
    """
    calls = (
        trace.api.filter(pl.col("correlation_id").is_not_null() & pl.col("thread_id").is_not_null())
        .unique(["process_id", "correlation_id"], keep="first", maintain_order=True)
        .select(
            "process_id",
            "correlation_id",
            "call_id",
            "thread_id",
            call_kind="kind",
            call_name="name",
            call_start_ns="start_ns",
            call_end_ns="end_ns",
        )
    )
    return (
        trace.ops.filter(~pl.col("is_unified_memory"))
        .select("op_id", "process_id", "correlation_id")
        .join(calls, on=["process_id", "correlation_id"], how="inner", maintain_order="left")
        .drop("process_id", "correlation_id")
    )


def launches(trace: Trace, gaps: pl.DataFrame) -> pl.DataFrame:
    """Return one row per launch call that has device work, in order of its first op.

    Args:
        trace: the trace.
        gaps: `gaps.device_gaps` of it.

    Returns:
        call_id, process_id, thread_id, call_kind, call_name, call_start_ns, call_end_ns: the call;
        correlation_id, device_id, stream_id, graph_exec_id: of its first op;
        start_ns, end_ns: from its first op's start to its last op's end;
        op_count: ops it caused (graph granularity: one per graph execution);
        api_ns: duration of the call, which is not the latency that the device saw;
        lead_ns: op start - call end, how far ahead the host was; negative when the device started
        before the call returned;
        exposed_latency_ns: op start - call start, only when the device was already idle as the
        call began, else null.
    """
    first = pl.col("start_ns").arg_min()
    ended = gaps.select("previous_end_ns", first_op_id="next_op_id")
    return (
        trace.ops.join(launch_of_ops(trace), on="op_id", how="inner", maintain_order="left")
        .group_by("call_id", maintain_order=True)
        .agg(
            pl.col(
                "process_id",
                "thread_id",
                "call_kind",
                "call_name",
                "call_start_ns",
                "call_end_ns",
                "correlation_id",
                "device_id",
                "stream_id",
                "graph_exec_id",
            ).get(first),
            first_op_id=pl.col("op_id").get(first),
            start_ns=pl.col("start_ns").min(),
            end_ns=pl.col("end_ns").max(),
            op_count=pl.len().cast(pl.Int64),
        )
        .join(ended, on="first_op_id", how="left", maintain_order="left")
        .with_columns(
            api_ns=pl.col("call_end_ns") - pl.col("call_start_ns"),
            lead_ns=pl.col("start_ns") - pl.col("call_end_ns"),
            exposed_latency_ns=pl.when(pl.col("call_start_ns") >= pl.col("previous_end_ns")).then(
                pl.col("start_ns") - pl.col("call_start_ns")
            ),
        )
        .drop("first_op_id", "previous_end_ns")
    )
