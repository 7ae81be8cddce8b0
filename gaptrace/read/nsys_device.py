"""Device work in an Nsight export: kernels, copies, sets, graph executions."""

import polars as pl

from gaptrace.read.cuda_names import COPY_KINDS, MEMORY_KINDS, UNIFIED_MEMORY_COPIES
from gaptrace.read.link import link_calls
from gaptrace.read.sqlite import ExportFile, has_sound_times, none_if_zero
from gaptrace.trace import OPS, TraceWarning

_I = pl.Int64
_KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
_MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
_MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
_GRAPH_TRACE = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_DECOMPRESS = "CUPTI_ACTIVITY_KIND_MEM_DECOMPRESS"
#: deviceId of a graph that starts on the host (CUPTI, CUpti_ActivityGraphTrace2).
_HOST_DEVICE = 2**31 - 1


def read_ops(
    export: ExportFile, strings: pl.DataFrame, physical: pl.DataFrame, api: pl.DataFrame
) -> tuple[pl.DataFrame, list[TraceWarning]]:
    """Return all device work (`OPS`), and warnings about rows that had to be left out.

    Args:
        export: the file.
        strings: name_id, value.
        physical: pid, device_id, gpu_id, as `nsys_meta.read_devices` returns it.
        api: `API`, to which the ops are linked.
    """
    parts = [
        _device_rows(export, _KERNEL, "kernel", name_id="shortName"),
        _device_rows(export, _MEMCPY, "memcpy"),
        _device_rows(export, _MEMSET, "memset"),
        _device_rows(export, _GRAPH_TRACE, "graph"),
        _device_rows(export, _DECOMPRESS, "decompress"),
    ]
    rows = pl.concat(parts)
    # CUPTI writes start = end = 0 for "not collected"; a reversed span is a recorder's fault.
    sound = rows.filter(has_sound_times() & ((pl.col("start_ns") != 0) | (pl.col("end_ns") != 0)))
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
        graph_exec_id=none_if_zero("graph_exec_id"),
        graph_node_id=none_if_zero("graph_node_id"),
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
