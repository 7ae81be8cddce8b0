"""CUDA graphs in a trace: their executions, the gaps between them, their size."""

import polars as pl

from gaptrace import intervals
from gaptrace.captures import calls_beside, captures
from gaptrace.launches import calls_by_id
from gaptrace.quantiles import quantiles
from gaptrace.trace import SUBMITTING, Trace

_STREAM = ["process_id", "device_id", "context_id", "stream_id"]


def graph_executions(trace: Trace) -> pl.DataFrame:
    """Return one row per graph execution, in either granularity, in order of start.

    In node granularity an execution is all ops of one launch; its stream is that of its first op.
    A graph gap runs from the end of one graph execution to the start of the next on one stream. It
    is queued when the next launch call had returned before the previous execution ended: then the
    device alone made it. Else it is starved: the host was late.

    Returns:
        graph_exec_id, process_id, device_id, context_id, stream_id, correlation_id;
        start_ns, end_ns; op_count; call_id, call_start_ns, call_end_ns, api_ns: of the launch, null
        when it was not recorded; lead_ns: start - end of the launch call, how far ahead the host
        was; exposed_latency_ns: start - start of the launch call where the device was idle when the
        call began, else null: what the device waited, whatever the call took; gap_ns: graph gap
        before this execution, null for the first on its stream and where executions overlap;
        gap_kind: queued, starved, or null without a gap or a launch call.
    """
    ended_before = pl.col("end_ns").cum_max().shift(1).over(_STREAM)
    gap = pl.col("start_ns") - pl.col("_ended_before")
    found_idle = pl.col("call_start_ns") >= pl.col("_device_free")
    return (
        _joined_ops(trace)
        .join(calls_by_id(trace), on="call_id", how="left", maintain_order="left")
        .with_columns(_ended_before=ended_before)
        .with_columns(
            gap_ns=pl.when(gap >= 0).then(gap),
            api_ns=pl.col("call_end_ns") - pl.col("call_start_ns"),
            lead_ns=pl.col("start_ns") - pl.col("call_end_ns"),
            exposed_latency_ns=pl.when(found_idle).then(
                pl.col("start_ns") - pl.col("call_start_ns")
            ),
        )
        .with_columns(gap_kind=_gap_kind())
        .select(
            "graph_exec_id",
            *_STREAM,
            "correlation_id",
            "start_ns",
            "end_ns",
            "op_count",
            "call_id",
            "call_start_ns",
            "call_end_ns",
            "api_ns",
            "lead_ns",
            "exposed_latency_ns",
            "gap_ns",
            "gap_kind",
        )
    )


def _joined_ops(trace: Trace) -> pl.DataFrame:
    """The ops of each graph execution as one row; _device_free: when the device had no other op."""
    device_free = pl.col("end_ns").cum_max().shift(1).over("device_id")
    return (
        trace.ops.with_columns(_device_free=device_free)
        .filter(pl.col("graph_exec_id").is_not_null())
        .with_columns(_launch=pl.coalesce("correlation_id", -1 - pl.col("op_id")))
        .group_by("process_id", "_launch", maintain_order=True)
        .agg(
            pl.col("graph_exec_id", "device_id", "context_id", "stream_id").first(),
            pl.col("correlation_id", "_device_free").first(),
            pl.col("start_ns").min(),
            pl.col("end_ns").max(),
            pl.col("call_id").first(),
            op_count=pl.len().cast(pl.Int64),
        )
        .sort("start_ns", maintain_order=True)
    )


def _gap_kind() -> pl.Expr:
    return (
        pl.when(pl.col("gap_ns").is_null() | pl.col("call_id").is_null())
        .then(None)
        .when(pl.col("call_end_ns") <= pl.col("_ended_before"))
        .then(pl.lit("queued"))
        .otherwise(pl.lit("starved"))
    )


def graph_nodes(trace: Trace) -> pl.DataFrame:
    """Return how many CUDA nodes each graph exec has, as far as the trace tells.

    In node granularity the ops of an exec carry the ids of its nodes. In graph granularity the
    launches that a thread made while it captured the graph are counted: each adds one node. Where
    `gaptrace.split` made the exec, the payload of the range `cut` around that is the number.

    Returns:
        process_id, graph_exec_id, nodes; source: ops, cut or capture.
    """
    from_ops = (
        trace.ops.filter(pl.col("graph_node_id").is_not_null())
        .group_by("process_id", "graph_exec_id", maintain_order=True)
        .agg(nodes=pl.col("graph_node_id").n_unique().cast(pl.Int64))
        .with_columns(source=pl.lit("ops"))
    )
    known = ["process_id", "graph_exec_id"]
    found = from_ops
    for other in (_cut_nodes(trace), _captured_nodes(trace)):
        found = pl.concat([found, other.join(found, on=known, how="anti")])
    return found


