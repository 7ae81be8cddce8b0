"""Writes a CUPTI recording as an SQLite file with the tables and columns of Nsight Systems.

The names are those of export schema 3.20.3. EXPORT_PRODUCT_NAME says who wrote the file.
"""

import os
import platform
import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from gaptrace.errors import RecorderError
from gaptrace.record.children import read_notes
from gaptrace.record.cupti_ends import bound_ends
from gaptrace.record.cupti_nvtx import nvtx_rows
from gaptrace.record.cupti_rows import (
    write_calls,
    write_device_work,
    write_graphs_made,
    write_waits,
)
from gaptrace.record.cupti_spool import Spool, read_spool
from gaptrace.record.machine import Driver, processor
from gaptrace.record.table_writer import TableWriter

PRODUCT_NAME = "gaptrace CUPTI recorder"
SCHEMA = "3.20.3"

_VM = 1 << 48  # globalTid = hardware << 56 | vm << 48 | process << 24 | thread


def convert(spool_path: Path, target: Path, driver: Driver, *, ended: bool) -> Path:
    """Write the export of a spool and return its path; the spool stays.

    Args:
        spool_path: what `gaptrace.live.cupti` wrote.
        target: the SQLite file; must not exist.
        driver: of the machine that the recording was made on, which is this one.
        ended: the program came to its end, in whatever way, and was not killed.

    Raises:
        RecorderError: there is no recording, or the file cannot be written.
    """
    spool = read_spool(spool_path)
    draft = target.with_name(f".{target.stem}.{os.getpid()}.sqlite")
    try:
        draft.unlink(missing_ok=True)
        with closing(sqlite3.connect(draft, isolation_level=None)) as db:
            # A file that is not finished is thrown away: it needs neither journal nor sync.
            db.execute("PRAGMA journal_mode = OFF")
            db.execute("PRAGMA synchronous = OFF")
            db.execute("BEGIN")
            _write(TableWriter(db), spool, driver, ended=ended)
            db.execute("COMMIT")
        draft.rename(target)
    except (OSError, sqlite3.Error) as error:
        raise RecorderError(
            f"cannot write the export {target}: {error}; the recording is kept: make room, then "
            f"gaptrace analyze {spool_path}"
        ) from error
    finally:
        draft.unlink(missing_ok=True)
    return target


def convert_kept(spool_path: Path) -> Path:
    """Write the export of a spool that a run has kept, beside it, and return its path.

    A run keeps one where it was ended, or had no room for the export. The driver is that of its
    versions.json.

    Args:
        spool_path: in the folder of the run, or in that of one of two granularities in it.

    Raises:
        RecorderError: there is no recording, or an export already, or it cannot be written.
    """
    target = spool_path.with_suffix(".sqlite")
    if target.exists():
        raise RecorderError(f"{target} is there already: name that, or move it away")
    folder = spool_path.parent
    versions = read_notes(folder / "versions.json") or read_notes(folder.parent / "versions.json")
    driver = Driver(
        versions.get("driver"),
        versions.get("cuda_driver"),
        tuple(versions.get("gpus", ())),
        problem=None,
    )
    notes = read_notes(spool_path.with_suffix(".script.json"))
    return convert(spool_path, target, driver, ended=notes.get("status") is not None)


def _write(out: TableWriter, spool: Spool, driver: Driver, *, ended: bool) -> None:
    begin = int(spool.header["begin_ns"])
    process = _VM | int(spool.header["pid"]) << 24
    for rows in spool.columns.values():
        for column in ("start", "end", "timestamp"):
            if column in rows:
                # 0 means that the time was not collected.
                times = rows[column].astype(np.int64)
                rows[column] = np.where(times == 0, 0, times - begin)
    cut = bound_ends(spool.columns)
    write_device_work(out, spool.columns, spool.texts, process)
    write_calls(out, spool, process)
    write_waits(out, spool.columns, process)
    write_graphs_made(out, spool.graphs, begin, process)
    duration = _last(spool, begin) + 1
    out.table("NVTX_EVENTS", nvtx_rows(spool.columns, spool.texts, process, duration))
    _write_gpus(out, spool, driver)
    _write_contexts(out, spool)
    _write_session(out, spool, driver, duration, process)
    _write_diagnostics(out, spool, process, ended=ended, cut=cut)
    out.strings()


def _write_gpus(out: TableWriter, spool: Spool, driver: Driver) -> None:
    rows = spool.columns["device"]
    seen = {int(number): at for at, number in enumerate(rows["id"].tolist())}
    known = list(seen.values())
    gpus = {name: column[known] for name, column in rows.items()}
    names = [spool.texts[number] if number >= 0 else None for number in gpus["name"].tolist()]
    numbers = gpus["id"].tolist()
    # A recording that was cut short may lack them; the driver numbers them alike.
    more = [number for number in range(len(driver.gpus)) if number not in numbers]
    lacking = [None] * len(more)
    uuids = [
        _uuid(mig if is_mig else gpu)
        for gpu, mig, is_mig in zip(
            gpus["uuid"], gpus["mig_uuid"], gpus["is_mig_enabled"].tolist(), strict=True
        )
    ]
    out.table(
        "TARGET_INFO_GPU",
        {
            "vmId": _VM,
            "id": [*numbers, *more],
            "name": [*names, *(driver.gpus[number] for number in more)],
            "totalMemory": [*gpus["global_memory_size"].tolist(), *lacking],
            "smCount": [*gpus["num_multiprocessors"].tolist(), *lacking],
            "uuid": [*uuids, *lacking],
            "cuDevice": [*numbers, *more],
            "computeMajor": [*gpus["compute_capability_major"].tolist(), *lacking],
            "computeMinor": [*gpus["compute_capability_minor"].tolist(), *lacking],
        },
    )
    out.table(
        "TARGET_INFO_CUDA_DEVICE",
        {
            "gpuId": [*numbers, *more],
            "cudaId": [*numbers, *more],
            "pid": int(spool.header["pid"]),
            "uuid": [*uuids, *lacking],
            "numMultiprocessors": [*gpus["num_multiprocessors"].tolist(), *lacking],
        },
    )


