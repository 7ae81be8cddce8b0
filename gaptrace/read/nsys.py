"""Nsight Systems SQLite exports, from before 2022 to 2026, as a `Trace`.

Columns are selected by name and everything outside the core is optional, since columns were added
in the middle and tables are written only when they have rows ("lazy" export).
"""

from pathlib import Path

import polars as pl

from gaptrace.errors import NotRecordedError, TraceFormatError
from gaptrace.read.cuda_names import (
    COPY_KINDS,
    MEMORY_KINDS,
    OVERHEAD_KINDS,
    OVERHEAD_NAMES,
    UNIFIED_MEMORY_COPIES,
    meaning_of,
)
from gaptrace.read.nsys_meta import (
    capture_mode,
    diagnostics,
    partial_export,
    read_devices,
    read_meta,
)
from gaptrace.read.sqlite import ExportFile
from gaptrace.trace import API, GRAPH_EVENTS, NVTX, OPS, OVERHEAD, Granularity, Trace, TraceWarning

_I = pl.Int64
_KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
_MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
_MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
_GRAPH_TRACE = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_DECOMPRESS = "CUPTI_ACTIVITY_KIND_MEM_DECOMPRESS"
_RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"

#: globalTid = hardware << 56 | vm << 48 | process << 24 | thread; clearing the thread gives
#: globalPid. Python's ints make the mask right for ids that SQLite prints as negative, too.
_THREAD_BITS = 0xFFFFFF
#: deviceId of a graph that starts on the host (CUPTI, CUpti_ActivityGraphTrace2).
_HOST_DEVICE = 2**31 - 1
_LATEST = 2**62
#: The numbers of NVTX event types: ENUM_NSYS_EVENT_TYPE; 64 to 74 are their NVTXT twins.
_MARK, _PUSH_POP, _START_END, _DOMAIN = (34, 65), (59, 70), (60, 71), 75


def read_nsys(path: Path) -> Trace:
    """Read one export.

    Raises:
        TraceFormatError: damaged, or not an export of Nsight Systems.
        NotRecordedError: no device activity in it; the message says what there is instead.
    """
    with ExportFile(path) as export:
        if "StringIds" not in export.tables:
            raise TraceFormatError(
                f"{path}: an SQLite file, but not an Nsight Systems export (no StringIds table)"
            )
        strings = _strings(export)
        api = _api(export, strings)
        devices, physical = read_devices(export)
        ops, warnings = _ops(export, strings, physical)
        if ops.is_empty():
            raise NotRecordedError(_nothing_recorded(export, api, warnings))
        meta = read_meta(export, _granularity(capture_mode(export), ops))
        nvtx = _nvtx(export, strings, meta.duration_ns)
        return Trace(
            meta=meta,
            ops=ops,
            api=api,
            nvtx=nvtx,
            overhead=_overhead(export, strings),
            graph_events=_graph_events(export),
            devices=devices,
            warnings=(*warnings, *partial_export(export), *diagnostics(export)),
        )


def _strings(export: ExportFile) -> pl.DataFrame:
    rows = export.rows("SELECT id, value FROM StringIds")
    try:
        return pl.DataFrame(
            rows, schema={"name_id": pl.Int64, "value": pl.String}, orient="row", strict=True
        ).unique("name_id", keep="first", maintain_order=True)
    except (TypeError, pl.exceptions.PolarsError, OverflowError) as error:
        raise TraceFormatError(
            f"{export.path}: table StringIds does not hold pairs of id and text; "
            "export the report again with nsys export --type sqlite"
        ) from error


