"""The lanes of a timeline: streams, graph executions, CUDA calls, NVTX ranges, as a screen shows.

What is drawn span by span is described; what is too short for that is counted and summed.
"""

from dataclasses import dataclass

import polars as pl

from gaptrace import detail, ranges
from gaptrace.analysis import Analysis
from gaptrace.launches import calls_by_id
from gaptrace.timelines import named_cause
from gaptrace.trace import SUBMITTING, Trace

#: Lanes that people can still tell apart. The streams and threads with most rows have their own.
_MOST_STREAMS = 8
_MOST_THREADS = 4
_MOST_DEPTH = 5
_STREAM = ["device_id", "process_id", "context_id", "stream_id"]
_LENGTH = pl.col("end_ns") - pl.col("start_ns")

LANES = pl.Schema(
    {
        "lane": pl.Int64,  # from 0 on, from top to bottom
        "label": pl.String,
    }
)
SPANS = pl.Schema(
    {
        "lane": pl.Int64,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        # kernel, memcpy, memset, decompress, graph: on the device; a cause: what a call of the
        # host counts as while the device waits for it; range: NVTX. In a bin, of most of the time;
        # null where only the end of a span lies.
        "kind": pl.String,
        "name": pl.String,
        "span_count": pl.Int64,  # 1 for a span as it is; for a bin of short ones, how many begin
        "covered_ns": pl.Int64,  # of a bin of short ones; else null
        # Of ops: the launch, how far ahead it was, and the gap that the op ended.
        "call_name": pl.String,
        "api_ns": pl.Int64,
        "lead_ns": pl.Int64,
        "gap_ns": pl.Int64,
        "cause": pl.String,
    }
)


