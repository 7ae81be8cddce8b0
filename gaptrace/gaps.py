"""Device gaps, and one cause for every idle nanosecond.

A device gap is a time in which no op of any stream, context or process runs on a device. The gap is
explained by the launch of the op that ends it: what its thread did meanwhile is why the device
waited. The causes of all pieces sum to the idle time exactly.
"""

import polars as pl

from gaptrace import intervals
from gaptrace.coverage import unfinished
from gaptrace.launches import calls_by_id
from gaptrace.timelines import FOREVER, named_cause, thread_timelines
from gaptrace.trace import NAMES, Trace


def device_gaps(trace: Trace) -> pl.DataFrame:
    """Return the idle stretches of each device, from its first op to its last.

    Returns:
        gap_id; device_id; start_ns, end_ns; previous_op_id: the op whose end begins the gap;
        next_op_id: the op that ends it; previous_end_ns: equal to start_ns.
        Every gap longer than 0 ns is there: no floor.
    """
    ran_longest = pl.col("end_ns") == pl.col("end_ns").cum_max()
    previous = (pl.when(ran_longest.over("device_id")).then("op_id").forward_fill().shift(1)).over(
        "device_id"
    )
    return (
        trace.ops.select("op_id", "device_id", "start_ns", "end_ns")
        .sort("device_id", "start_ns", "end_ns", maintain_order=True)
        .with_columns(
            previous_op_id=previous,
            previous_end_ns=pl.col("end_ns").cum_max().shift(1).over("device_id"),
        )
        .filter(pl.col("start_ns") > pl.col("previous_end_ns"))
        .with_row_index("gap_id")
        .select(
            pl.col("gap_id").cast(pl.Int64),
            "device_id",
            start_ns="previous_end_ns",
            end_ns="start_ns",
            previous_op_id="previous_op_id",
            next_op_id="op_id",
            previous_end_ns="previous_end_ns",
        )
    )


def edge_gaps(trace: Trace) -> pl.DataFrame:
    """Return the time before each device's first op and after its last, as far as rows reach.

    They are no idle time of the trace, whose window is first op to last op, but they are part of
    an NVTX range or a time window that reaches beyond.

    Returns:
        the columns of `device_gaps`, with gap_id and previous_op_id or next_op_id null.
    """
    begin, end = recorded_extent(trace)
    ops = trace.ops.sort("start_ns", "end_ns", maintain_order=True)
    by_device = ops.group_by("device_id", maintain_order=True)
    last = pl.col("end_ns").arg_max()
    before = by_device.agg(
        start_ns=pl.lit(begin, pl.Int64),
        end_ns=pl.col("start_ns").first(),
        previous_op_id=pl.lit(None, pl.Int64),
        next_op_id=pl.col("op_id").first(),
    )
    after = by_device.agg(
        start_ns=pl.col("end_ns").max(),
        end_ns=pl.lit(end, pl.Int64),
        previous_op_id=pl.col("op_id").get(last),
        next_op_id=pl.lit(None, pl.Int64),
    )
    return (
        pl.concat([before, after])
        .filter(pl.col("end_ns") > pl.col("start_ns"))
        .select(
            pl.lit(None, pl.Int64).alias("gap_id"),
            "device_id",
            "start_ns",
            "end_ns",
            "previous_op_id",
            "next_op_id",
            previous_end_ns=pl.lit(None, pl.Int64),
        )
    )


def recorded_extent(trace: Trace) -> tuple[int, int]:
    """Return the first start and the last end of any op, call or range."""
    frames = [trace.ops, trace.api, trace.nvtx]
    starts = pl.concat([frame["start_ns"] for frame in frames])
    ends = pl.concat([frame["end_ns"] for frame in frames])
    return int(starts.min()), int(ends.max())  # type: ignore[arg-type]


