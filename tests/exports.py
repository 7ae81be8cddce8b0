"""Nsight Systems SQLite exports built from literal rows, for tests.

A test writes down the rows that matter and gets a file as the exporter of that schema would
have left it: its columns, in its order, with its NOT NULLs, names as StringIds ids, and only
the tables that hold rows::

    path = export(
        tmp_path / "t.sqlite",
        schema="3.20.3",
        api=[api("cudaLaunchKernel_v7000", 10, 20, correlation=1)],
        kernels=[kernel(100, 200, correlation=1, name="scale")],
        nvtx=[push("step", 5, 300, domain="gaptrace")],
    )

A row helper takes what a test usually says: where device work ran as pid, device, context and
stream (100, 0, 1, 7), where host work ran as pid and tid (100, and the tid of the main thread),
and any other column by its real name.
"""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from export_schema import SCHEMAS, tables, version

Row = dict[str, Any]

VM = 1 << 48
NONE = 2**32 - 1  # what SYNCHRONIZATION rows hold where there is no stream or no event
HTOD, DTOH, DTOD, UM_HTOD, UM_DTOH = 1, 2, 8, 11, 12


def global_id(pid: int, tid: int = 0, hw: int = 0) -> int:
    """Return hw<<56 | vm<<48 | pid<<24 | tid, signed as SQLite stores it; tid 0 is the process."""
    serial = hw << 56 | VM | pid << 24 | tid
    return serial - (1 << 64) if serial >> 63 else serial


def _op(start: int, end: int, correlation: int | None, at: Row, **own: Any) -> Row:
    row = {"start": start, "end": end, "correlationId": correlation}
    row |= {"globalPid": global_id(at.pop("pid", 100)), "deviceId": at.pop("device", 0)}
    row |= {"contextId": at.pop("context", 1), "streamId": at.pop("stream", 7)}
    return row | own | at


def kernel(
    start: int,
    end: int,
    *,
    correlation: int | None = None,
    name: str = "scale",
    node: int | None = None,
    **at: Any,
) -> Row:
    own = {"shortName": name, "demangledName": name, "graphNodeId": node}
    return _op(start, end, correlation, at, **own)


def memcpy(
    start: int, end: int, *, correlation: int | None = None, kind: int = HTOD, **at: Any
) -> Row:
    return _op(start, end, correlation, at, bytes=4096, copyKind=kind)


def memset(start: int, end: int, *, correlation: int | None = None, **at: Any) -> Row:
    return _op(start, end, correlation, at, bytes=4096)


def graph_trace(
    start: int,
    end: int,
    *,
    correlation: int | None = None,
    graph: int = 1,
    graph_exec: int = 2,
    **at: Any,
) -> Row:
    return _op(start, end, correlation, at, graphId=graph, graphExecId=graph_exec)


def sync(start: int, end: int, *, correlation: int | None = None, kind: int = 2, **at: Any) -> Row:
    return _op(start, end, correlation, at, syncType=kind, eventId=NONE)


def event_recorded(event: int, *, correlation: int, **at: Any) -> Row:
    """An event recorded on a stream; the time is that of the call."""
    row = _op(0, 0, correlation, at, eventId=event)
    del row["start"], row["end"]
    return row


def event_awaited(start: int, end: int, event: int, *, correlation: int, **at: Any) -> Row:
    """A stream told to wait for an event."""
    return _op(start, end, correlation, at, syncType=2, eventId=event)


def _host(start: int, end: int | None, at: Row, **own: Any) -> Row:
    pid = at.pop("pid", 100)
    thread = global_id(pid, at.pop("tid", pid))
    return {"start": start, "end": end, "globalTid": thread} | own | at


def api(name: str, start: int, end: int, *, correlation: int | None = None, **at: Any) -> Row:
    own = {"eventClass": 0 if name.startswith("cuda") else 1, "nameId": name}
    return _host(start, end, at, correlationId=correlation, **own)


