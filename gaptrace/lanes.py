"""The lanes of a timeline: streams, graph executions, CUDA calls, NVTX ranges, as a screen shows.

What is drawn span by span is described; what is too short for that is counted and summed.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from gaptrace import detail
from gaptrace.lookup import every_row, first_rows
from gaptrace.prepared import STREAM, Group, Prepared
from gaptrace.timelines import CAUSES
from gaptrace.trace import OP_KINDS

#: Lanes that people can still tell apart. The streams and threads with most rows have their own.
_MOST_STREAMS = 8
_MOST_THREADS = 4
_MOST_DEPTH = 5
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


@dataclass(frozen=True)
class _Lane:
    """A lane of a window: what it holds, its place and name, and its spans."""

    holds: str  # op, call, range, execution: the frame that its spans are rows of
    place: int
    label: str
    spans: detail.Spans


def find_lanes(
    prepared: Prepared, start_ns: int, end_ns: int, bins: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return what is seen of single spans in a window.

    Args:
        prepared: the analysis.
        start_ns: begin of the window.
        end_ns: its end.
        bins: how finely; for each lane at most twice as many spans are returned.

    Returns:
        rows of `LANES`, and rows of `SPANS`.
    """
    window = start_ns, end_ns
    threads = _numbers(prepared, window)
    found = [
        *_executions(prepared.executions, window),
        *_streams(prepared.streams, window),
        *_calls(prepared.calls, threads, window),
        *_ranges(prepared.ranges, threads, window),
    ]
    order = sorted({(lane.place, lane.label) for lane in found}, key=_by_number)
    numbers = {name: number for number, name in enumerate(order)}
    edges = detail.bin_edges(start_ns, end_ns, bins)
    seen: dict[str, list[pl.DataFrame]] = {}
    for lane in found:
        rows = detail.visible(lane.spans, edges)
        number = pl.lit(numbers[lane.place, lane.label], pl.Int64)
        seen.setdefault(lane.holds, []).append(rows.with_columns(lane=number))
    described = [_DESCRIBED[holds](pl.concat(rows), prepared) for holds, rows in seen.items()]
    spans = pl.concat([SPANS.to_frame(), *described], how="diagonal")
    lanes = pl.DataFrame(
        [(number, label) for number, (_, label) in enumerate(order)], schema=LANES, orient="row"
    )
    return lanes, spans.sort("lane", "start_ns", "end_ns", maintain_order=True)


def _by_number(lane: tuple[int, str]) -> list[object]:
    """Sort stream 7 before stream 13: names and numbers of a label come in turn."""
    place, label = lane
    parts = re.split(r"([0-9]+)", label)
    return [place, *(int(part) if part.isdecimal() else part for part in parts)]


def _counted(group: Group, window: tuple[int, int]) -> pl.DataFrame:
    """The keys of those spans that reach into the window, their number, how many reach in."""
    lens = [detail.count_inside(spans, *window) for spans in group.spans]
    counted = group.keys.with_columns(len=pl.Series(lens, dtype=pl.Int64))
    return counted.with_row_index("spans").filter(pl.col("len") > 0)


def _shared(group: Group, numbers: pl.Series, window: tuple[int, int]) -> detail.Spans:
    return detail.joined([group.spans[number] for number in numbers], *window)


def _numbers(prepared: Prepared, window: tuple[int, int]) -> pl.DataFrame:
    """thread_id, thread, process: of the threads with most rows in a window, most first.

    Ids of recorders are long. Instead threads are numbered from 1 on in the order of their rows in
    the whole trace, so that one has the same number in every window; null if there is but one.
    Processes have the numbers that their streams have; null where none or one has streams.
    """
    of_all = _busiest(each.keys.with_columns(len=_lengths(each)) for each in _of_threads(prepared))
    numbers = of_all.with_row_index("thread", offset=1)
    if numbers.height == 1:
        numbers = numbers.with_columns(thread=pl.lit(None, pl.UInt32))
    shown = _busiest(_counted(each, window) for each in _of_threads(prepared))
    processes = _process_numbers(prepared.streams)
    if processes.height == 1:
        processes = processes.clear()
    return (
        shown.head(_MOST_THREADS)
        .join(numbers.select("thread_id", "thread"), on="thread_id", how="left")
        .join(processes, on="process_id", how="left", maintain_order="left")
    )