def idle_pieces(trace: Trace, gaps: pl.DataFrame) -> pl.DataFrame:
    """Cut every gap into pieces of one cause each; the pieces tile the gap exactly.

    Args:
        trace: the trace.
        gaps: rows of `device_gaps` or `edge_gaps`.

    Let the gap be [a, b), ended by op Q, whose launch call on thread T lasts [s, e). Before s, the
    cause is what T was doing; inside [s, e) it is the launch call; after e it is the device. The
    recorder's own time on T before e comes first. After a device's last op there is no Q, and T is
    the thread that launched that last op; but from a launch on whose work recording no longer saw,
    nothing is known.

    Returns:
        gap_id, device_id, start_ns, end_ns; cause: one of `timelines.CAUSES`; detail: the API call
        (see `launches.call_names`), the phase of a graph build, `in capture` for host code between
        the calls of one, for device_queued what it waited behind (in_graph, between_graphs,
        between_ops, or cross_stream: another stream or an event), or for unrecorded unfinished
        (launched work ran after recording ended) or migration (Q is of unified memory, which no
        call launches); thread_id: T, null when unrecorded.
    """
    gaps = _without_unseen_work(gaps, unfinished(trace))
    explained = _explanations(trace, gaps)
    launched, returned = (
        pl.col(column).clip(pl.col("start_ns"), pl.col("end_ns"))
        for column in ("call_start_ns", "call_end_ns")
    )
    known = ["gap_id", "device_id", "thread_id"]
    before = explained.select(*known, "start_ns", end_ns=launched)
    inside = explained.select(*known, "call_name", start_ns=launched, end_ns=returned)
    queued = explained.select(
        *known,
        start_ns=returned,
        end_ns="end_ns",
        cause=named_cause("device_queued"),
        detail="behind",
    )
    unrecorded = gaps.join(explained, on=["device_id", "start_ns"], how="anti").with_columns(
        thread_id=pl.lit(None, pl.Int64),
        cause=named_cause("unrecorded"),
        detail=_why_unknown(trace),
    )
    timelines = thread_timelines(trace).join(
        explained.select("thread_id").unique(), on="thread_id", how="semi"
    )
    before = intervals.intersect(before, timelines, ["thread_id"])
    # Inside the launch call only the recorder and the driver's own loading can be told apart.
    told_apart = (pl.col("cause") == "profiler") | pl.col("is_driver")
    inside = intervals.intersect(inside, timelines, ["thread_id"]).with_columns(
        cause=pl.when(told_apart).then("cause").otherwise(named_cause("launch_call")),
        detail=pl.when(told_apart).then("detail").otherwise("call_name"),
    )
    columns = ["gap_id", "device_id", "start_ns", "end_ns", "cause", "detail", "thread_id"]
    return (
        pl.concat([part.select(columns) for part in (unrecorded, before, inside, queued)])
        .filter(pl.col("end_ns") > pl.col("start_ns"))
        .sort("device_id", "start_ns")
    )


def _why_unknown(trace: Trace) -> pl.Expr:
    """The detail of gaps that nothing explains."""
    migrations = trace.ops.filter("is_unified_memory")["op_id"].implode()
    is_unseen = pl.col("next_op_id").is_null() & pl.col("previous_op_id").is_null()
    return (
        pl.when(is_unseen)
        .then(pl.lit("unfinished"))
        .when(pl.col("next_op_id").is_in(migrations))
        .then(pl.lit("migration"))
        .cast(NAMES)
    )


def _without_unseen_work(gaps: pl.DataFrame, unseen: pl.DataFrame) -> pl.DataFrame:
    """Cut the time after a device's last op where work began to wait that no row tells of.

    The later part has no op before it either, so that nothing explains it.
    """
    if unseen.is_empty():
        return gaps
    placed = gaps.join(unseen, on="device_id", how="left", maintain_order="left")
    is_last = pl.col("next_op_id").is_null() & pl.col("since_ns").is_not_null()
    known_until = pl.col("since_ns").clip(pl.col("start_ns"), pl.col("end_ns"))
    last = placed.filter(is_last)
    return pl.concat(
        [
            placed.filter(~is_last).select(gaps.columns),
            last.with_columns(end_ns=known_until).select(gaps.columns),
            last.with_columns(start_ns=known_until, previous_op_id=pl.lit(None, pl.Int64)).select(
                gaps.columns
            ),
        ]
    ).filter(pl.col("end_ns") > pl.col("start_ns"))


