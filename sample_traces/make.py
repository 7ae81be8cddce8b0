"""Make a small sample trace, free of anything personal, from a full Nsight Systems export.

    python make.py SOURCE.sqlite NAME --range per_launch --range graph:600 \
        --about "..." --command "nsys profile -t cuda,nvtx python demo.py"

The window runs from the first of the named NVTX ranges to the end of the last one, or between
--from and --to in nanoseconds since the session began. What overlaps it is kept, with the times
it had; tables and columns that no analysis of gaps needs are not, so nothing has to be blanked.
Writes NAME.sqlite and NAME.json (where it comes from). The source is opened read-only.
"""

import argparse
import json
import re
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

Rows = list[tuple[object, ...]]

_OP = "start end deviceId contextId greenContextId streamId correlationId globalPid"
_HOST = "start end eventClass globalTid correlationId nameId"
#: Every table that is kept, with the columns that are.
KEPT = {
    "CUPTI_ACTIVITY_KIND_KERNEL": f"{_OP} demangledName shortName graphNodeId",
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"{_OP} bytes copyKind srcKind dstKind graphNodeId copyCount",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{_OP} value bytes graphNodeId memKind",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": f"{_OP} graphId graphExecId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": f"{_HOST} returnValue",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": f"{_OP} syncType eventId",
    "CUPTI_ACTIVITY_KIND_OVERHEAD": f"{_HOST} overheadType",
    "PROFILER_OVERHEAD": "start end globalTid nameId returnValue overheadType",
    "CUDA_GRAPH_EVENTS": "start end eventClass globalTid nameId graphId originalGraphId graphExecId"
    " graphNodeId originalGraphNodeId",
    "CUDA_GRAPH_NODE_EVENTS": "start end eventClass globalTid nameId graphNodeId"
    " originalGraphNodeId",
    "NVTX_EVENTS": "start end eventType rangeId text globalTid endGlobalTid textId domainId"
    " uint64Value int64Value doubleValue uint32Value int32Value floatValue",
    "DIAGNOSTIC_EVENT": "timestamp severity text",
    "TARGET_INFO_GPU": "vmId id name l2CacheSize totalMemory memoryBandwidth clockRate smCount"
    " chipName cuDevice asyncEngines computeMajor computeMinor",
    "TARGET_INFO_CUDA_DEVICE": "gpuId cudaId pid numMultiprocessors",
    "TARGET_INFO_CUDA_CONTEXT_INFO": "nullStreamId hwId vmId processId deviceId contextId"
    " parentContextId isGreenContext",
    "TARGET_INFO_CUDA_NULL_STREAM": "streamId hwId vmId processId deviceId contextId",
    "TARGET_INFO_CUDA_STREAM": "streamId hwId vmId processId contextId priority flag",
    "TARGET_INFO_SYSTEM_ENV": "globalVid name value",
    "ANALYSIS_DETAILS": "globalVid duration",
    "META_DATA_CAPTURE": "name value",
    "META_DATA_EXPORT": "name value",
    "EXPORT_META_DATA": "name value",
}
_OPS = ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")
_STRING_IDS = {"demangledName", "shortName", "nameId", "textId"}
_ENVIRONMENT = (
    "'CpuDescription', 'CpuCores', 'NvDriverVersion', 'CudaDriverVersion', 'OsDescription'"
)
_EXPORT = (
    "name LIKE 'EXPORT_PRODUCT_%' OR name LIKE 'EXPORT_SCHEMA_VERSION%' OR name LIKE '%_SHIFT'"
)

