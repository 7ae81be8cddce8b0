"""Launches: host calls that submitted device work, and what the device saw of them."""

import polars as pl

from gaptrace.trace import NAMES, SUBMITTING, Trace

#: Copies up to this size carry a value, not data: a token, a loss, a flag that the host reads.
TINY_COPY_BYTES = 64


def calls_by_id(trace: Trace) -> pl.DataFrame:
    """Return the API calls under names that can stand beside an op's.

    Returns:
        call_id, thread_id, call_kind, call_name: see `call_names`, call_start_ns, call_end_ns.
    """
    return trace.api.select(
        "call_id",
        "thread_id",
        call_kind="kind",
        call_name=call_names(trace),
        call_start_ns="start_ns",
        call_end_ns="end_ns",
    )


def call_names(trace: Trace) -> pl.Series:
    """Name every API call so that calls to be treated differently have different names.

    Copies say their direction and the kind of host memory, and tiny ones their size, as in
    `cudaMemcpy DtoH pageable, 4 bytes`; a wait for a tiny copy says so, too. Other calls keep the
    API's name.

    Returns:
        names in the order of `trace.api`.
    """
    copies = _copies(trace)
    if copies.is_empty():
        return trace.api["name"]
    is_tiny = (pl.col("bytes") <= TINY_COPY_BYTES) & pl.col("host_memory").is_not_null()
    described = copies.with_columns(
        what=pl.concat_str(
            pl.col("direction"),
            pl.lit(" ") + pl.col("host_memory"),
            pl.when(is_tiny).then(pl.format(", {} bytes", "bytes")),
            ignore_nulls=True,
        )
    )
    named = trace.api.select(
        "call_id", "thread_id", "kind", name=pl.col("name").cast(pl.String)
    ).join(described, on="call_id", how="left", maintain_order="left")
    submits = pl.col("kind").is_in(SUBMITTING)
    # What the thread submitted last before it waits is what it waits for.
    tiny = pl.when(is_tiny).then("what").otherwise(pl.lit(""))
    awaited = pl.when(submits).then(tiny).forward_fill().over("thread_id")
    return named.select(
        pl.when(pl.col("kind").is_in(["copy", "blocking_copy"]) & pl.col("what").is_not_null())
        .then(pl.col("name") + " " + pl.col("what"))
        .when((pl.col("kind") == "wait") & (awaited != ""))
        .then(pl.col("name") + " for copy " + awaited)
        .otherwise("name")
        .cast(NAMES)
        .alias("name")
    )["name"]


def is_for_tiny_copy(call_name: pl.Expr) -> pl.Expr:
    """Whether a name of `call_names` is that of a tiny copy or of a wait for one."""
    return call_name.cast(pl.String).str.contains(r", \d+ bytes$").fill_null(False)


def _copies(trace: Trace) -> pl.DataFrame:
    """The copy of each call that made one: call_id, bytes, direction, host_memory."""
    host = pl.col("source_memory").is_in(["pageable", "pinned"])
    side = pl.when(host).then(pl.col("source_memory")).otherwise(pl.col("target_memory"))
    return (
        trace.ops.filter((pl.col("kind") == "memcpy") & pl.col("call_id").is_not_null())
        .unique("call_id", keep="first", maintain_order=True)
        .select(
            "call_id",
            "bytes",
            direction=pl.col("name").cast(pl.String).str.strip_prefix("copy "),
            host_memory=pl.when(side.is_in(["pageable", "pinned"])).then(side).cast(pl.String),
        )
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
    ended = gaps.select("previous_end_ns", first_op_id="next_op_id")
    own = ["process_id", "correlation_id", "device_id", "stream_id", "graph_exec_id"]
    return (
        # Ops are sorted by start, so the first of a call is the one that started first.
        trace.ops.filter(pl.col("call_id").is_not_null())
        .group_by("call_id", maintain_order=True)
        .agg(
            pl.col(own).first(),
            pl.col("start_ns").first(),
            pl.col("end_ns").max(),
            first_op_id=pl.col("op_id").first(),
            op_count=pl.len().cast(pl.Int64),
        )
        .join(calls_by_id(trace), on="call_id", how="left", maintain_order="left")
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