def _explanations(trace: Trace, gaps: pl.DataFrame) -> pl.DataFrame:
    """Gaps with their thread, launch call, and what their op stood behind; no unrecorded ones."""
    op = ["process_id", "stream_id", "context_id", "correlation_id", "graph_exec_id"]
    next_op, previous_op = (
        trace.ops.select(*op, extra, pl.col("op_id").alias(name))
        for name, extra in (("next_op_id", "call_id"), ("previous_op_id", "is_unified_memory"))
    )
    calls = calls_by_id(trace).drop("call_kind").filter(pl.col("thread_id").is_not_null())
    ended = (
        gaps.join(next_op, on="next_op_id", how="inner")
        .join(calls, on="call_id", how="inner")
        .join(previous_op, on="previous_op_id", how="left", suffix="_prev")
        .with_columns(_waited=pl.col("next_op_id").is_in(_ops_after_event_waits(trace).implode()))
        .with_columns(behind=_queued_behind().cast(NAMES))
    )
    # After the last op nothing more was launched: T's timeline explains all of it.
    never_ended = (
        gaps.filter(pl.col("next_op_id").is_null())
        .join(trace.ops.select("call_id", previous_op_id="op_id"), on="previous_op_id")
        .join(calls, on="call_id", how="inner")
        .with_columns(
            call_start_ns=pl.lit(FOREVER, pl.Int64),
            call_end_ns=pl.lit(FOREVER, pl.Int64),
            behind=pl.lit(None, NAMES),
        )
    )
    columns = ["gap_id", "device_id", "start_ns", "end_ns", "thread_id", "call_name"]
    columns += ["call_start_ns", "call_end_ns", "behind"]
    return pl.concat([ended.select(columns), never_ended.select(columns)])


def _queued_behind() -> pl.Expr:
    """What stands before an op that was submitted in time: `_prev` is the op before the gap."""

    def same(*columns: str) -> pl.Expr:
        return pl.all_horizontal(pl.col(c).eq(pl.col(f"{c}_prev")) for c in columns)

    both_in_graphs = (
        pl.col("graph_exec_id").is_not_null() & pl.col("graph_exec_id_prev").is_not_null()
    )
    return (
        pl.when(both_in_graphs & same("process_id", "correlation_id"))
        .then(pl.lit("in_graph"))
        .when(
            pl.col("_waited")
            # Migrations are on no stream.
            | ~(same("process_id", "context_id", "stream_id") | pl.col("is_unified_memory"))
        )
        .then(pl.lit("cross_stream"))
        .when(both_in_graphs)
        .then(pl.lit("between_graphs"))
        .otherwise(pl.lit("between_ops"))
    )


def _ops_after_event_waits(trace: Trace) -> pl.Series:
    """op_ids of the first work on a stream since it was told to wait for another stream's event."""
    stream = ["process_id", "context_id", "stream_id"]
    own = pl.col("awaited_stream_id") == pl.col("stream_id")
    waits = trace.event_waits.filter(~own.fill_null(False))
    if waits.is_empty():
        return pl.Series(dtype=pl.Int64)
    launched = (
        trace.ops.filter(pl.col("call_id").is_not_null())
        .join(waits.select(stream).unique(), on=stream, how="semi")
        .unique("call_id", keep="first", maintain_order=True)
        .sort("call_id")
        .with_columns(_earlier=pl.col("call_id").shift(1).over(stream))
    )
    found = launched.join_asof(
        waits.select(*stream, "call_id", _wait="call_id").sort("call_id"),
        on="call_id",
        by=stream,
        strategy="backward",
        check_sortedness=False,
    )
    since = pl.col("_earlier").is_null() | (pl.col("_wait") > pl.col("_earlier"))
    return found.filter(pl.col("_wait").is_not_null() & since)["op_id"]


def causes(pieces: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Add up idle nanoseconds by cause and detail.

    Returns:
        the columns of `by`, cause, detail, idle_ns, piece_count; largest first within a key.
    """
    return (
        pieces.group_by(*by, "cause", "detail")
        .agg(
            idle_ns=(pl.col("end_ns") - pl.col("start_ns")).sum(),
            piece_count=pl.len().cast(pl.Int64),
        )
        .sort(
            *by, "idle_ns", "cause", "detail", descending=[False] * len(by) + [True, False, False]
        )
    )