def find_lanes(
    analysis: Analysis, start_ns: int, end_ns: int, bins: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return what is seen of single spans in a window.

    Args:
        analysis: of the trace.
        start_ns: begin of the window.
        end_ns: its end.
        bins: how finely; for each lane at most twice as many spans are returned.

    Returns:
        rows of `LANES`, and rows of `SPANS`.
    """
    trace = analysis.trace
    inside = (pl.col("end_ns") >= start_ns) & (pl.col("start_ns") < end_ns)
    ops, api = trace.ops.filter(inside), trace.api.filter(inside)
    tree = ranges.range_tree(trace.nvtx).filter(inside)
    threads = _numbers(api["thread_id"], tree["thread_id"])
    seen = _Screen(start_ns, end_ns, bins)
    rows = pl.concat(
        [
            _executions(analysis.executions.filter(inside), trace, seen),
            _streams(ops, seen),
            _calls(api, threads, seen),
            _ranges(tree, threads, seen),
        ],
        how="diagonal",
    )
    order = (
        rows.select("group", "label")
        .unique()
        .sort("group", "label")
        .with_row_index("lane")
        .with_columns(pl.col("lane").cast(pl.Int64))
    )
    numbered = rows.join(order, on=["group", "label"], maintain_order="left")
    spans = _described(numbered.sort("lane", "start_ns", maintain_order=True), analysis)
    return order.select("lane", "label"), spans


@dataclass(frozen=True)
class _Screen:
    """The window, and how many bins it has."""

    start_ns: int
    end_ns: int
    bins: int

    def visible(self, spans: pl.DataFrame, by: list[str]) -> pl.DataFrame:
        """Return what is seen of spans."""
        return detail.visible(spans, self.start_ns, self.end_ns, self.bins, by, main="kind")


def _numbers(*thread_ids: pl.Series) -> pl.DataFrame:
    """thread_id, thread: from 1 on, of the threads with most rows; ids of recorders are long."""
    both = pl.concat(thread_ids).drop_nulls().alias("thread_id").to_frame()
    return (
        both.group_by("thread_id")
        .len()
        .sort("len", "thread_id", descending=[True, False])
        .head(_MOST_THREADS)
        .select("thread_id")
        .with_row_index("thread", offset=1)
    )


def _streams(ops: pl.DataFrame, screen: _Screen) -> pl.DataFrame:
    """Ops in the lanes of their streams."""
    counts = (
        ops.filter(~pl.col("is_unified_memory"))
        .group_by(_STREAM)
        .len()
        .sort("len", *_STREAM, descending=[True, *(False for _ in _STREAM)])
    )
    own = counts.head(_MOST_STREAMS).drop("len").with_columns(_own=pl.lit(True))
    lane = [*_STREAM, "_own", "is_unified_memory"]
    placed = ops.select("op_id", "start_ns", "end_ns", "kind", "is_unified_memory", *_STREAM)
    if counts.height > own.height or ops["is_unified_memory"].any():
        placed = placed.join(own, on=_STREAM, how="left").with_columns(
            pl.when(pl.col("_own") & ~pl.col("is_unified_memory")).then(pl.col(name)).alias(name)
            for name in (*_STREAM, "_own")
        )
    else:
        placed = placed.with_columns(_own=pl.lit(True))
    processes = own.select(pl.col("process_id").unique().sort()).with_row_index("process", offset=1)
    several = {name: own[name].n_unique() > 1 for name in ("device_id", "process_id")}
    # Streams are unique only within a context: two that share a number are told apart by it.
    alike = own.select("device_id", "process_id", "stream_id").is_duplicated().any()
    label = pl.concat_str(
        *([pl.format("device {} ", "device_id")] if several["device_id"] else []),
        *([pl.format("process {} ", "process")] if several["process_id"] else []),
        *([pl.format("context {} ", "context_id")] if alike else []),
        pl.format("stream {}", "stream_id"),
    )
    return (
        screen.visible(placed, lane)
        .join(processes, on="process_id", how="left", maintain_order="left")
        .select(
            "op_id",
            "start_ns",
            "end_ns",
            "span_count",
            "covered_ns",
            kind=pl.col("kind").cast(pl.String),
            label=pl.when("is_unified_memory")
            .then(pl.lit("unified memory"))
            .when("_own")
            .then(label)
            .otherwise(pl.lit("other streams")),
            group=pl.lit(1),
        )
    )


def _executions(executions: pl.DataFrame, trace: Trace, screen: _Screen) -> pl.DataFrame:
    """Graph executions in node granularity, where their ops are single nodes; else none."""
    whole = executions if trace.meta.granularity == "node" else executions.clear()
    several = whole["device_id"].n_unique() > 1
    spans = whole.select(
        "device_id",
        "start_ns",
        "end_ns",
        "lead_ns",
        "api_ns",
        "gap_ns",
        own_name=pl.format("graph exec {}, {} ops", "graph_exec_id", "op_count"),
        kind=pl.lit("graph"),
    )
    label = pl.format("device {} graphs", "device_id") if several else pl.lit("graphs")
    return (
        screen.visible(spans, ["device_id"])
        .with_columns(label=label, group=pl.lit(0))
        .drop("device_id")
    )


def _calls(api: pl.DataFrame, threads: pl.DataFrame, screen: _Screen) -> pl.DataFrame:
    """CUDA calls with the cause that each counts as while the device waits for it."""
    kind = (
        pl.when((pl.col("kind") == "graph_build") | pl.col("capture_id").is_not_null())
        .then(named_cause("graph_build"))
        .when(pl.col("kind").is_in(["wait", "blocking_copy"]))
        .then(named_cause("host_sync"))
        .when(pl.col("kind").is_in(SUBMITTING))
        .then(named_cause("launch_call"))
        .otherwise(named_cause("api_other"))
    )
    calls = api.join(threads, on="thread_id", maintain_order="left")
    spans = calls.select("call_id", "start_ns", "end_ns", "thread", kind=kind)
    return (
        screen.visible(spans, ["thread"])
        .with_columns(
            pl.col("kind").cast(pl.String), label=_label("CUDA calls", threads), group=pl.lit(2)
        )
        .drop("thread")
    )


def _ranges(tree: pl.DataFrame, threads: pl.DataFrame, screen: _Screen) -> pl.DataFrame:
    crossing = pl.col("kind") == "start_end"
    nested = tree.join(threads, on="thread_id", maintain_order="left").select(
        "start_ns",
        "end_ns",
        own_name="path",
        kind=pl.lit("range"),
        # Ranges that cross each other share a lane, whoever opened them.
        thread=pl.when(~crossing).then("thread"),
        depth=pl.when(~crossing).then("depth"),
    )
    shown = nested.filter(pl.col("depth").fill_null(0) < _MOST_DEPTH)
    depth = pl.when(pl.col("depth") > 0).then(pl.format(", depth {}", pl.col("depth") + 1))
    label = pl.concat_str(_label("NVTX", threads), depth.otherwise(pl.lit("")))
    return (
        screen.visible(shown, ["thread", "depth"])
        .with_columns(
            label=pl.when(pl.col("thread").is_null())
            .then(pl.lit("NVTX start/end"))
            .otherwise(label),
            group=pl.when(pl.col("thread").is_null()).then(4).otherwise(3),
        )
        .drop("thread", "depth")
    )


def _label(name: str, threads: pl.DataFrame) -> pl.Expr:
    if threads.height < 2:
        return pl.lit(name)
    return pl.format("thread {} {}", "thread", pl.lit(name))


def _described(seen: pl.DataFrame, analysis: Analysis) -> pl.DataFrame:
    """Say of the spans that are drawn one by one what they are and why the device waited."""
    trace = analysis.trace
    shown_ops, shown_calls = (seen.select(pl.col(c).drop_nulls())[c] for c in ("op_id", "call_id"))
    calls = calls_by_id(trace).select(
        "call_id",
        "call_end_ns",
        pl.col("call_name").cast(pl.String),
        call_ns=pl.col("call_end_ns") - pl.col("call_start_ns"),
    )
    ops = (
        trace.ops.filter(pl.col("op_id").is_in(shown_ops.implode()))
        .select(
            "op_id", "start_ns", pl.col("name").cast(pl.String).alias("op_name"), _call="call_id"
        )
        .join(calls.rename({"call_id": "_call"}), on="_call", how="left")
        .with_columns(op_lead_ns=pl.col("start_ns") - pl.col("call_end_ns"))
        .drop("start_ns", "call_end_ns", "_call")
    )
    called = calls.filter(pl.col("call_id").is_in(shown_calls.implode())).select(
        "call_id", own_call="call_name"
    )
    led = analysis.launches.select("call_id", led_ns="lead_ns").unique("call_id", keep="first")
    found = (
        seen.join(ops, on="op_id", how="left", maintain_order="left")
        .join(called, on="call_id", how="left", maintain_order="left")
        .join(led, on="call_id", how="left", maintain_order="left")
        .join(_gaps_before(analysis, shown_ops), on="op_id", how="left", maintain_order="left")
    )
    return found.select(
        "lane",
        "start_ns",
        "end_ns",
        "kind",
        name=pl.coalesce("own_name", "op_name", "own_call"),
        span_count="span_count",
        covered_ns="covered_ns",
        call_name="call_name",
        api_ns=pl.coalesce("api_ns", "call_ns"),
        lead_ns=pl.coalesce("lead_ns", "op_lead_ns", "led_ns"),
        gap_ns=pl.coalesce("gap_ns", "before_ns"),
        cause="cause",
    ).select(pl.col(name).cast(dtype) for name, dtype in SPANS.items())


def _gaps_before(analysis: Analysis, op_ids: pl.Series) -> pl.DataFrame:
    """op_id, before_ns, cause: the device gap that an op ended, and the cause of most of it."""
    ended = analysis.gaps.filter(pl.col("next_op_id").is_in(op_ids.implode()))
    main = (
        analysis.idle.filter(pl.col("gap_id").is_in(ended["gap_id"].drop_nulls().implode()))
        .group_by("gap_id", "cause", maintain_order=True)
        .agg(ns=_LENGTH.sum())
        .sort("ns", descending=True, maintain_order=True)
        .unique("gap_id", keep="first", maintain_order=True)
        .select("gap_id", pl.col("cause").cast(pl.String))
    )
    return (
        ended.select("gap_id", op_id="next_op_id", before_ns=_LENGTH)
        .join(main, on="gap_id", how="left")
        .drop("gap_id")
        .unique("op_id", keep="first")
    )
