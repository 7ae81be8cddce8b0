"""CUPTI's records as rows of Nsight Systems' tables: device work, calls, waits, graphs made."""

from typing import Any

import numpy as np

from gaptrace.record.cupti_spool import Column, Spool
from gaptrace.record.kernel_names import demangled, short_name
from gaptrace.record.table_writer import Rows, TableWriter

#: ENUM_NSYS_EVENT_CLASS, as Nsight Systems numbers them.
_RUNTIME, _DRIVER, _EXEC_MADE, _GRAPH_MADE, _CLONED, _OVERHEAD = 0, 1, 94, 95, 96, 103
_CBID = 2**32 - 1
_KIND_RUNTIME = 5  # CUPTI_ACTIVITY_KIND_RUNTIME
_OBJECT_THREAD = 2  # CUPTI_ACTIVITY_OBJECT_THREAD
#: CUpti_ActivityOverheadKind -> overheadType of Nsight Systems, and its name.
_OVERHEADS = {
    0: (1, "Unknown"),
    1: (2, "Driver compiler"),
    1 << 16: (3, "Buffer flush"),
    2 << 16: (4, "Instrumentation"),
    3 << 16: (5, "Resource"),
    4 << 16: (6, "Runtime triggered module loading"),
    5 << 16: (7, "Lazy function loading"),
    6 << 16: (8, "Command buffer full"),
    7 << 16: (3, "Buffer request"),
    8 << 16: (5, "Unified memory initialisation"),
}


def _ids(rows: dict[str, Column], process: int) -> Rows:
    """Columns that all tables of device work begin with."""
    return {
        "start": rows["start"],
        "end": rows["end"],
        "deviceId": rows["device_id"],
        "contextId": rows["context_id"],
        "streamId": rows["stream_id"],
        "correlationId": rows["correlation_id"],
        "globalPid": process,
    }


def write_device_work(
    out: TableWriter, columns: dict[str, dict[str, Column]], texts: list[str], process: int
) -> None:
    """Write kernels, copies, sets and graph executions; `texts` holds the names of kernels."""
    kernels = columns["kernel"]
    used = np.unique(kernels["name"]).tolist()
    whole = demangled(texts[number] if number >= 0 else "unnamed kernel" for number in used)
    mangled = [texts[number] if number >= 0 else "unnamed kernel" for number in used]
    place = np.searchsorted(np.array(used, np.int64), kernels["name"])
    names = {
        "demangledName": [out.text_id(whole[name]) for name in mangled],
        "shortName": [out.text_id(short_name(whole[name])) for name in mangled],
        "mangledName": [out.text_id(name) for name in mangled],
    }
    out.table(
        "CUPTI_ACTIVITY_KIND_KERNEL",
        _ids(kernels, process)
        | {column: np.array(ids, np.int64)[place] for column, ids in names.items()}
        | {
            "launchType": kernels["launch_type"],
            "registersPerThread": kernels["registers_per_thread"],
            **{f"grid{axis.upper()}": kernels[f"grid_{axis}"] for axis in "xyz"},
            **{f"block{axis.upper()}": kernels[f"block_{axis}"] for axis in "xyz"},
            "staticSharedMemory": kernels["static_shared_memory"],
            "dynamicSharedMemory": kernels["dynamic_shared_memory"],
            "graphNodeId": _none_if_zero(kernels["graph_node_id"]),
            "graphId": _none_if_zero(kernels["graph_id"]),
        },
    )
    copies, peers = columns["memcpy"], columns["memcpy_peer"]
    both = {name: np.concatenate([copies[name], peers[name]]) for name in copies}
    out.table(
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        _ids(both, process)
        | {
            "bytes": both["bytes"],
            "copyKind": both["copy_kind"],
            "srcKind": _memory(both["src_kind"]),
            "dstKind": _memory(both["dst_kind"]),
            "srcDeviceId": [None] * len(copies["bytes"]) + peers["src_device_id"].tolist(),
            "dstDeviceId": [None] * len(copies["bytes"]) + peers["dst_device_id"].tolist(),
            "graphNodeId": _none_if_zero(both["graph_node_id"]),
        },
    )
    sets = columns["memset"]
    out.table(
        "CUPTI_ACTIVITY_KIND_MEMSET",
        _ids(sets, process)
        | {
            "value": sets["value"],
            "bytes": sets["bytes"],
            "graphNodeId": _none_if_zero(sets["graph_node_id"]),
            "memKind": _memory(sets["memory_kind"]),
        },
    )
    graphs = columns["graph_trace"]
    out.table(
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
        _ids(graphs, process) | {"graphId": None, "graphExecId": graphs["graph_id"]},
    )


def _memory(kinds: Column) -> list[int | None]:
    """CUpti_ActivityMemoryKind counts from 1, with 0 for unknown; Nsight Systems from 0."""
    return [kind - 1 if kind else None for kind in kinds.tolist()]


def _none_if_zero(column: Column) -> list[int | None]:
    return [value or None for value in column.tolist()]