def overhead(
    name: str, start: int, end: int, *, correlation: int | None = None, kind: int = 7, **at: Any
) -> Row:
    own = {"eventClass": 103, "nameId": name, "overheadType": kind}
    return _host(start, end, at, correlationId=correlation, **own)


def profiler_overhead(name: str, start: int, end: int, **at: Any) -> Row:
    return _host(start, end, at, nameId=name)


def graph_made(when: int, graph: int, **at: Any) -> Row:
    own = {"eventClass": 95, "nameId": "Graph Creation", "graphId": graph}
    return _host(when, when, at, **own)


def graph_exec_made(when: int, graph: int, graph_exec: int, **at: Any) -> Row:
    own = {"eventClass": 94, "nameId": "GraphExec Creation", "graphId": graph}
    return _host(when, when, at, graphExecId=graph_exec, **own)


def node_made(when: int, node: int, *, original: int | None = None, **at: Any) -> Row:
    own = {"eventClass": 77, "nameId": "Graph Node Creation", "graphNodeId": node}
    return _host(when, when, at, originalGraphNodeId=original, **own)


def _nvtx(
    kind: int,
    text: str,
    start: int,
    end: int | None,
    at: Row,
    domain: int | str = 0,
    registered: bool = False,
) -> Row:
    own = {"eventType": kind, "textId" if registered else "text": text, "domainId": domain}
    return _host(start, end, at, **own)


def push(text: str, start: int, end: int, *, domain: int | str = 0, **at: Any) -> Row:
    """A push/pop range. domain is an id, or a name: `export` then adds the domain's own row."""
    registered = at.pop("registered", False)
    return _nvtx(59, text, start, end, at, domain, registered)


def start_end(text: str, start: int, end: int, *, domain: int | str = 0, **at: Any) -> Row:
    return _nvtx(60, text, start, end, {"rangeId": 1} | at, domain)


def mark(text: str, when: int, *, domain: int | str = 0, **at: Any) -> Row:
    return _nvtx(34, text, when, None, at, domain)


def domain_made(text: str, when: int, domain: int, **at: Any) -> Row:
    return _nvtx(75, text, when, None, at, domain)


def diagnostic(text: str, severity: int = 2, when: int = 0, pid: int = 100) -> Row:
    return {"timestamp": when, "severity": severity, "text": text, "globalPid": global_id(pid)}


def gpu(id: int = 0, name: str = "NVIDIA H200", **columns: Any) -> Row:
    return {"vmId": VM, "id": id, "name": name, "smCount": 132, "cuDevice": id} | columns


def cuda_device(cuda: int = 0, gpu: int = 0, pid: int = 100) -> Row:
    """Device `cuda` of process `pid` is the GPU whose TARGET_INFO_GPU.id is `gpu`."""
    return {"cudaId": cuda, "gpuId": gpu, "pid": pid}


def named(name: str, value: str | None) -> Row:
    """A row of a meta table."""
    return {"name": name, "value": value}


def export(
    path: Path,
    schema: str = "3.20.3",
    *,
    lazy: bool = True,
    granularity: str | None = "graph",
    duration: int | None = None,
    **rows: Iterable[Row],
) -> Path:
    """Write an export and return its path; `rows` by the keywords of `export_schema.TABLES`.

    Written unasked, as every recording has them: the meta table, the granularity where that
    schema records it (None leaves it out), the duration (default: 1,000 ns after the last row,
    so that no range ends there by chance), GPU 0, and GPU 0 as device 0 of every process that
    has device rows. ``gpus=[]`` and ``cuda_devices=[]`` leave the last two out. With lazy=False
    every table of the schema exists.

    Raises:
        ValueError: a table or column does not exist in that schema.
    """
    known, full = tables(schema), {key: [dict(row) for row in given] for key, given in rows.items()}
    for key in full.keys() - known.keys():
        raise ValueError(f"no {key} in schema {schema}: its exporter has no such table")
    stop = _last_ns(full) + 1000 if duration is None else duration
    unasked = _meta(schema, full.get("meta", [])) | _target(full, "id" in known["gpus"][1])
    unasked["details"] = [{"globalVid": VM, "duration": stop, "startTime": 7, "stopTime": stop + 7}]
    unasked["capture"] = _mode(schema, granularity) + full.get("capture", [])
    full |= {key: given for key, given in unasked.items() if key in known}
    full["nvtx"] = _with_domains(full.get("nvtx", []))
    strings: dict[str, int] = {}
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)")
        for key, (table, columns) in known.items():
            if full.get(key) or not lazy:
                _write(db, f"{table} of schema {schema}", columns, full.get(key, []), strings)
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", [(i, s) for s, i in strings.items()])
    return path