_IN_WINDOW = "start < :to AND (end > :from OR start >= :from)"
_PROCESS = "(globalTid & ~16777215)"  # clears the thread's 24 bits
_PID = "(globalPid >> 24 & 16777215)"
_USED_PIDS = f"(SELECT DISTINCT {_PID} FROM temp.op)"
_MADE = f"({_PROCESS}, graphNodeId >> 32) IN (SELECT pid, graph FROM temp.graph)"
#: Table -> which of its rows are kept; a table that is not here keeps all.
ROWS = {f"CUPTI_ACTIVITY_KIND_{kind}": _IN_WINDOW for kind in _OPS} | {
    "CUPTI_ACTIVITY_KIND_RUNTIME": f"({_IN_WINDOW})"
    f" OR ({_PROCESS}, correlationId) IN (SELECT globalPid, correlationId FROM temp.op)",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": _IN_WINDOW,
    "CUPTI_ACTIVITY_KIND_OVERHEAD": _IN_WINDOW,
    "PROFILER_OVERHEAD": _IN_WINDOW,
    "CUDA_GRAPH_EVENTS": f"({_PROCESS}, graphId) IN (SELECT pid, graph FROM temp.graph)",
    "CUDA_GRAPH_NODE_EVENTS": _MADE,
    # A range that sticks out of the window is left out: without its work it would look idle.
    # Marks (34, 65) have no end; a domain's row (75) is kept for its name, whenever it was made.
    "NVTX_EVENTS": "eventType IN (59, 60, 70, 71) AND start >= :from AND end <= :to"
    " OR eventType IN (34, 65) AND start BETWEEN :from AND :to OR eventType = 75",
    "DIAGNOSTIC_EVENT": "severity >= 2",
    "TARGET_INFO_CUDA_DEVICE": f"pid IN {_USED_PIDS}",
    "TARGET_INFO_CUDA_CONTEXT_INFO": f"processId IN {_USED_PIDS}",
    "TARGET_INFO_CUDA_NULL_STREAM": f"processId IN {_USED_PIDS}",
    "TARGET_INFO_CUDA_STREAM": "(processId, contextId, streamId) IN"
    f" (SELECT {_PID}, contextId, streamId FROM temp.op)",
    "TARGET_INFO_SYSTEM_ENV": f"name IN ({_ENVIRONMENT})",
    "META_DATA_CAPTURE": "name LIKE '%CUDA_GRAPH_TRACE_OPTIONS:%'"
    " OR name LIKE '%CUDA_SKIP_SOME_API_CALLS'",
    "META_DATA_EXPORT": _EXPORT,
    "EXPORT_META_DATA": _EXPORT,
}
#: Text that must not be in a sample: paths, addresses, names of hosts and users.
PERSONAL = re.compile(
    r"(?<![\w)>*&])[/~]\w[\w.+-]*/|/(home|root|usr|opt|tmp|mnt|var|etc|srv|data)\b|[A-Za-z]:\\"
    r"|\w@\w|://|\b\d{1,3}(\.\d{1,3}){3}\b|\b(HOME|USER|HOSTNAME|PATH)="
    r"|\.(com|org|net|local|internal|lan)\b"
)


def main(argv: Sequence[str] | None = None) -> None:
    """Make one sample."""
    asked = _arguments().parse_args(argv)
    target = asked.out / f"{asked.name}.sqlite"
    if not asked.source.is_file():
        raise SystemExit(f"{asked.source}: no such file")
    if target.exists() and target.samefile(asked.source):
        raise SystemExit(f"{target}: is the source itself; choose another name or folder")
    part = target.with_suffix(".part")
    part.unlink(missing_ok=True)
    uri = f"{asked.source.absolute().as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as full, closing(sqlite3.connect(part)) as cut:
            window = find_window(full, asked.range, asked.start, asked.stop)
            copy(full, cut, window)
            origin = provenance(full, cut, window) | {
                "window_ranges": asked.range or None,
                "about": asked.about,
                "command": asked.command,
                "licence": asked.licence,
            }
        check(part, json.dumps(origin))
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    target.with_suffix(".json").write_text(json.dumps(origin, indent=1) + "\n")
    sys.stdout.write(f"{target}: {target.stat().st_size:,} bytes, {origin['rows_kept']}\n")


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("source", type=Path, help="a full export; it is not changed")
    parser.add_argument("name", help="of the sample, without suffix")
    parser.add_argument("--range", action="append", default=[], help="NVTX range in the window")
    parser.add_argument("--from", dest="start", type=int, help="start of the window, ns")
    parser.add_argument("--to", dest="stop", type=int, help="end of the window, ns")
    parser.add_argument("--about", required=True, help="what ran, one sentence")
    parser.add_argument("--command", required=True, help="how it was recorded, without paths")
    parser.add_argument("--licence", default="MIT")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder")
    return parser