def write_calls(out: TableWriter, spool: Spool, process: int) -> None:
    """Write calls of the runtime and of the driver."""
    rows = _without_inner_calls(spool.columns)
    names = {
        int(kind): {int(number): name for number, name in calls.items()}
        for kind, calls in spool.header["calls"].items()
    }
    keys = rows["kind"].astype(np.int64) << 32 | rows["cbid"]
    used, place = np.unique(keys, return_inverse=True)
    ids = [
        out.text_id(names.get(key >> 32, {}).get(key & _CBID, f"call {key & _CBID}"))
        for key in used.tolist()
    ]
    out.table(
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        {
            "start": rows["start"],
            "end": rows["end"],
            "eventClass": np.where(rows["kind"] == _KIND_RUNTIME, _RUNTIME, _DRIVER),
            "globalTid": process | _thread(rows["thread_id"]),
            "correlationId": rows["correlation_id"],
            "nameId": np.array(ids, np.int64)[place],
            "returnValue": rows["return_value"],
        },
    )


def _thread(numbers: Column) -> Column:
    return numbers.astype(np.int64) & 0xFFFFFF


def _without_inner_calls(columns: dict[str, dict[str, Column]]) -> dict[str, Column]:
    """Leave out driver calls that a runtime call made: Nsight Systems has one row per call.

    They lie inside it, on its thread. One whose correlation id is that of device work, and not that
    of a runtime call, stays: it is what the work is linked to.
    """
    rows = columns["api"]
    is_runtime = rows["kind"] == _KIND_RUNTIME
    work = np.concatenate([own["correlation_id"] for name, own in columns.items() if name in _WORK])
    linked = np.isin(rows["correlation_id"], work) & ~np.isin(
        rows["correlation_id"], rows["correlation_id"][is_runtime]
    )
    inner = np.zeros(len(is_runtime), bool)
    for thread in np.unique(rows["thread_id"]).tolist():
        own = rows["thread_id"] == thread
        outer, asked = own & is_runtime, np.flatnonzero(own & ~is_runtime)
        order = np.argsort(rows["start"][outer], kind="stable")
        starts, ends = rows["start"][outer][order], rows["end"][outer][order]
        if len(starts) and len(asked):
            before = np.searchsorted(starts, rows["start"][asked], "right") - 1
            # A runtime call may contain another: the one that ends last of those before decides.
            latest = np.maximum.accumulate(ends)
            inner[asked] = (before >= 0) & (rows["end"][asked] <= latest[before])
    keep = ~inner | linked
    return {name: column[keep] for name, column in rows.items()}


_WORK = {"kernel", "memcpy", "memcpy_peer", "memset", "graph_trace"}


def write_waits(out: TableWriter, columns: dict[str, dict[str, Column]], process: int) -> None:
    """Write waits, recorded events, and what CUPTI and the driver took from threads."""
    waits, events, overheads = (
        columns[name] for name in ("synchronization", "cuda_event", "overhead")
    )
    # Of a context that is older than the recording only its work tells the device.
    devices = {
        context: device
        for family in ("kernel", "memcpy", "memset", "graph_trace", "context")
        for context, device in zip(
            *(columns[family][field].tolist() for field in ("context_id", "device_id")), strict=True
        )
    }
    waits = waits | {
        "device_id": np.array([devices.get(c, 0) for c in waits["context_id"].tolist()], np.int64)
    }
    out.table(
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        _ids(waits, process) | {"syncType": waits["type"], "eventId": waits["cuda_event_id"]},
    )
    out.table(
        "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
        {
            "deviceId": events["device_id"],
            "contextId": events["context_id"],
            "streamId": events["stream_id"],
            "correlationId": events["correlation_id"],
            "globalPid": process,
            "eventId": events["event_id"],
        },
    )
    kinds = [_OVERHEADS.get(kind, _OVERHEADS[0]) for kind in overheads["overhead_kind"].tolist()]
    on_thread = overheads["object_kind"] == _OBJECT_THREAD
    threads = np.where(on_thread, _thread(overheads["object_id.pt.thread_id"]), 0)
    out.table(
        "CUPTI_ACTIVITY_KIND_OVERHEAD",
        {
            "start": overheads["start"],
            "end": overheads["end"],
            "eventClass": _OVERHEAD,
            "globalTid": process | threads,
            "correlationId": _none_if_zero(overheads["correlation_id"]),
            "nameId": [out.text_id(name) for _, name in kinds],
            "overheadType": [number for number, _ in kinds],
        },
    )


def write_graphs_made(out: TableWriter, graphs: list[list[Any]], begin: int, process: int) -> None:
    """Write when graphs and graph execs were made; `begin` is the session's, on CUPTI's clock."""
    rows: dict[str, list[Any]] = {
        name: []
        for name in (
            *("start", "end", "eventClass", "globalTid", "nameId"),
            *("graphId", "originalGraphId", "graphExecId"),
        )
    }
    for time, thread, event, graph, other in graphs:
        is_exec = event == "exec"
        made = (_EXEC_MADE, "GraphExec Creation") if is_exec else (_GRAPH_MADE, "Graph Creation")
        if not is_exec and other is not None:
            made = _CLONED, "Graph Clone"
        row = (
            *(time - begin, time - begin, made[0], process | thread & 0xFFFFFF),
            *(out.text_id(made[1]), graph),
            *((None, other) if is_exec else (other, None)),
        )
        for column, value in zip(rows.values(), row, strict=True):
            column.append(value)
    out.table("CUDA_GRAPH_EVENTS", rows)
