"""The tracks of a timeline: what stands in which row, before any format is chosen."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import polars as pl

from gaptrace.analysis import Analysis
from gaptrace.counters import busy_changes, queue_depth
from gaptrace.read.ids import os_process, os_thread
from gaptrace.trace import Trace

_SPAN = ("start_ns", "end_ns")
_STREAM = ["process_id", "context_id", "stream_id"]


@dataclass(frozen=True)
class Track:
    """One row of a timeline.

    Attributes:
        place: names of the groups around it, outermost first, and its own; unique.
        kind: what its rows are. Slices may nest and overlap.
        frame: of slices start_ns, end_ns, name; of instants time_ns, name; of a counter time_ns,
            value (an integer that holds until the next row). Slices may have flow_id, which joins
            two slices. Every further column is a fact about a row, null where it does not apply.
    """

    place: tuple[str, ...]
    kind: Literal["slices", "instants", "counter"]
    frame: pl.DataFrame


def tracks(analysis: Analysis) -> list[Track]:
    """Lay a trace out: processes with their threads, then devices with their streams.

    Every op, call, NVTX range, overhead, graph execution and piece of an idle gap is one slice.
    A flow joins each launch call with the first op that it caused; its number is call_id + 1.
    """
    return [*_host(analysis), *_devices(analysis)]


def _host(analysis: Analysis) -> Iterator[Track]:
    trace = analysis.trace
    launched = analysis.launches.select("call_id", "lead_ns", "exposed_latency_ns")
    calls = trace.api.join(launched, on="call_id", how="left", maintain_order="left").select(
        "process_id",
        "thread_id",
        *_SPAN,
        "name",
        "correlation_id",
        "phase",
        "lead_ns",
        "exposed_latency_ns",
        flow_id=pl.when(pl.col("lead_ns").is_not_null()).then(pl.col("call_id") + 1),
        failed_with=pl.when(pl.col("return_code") != 0).then("return_code"),
    )
    is_mark = pl.col("kind") == "mark"
    ranges = trace.nvtx.filter(~is_mark).with_columns(
        is_closed=pl.when(~pl.col("is_closed")).then("is_closed")
    )
    nested = ranges.filter(pl.col("kind") == "push_pop").drop("kind")
    crossing = ranges.filter(pl.col("kind") == "start_end").drop("kind")
    marks = trace.nvtx.filter(is_mark).select(
        "process_id", "thread_id", "name", "domain", "payload", time_ns="start_ns"
    )
    rows: list[tuple[str, Literal["slices", "instants"], pl.DataFrame]] = [
        ("NVTX", "slices", nested),
        ("NVTX start/end", "slices", crossing),
        ("NVTX marks", "instants", marks),
        ("CUDA calls", "slices", calls),
        ("overhead of recorder and driver", "slices", trace.overhead),
    ]
    key = ["process_id", "thread_id"]
    names = _host_names(pl.concat([frame.select(key) for _, _, frame in rows]).unique().sort(key))
    parts = [(name, kind, frame.partition_by(key, as_dict=True)) for name, kind, frame in rows]
    for thread, place in names.items():
        for name, kind, by_thread in parts:
            if thread in by_thread:
                yield Track((*place, name), kind, by_thread[thread].drop(key))


def _host_names(threads: pl.DataFrame) -> dict[tuple[object, ...], tuple[str, str]]:
    processes = _labels("process", os_process, threads["process_id"].unique(maintain_order=True))
    lines = _labels("thread", os_thread, threads["thread_id"].unique(maintain_order=True))
    return {
        (process, thread): (processes[process], lines[thread]) for process, thread in threads.rows()
    }


def _labels(what: str, number: Callable[[int], int], ids: pl.Series) -> dict[int | None, str]:
    """Name ids by their short numbers, and those that share one by both numbers."""
    short = {one: f"{what} {'unknown' if one is None else number(one)}" for one in ids}
    names = list(short.values())
    return {
        one: name if names.count(name) == 1 or one is None else f"{name} ({one})"
        for one, name in short.items()
    }


def _devices(analysis: Analysis) -> Iterator[Track]:
    trace = analysis.trace
    ops, executions = _ops(trace), _executions(analysis)
    busy = busy_changes(analysis.windows, analysis.gaps)
    depth, idle = queue_depth(analysis.launches), _idle(analysis)
    for device_id, name in analysis.devices.select("device_id", "name").rows():
        place = (f"GPU {device_id}" + (f" {name}" if name else ""),)
        mine = pl.col("device_id") == device_id
        for label, changes in (("busy", busy), ("queue depth", depth)):
            yield Track((*place, label), "counter", changes.filter(mine).drop("device_id"))
        yield Track((*place, "idle because of"), "slices", idle.filter(mine).drop("device_id"))
        on_device = ops.filter(mine).drop("device_id").partition_by(_STREAM, as_dict=True)
        graphs = executions.filter(mine).drop("device_id").partition_by(_STREAM, as_dict=True)
        names = _stream_names([*dict.fromkeys([*on_device, *graphs])])
        for stream, label in names.items():
            if stream in graphs:
                yield Track((*place, f"{label}: graphs"), "slices", graphs[stream].drop(_STREAM))
            if stream in on_device:
                yield Track((*place, label), "slices", on_device[stream].drop(_STREAM))


def _stream_names(streams: list[tuple[object, ...]]) -> dict[tuple[object, ...], str]:
    """Name streams by their numbers; process and context are told where there are several."""
    processes, contexts = (sorted({stream[at] for stream in streams}, key=str) for at in (0, 1))
    known = _labels("process", os_process, pl.Series(processes, dtype=pl.Int64))
    names: dict[tuple[object, ...], str] = {}
    for process, context, stream in sorted(streams, key=_numeric):
        name = "no stream" if stream is None else f"stream {stream}"
        name += f", context {context}" if len(contexts) > 1 else ""
        name += f", {known[process]}" if len(processes) > 1 else ""  # type: ignore[index]
        names[process, context, stream] = name
    return names


def _numeric(stream: tuple[object, ...]) -> list[tuple[bool, object]]:
    return [(part is None, part or 0) for part in stream]


def _ops(trace: Trace) -> pl.DataFrame:
    is_first = pl.col("call_id").is_not_null() & pl.col("call_id").is_first_distinct()
    return trace.ops.select(
        "device_id",
        *_STREAM,
        *_SPAN,
        "name",
        "correlation_id",
        "graph_exec_id",
        "graph_node_id",
        "bytes",
        "source_memory",
        "target_memory",
        flow_id=pl.when(is_first).then(pl.col("call_id") + 1),
    )


def _executions(analysis: Analysis) -> pl.DataFrame:
    return analysis.executions.select(
        "device_id",
        *_STREAM,
        *_SPAN,
        "correlation_id",
        "op_count",
        "api_ns",
        "lead_ns",
        "exposed_latency_ns",
        "gap_ns",
        "gap_kind",
        name=pl.format("graph exec {}", "graph_exec_id"),
    )


def _idle(analysis: Analysis) -> pl.DataFrame:
    whole = analysis.gaps.select("gap_id", gap_ns=pl.col("end_ns") - pl.col("start_ns"))
    return analysis.idle.join(whole, on="gap_id", how="left", maintain_order="left").select(
        "device_id", *_SPAN, "gap_id", "gap_ns", "detail", "thread_id", name="cause"
    )