def _write(
    db: sqlite3.Connection,
    what: str,
    columns: dict[str, tuple[str, bool]],
    rows: list[Row],
    strings: dict[str, int],
) -> None:
    table = what.split()[0]
    ddl = [f"{name} {kind}{' NOT NULL' * needed}" for name, (kind, needed) in columns.items()]
    db.execute(f"CREATE TABLE {table} ({', '.join(ddl)})")
    for row in rows:
        for column in row.keys() - columns.keys():
            if row[column] is not None:
                raise ValueError(f"no column {column} in {what}")
        values = []
        for column, (kind, needed) in columns.items():
            value = row.get(column, ("" if kind == "TEXT" else 0) if needed else None)
            if isinstance(value, str) and kind == "INTEGER":
                value = strings.setdefault(value, len(strings) + 1)
            values.append(value)
        db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)


def _last_ns(rows: dict[str, list[Row]]) -> int:
    timed = [row for given in rows.values() for row in given if "start" in row]
    return max((max(row["start"], row["end"] or 0) for row in timed), default=0)


def _meta(schema: str, asked: list[Row]) -> dict[str, list[Row]]:
    usual = {
        "EXPORT_PRODUCT_NAME": "NVIDIA Nsight Systems",
        "EXPORT_PRODUCT_VERSION": SCHEMAS[schema],
        "EXPORT_SCHEMA_VERSION": schema,
        "EXPORT_CONFIG_TIME_SHIFT": "0",
    }
    for row in asked:
        usual.pop(row["name"], None)
    return {"meta": [named(name, value) for name, value in usual.items()] + asked}


def _mode(schema: str, granularity: str | None) -> list[Row]:
    if granularity is None or version(schema) < version("3.4.0"):
        return []
    prefix = "" if version(schema) >= version("3.24.7") else "PROCESS_0:"
    return [named(f"{prefix}CUDA_GRAPH_TRACE_OPTIONS:MODE", granularity.title())]


def _target(rows: dict[str, list[Row]], by_id: bool) -> dict[str, list[Row]]:
    busy = [row for given in rows.values() for row in given if "streamId" in row]
    pids = {row["globalPid"] >> 24 & 0xFFFFFF for row in busy if row.get("globalPid")}
    return {
        "gpus": rows.get("gpus", [gpu()] if by_id else []),
        "cuda_devices": rows.get("cuda_devices", [cuda_device(pid=pid) for pid in sorted(pids)]),
    }


def _with_domains(rows: list[Row]) -> list[Row]:
    """Number the domains given by name, per process, and put their rows before all others."""
    made: dict[tuple[int, str], Row] = {}
    for row in rows:
        if isinstance(row["domainId"], str):
            pid = row["globalTid"] >> 24 & 0xFFFFFF
            count = 1 + sum(owner == pid for owner, _ in made)
            key = (pid, row["domainId"])
            made.setdefault(key, domain_made(row["domainId"], 0, count, pid=pid))
            row["domainId"] = made[key]["domainId"]
    return [*made.values(), *rows]