def _cut_nodes(trace: Trace) -> pl.DataFrame:
    """Nodes of execs that `gaptrace.split` made."""
    made = trace.nvtx.filter(
        (pl.col("domain") == "gaptrace") & (pl.col("name") == "cut") & (pl.col("payload") > 0)
    ).select("thread_id", "start_ns", "end_ns", nodes=pl.col("payload").cast(pl.Int64))
    return (
        trace.graph_events.filter(
            (pl.col("event") == "exec") & pl.col("graph_exec_id").is_not_null()
        )
        .sort("time_ns")
        .join_asof(
            made.sort("start_ns"),
            left_on="time_ns",
            right_on="start_ns",
            by="thread_id",
            check_sortedness=False,
        )
        .filter(pl.col("time_ns") <= pl.col("end_ns"))
        .unique(["process_id", "graph_exec_id"], keep="last", maintain_order=True)
        .select("process_id", "graph_exec_id", "nodes", source=pl.lit("cut"))
    )


def _captured_nodes(trace: Trace) -> pl.DataFrame:
    """Nodes of execs whose template was created during a stream capture, by counting launches."""
    captured = captures(trace.api).drop_nulls("thread_id")
    # What another thread launches meanwhile, without any work on the device, may be a node as well.
    without_ops = ~pl.col("call_id").is_in(trace.ops["call_id"].drop_nulls().implode())
    others = (
        calls_beside(trace.api)
        .filter(pl.col("kind").is_in(SUBMITTING) & without_ops)
        .select("process_id", "start_ns", "end_ns")
        .unique()
    )
    unsure = intervals.intersect(captured, others, ["process_id"])["capture_id"]
    captured = captured.with_columns(
        nodes=pl.when(~pl.col("capture_id").is_in(unsure.implode())).then("nodes")
    )
    graphs = (
        trace.graph_events.filter(pl.col("event") == "graph")
        .sort("time_ns")
        .join_asof(
            captured.select("thread_id", "nodes", begin_ns="start_ns"),
            left_on="time_ns",
            right_on="begin_ns",
            by="thread_id",
            strategy="backward",
            check_sortedness=False,
        )
    )
    # The template is the first graph created since its capture began; instantiating makes more.
    templates = (
        graphs.filter(pl.col("nodes").is_not_null())
        .unique(["thread_id", "begin_ns"], keep="first", maintain_order=True)
        # A graph that ran holds something: without a launch in its capture, that was not recorded.
        .filter(pl.col("nodes") > 0)
        .select("process_id", "graph_id", "nodes")
    )
    execs = trace.graph_events.filter(
        (pl.col("event") == "exec") & pl.col("graph_id").is_not_null()
    ).select("process_id", "graph_id", "graph_exec_id")
    return (
        execs.join(templates, on=["process_id", "graph_id"], how="inner")
        .unique(["process_id", "graph_exec_id"], keep="last", maintain_order=True)
        .select("process_id", "graph_exec_id", "nodes", source=pl.lit("capture"))
    )


def graph_summary(executions: pl.DataFrame, nodes: pl.DataFrame) -> pl.DataFrame:
    """Sum up each graph exec on each stream.

    Args:
        executions: rows of `graph_executions`.
        nodes: `graph_nodes`.

    Returns:
        process_id, graph_exec_id, device_id, stream_id; nodes: null when unknown; executions: how
        many; duration_ns, launch_api_ns, exposed_latency_ns, lead_ns, queued_gap_ns,
        starved_gap_ns: structs as `quantiles` makes them (the gaps are those before the exec's
        executions). In order of first execution.
    """
    key = ["process_id", "graph_exec_id", "device_id", "stream_id"]
    return (
        _with_nodes(executions, nodes)
        .group_by(key, maintain_order=True)
        .agg(pl.col("nodes").first(), *_SUMMARY)
    )


def graph_sizes(executions: pl.DataFrame, nodes: pl.DataFrame) -> pl.DataFrame:
    """Sum up the graphs of each size: how launch costs and gaps go with the number of nodes.

    Returns:
        device_id, nodes (null: all execs of unknown size), execs: how many graph execs of that
        size; the other columns as in `graph_summary`. Largest size first.
    """
    return (
        _with_nodes(executions, nodes)
        .group_by("device_id", "nodes")
        .agg(
            pl.struct("process_id", "graph_exec_id").n_unique().cast(pl.Int64).alias("execs"),
            *_SUMMARY,
        )
        .sort("device_id", "nodes", descending=[False, True], nulls_last=True)
    )


def _with_nodes(executions: pl.DataFrame, nodes: pl.DataFrame) -> pl.DataFrame:
    known = ["process_id", "graph_exec_id"]
    return executions.join(nodes.drop("source"), on=known, how="left", maintain_order="left")


def _gap(kind: str) -> pl.Expr:
    return quantiles(pl.col("gap_ns").filter(pl.col("gap_kind") == kind)).alias(f"{kind}_gap_ns")


_SUMMARY = (
    pl.len().cast(pl.Int64).alias("executions"),
    quantiles(pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns"),
    quantiles(pl.col("api_ns")).alias("launch_api_ns"),
    quantiles(pl.col("exposed_latency_ns")).alias("exposed_latency_ns"),
    quantiles(pl.col("lead_ns")).alias("lead_ns"),
    _gap("queued"),
    _gap("starved"),
)
