"""Spools of the CUPTI recorder, built from literal rows, for tests.

Records look as CUPTI 13.0 lays them out, as far as they are used; one of a newer CUPTI has fields
appended, which `longer` does.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from gaptrace.spool import RECORDS, frame

BEGIN = 1_000_000  # CUPTI's clock when the session began; rows count from there
PID = 100
TEXTS: dict[str, int] = {}

_OP = [("start", "<u8", 16), ("end", "<u8", 24)]
#: family -> kinds, size, fields (name, type, offset)
LAYOUTS: dict[str, tuple[list[int], int, list[tuple[str, str, int]]]] = {
    "kernel": (
        [10, 3],
        216,
        [
            *_OP,
            *(("device_id", "<u4", 40), ("context_id", "<u4", 44), ("stream_id", "<u4", 48)),
            *((f"grid_{a}", "<i4", 52 + 4 * n) for n, a in enumerate("xyz")),
            *((f"block_{a}", "<i4", 64 + 4 * n) for n, a in enumerate("xyz")),
            *(("static_shared_memory", "<i4", 76), ("dynamic_shared_memory", "<i4", 80)),
            *(("correlation_id", "<u4", 92), ("name", "<i8", 104), ("launch_type", "|u1", 136)),
            *(("graph_node_id", "<u8", 144), ("graph_id", "<u4", 156)),
            ("registers_per_thread", "<u2", 6),
        ],
    ),
    "memcpy": (
        [1],
        96,
        [
            *_OP,
            *(("copy_kind", "|u1", 4), ("src_kind", "|u1", 5), ("dst_kind", "|u1", 6)),
            *(("bytes", "<u8", 8), ("device_id", "<u4", 32), ("context_id", "<u4", 36)),
            *(("stream_id", "<u4", 40), ("correlation_id", "<u4", 44)),
            ("graph_node_id", "<u8", 64),
        ],
    ),
    "memcpy_peer": (
        [22],
        96,
        [
            *_OP,
            *(("copy_kind", "|u1", 4), ("src_kind", "|u1", 5), ("dst_kind", "|u1", 6)),
            *(("bytes", "<u8", 8), ("device_id", "<u4", 32), ("context_id", "<u4", 36)),
            *(("stream_id", "<u4", 40), ("src_device_id", "<u4", 44), ("dst_device_id", "<u4", 52)),
            *(("correlation_id", "<u4", 60), ("graph_node_id", "<u8", 72)),
        ],
    ),
    "memset": (
        [2],
        88,
        [
            *_OP,
            *(("value", "<u4", 4), ("bytes", "<u8", 8), ("device_id", "<u4", 32)),
            *(("context_id", "<u4", 36), ("stream_id", "<u4", 40), ("correlation_id", "<u4", 44)),
            *(("memory_kind", "<u2", 50), ("graph_node_id", "<u8", 64)),
        ],
    ),
    "graph_trace": (
        [51],
        56,
        [
            *(("correlation_id", "<u4", 4), ("start", "<u8", 8), ("end", "<u8", 16)),
            *(("device_id", "<u4", 24), ("graph_id", "<u4", 28), ("context_id", "<u4", 32)),
            ("stream_id", "<u4", 36),
        ],
    ),
    "api": (
        [5, 4],
        40,
        [
            *(("kind", "<i4", 0), ("cbid", "<u4", 4), ("start", "<u8", 8), ("end", "<u8", 16)),
            *(("thread_id", "<u4", 28), ("correlation_id", "<u4", 32), ("return_value", "<u4", 36)),
        ],
    ),
    "synchronization": (
        [38],
        56,
        [
            *(("type", "<i4", 4), ("start", "<u8", 8), ("end", "<u8", 16)),
            *(("correlation_id", "<u4", 24), ("context_id", "<u4", 28), ("stream_id", "<u4", 32)),
            ("cuda_event_id", "<u4", 36),
        ],
    ),
    "cuda_event": (
        [36],
        56,
        [
            *(("correlation_id", "<u4", 4), ("context_id", "<u4", 8), ("stream_id", "<u4", 12)),
            *(("event_id", "<u4", 16), ("device_id", "<u4", 24)),
        ],
    ),
    "overhead": (
        [17],
        56,
        [
            *(("overhead_kind", "<i4", 4), ("object_kind", "<i4", 8), ("start", "<u8", 24)),
            *(("end", "<u8", 32), ("correlation_id", "<u4", 40)),
            ("object_id.pt.thread_id", "<u4", 16),
        ],
    ),
    "marker": (
        [12],
        56,
        [
            *(("flags_", "<i4", 4), ("timestamp", "<u8", 8), ("id", "<u4", 16)),
            *(("object_kind", "<i4", 20), ("object_id.pt.thread_id", "<u4", 28)),
            *(("name", "<i8", 40), ("domain", "<i8", 48)),
        ],
    ),
    "marker_data": (
        [13],
        32,
        [
            *(("id", "<u4", 8), ("payload_kind", "<i4", 12)),
            *(
                ("payload.metric_value_double", "<f8", 16),
                ("payload.metric_value_int64", "<i8", 16),
            ),
        ],
    ),
    "device": (
        [8],
        184,
        [
            *(("id", "<u4", 112), ("name", "<i8", 136), ("num_multiprocessors", "<u4", 44)),
            *(("global_memory_size", "<u8", 16), ("compute_capability_major", "<u4", 104)),
            *(("compute_capability_minor", "<u4", 108), ("uuid", "|V16", 120)),
            *(("is_mig_enabled", "|u1", 145), ("mig_uuid", "|V16", 160)),
        ],
    ),
    "context": (
        [9],
        32,
        [
            *(("context_id", "<u4", 4), ("device_id", "<u4", 8), ("null_stream_id", "<u2", 14)),
            *(("parent_context_id", "<u4", 16), ("is_green_context", "|u1", 20)),
        ],
    ),
    "stream": (
        [37],
        24,
        [
            *(("context_id", "<u4", 4), ("stream_id", "<u4", 8), ("priority", "<u4", 12)),
            ("flag", "<i4", 16),
        ],
    ),
}
CALLS = {
    5: {
        13: "cudaLaunchKernel_v7000",
        20: "cudaGraphLaunch_ptsz_v10000",
        31: "cudaStreamSynchronize",
    },
    4: {307: "cuLaunchKernel", 514: "cuGraphLaunch", 295: "cuStreamWaitEvent"},
}


def layouts() -> dict[str, Any]:
    """As `gaptrace.live.cupti` writes them into the header."""
    return {
        family: {
            "kinds": kinds,
            "size": size,
            "fields": {name: [offset, dtype] for name, dtype, offset in fields},
        }
        for family, (kinds, size, fields) in LAYOUTS.items()
    }


def record(family: str, *, longer: int = 0, kind: int | None = None, **values: Any) -> bytes:
    """Return one record; times count from the begin of the session, texts are their pointers."""
    kinds, size, fields = LAYOUTS[family]
    row = np.zeros(1, {"names": ["kind", *(f for f, *_ in fields if f != "kind")],
                       "formats": ["<i4", *(t for f, t, _ in fields if f != "kind")],
                       "offsets": [0, *(o for f, _, o in fields if f != "kind")],
                       "itemsize": size + longer})  # fmt: skip
    row["kind"] = kinds[0] if kind is None else kind
    defaults = {"device_id": 0, "context_id": 1, "stream_id": 7, "thread_id": PID}
    for name, value in (defaults | values).items():
        if name not in row.dtype.names:
            continue
        if name in ("start", "end", "timestamp"):
            value = value and value + BEGIN
        row[name] = pointer(value) if isinstance(value, str) else value
    return row.tobytes()


def pointer(text: str) -> int:
    """Return where a text lies: made up, the same each time."""
    return TEXTS.setdefault(text, 0x7000 + 16 * len(TEXTS))


def texts(*named: str) -> bytes:
    return frame(b"T", json.dumps({pointer(text): text for text in named}).encode())


def records(family: str, *rows: bytes) -> bytes:
    return frame(b"R", RECORDS.pack(LAYOUTS[family][0][0], len(rows[0])), *rows)


def header(granularity: str = "graph", **more: Any) -> bytes:
    content = {
        "pid": PID,
        "granularity": granularity,
        "begin_ns": BEGIN,
        "utc_ns": 1_700_000_000_000_000_000,
        "cupti": "13.0",
        "cupti_python": "13.0.1",
        "calls": CALLS,
        "families": layouts(),
    }
    return frame(b"H", json.dumps(content | more).encode())


END = frame(b"E")


def made(when: int, event: str, graph: int, other: int | None = None, thread: int = PID) -> bytes:
    return frame(b"G", json.dumps([when + BEGIN, thread, event, graph, other]).encode())


def lost(**what: Any) -> bytes:
    return frame(b"L", json.dumps(what).encode())


def write_spool(path: Path, *parts: bytes) -> Path:
    path.write_bytes(b"".join(parts))
    return path
