"""Graph executions that wait for another execution of the same graph exec."""

import polars as pl

from gaptrace.trace import Trace

#: An execution that begins this soon after another one of its exec ended has followed it. A
#: judgement: twice the gap between queued graphs that a recorder leaves (2.1 to 5.4 us on an H200).
FOLLOWS_WITHIN_NS = 10_000

_STREAM = ["process_id", "device_id", "context_id", "stream_id"]
_EXEC = ["process_id", "graph_exec_id"]


def exec_waits(trace: Trace, executions: pl.DataFrame) -> pl.DataFrame:
    """Return the executions that waited only because their exec still ran on another stream.

    CUDA orders a launch behind the work before it on its stream, and behind every earlier launch of
    the same exec (CUDA driver API, cuGraphLaunch). An execution is ready when its launch call has
    returned and its own stream is free. It counts here when it was ready before the exec's
    execution before it, on another stream, had ended, and began just after (`FOLLOWS_WITHIN_NS`).
    Streams that the program ordered with events look alike, and are left out where the recording
    holds the order to wait.

    Args:
        trace: the trace.
        executions: `graphs.graph_executions` of it, in order of start.

    Returns:
        process_id, graph_exec_id, device_id, stream_id, start_ns; waited_ns: from ready until the
        execution before had ended, more than 0.
    """
    before = {
        "_other_stream": pl.struct("context_id", "stream_id").shift(1).over(_EXEC)
        != pl.struct("context_id", "stream_id"),
        "_other_end_ns": pl.col("end_ns").shift(1).over(_EXEC),
    }
    ready = pl.max_horizontal("call_end_ns", "_stream_free_ns")
    follows = (pl.col("start_ns") - pl.col("_other_end_ns")).is_between(0, FOLLOWS_WITHIN_NS)
    return (
        executions.filter(pl.col("graph_exec_id").is_not_null())
        .with_columns(**before)
        .filter(pl.col("_other_stream") & follows & pl.col("call_id").is_not_null())
        .join(_ordered_streams(trace), on=_STREAM[:1] + _STREAM[2:], how="anti")
        .join(_free(trace), on=["process_id", "correlation_id"], how="left", maintain_order="left")
        .with_columns(waited_ns=pl.col("_other_end_ns") - ready)
        .filter(pl.col("waited_ns") > 0)
        .select(*_EXEC, "device_id", "stream_id", "start_ns", "waited_ns")
    )


def _ordered_streams(trace: Trace) -> pl.DataFrame:
    """Streams that were told to wait for events."""
    return trace.event_waits.select("process_id", "context_id", "stream_id").unique()


def _free(trace: Trace) -> pl.DataFrame:
    """Per graph launch, when the op before it on its stream had ended."""
    ended = pl.col("end_ns").cum_max().shift(1).over(_STREAM)
    return (
        trace.ops.with_columns(_stream_free_ns=ended)
        .filter(pl.col("graph_exec_id").is_not_null() & pl.col("correlation_id").is_not_null())
        .group_by("process_id", "correlation_id", maintain_order=True)
        .agg(pl.col("_stream_free_ns").first())
    )
