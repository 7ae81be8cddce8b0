"""Device gaps, and one cause for every idle nanosecond.

A device gap is a time in which no op of any stream, context or process runs on a device. The gap is
explained by the launch of the op that ends it: what its thread did meanwhile is why the device
waited. The causes of all pieces sum to the idle time exactly.
"""

import polars as pl

from gaptrace import intervals
from gaptrace.launches import call_names, calls_by_id
from gaptrace.trace import CALL_PHASES, NAMES, SUBMITTING, Trace

CAUSES = pl.Enum(
    [
        "unrecorded",
        "profiler",
        "device_queued",
        "launch_call",
        "graph_build",
        "host_sync",
        "api_other",
        "host_code",
    ]
)

#: Bounds of a host thread's timeline: beyond any time of a session, and far from overflow.
_FOREVER = 2**62


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
    the thread that launched that last op.

    Returns:
        gap_id, device_id, start_ns, end_ns; cause: one of `CAUSES`; detail: the API call (see
        `launches.call_names`), the phase of a graph build, `in capture` for host code between the
        calls of one, or for device_queued what it waited behind (in_graph, between_graphs,
        between_ops, or cross_stream: another stream or an event); thread_id: T, null when
        unrecorded.
    """
    explained = _explanations(trace, gaps)
    launched, returned = (
        pl.col(column).clip(pl.col("start_ns"), pl.col("end_ns"))
        for column in ("call_start_ns", "call_end_ns")
    )
    known = ["gap_id", "device_id", "thread_id"]
    before = explained.select(*known, "start_ns", end_ns=launched)
    inside = explained.select(*known, "call_name", start_ns=launched, end_ns=returned)
    queued = explained.select(
        *known, start_ns=returned, end_ns="end_ns", cause=_cause("device_queued"), detail="behind"
    )
    unrecorded = gaps.join(explained, on=["device_id", "start_ns"], how="anti").with_columns(
        thread_id=pl.lit(None, pl.Int64),
        cause=_cause("unrecorded"),
        detail=pl.lit(None, NAMES),
    )
    timelines = thread_timelines(trace).join(
        explained.select("thread_id").unique(), on="thread_id", how="semi"
    )
    before = intervals.intersect(before, timelines, ["thread_id"])
    # Inside the launch call only the recorder and the driver's own loading can be told apart.
    told_apart = (pl.col("cause") == "profiler") | pl.col("is_driver")
    inside = intervals.intersect(inside, timelines, ["thread_id"]).with_columns(
        cause=pl.when(told_apart).then("cause").otherwise(_cause("launch_call")),
        detail=pl.when(told_apart).then("detail").otherwise("call_name"),
    )
    columns = ["gap_id", "device_id", "start_ns", "end_ns", "cause", "detail", "thread_id"]
    return (
        pl.concat([part.select(columns) for part in (unrecorded, before, inside, queued)])
        .filter(pl.col("end_ns") > pl.col("start_ns"))
        .sort("device_id", "start_ns")
    )


def _cause(name: str) -> pl.Expr:
    return pl.lit(name, CAUSES)


def _explanations(trace: Trace, gaps: pl.DataFrame) -> pl.DataFrame:
    """Gaps with their thread, launch call, and what their op stood behind; no unrecorded ones."""
    op = ["process_id", "stream_id", "context_id", "correlation_id", "graph_exec_id"]
    next_op, previous_op = (
        trace.ops.select(*op, *extra, pl.col("op_id").alias(name))
        for name, extra in (("next_op_id", ["call_id"]), ("previous_op_id", []))
    )
    calls = calls_by_id(trace).drop("call_kind").filter(pl.col("thread_id").is_not_null())
    ended = (
        gaps.join(next_op, on="next_op_id", how="inner")
        .join(calls, on="call_id", how="inner")
        .join(previous_op, on="previous_op_id", how="left", suffix="_prev")
        .with_columns(_waited=pl.col("next_op_id").is_in(_ops_after_event_waits(trace).implode()))
        .with_columns(behind=_queued_behind().cast(NAMES))
    )
    # After the last op nothing was launched any more: T's timeline explains all of it.
    never_ended = (
        gaps.filter(pl.col("next_op_id").is_null())
        .join(trace.ops.select("call_id", previous_op_id="op_id"), on="previous_op_id")
        .join(calls, on="call_id", how="inner")
        .with_columns(
            call_start_ns=pl.lit(_FOREVER, pl.Int64),
            call_end_ns=pl.lit(_FOREVER, pl.Int64),
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
        .when(pl.col("_waited") | ~same("process_id", "context_id", "stream_id"))
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


def thread_timelines(trace: Trace) -> pl.DataFrame:
    """Say for every host thread with CUDA calls what it does at every time, without overlaps.

    Layers, the upper one winning: the recorder's own overhead; loading and compiling by the driver;
    the outermost API call; and `host_code` where there is no row at all.

    Returns:
        thread_id, start_ns, end_ns, cause, detail; is_driver: the second layer.
    """
    key = ["thread_id"]
    overhead = trace.overhead.filter(pl.col("thread_id").is_not_null())
    recorder = intervals.merge(overhead.filter(pl.col("kind") == "profiler"), key)
    driver = intervals.subtract(
        intervals.disjoint(
            overhead.filter(pl.col("kind") == "driver").select(
                "thread_id", "start_ns", "end_ns", detail="name"
            ),
            key,
        ),
        recorder,
        key,
    )
    upper = pl.concat([recorder, driver.drop("detail")])
    calls = intervals.subtract(intervals.disjoint(_calls(trace), key), upper, key)
    layers = pl.concat(
        [
            recorder.with_columns(cause=_cause("profiler"), is_driver=pl.lit(False)),
            driver.with_columns(
                pl.col("detail").cast(NAMES),
                cause=_cause("api_other"),
                is_driver=pl.lit(True),
            ),
            calls.with_columns(is_driver=pl.lit(False)),
        ],
        how="diagonal",
    )
    whole = (
        trace.api.select("thread_id")
        .unique()
        .drop_nulls()
        .with_columns(start_ns=pl.lit(-_FOREVER, pl.Int64), end_ns=pl.lit(_FOREVER, pl.Int64))
    )
    host = intervals.subtract(whole, layers.select("thread_id", "start_ns", "end_ns"), key)
    # Code that runs between the calls of a capture runs in order to build a graph.
    captures = capture_spans(trace.api).select("thread_id", "start_ns", "end_ns")
    host = pl.concat(
        [
            intervals.intersect(host, captures, key).with_columns(detail=pl.lit("in capture")),
            intervals.subtract(host, captures, key).with_columns(detail=pl.lit(None, pl.String)),
        ]
    ).with_columns(pl.col("detail").cast(NAMES), cause=_cause("host_code"), is_driver=pl.lit(False))
    return pl.concat([layers, host], how="diagonal").sort("thread_id", "start_ns")


def _calls(trace: Trace) -> pl.DataFrame:
    """API calls with the cause and detail that they stand for while no launch is under way."""
    is_build = (pl.col("kind") == "graph_build") | pl.col("capture_id").is_not_null()
    phase = pl.coalesce("phase", pl.lit("capture", CALL_PHASES))
    named = trace.api.with_columns(call_name=call_names(trace))
    return named.filter(pl.col("thread_id").is_not_null()).select(
        "thread_id",
        "start_ns",
        "end_ns",
        cause=pl.when(is_build)
        .then(_cause("graph_build"))
        .when(pl.col("kind").is_in(["wait", "blocking_copy"]))
        .then(_cause("host_sync"))
        .otherwise(_cause("api_other")),
        detail=pl.when(is_build).then(phase.cast(NAMES)).otherwise("call_name"),
    )


def capture_spans(api: pl.DataFrame) -> pl.DataFrame:
    """Return the time of every stream capture on its thread, from begin call to end call.

    Returns:
        thread_id, start_ns, end_ns; launches: launch calls inside, each of which adds a node.
        Disjoint per thread.
    """
    return (
        api.filter(pl.col("capture_id").is_not_null() & pl.col("thread_id").is_not_null())
        .group_by("thread_id", "capture_id", maintain_order=True)
        .agg(
            pl.col("start_ns").min(),
            pl.col("end_ns").max(),
            launches=pl.col("kind").is_in(SUBMITTING).sum().cast(pl.Int64),
        )
        .drop("capture_id")
        .sort("start_ns")
    )


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