def _process_numbers(streams: Group) -> pl.DataFrame:
    """process_id, process: numbers from 1 on of those that have streams."""
    every = streams.keys.select(pl.col("process_id").unique().sort())
    return every.with_row_index("process", offset=1)


def _of_threads(prepared: Prepared) -> tuple[Group, Group]:
    return prepared.calls, prepared.ranges


def _lengths(group: Group) -> pl.Series:
    return pl.Series([len(spans.starts) for spans in group.spans], dtype=pl.Int64)


def _busiest(counted: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """thread_id, process_id: those with most rows first."""
    return (
        pl.concat([each.select("thread_id", "process_id", "len") for each in counted])
        .drop_nulls("thread_id")
        .group_by("thread_id")
        .agg(pl.col("process_id").first(), pl.col("len").sum())
        .sort("len", "thread_id", descending=[True, False])
        .select("thread_id", "process_id")
    )


def _streams(streams: Group, window: tuple[int, int]) -> list[_Lane]:
    """Ops in the lanes of their streams."""
    counted = _counted(streams, window)
    of_streams = counted.filter(~pl.col("is_unified_memory")).sort(
        "len", *STREAM, descending=[True, *(False for _ in STREAM)]
    )
    own = of_streams.head(_MOST_STREAMS)
    processes = _process_numbers(streams)
    several = {name: own[name].n_unique() > 1 for name in ("device_id", "process_id")}
    # Streams are unique only within a context: two that share a number are told apart by it.
    alike = own.select("device_id", "process_id", "stream_id").is_duplicated().any()
    label = pl.concat_str(
        *([pl.format("device {} ", "device_id")] if several["device_id"] else []),
        *([pl.format("process {} ", "process")] if several["process_id"] else []),
        *(
            [pl.format("context {} ", pl.col("context_id").cast(pl.String).fill_null("unknown"))]
            if alike
            else []
        ),
        pl.format("stream {}", pl.col("stream_id").cast(pl.String).fill_null("unknown")),
    )
    named = own.join(processes, on="process_id", how="left", maintain_order="left")
    shared = {
        "other streams": of_streams["spans"][_MOST_STREAMS:],
        "unified memory": counted.filter("is_unified_memory")["spans"],
    }
    return [
        *(
            _Lane("op", 1, name, streams.spans[number])
            for number, name in named.select("spans", label).rows()
        ),
        *(
            _Lane("op", 1, name, _shared(streams, numbers, window))
            for name, numbers in shared.items()
            if len(numbers)
        ),
    ]


def _executions(executions: Group, window: tuple[int, int]) -> list[_Lane]:
    """Graph executions in node granularity, where their ops are single nodes; else none."""
    counted = _counted(executions, window)
    return [
        _Lane(
            "execution",
            0,
            f"device {device_id} graphs" if counted.height > 1 else "graphs",
            executions.spans[number],
        )
        for number, device_id in counted.select("spans", "device_id").rows()
    ]


def _calls(calls: Group, threads: pl.DataFrame, window: tuple[int, int]) -> list[_Lane]:
    """CUDA calls with the cause that each counts as while the device waits for it."""
    shown = _counted(calls, window).join(
        threads.drop("process_id"), on="thread_id", maintain_order="left"
    )
    return [
        _Lane(
            "call",
            2,
            _label("CUDA calls", process, thread),
            calls.spans[number],
        )
        for number, process, thread in shown.select("spans", "process", "thread").rows()
    ]


def _ranges(ranges: Group, threads: pl.DataFrame, window: tuple[int, int]) -> list[_Lane]:
    shown = _counted(ranges, window).join(
        threads.drop("process_id"), on="thread_id", maintain_order="left"
    )
    nested = shown.filter(~pl.col("is_crossing") & (pl.col("depth") < _MOST_DEPTH))
    lanes = [
        _Lane(
            "range",
            3,
            _label("NVTX", process, thread) + (f", depth {depth + 1}" if depth else ""),
            ranges.spans[number],
        )
        for number, process, thread, depth in nested.select(
            "spans", "process", "thread", "depth"
        ).rows()
    ]
    # Ranges that cross each other share a lane, whoever opened them.
    crossing = _counted(ranges, window).filter("is_crossing")["spans"]
    if len(crossing):
        lanes.append(_Lane("range", 4, "NVTX start/end", _shared(ranges, crossing, window)))
    return lanes


def _label(name: str, process: int | None, thread: int | None) -> str:
    if thread is None:
        return name
    return (
        f"thread {thread} {name}"
        if process is None
        else f"process {process} thread {thread} {name}"
    )


def _described_ops(seen: pl.DataFrame, prepared: Prepared) -> pl.DataFrame:
    """Say of ops how they were launched, how far ahead, and which gap they ended."""
    ops = prepared.analysis.trace.ops
    found = seen.with_columns(
        kind=_names(seen["kind"], OP_KINDS),
        op_id=ops["op_id"].gather(seen["row"]),
        name=ops["name"].gather(seen["row"]).cast(pl.String),
    )
    calls = first_rows(prepared.call_rows, ops["call_id"].gather(seen["row"]))
    named = prepared.named_calls
    ended = named["call_end_ns"].gather(calls)
    return (
        found.with_columns(
            call_name=named["call_name"].gather(calls).cast(pl.String),
            api_ns=ended - named["call_start_ns"].gather(calls),
            lead_ns=ops["start_ns"].gather(seen["row"]) - ended,
        )
        .join(_gaps_before(found["op_id"], prepared), on="op_id", how="left", maintain_order="left")
        .drop("op_id", "row")
    )


def _described_calls(seen: pl.DataFrame, prepared: Prepared) -> pl.DataFrame:
    calls = prepared.named_calls
    launched = first_rows(prepared.launch_rows, calls["call_id"].gather(seen["row"]))
    return seen.with_columns(
        kind=_names(seen["kind"], CAUSES),
        name=calls["call_name"].gather(seen["row"]).cast(pl.String),
        lead_ns=prepared.analysis.launches["lead_ns"].gather(launched),
    ).drop("row")


def _described_ranges(seen: pl.DataFrame, prepared: Prepared) -> pl.DataFrame:
    return seen.with_columns(
        kind=pl.when(pl.col("kind").is_not_null()).then(pl.lit("range")),
        name=prepared.tree["path"].gather(seen["row"]),
    ).drop("row")


def _described_executions(seen: pl.DataFrame, prepared: Prepared) -> pl.DataFrame:
    own = prepared.graph_executions.select(
        pl.col("graph_exec_id", "op_count", "api_ns", "lead_ns").gather(pl.lit(seen["row"]))
    )
    return (
        seen.hstack(own)
        .with_columns(
            kind=pl.when(pl.col("kind").is_not_null()).then(pl.lit("graph")),
            name=pl.format("graph exec {}, {} ops", "graph_exec_id", "op_count"),
        )
        .drop("row", "graph_exec_id", "op_count")
    )


_DESCRIBED = {
    "op": _described_ops,
    "call": _described_calls,
    "range": _described_ranges,
    "execution": _described_executions,
}


def _names(kinds: pl.Series, names: pl.Enum) -> pl.Series:
    return names.categories.gather(kinds)


def _gaps_before(op_ids: pl.Series, prepared: Prepared) -> pl.DataFrame:
    """op_id, gap_ns, cause: the device gap that an op ended, and the cause of most of it."""
    analysis = prepared.analysis
    ended = analysis.gaps[every_row(prepared.ended_rows, op_ids)]
    main = (
        analysis.idle[every_row(prepared.piece_rows, ended["gap_id"])]
        .group_by("gap_id", "cause", maintain_order=True)
        .agg(ns=_LENGTH.sum())
        .sort("ns", descending=True, maintain_order=True)
        .unique("gap_id", keep="first", maintain_order=True)
        .select("gap_id", pl.col("cause").cast(pl.String))
    )
    return (
        ended.select("gap_id", op_id="next_op_id", gap_ns=_LENGTH)
        .join(main, on="gap_id", how="left", maintain_order="left")
        .drop("gap_id")
        # Of a gap that windows cut in several, the part that the op ended.
        .unique("op_id", keep="last", maintain_order=True)
    )
