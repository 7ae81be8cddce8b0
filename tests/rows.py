"""Traces written down row by row, for tests of the analyses (no file, no reader)."""

import polars as pl

from gaptrace.read.link import link_calls, mark_captures, unmark_what_ran
from gaptrace.trace import API, DEVICES, EVENT_WAITS, GRAPH_EVENTS, NVTX, OPS, OVERHEAD, Meta, Trace

PROCESS = 1000
THREAD = 1001
_KINDS = {
    "cuLaunchKernel": ("launch", None),
    "cudaLaunchKernel": ("launch", None),
    "cudaMemcpyAsync": ("copy", None),
    "cudaMemcpy": ("blocking_copy", None),
    "cudaGraphLaunch": ("graph_launch", None),
    "cudaStreamSynchronize": ("wait", None),
    "cudaStreamBeginCapture": ("graph_build", "capture"),
    "cudaStreamEndCapture": ("graph_build", "capture"),
    "cudaGraphInstantiate": ("graph_build", "instantiate"),
    "cudaGraphExecUpdate": ("graph_build", "update"),
    "cudaGraphExecDestroy": ("graph_build", "destroy"),
    "cudaEventRecord": ("other", None),
    "cudaStreamWaitEvent": ("event_wait", None),
    "cudaMalloc": ("allocate", None),
    "cudaFree": ("free", None),
}
_CAPTURE_STEPS = {"cudaStreamBeginCapture": 1, "cudaStreamEndCapture": -1}


def op(start, end, launch=None, **own):
    """A device execution; launch is its correlation id."""
    return {
        "kind": "kernel",
        "start_ns": start,
        "end_ns": end,
        "device_id": 0,
        "process_id": PROCESS,
        "context_id": 1,
        "stream_id": 7,
        "correlation_id": launch,
        "name": "scale",
        "is_unified_memory": False,
    } | own


def graph(start, end, launch=None, graph_exec=2, **own):
    """A graph execution in graph granularity."""
    return op(start, end, launch, kind="graph", name="graph", graph_exec_id=graph_exec, **own)


def node(start, end, launch, number, graph_exec=2, **own):
    """One node of a graph execution in node granularity."""
    return op(
        start,
        end,
        launch,
        graph_exec_id=graph_exec,
        graph_node_id=graph_exec * 2**32 + number,
        **own,
    )


def call(name, start, end, launch=None, **own):
    """An API call of the host; launch is its correlation id."""
    kind, phase = _KINDS[name]
    return {
        "start_ns": start,
        "end_ns": end,
        "process_id": PROCESS,
        "thread_id": THREAD,
        "correlation_id": launch,
        "name": name,
        "kind": kind,
        "phase": phase,
        "return_code": 0,
    } | own


def overhead(start, end, kind="profiler", **own):
    return {
        "start_ns": start,
        "end_ns": end,
        "process_id": PROCESS,
        "thread_id": THREAD,
        "name": "buffer flush" if kind == "profiler" else "lazy function loading",
        "kind": kind,
    } | own


def nvtx(name, start, end, **own):
    return {
        "start_ns": start,
        "end_ns": end,
        "process_id": PROCESS,
        "thread_id": THREAD,
        "domain": "gaptrace",
        "name": name,
        "kind": "push_pop",
        "is_closed": True,
    } | own


def graph_event(time, event, **own):
    return {"time_ns": time, "process_id": PROCESS, "thread_id": THREAD, "event": event} | own


def event_wait(call_id, stream, **own):
    """A stream told to wait for an event; call_id is the row of the call among all calls."""
    return {
        "call_id": call_id,
        "process_id": PROCESS,
        "context_id": 1,
        "stream_id": stream,
        "event_id": 5,
    } | own


def trace(
    ops=(), api=(), nvtx=(), overhead=(), graph_events=(), event_waits=(), granularity="graph"
):
    """A trace of these rows, sorted, numbered and linked as a reader leaves them."""
    steps = pl.col("name").cast(pl.String).replace_strict(_CAPTURE_STEPS, default=0)
    calls = mark_captures(_frame(api, API, "call_id"), steps).select(API.names())
    linked = link_calls(_frame(ops, OPS, "op_id").drop("call_id"), calls).select(OPS.names())
    return Trace(
        meta=Meta(path="t.sqlite", format="nsys-sqlite", granularity=granularity),
        ops=linked,
        api=unmark_what_ran(calls, linked),
        nvtx=_frame(nvtx, NVTX),
        overhead=_frame(overhead, OVERHEAD),
        event_waits=_frame(event_waits, EVENT_WAITS, time="call_id"),
        graph_events=_frame(graph_events, GRAPH_EVENTS, time="time_ns"),
        devices=pl.DataFrame(
            [{"device_id": 0, "name": "GPU zero"}, {"device_id": 1, "name": "GPU one"}],
            schema=DEVICES,
        ),
    )


def _frame(rows, schema, number=None, time="start_ns"):
    frame = pl.DataFrame(list(rows), schema=schema).sort(time, maintain_order=True)
    if number is None:
        return frame
    return frame.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(number))
