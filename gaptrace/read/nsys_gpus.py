"""Which GPU did the work, in an Nsight export: physical ones, and MIG slices of one.

A kernel's deviceId is the ordinal inside its process. TARGET_INFO_CUDA_DEVICE (from 2025 on) leads
from there to a row of TARGET_INFO_GPU. No column says MIG, but slices of one GPU work beside each
other, so that the idle time of one says nothing of another: they are told apart by their uuid.
"""

import re

import polars as pl

from gaptrace.read.sqlite import ExportFile
from gaptrace.trace import DEVICES, TraceWarning

_I = pl.Int64
#: A uuid of zeros is none.
IS_UUID = re.compile("[1-9A-Fa-f]")


def read_gpus(export: ExportFile) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the devices (`DEVICES`), and which of them an ordinal inside a process is.

    The CUDA driver gives every MIG slice a uuid of its own (cuDeviceGetUuid_v2), or that of its GPU
    (cuDeviceGetUuid). Devices of one GPU with several uuids are slices, and become devices of their
    own, numbered after the last GPU in the order of their processes.

    Returns:
        devices; and places: pid, ordinal; device_id: null when the export does not say; is_part:
        the process sees not all of the GPU, and nothing says which part. No rows in exports from
        before 2025.
    """
    gpus = _gpus(export)
    rows = (
        export.frame(
            "TARGET_INFO_CUDA_DEVICE",
            {
                "pid": ("pid", _I),
                "ordinal": ("cudaId", _I),
                "gpu_id": ("gpuId", _I),
                "uuid": ("uuid", pl.String),
                "sm_count": ("numMultiprocessors", _I),
            },
        )
        .drop_nulls(["pid", "ordinal"])
        .unique(["pid", "ordinal"], keep="first", maintain_order=True)
        .sort("pid", "ordinal")
        .with_columns(
            uuid=pl.when(pl.col("uuid").str.contains(IS_UUID.pattern)).then("uuid"),
            gpu=pl.coalesce("gpu_id", "ordinal"),
        )
    )
    several = pl.col("uuid").drop_nulls().n_unique().over("gpu") > 1
    slices = (
        rows.filter(several & pl.col("uuid").is_not_null())
        .unique(["gpu", "uuid"], keep="first", maintain_order=True)
        .with_columns(
            slice_id=pl.int_range(pl.len(), dtype=_I) + _first_free(gpus, rows),
            number=pl.int_range(1, pl.len() + 1, dtype=_I).over("gpu"),
        )
    )
    of_gpu = gpus.select("device_id", "name", "compute_capability", gpu_sm_count="sm_count")
    part = (pl.col("sm_count") < pl.col("gpu_sm_count")) | pl.col("name").str.contains(r"\bMIG\b")
    places = (
        rows.join(slices.select("gpu", "uuid", "slice_id"), on=["gpu", "uuid"], how="left")
        .join(of_gpu, left_on="gpu_id", right_on="device_id", how="left")
        .select(
            "pid",
            "ordinal",
            device_id=pl.coalesce("slice_id", "gpu_id"),
            is_part=part.fill_null(False) & pl.col("slice_id").is_null(),
        )
    )
    named = slices.join(of_gpu, left_on="gpu_id", right_on="device_id", how="left").select(
        device_id="slice_id",
        name=pl.format("{}, MIG slice {} of GPU {}", "name", "number", "gpu_id"),
        sm_count="sm_count",
        memory_bytes=pl.lit(None, _I),
        compute_capability="compute_capability",
    )
    return pl.concat([gpus, named.cast(DEVICES)]), places


def _gpus(export: ExportFile) -> pl.DataFrame:
    # The oldest generation calls the id deviceId.
    id_column = "id" if "id" in export.tables.get("TARGET_INFO_GPU", set()) else "deviceId"
    rows = export.frame(
        "TARGET_INFO_GPU",
        {
            "device_id": (id_column, _I),
            "name": ("name", pl.String),
            "sm_count": ("smCount", _I),
            "memory_bytes": ("totalMemory", _I),
            "major": ("computeMajor", _I),
            "minor": ("computeMinor", _I),
        },
    ).with_columns(compute_capability=pl.format("{}.{}", "major", "minor"))
    return (
        rows.select(DEVICES.names())
        .cast(DEVICES)
        .unique("device_id", keep="first", maintain_order=True)
    )


def _first_free(gpus: pl.DataFrame, rows: pl.DataFrame) -> int:
    ids = pl.concat([gpus["device_id"], rows["gpu"], rows["ordinal"]])
    # Ids in damaged files may be anything, even the largest number that there is.
    sane = ids.filter(ids.is_between(0, 2**31, closed="left"))
    return 0 if sane.is_empty() else int(sane.max()) + 1  # type: ignore[arg-type]


def place(ops: pl.DataFrame, places: pl.DataFrame) -> tuple[pl.DataFrame, list[TraceWarning]]:
    """Replace the device_id of ops, an ordinal inside each process, by that of the device.

    Args:
        ops: with process_id and device_id.
        places: of `read_gpus`.

    Returns:
        ops, and warnings where the export does not say which device it was.
    """
    placed = ops.with_columns(
        pid=pl.col("process_id") // 2**24 % 2**24, ordinal=pl.col("device_id")
    ).join(places, on=["pid", "ordinal"], how="left", suffix="_placed", maintain_order="left")
    processes = placed["process_id"].n_unique()
    unplaced = placed.filter(pl.col("device_id_placed").is_null())["process_id"].n_unique()
    warnings = []
    if unplaced and (processes > 1 or not places.is_empty()):
        warnings.append(
            TraceWarning(
                "device_by_ordinal",
                f"this export does not map {unplaced} of {processes} processes to GPUs: their "
                "devices are the ordinals inside each process, wrong if CUDA_VISIBLE_DEVICES or "
                "MIG slices differed between them",
            )
        )
    placed = placed.with_columns(device_id=pl.coalesce("device_id_placed", "device_id"))
    shared = (
        placed.filter(pl.col("is_part"))
        .group_by("device_id")
        .agg(processes=pl.col("process_id").n_unique())
        .filter(pl.col("processes") > 1)
        .sort("device_id")
    )
    warnings += [
        TraceWarning(
            "device_parts_unknown",
            f"{sharing} processes use a part of GPU {device_id} each, and this export does not say "
            "whether it is the same part: if they are MIG slices, the idle time of one that "
            "another was busy in is missing",
        )
        for device_id, sharing in shared.rows()
    ]
    return placed.drop("pid", "ordinal", "device_id_placed", "is_part"), warnings