def find_window(
    full: sqlite3.Connection, names: list[str], start: int | None, stop: int | None
) -> tuple[int, int]:
    """Return [from, to) in ns: the hull of the named ranges, or the two times given."""
    if not names:
        if start is None or stop is None or start >= stop:
            raise SystemExit("name the window: --range, or --from and --to with from < to")
        return start, stop
    found = full.execute(
        "SELECT COALESCE(text, value), MIN(start), MAX(end) FROM NVTX_EVENTS"
        " LEFT JOIN StringIds ON StringIds.id = textId WHERE end IS NOT NULL GROUP BY 1"
    ).fetchall()
    spans = {name: (first, last) for name, first, last in found}
    if absent := [name for name in names if name not in spans]:
        raise SystemExit(f"no NVTX range {absent}; there are {sorted(map(str, spans))}")
    return min(spans[name][0] for name in names), max(spans[name][1] for name in names)


def copy(full: sqlite3.Connection, cut: sqlite3.Connection, window: tuple[int, int]) -> None:
    """Copy what is kept, then the strings it uses; the result has no free pages."""
    present = _tables(full)
    _note_used(full, present, window)
    strings: set[object] = set()
    for table, wanted in KEPT.items():
        has = present.get(table, {})
        columns = {column: has[column] for column in wanted.split() if column in has}
        if not columns:
            continue
        rows = full.execute(
            f"SELECT {', '.join(columns)} FROM {table} WHERE {_kept_rows(table, columns)}",
            {"from": window[0], "to": window[1]},
        ).fetchall()
        _fill(cut, table, columns, rows)
        for at, column in enumerate(columns):
            if column in _STRING_IDS:
                strings.update(row[at] for row in rows)
    values = full.execute("SELECT id, value FROM StringIds ORDER BY id").fetchall()
    kinds = {"id": "INTEGER NOT NULL PRIMARY KEY", "value": "TEXT NOT NULL"}
    _fill(cut, "StringIds", kinds, [row for row in values if row[0] in strings])
    meta = "META_DATA_EXPORT" if "META_DATA_EXPORT" in present else "EXPORT_META_DATA"
    if meta in present:
        derived = [("DERIVED_BY", "gaptrace sample_traces/make.py")]
        derived += [("DERIVED_WINDOW_NS", f"{window[0]}-{window[1]}")]
        cut.executemany(f"INSERT INTO {meta} (name, value) VALUES (?, ?)", derived)
    cut.commit()
    cut.execute("VACUUM")


def _kept_rows(table: str, columns: dict[str, str]) -> str:
    if table == "CUDA_GRAPH_EVENTS" and "graphNodeId" in columns:
        return _MADE  # until 2023.4 this table held nodes, not graphs
    return ROWS.get(table, "1")


def _tables(db: sqlite3.Connection) -> dict[str, dict[str, str]]:
    """Return {table: {column: its declaration}}."""
    names = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return {
        name: {
            row[1]: row[2] + " NOT NULL" * row[3]
            for row in db.execute(f'PRAGMA table_info("{name}")')
        }
        for (name,) in names
    }