def _write_contexts(out: TableWriter, spool: Spool) -> None:
    contexts, streams = spool.columns["context"], spool.columns["stream"]
    owner = {"hwId": 0, "vmId": 1, "processId": int(spool.header["pid"])}
    out.table(
        "TARGET_INFO_CUDA_CONTEXT_INFO",
        {"nullStreamId": contexts["null_stream_id"]}
        | owner
        | {
            "deviceId": contexts["device_id"],
            "contextId": contexts["context_id"],
            "parentContextId": contexts["parent_context_id"],
            "isGreenContext": contexts["is_green_context"],
        },
    )
    out.table(
        "TARGET_INFO_CUDA_STREAM",
        {"streamId": streams["stream_id"]}
        | owner
        | {
            "contextId": streams["context_id"],
            "priority": streams["priority"],
            "flag": streams["flag"],
        },
    )


def _uuid(raw: Any) -> str:
    digits = raw.tobytes().hex()
    cuts = (0, 8, 12, 16, 20, 32)
    return "-".join(digits[a:b] for a, b in pairwise(cuts))


def _last(spool: Spool, begin: int) -> int:
    ends = [
        int(rows[column].max())
        for rows in spool.columns.values()
        for column in ("end", "timestamp")
        if column in rows and len(rows[column])
    ]
    return max([0, *ends, *(int(row[0]) - begin for row in spool.graphs)])


def _write_session(
    out: TableWriter, spool: Spool, driver: Driver, duration: int, process: int
) -> None:
    header = spool.header
    cuda = [int(part) for part in (driver.cuda_version or "").split(".") if part.isdigit()]
    machine = {
        "NvDriverVersion": driver.version,
        "CudaDriverVersion": str(cuda[0] * 1000 + cuda[1] * 10) if len(cuda) == 2 else None,
        "CpuDescription": processor(),
        "OsDescription": platform.platform(),
    }
    known = {name: value for name, value in machine.items() if value is not None}
    out.table(
        "TARGET_INFO_SYSTEM_ENV",
        {
            "globalVid": _VM,
            "devStateName": "gaptrace",
            "name": list(known),
            "nameEnum": 0,
            "value": list(known.values()),
        },
    )
    out.table("TARGET_INFO_SESSION_START_TIME", {"utcEpochNs": [int(header["utc_ns"])]})
    out.table(
        "ANALYSIS_DETAILS",
        {"globalVid": _VM, "duration": [duration], "startTime": 0, "stopTime": duration},
    )
    out.table("PROCESSES", {"globalPid": [process], "pid": header["pid"], "name": "python"})
    mode = {"node": "Node", "graph": "Graph"}[header["granularity"]]
    out.table("META_DATA_CAPTURE", {"name": ["CUDA_GRAPH_TRACE_OPTIONS:MODE"], "value": mode})
    meta = {
        "EXPORT_PRODUCT_NAME": PRODUCT_NAME,
        "EXPORT_PRODUCT_VERSION": header["cupti"],
        "EXPORT_SCHEMA_VERSION": SCHEMA,
        "EXPORT_CONFIG_TIME_SHIFT": "0",
    }
    out.table("META_DATA_EXPORT", {"name": list(meta), "value": list(meta.values())})


def _write_diagnostics(
    out: TableWriter, spool: Spool, process: int, *, ended: bool, cut: int
) -> None:
    texts = []
    if spool.is_cut or not ended:
        texts.append(
            "The recording breaks off: the program was killed, crashed or ran out of disk space, "
            "and its last second or more is missing."
        )
    if spool.dropped:
        texts.append(f"CUPTI had no room for {spool.dropped} records, which are missing.")
    if spool.unread_bytes:
        texts.append(f"{spool.unread_bytes} bytes of CUPTI records could not be read.")
    if cut:
        texts.append(
            f"CUPTI gave {cut} copies an end after the next work of their stream or a wait for "
            "them; they are cut to that, and may have ended earlier."
        )
    older = _older_graphs(spool)
    if older:
        texts.append(
            f"{older} CUDA graphs that ran were made before the recording began: how they were "
            "made, and in graph granularity how many nodes they have, is not known."
        )
    texts += [f"CUPTI did not record {what}: {why}." for what, why in spool.left_out.items()]
    out.table(
        "DIAGNOSTIC_EVENT",
        {
            "timestamp": 0,
            "timestampType": 0,
            "source": 0,
            "severity": 2,
            "text": texts,
            "globalPid": process,
        },
    )


def _older_graphs(spool: Spool) -> int:
    """How many graphs ran without having been made; 0 where making them was not recorded."""
    if "graphs made" in spool.left_out:
        return 0
    ran = [spool.columns[family]["graph_id"] for family in ("graph_trace", "kernel")]
    made = {number for row in spool.graphs for number in row[3:]}
    return len(set(np.concatenate(ran).tolist()) - made - {0})