def _ops(
    export: ExportFile, strings: pl.DataFrame, physical: pl.DataFrame
) -> tuple[pl.DataFrame, list[TraceWarning]]:
    parts = [
        _device_rows(export, _KERNEL, "kernel", name_id="shortName"),
        _device_rows(export, _MEMCPY, "memcpy"),
        _device_rows(export, _MEMSET, "memset"),
        _device_rows(export, _GRAPH_TRACE, "graph"),
        _device_rows(export, _DECOMPRESS, "decompress"),
    ]
    rows = pl.concat(parts)
    # CUPTI writes start = end = 0 for "not collected"; a reversed span is a recorder's fault.
    sound = rows.filter(_has_sound_times() & ((pl.col("start_ns") != 0) | (pl.col("end_ns") != 0)))
    warnings = []
    if lost := rows.height - sound.height:
        warnings.append(
            TraceWarning(
                "invalid_times",
                f"{lost} of {rows.height} device rows have no or reversed times and are left out; "
                "idle time next to them is overstated",
            )
        )
    placed, device_warnings = _place(sound, physical)
    copy_name = pl.col("copy_kind").replace_strict(
        COPY_KINDS, default="copy", return_dtype=pl.String
    )
    ops = (
        placed.join(strings, on="name_id", how="left")
        .with_columns(
            name=pl.when(pl.col("kind") == "memcpy")
            .then(copy_name)
            .otherwise(pl.coalesce("value", "kind")),
            correlation_id=_none_if_zero("correlation_id"),
            source_memory=pl.col("source_kind").replace_strict(
                MEMORY_KINDS, default=None, return_dtype=pl.String
            ),
            target_memory=pl.col("target_kind").replace_strict(
                MEMORY_KINDS, default=None, return_dtype=pl.String
            ),
            is_unified_memory=pl.col("copy_kind").is_in(UNIFIED_MEMORY_COPIES).fill_null(False),
            # Seen in exports of both granularities of one program: the high half of a node's id
            # is the id of the graph exec that holds it.
            graph_exec_id=pl.coalesce("graph_exec_id", pl.col("graph_node_id") // 2**32),
        )
        .sort("start_ns", "end_ns", "stream_id", maintain_order=True)
        .with_row_index("op_id")
        .cast({"op_id": pl.Int64})
    )
    return ops.select(OPS.names()).cast(OPS), [*warnings, *device_warnings]


def _device_rows(
    export: ExportFile, table: str, kind: str, name_id: str = "no name"
) -> pl.DataFrame:
    frame = export.frame(
        table,
        {
            "start_ns": ("start", _I),
            "end_ns": ("end", _I),
            "device_id": ("deviceId", _I),
            "process_id": ("globalPid", _I),
            "context_id": ("contextId", _I),
            "stream_id": ("streamId", _I),
            "correlation_id": ("correlationId", _I),
            "name_id": (name_id, _I),
            "graph_exec_id": ("graphExecId", _I),
            "graph_node_id": ("graphNodeId", _I),
            "bytes": ("bytes", _I),
            "copy_kind": ("copyKind", _I),
            "source_kind": ("srcKind", _I),
            "target_kind": ("dstKind", _I),
        },
    )
    return frame.with_columns(
        kind=pl.lit(kind),
        graph_exec_id=_none_if_zero("graph_exec_id"),
        graph_node_id=_none_if_zero("graph_node_id"),
    )


def _api(export: ExportFile, strings: pl.DataFrame) -> pl.DataFrame:
    rows = export.frame(
        _RUNTIME,
        {
            "start_ns": ("start", _I),
            "end_ns": ("end", _I),
            "event_class": ("eventClass", _I),
            "thread_id": ("globalTid", _I),
            "correlation_id": ("correlationId", _I),
            "name_id": ("nameId", _I),
            "return_code": ("returnValue", _I),
        },
    ).with_columns(
        correlation_id=_none_if_zero("correlation_id"), process_id=_process_of("thread_id")
    )
    # With backtraces one call has two rows: its wrapper (class 67) and the call itself.
    twin = (pl.col("event_class") == 67) & (
        (pl.col("event_class") != 67).any().over("process_id", "correlation_id")
        & pl.col("correlation_id").is_not_null()
    )
    rows = rows.filter(~twin.fill_null(False)).join(strings, on="name_id", how="left")
    return (
        rows.filter(_has_sound_times())
        .join(meaning_of(rows["value"]), left_on="value", right_on="raw_name", how="left")
        .with_columns(
            name=pl.col("name").fill_null("unnamed call"), kind=pl.col("kind").fill_null("other")
        )
        .sort("start_ns", pl.col("end_ns").neg(), maintain_order=True)
        .with_row_index("call_id")
        .cast({"call_id": pl.Int64})
        .select(API.names())
        .cast(API)
    )


def _nvtx(export: ExportFile, strings: pl.DataFrame, duration_ns: int | None) -> pl.DataFrame:
    columns: dict[str, tuple[str, pl.DataType | type[pl.DataType]]] = {
        "start_ns": ("start", _I),
        "end_ns": ("end", _I),
        "event_type": ("eventType", _I),
        "text": ("text", pl.String),
        "name_id": ("textId", _I),
        "thread_id": ("globalTid", _I),
        "domain_id": ("domainId", _I),
        "int64": ("int64Value", _I),
        "uint64": ("uint64Value", _I),
        "double": ("doubleValue", pl.Float64),
        "int32": ("int32Value", _I),
        "uint32": ("uint32Value", _I),
        "float": ("floatValue", pl.Float64),
    }
    rows = (
        export.frame("NVTX_EVENTS", columns)
        .join(strings, on="name_id", how="left")
        .with_columns(name=pl.coalesce("text", "value"), process_id=_process_of("thread_id"))
    )
    domains = (
        rows.filter(pl.col("event_type") == _DOMAIN)
        .select("process_id", "domain_id", domain="name")
        .unique(["process_id", "domain_id"], keep="first", maintain_order=True)
    )
    kind = (
        pl.when(pl.col("event_type").is_in(_PUSH_POP))
        .then(pl.lit("push_pop"))
        .when(pl.col("event_type").is_in(_START_END))
        .then(pl.lit("start_end"))
        .when(pl.col("event_type").is_in(_MARK))
        .then(pl.lit("mark"))
    )
    # A range still open at the end of the session is written with the session's duration as end.
    open_at_end = pl.col("end_ns").is_null() | (pl.col("end_ns") == pl.lit(duration_ns, pl.Int64))
    return (
        rows.with_columns(kind=kind)
        .filter(pl.col("kind").is_not_null())
        .join(domains, on=["process_id", "domain_id"], how="left")
        .with_columns(
            is_closed=(pl.col("kind") == "mark") | ~open_at_end.fill_null(False),
            end_ns=pl.when(pl.col("kind") != "mark").then(
                pl.col("end_ns").fill_null(pl.lit(duration_ns, pl.Int64))
            ),
            payload=pl.coalesce("int64", "uint64", "double", "int32", "uint32", "float").cast(
                pl.Float64
            ),
            name=pl.col("name").fill_null("unnamed range"),
        )
        .filter((pl.col("kind") == "mark") | _has_sound_times())
        .sort("start_ns", pl.col("end_ns").neg(), maintain_order=True)
        .select(NVTX.names())
        .cast(NVTX)
    )


def _overhead(export: ExportFile, strings: pl.DataFrame) -> pl.DataFrame:
    parts = [
        export.frame(
            table,
            {
                "start_ns": ("start", _I),
                "end_ns": ("end", _I),
                "thread_id": ("globalTid", _I),
                "name_id": ("nameId", _I),
                "type": ("overheadType", _I),
            },
        ).with_columns(is_recorders=pl.lit(recorders))
        for table, recorders in (
            ("PROFILER_OVERHEAD", True),
            ("CUPTI_ACTIVITY_KIND_OVERHEAD", False),
        )
    ]
    # Rows of PROFILER_OVERHEAD had no type until 2025.5; they are the recorder's unless typed.
    by_type = pl.col("type").replace_strict(OVERHEAD_KINDS, default=None, return_dtype=pl.String)
    type_name = pl.col("type").replace_strict(OVERHEAD_NAMES, default=None, return_dtype=pl.String)
    return (
        pl.concat(parts)
        .join(strings, on="name_id", how="left")
        .with_columns(
            process_id=_process_of("thread_id"),
            name=pl.coalesce(
                pl.when(~pl.col("is_recorders")).then(type_name),
                "value",
                type_name,
                pl.lit("recorder"),
            ),
            kind=pl.coalesce(by_type, pl.lit("profiler")),
        )
        .filter(_has_sound_times())
        .sort("start_ns", maintain_order=True)
        .select(OVERHEAD.names())
        .cast(OVERHEAD)
    )


def _graph_events(export: ExportFile) -> pl.DataFrame:
    # CUDA_GRAPH_EVENTS held nodes until 2023.4 and holds graphs and execs since: its columns tell.
    parts = [
        export.frame(
            table,
            {
                "time_ns": ("start", _I),
                "thread_id": ("globalTid", _I),
                "graph_id": ("graphId", _I),
                "graph_exec_id": ("graphExecId", _I),
                "graph_node_id": ("graphNodeId", _I),
            },
        )
        for table in ("CUDA_GRAPH_EVENTS", "CUDA_GRAPH_NODE_EVENTS")
    ]
    event = (
        pl.when(pl.col("graph_node_id").is_not_null())
        .then(pl.lit("node"))
        .when(pl.col("graph_exec_id").is_not_null())
        .then(pl.lit("exec"))
        .otherwise(pl.lit("graph"))
    )
    return (
        pl.concat(parts)
        .with_columns(
            process_id=_process_of("thread_id"),
            event=event,
            graph_exec_id=pl.coalesce("graph_exec_id", pl.col("graph_node_id") // 2**32),
        )
        .sort("time_ns", maintain_order=True)
        .select(GRAPH_EVENTS.names())
        .cast(GRAPH_EVENTS)
    )


def _place(ops: pl.DataFrame, physical: pl.DataFrame) -> tuple[pl.DataFrame, list[TraceWarning]]:
    """Replace the device ordinal inside each process by the physical GPU, where it is known."""
    warnings = []
    on_host = (ops["device_id"] == _HOST_DEVICE).fill_null(True)
    if on_host.any():
        warnings.append(
            TraceWarning(
                "device_unknown",
                f"{on_host.sum()} device rows name no GPU and are left out; "
                "idle time next to them is overstated",
            )
        )
        ops = ops.filter(~on_host)
    if physical.is_empty():
        if ops["process_id"].n_unique() > 1:
            warnings.append(
                TraceWarning(
                    "device_by_ordinal",
                    "this export does not map processes to GPUs: devices are the ordinals inside "
                    "each process, wrong if CUDA_VISIBLE_DEVICES differed between them",
                )
            )
        return ops, warnings
    placed = (
        ops.with_columns(pid=pl.col("process_id") // 2**24 % 2**24)
        .join(physical, on=["pid", "device_id"], how="left")
        .with_columns(device_id=pl.coalesce("gpu_id", "device_id"))
    )
    return placed.drop("pid", "gpu_id"), warnings


def _granularity(mode: str | None, ops: pl.DataFrame) -> Granularity | None:
    """Say what the rows show; the recorded option decides only when no graph ran."""
    if ops["graph_node_id"].is_not_null().any():
        return "node"
    if (ops["kind"] == "graph").any():
        return "graph"
    return {"node": "node", "graph": "graph"}.get((mode or "").lower())  # type: ignore[return-value]


def _nothing_recorded(export: ExportFile, api: pl.DataFrame, left_out: list[TraceWarning]) -> str:
    if left_out:
        return (
            f"{export.path}: {'; '.join(warning.message for warning in left_out)}; "
            "nothing is left, record again"
        )
    reasons = "; ".join(warning.message for warning in diagnostics(export))
    because = f" (the recorder says: {reasons})" if reasons else ""
    if api.is_empty():
        return (
            f"{export.path}: no CUDA activity was recorded{because}; "
            "record with nsys profile -t cuda,nvtx, and check that the program uses CUDA"
        )
    launches = api.filter(pl.col("kind").is_in(["launch", "graph_launch", "blocking_copy"])).height
    return (
        f"{export.path}: {api.height} CUDA API calls ({launches} launches) but no device activity "
        f"was recorded{because}; idle time cannot be known, record again and let the program end"
    )


def _has_sound_times() -> pl.Expr:
    # Beyond 2**62 ns (146 years) a time is garbage, and lengths could overflow.
    in_range = pl.all_horizontal(
        pl.col(column).is_between(-_LATEST, _LATEST) for column in ("start_ns", "end_ns")
    )
    return in_range & (pl.col("end_ns") >= pl.col("start_ns"))


def _process_of(thread: str) -> pl.Expr:
    return pl.col(thread) - pl.col(thread).and_(_THREAD_BITS)


def _none_if_zero(column: str) -> pl.Expr:
    return pl.when(pl.col(column) != 0).then(pl.col(column))