def _note_used(
    full: sqlite3.Connection, present: dict[str, dict[str, str]], window: tuple[int, int]
) -> None:
    """Note in temporary tables which ops are kept, and which graphs they came from.

    A node's id holds its graph's id above bit 32. An executable graph's nodes name the captured
    ones as originals, and its own creation row names the captured graph: both are noted.
    """
    full.execute("PRAGMA temp_store = MEMORY")
    full.execute("CREATE TEMP TABLE op (globalPid, correlationId, contextId, streamId)")
    full.execute("CREATE TEMP TABLE graph (pid, graph)")
    at = {"from": window[0], "to": window[1]}
    for kind in _OPS:
        table = f"CUPTI_ACTIVITY_KIND_{kind}"
        if table in present:
            rows = f"FROM {table} WHERE {_IN_WINDOW}"
            full.execute(
                f"INSERT INTO op SELECT globalPid, correlationId, contextId, streamId {rows}", at
            )
            graph = "graphId" if kind == "GRAPH_TRACE" else "graphNodeId >> 32"
            full.execute(f"INSERT INTO graph SELECT DISTINCT globalPid, {graph} {rows}", at)
    if full.execute("SELECT 1 FROM temp.op LIMIT 1").fetchone() is None:
        raise SystemExit(f"no device work between {window[0]} and {window[1]} ns")
    for table in ("CUDA_GRAPH_EVENTS", "CUDA_GRAPH_NODE_EVENTS"):
        if "originalGraphNodeId" in present.get(table, {}):
            full.execute(
                f"INSERT INTO graph SELECT DISTINCT {_PROCESS}, originalGraphNodeId >> 32"
                f" FROM {table} WHERE {_MADE}"
            )


def _fill(cut: sqlite3.Connection, table: str, columns: dict[str, str], rows: Rows) -> None:
    if rows:
        declared = ", ".join(f"{column} {kind}" for column, kind in columns.items())
        cut.execute(f"CREATE TABLE {table} ({declared})")
        cut.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", rows)


def provenance(
    full: sqlite3.Connection, cut: sqlite3.Connection, window: tuple[int, int]
) -> dict[str, object]:
    """Say where a sample comes from and what was left out of it."""
    before, after = _tables(full), _tables(cut)
    machine = dict(_pairs(cut, "TARGET_INFO_SYSTEM_ENV"))
    exported = dict(_pairs(cut, "META_DATA_EXPORT")) | dict(_pairs(cut, "EXPORT_META_DATA"))
    modes = [v for k, v in _pairs(cut, "META_DATA_CAPTURE") if k.endswith("OPTIONS:MODE")]
    known = {*KEPT, "StringIds"}
    kept = {t: _count(cut, t) if t in after else 0 for t in KEPT if "start" in before.get(t, {})}
    return {
        "gpu": [name for name, _ in _pairs(cut, "TARGET_INFO_GPU", "name, id")],
        "driver": machine.get("NvDriverVersion"),
        "cuda_driver_version": machine.get("CudaDriverVersion"),
        "cpu": machine.get("CpuDescription"),
        "os": machine.get("OsDescription"),
        "recorder": exported.get("EXPORT_PRODUCT_NAME"),
        "recorder_version": exported.get("EXPORT_PRODUCT_VERSION"),
        "schema": exported.get("EXPORT_SCHEMA_VERSION"),
        "granularity": modes[0].lower() if modes else None,
        "window_ns": list(window),
        "rows_kept": kept,
        "rows_dropped": {table: _count(full, table) - count for table, count in kept.items()},
        "tables_dropped": sorted(t for t in before if not t.startswith("ENUM_") and t not in known),
        "columns_dropped": "those that KEPT in make.py does not name",
    }


def _pairs(
    db: sqlite3.Connection, table: str, columns: str = "name, value"
) -> Iterator[tuple[str, str]]:
    if table in _tables(db):
        yield from db.execute(f"SELECT {columns} FROM {table}")


def _count(db: sqlite3.Connection, table: str) -> int:
    (count,) = db.execute(f'SELECT COUNT(*) FROM "{table}"').fetchone()
    return int(count)


def check(path: Path, origin: str) -> None:
    """Refuse a sample in which any text, or its provenance, looks like a path or a person's."""
    with closing(sqlite3.connect(path)) as db:
        texts = [origin] + [
            str(value)
            for table, columns in _tables(db).items()
            for column in columns
            for (value,) in db.execute(
                f"SELECT DISTINCT {column} FROM {table} WHERE typeof({column}) = 'text'"
            )
        ]
    if found := [text for text in texts if PERSONAL.search(text)]:
        raise SystemExit(f"looks personal, nothing written: {found[:3]}")


if __name__ == "__main__":
    main()
