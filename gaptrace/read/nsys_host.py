"""What the host did, in an Nsight export: API calls, NVTX ranges, overheads, graphs made."""

import polars as pl

from gaptrace.read.cuda_names import OVERHEAD_KINDS, OVERHEAD_NAMES, meaning_of
from gaptrace.read.link import mark_captures
from gaptrace.read.sqlite import ExportFile, context, none_if_zero
from gaptrace.read.times import has_sound_times, is_near, keep_sound
from gaptrace.trace import API, EVENT_WAITS, GRAPH_EVENTS, NVTX, OVERHEAD, TraceWarning

_I = pl.Int64
_Read = tuple[pl.DataFrame, list[TraceWarning]]
_RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
#: globalTid = hardware << 56 | vm << 48 | process << 24 | thread; clearing the thread gives
#: globalPid. Arithmetic on signed numbers is right for ids that SQLite prints as negative, too.
_THREAD_BITS = 0xFFFFFF
#: The numbers of NVTX event types: ENUM_NSYS_EVENT_TYPE; 64 to 74 are their NVTXT twins.
_MARK, _PUSH_POP, _START_END, _DOMAIN = (34, 65), (59, 70), (60, 71), 75


def read_api(export: ExportFile, strings: pl.DataFrame, around: int | None) -> _Read:
    """Return the CUDA API calls (`API`), runtime and driver, and what had to be left out.

    Args:
        export: the file.
        strings: name_id, value.
        around: `nsys_device.middle_of_work`.
    """
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
        correlation_id=none_if_zero("correlation_id"), process_id=_process_of("thread_id")
    )
    # With backtraces one call has two rows: its wrapper (class 67) and the call itself.
    twin = (pl.col("event_class") == 67) & (
        (pl.col("event_class") != 67).any().over("process_id", "correlation_id")
        & pl.col("correlation_id").is_not_null()
    )
    rows, warnings = keep_sound(
        rows.filter(~twin.fill_null(False)),
        has_sound_times(around),
        "CUDA API calls",
        "idle time that they explain has another cause",
    )
    calls = (
        rows.join(meaning_of(strings), on="name_id", how="left", maintain_order="left")
        .sort("start_ns", pl.col("end_ns").neg(), maintain_order=True)
        .with_columns(call_id=pl.int_range(pl.len(), dtype=pl.Int64))
        .pipe(mark_captures, pl.col("capture_step"))
        .with_columns(pl.col("kind").fill_null("other"), pl.col("name").fill_null("unnamed call"))
        .select(API.names())
        .cast(API)
    )
    return calls, warnings


def read_nvtx(
    export: ExportFile, strings: pl.DataFrame, around: int | None, duration_ns: int | None
) -> _Read:
    """Return NVTX ranges and marks (`NVTX`); see `read_api`."""
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
    is_mark = pl.col("kind") == "mark"
    rows = (
        rows.with_columns(kind=kind)
        .filter(pl.col("kind").is_not_null())
        .join(domains, on=["process_id", "domain_id"], how="left")
        # Domains are stacks of their own, also where the row that names one is missing.
        .with_columns(
            domain=pl.coalesce(
                "domain",
                pl.when(pl.col("domain_id") != 0).then(pl.format("domain {}", "domain_id")),
            )
        )
        .with_columns(
            is_closed=is_mark | ~open_at_end.fill_null(False),
            end_ns=pl.when(~is_mark).then(
                pl.coalesce("end_ns", pl.lit(duration_ns, pl.Int64), "start_ns")
            ),
            payload=pl.coalesce("int64", "uint64", "double", "int32", "uint32", "float").cast(
                pl.Float64
            ),
            # Until 2022 nothing says when the session ended, and with it a range that never was
            # closed: of that only the begin is known.
            name=pl.col("name").fill_null("unnamed range"),
        )
        # JSON has no infinity, and no sequence of steps counts up to it.
        .with_columns(payload=pl.when(pl.col("payload").is_finite()).then("payload"))
    )
    sound = pl.when(is_mark).then(is_near("start_ns", around)).otherwise(has_sound_times(around))
    rows, warnings = keep_sound(rows, sound, "NVTX ranges", "nothing is said of them")
    ordered = rows.sort("start_ns", pl.col("end_ns").neg(), maintain_order=True)
    return ordered.select(NVTX.names()).cast(NVTX), warnings


def read_overhead(export: ExportFile, strings: pl.DataFrame, around: int | None) -> _Read:
    """Return what recorder and driver took from host threads (`OVERHEAD`); see `read_api`."""
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
    rows = (
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
        .sort("start_ns", maintain_order=True)
        .select(OVERHEAD.names())
        .cast(OVERHEAD)
    )
    effect = "idle time that they explain has another cause"
    return keep_sound(rows, has_sound_times(around), "overhead rows", effect)


def read_event_waits(export: ExportFile, api: pl.DataFrame) -> pl.DataFrame:
    """Return which stream was told to wait for an event, and where that was recorded."""
    ids = {
        "process_id": ("globalPid", _I),
        "context_id": ("contextId", _I),
        "green_context_id": ("greenContextId", _I),
        "stream_id": ("streamId", _I),
        "event_id": ("eventId", _I),
        "correlation_id": ("correlationId", _I),
    }
    key = ["process_id", "correlation_id"]
    # What a SYNCHRONIZATION row stands for is said by its API row: the numbers of syncType changed
    # from version to version.
    calls = api.select(*key, "call_id", "kind", "name").filter(
        pl.col("correlation_id").is_not_null()
    )
    waits, records = (
        export.frame(table, ids).with_columns(context_id=context()).join(calls, on=key, how="inner")
        for table in ("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_CUDA_EVENT")
    )
    records = records.select(
        "process_id",
        "event_id",
        "call_id",
        awaited="stream_id",
        awaited_context="context_id",
        recorded_call_id="call_id",
    )
    # A stream of the same number in another context is another stream.
    awaited = pl.when(pl.col("context_id") == pl.col("awaited_context")).then("awaited")
    return (
        waits.filter(pl.col("kind") == "event_wait")
        .sort("call_id")
        .join_asof(
            records.sort("call_id"),
            on="call_id",
            by=["process_id", "event_id"],
            strategy="backward",
            check_sortedness=False,
        )
        .with_columns(awaited_stream_id=awaited)
        .select(EVENT_WAITS.names())
        .cast(EVENT_WAITS)
    )


def read_graph_events(export: ExportFile, around: int | None) -> _Read:
    """Return when graphs, graph execs and nodes were made (`GRAPH_EVENTS`); see `read_api`."""
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
    rows = (
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
    effect = "sizes of graphs may be unknown"
    return keep_sound(rows, is_near("time_ns", around), "rows of graphs made", effect)


def _process_of(thread: str) -> pl.Expr:
    return pl.col(thread) - pl.col(thread).and_(_THREAD_BITS)
