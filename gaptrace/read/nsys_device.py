"""Device work in an Nsight export: kernels, copies, sets, graph executions."""

import polars as pl

from gaptrace.read.cuda_names import COPY_KINDS, MEMORY_KINDS, UNIFIED_MEMORY_COPIES
from gaptrace.read.link import link_calls
from gaptrace.read.nsys_gpus import place
from gaptrace.read.nsys_meta import noted_middle
from gaptrace.read.sqlite import ExportFile, context, none_if_zero
from gaptrace.read.times import has_sound_times, keep_sound, middle, was_recorded
from gaptrace.trace import OPS, TraceWarning

_I = pl.Int64
_KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
_MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
_MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
_GRAPH_TRACE = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_DECOMPRESS = "CUPTI_ACTIVITY_KIND_MEM_DECOMPRESS"
#: deviceId of a graph that starts on the host (CUPTI, CUpti_ActivityGraphTrace2).
_HOST_DEVICE = 2**31 - 1


def device_rows(export: ExportFile) -> pl.DataFrame:
    """Return the rows of all tables of device work, as they are."""
    return pl.concat(
        [
            _device_rows(export, _KERNEL, "kernel", name_id="shortName"),
            _device_rows(export, _MEMCPY, "memcpy"),
            _device_rows(export, _MEMSET, "memset"),
            _device_rows(export, _GRAPH_TRACE, "graph"),
            _device_rows(export, _DECOMPRESS, "decompress"),
        ]
    )


def middle_of_work(export: ExportFile, rows: pl.DataFrame) -> int | None:
    """Return the time by which is judged what is too far off to be real; `rows` are all there are.

    A copy of a window notes what its source had, so that both leave out the same rows.
    """
    noted = noted_middle(export)
    return middle(rows) if noted is None else noted


def read_ops(
    rows: pl.DataFrame,
    strings: pl.DataFrame,
    places: pl.DataFrame,
    api: pl.DataFrame,
    around: int | None,
) -> tuple[pl.DataFrame, list[TraceWarning]]:
    """Return all device work (`OPS`), and warnings about rows that had to be left out.

    Args:
        rows: of `device_rows`.
        strings: name_id, value.
        places: of `nsys_gpus.read_gpus`.
        api: `API`, to which the ops are linked.
        around: `middle_of_work` of the rows.
    """
    sound, warnings = keep_sound(
        rows,
        has_sound_times(around) & was_recorded(),
        "device rows",
        "idle time next to them is overstated",
    )
    known, unknown_warnings = _on_a_device(sound)
    placed, device_warnings = place(known, places)
    copy_name = pl.col("copy_kind").replace_strict(
        COPY_KINDS, default="copy", return_dtype=pl.String
    )
    ops = (
        placed.join(strings, on="name_id", how="left")
        .with_columns(
            name=pl.when(pl.col("kind") == "memcpy")
            .then(copy_name)
            .otherwise(pl.coalesce("value", "kind")),
            correlation_id=none_if_zero("correlation_id"),
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
        .with_columns(op_id=pl.int_range(pl.len(), dtype=pl.Int64))
        .pipe(link_calls, api)
    )
    found = ops.select(OPS.names()).cast(OPS)
    return found, [*warnings, *unknown_warnings, *device_warnings]


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
            "green_context_id": ("greenContextId", _I),
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
        context_id=context(),
        graph_exec_id=none_if_zero("graph_exec_id"),
        graph_node_id=none_if_zero("graph_node_id"),
    )


def _on_a_device(ops: pl.DataFrame) -> tuple[pl.DataFrame, list[TraceWarning]]:
    """Leave out what names no device."""
    nowhere = (ops["device_id"] == _HOST_DEVICE).fill_null(True)
    if not nowhere.any():
        return ops, []
    message = (
        f"{nowhere.sum()} device rows name no GPU and are left out; "
        "idle time next to them is overstated"
    )
    return ops.filter(~nowhere), [TraceWarning("device_unknown", message)]
