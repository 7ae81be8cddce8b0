"""What is sorted and summed up once, so that any window of a trace can be shown at once."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from gaptrace import ranges
from gaptrace.analysis import Analysis
from gaptrace.detail import Blocks, Spans, blocks, spans
from gaptrace.launches import calls_by_id
from gaptrace.lookup import Lookup, lookup
from gaptrace.timelines import named_cause
from gaptrace.trace import SUBMITTING

STREAM = ["device_id", "process_id", "context_id", "stream_id"]


@dataclass(frozen=True)
class Group:
    """The spans of a frame, told apart by some of its columns.

    Attributes:
        keys: those columns; a row for each of `spans`.
        spans: those of one key; their `rows` are rows of the frame.
    """

    keys: pl.DataFrame
    spans: tuple[Spans, ...]


@dataclass(frozen=True)
class Prepared:
    """An analysis in the order in which windows of it are looked up.

    Attributes:
        analysis: it.
        windows: its windows by device_id.
        idle: its pieces of idle time by device_id.
        states: device_id, cause, and what the pieces of that cause cover.
        streams: ops by `STREAM` and is_unified_memory; kinds: numbers of `trace.OP_KINDS`.
        executions: graph executions by device_id, in node granularity, where ops are single nodes.
        calls: CUDA calls by process_id and thread_id; kinds: the cause that each counts as while a
            device waits.
        ranges: rows of `tree` by process_id, thread_id, is_crossing: start/end ranges, depth: null
            for those.
        graph_executions: the frame of `executions`.
        tree: `ranges.range_tree`.
        named_calls: `launches.calls_by_id`.
        op_rows, call_rows: of the trace, by op_id and call_id.
        launch_rows: of the launches, by call_id.
        ended_rows, gap_rows: of the gaps, by the op that ends each, and by gap_id.
        piece_rows: of the idle pieces, by gap_id.
    """

    analysis: Analysis
    windows: Group
    idle: Group
    states: tuple[tuple[int, str, Blocks], ...]
    streams: Group
    executions: Group
    calls: Group
    ranges: Group
    graph_executions: pl.DataFrame
    tree: pl.DataFrame
    named_calls: pl.DataFrame
    op_rows: Lookup
    call_rows: Lookup
    launch_rows: Lookup
    ended_rows: Lookup
    gap_rows: Lookup
    piece_rows: Lookup


def prepare(analysis: Analysis) -> Prepared:
    """Sort and sum up an analysis; takes about a second for ten million rows."""
    trace = analysis.trace
    tree = ranges.range_tree(trace.nvtx)
    executions = analysis.executions.sort("start_ns", maintain_order=True)
    crossing = pl.col("kind") == "start_end"
    return Prepared(
        analysis=analysis,
        windows=_grouped(analysis.windows.sort("device_id", "start_ns"), ["device_id"]),
        idle=_grouped(analysis.idle, ["device_id"]),
        states=_states(analysis.idle),
        streams=_grouped(trace.ops, [*STREAM, "is_unified_memory"], pl.col("kind")),
        executions=_grouped(
            executions if trace.meta.granularity == "node" else executions.clear(), ["device_id"]
        ),
        calls=_grouped(trace.api, ["process_id", "thread_id"], _cause_of_call()),
        ranges=_grouped(
            tree.with_columns(
                is_crossing=crossing,
                # Ranges that cross each other share a lane.
                depth=pl.when(~crossing).then("depth"),
            ),
            ["process_id", "thread_id", "is_crossing", "depth"],
        ),
        graph_executions=executions,
        tree=tree,
        named_calls=calls_by_id(trace),
        op_rows=lookup(trace.ops["op_id"]),
        call_rows=lookup(trace.api["call_id"]),
        launch_rows=lookup(analysis.launches["call_id"]),
        ended_rows=lookup(analysis.gaps["next_op_id"]),
        gap_rows=lookup(analysis.gaps["gap_id"]),
        piece_rows=lookup(analysis.idle["gap_id"]),
    )


def _cause_of_call() -> pl.Expr:
    return (
        pl.when((pl.col("kind") == "graph_build") | pl.col("capture_id").is_not_null())
        .then(named_cause("graph_build"))
        .when(pl.col("kind").is_in(["wait", "blocking_copy"]))
        .then(named_cause("host_sync"))
        .when(pl.col("kind").is_in(SUBMITTING))
        .then(named_cause("launch_call"))
        .otherwise(named_cause("api_other"))
    )


def _grouped(frame: pl.DataFrame, by: list[str], kind: pl.Expr | None = None) -> Group:
    """Spans of each key, in the order of their rows, which is that of time."""
    number = pl.lit(0) if kind is None else kind.to_physical()
    numbered = frame.select(*by, "start_ns", "end_ns", _kind=number.cast(pl.UInt8)).with_row_index(
        "_row"
    )
    parts = _parts(numbered, by)
    return Group(
        keys=pl.concat([part.select(by).head(1) for part in parts] or [frame.select(by).clear()]),
        spans=tuple(
            spans(
                part["start_ns"].to_numpy(),
                part["end_ns"].to_numpy(),
                part["_row"].to_numpy().astype(np.int64),
                part["_kind"].to_numpy(),
            )
            for part in parts
        ),
    )


def _states(idle: pl.DataFrame) -> tuple[tuple[int, str, Blocks], ...]:
    """What the pieces of each device and cause cover."""
    by = ["device_id", "cause"]
    return tuple(
        (
            part["device_id"][0],
            part["cause"][0],
            blocks(part["start_ns"].to_numpy(), part["end_ns"].to_numpy()),
        )
        for part in _parts(idle.select(*by, "start_ns", "end_ns"), by)
    )


def _parts(frame: pl.DataFrame, by: list[str]) -> list[pl.DataFrame]:
    """Split a frame by key; one of a single key, as most have, is not copied."""
    if frame.is_empty():
        return []
    first = frame.select(pl.col(by).eq_missing(pl.col(by).first()).all())
    if all(first.row(0)):
        return [frame]
    return frame.partition_by(by, maintain_order=True)
