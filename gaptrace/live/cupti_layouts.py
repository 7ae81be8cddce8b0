"""What CUPTI records and how it looks, as the installed cupti-python knows it."""

import re
from typing import Any

#: Family -> its record type in cupti-python, without the number of its revision; kinds; fields.
FAMILIES: dict[str, tuple[str, tuple[str, ...], str]] = {
    "kernel": (
        "kernel",
        ("CONCURRENT_KERNEL", "KERNEL"),
        "start end device_id context_id stream_id correlation_id name graph_node_id graph_id"
        " grid_x grid_y grid_z block_x block_y block_z registers_per_thread static_shared_memory"
        " dynamic_shared_memory launch_type",
    ),
    "memcpy": (
        "memcpy",
        ("MEMCPY",),
        "start end device_id context_id stream_id correlation_id graph_node_id bytes copy_kind"
        " src_kind dst_kind",
    ),
    "memcpy_peer": (
        "memcpy_pto_p",
        ("MEMCPY2",),
        "start end device_id context_id stream_id correlation_id graph_node_id bytes copy_kind"
        " src_kind dst_kind src_device_id dst_device_id",
    ),
    "memset": (
        "memset",
        ("MEMSET",),
        "start end device_id context_id stream_id correlation_id graph_node_id bytes value"
        " memory_kind",
    ),
    "graph_trace": (
        "graph_trace",
        ("GRAPH_TRACE",),
        "start end device_id context_id stream_id correlation_id graph_id",
    ),
    "api": (
        "api",
        ("RUNTIME", "DRIVER"),
        "kind cbid start end thread_id correlation_id return_value",
    ),
    "synchronization": (
        "synchronization",
        ("SYNCHRONIZATION",),
        "start end context_id stream_id correlation_id type cuda_event_id",
    ),
    "cuda_event": (
        "cuda_event",
        ("CUDA_EVENT",),
        "device_id context_id stream_id correlation_id event_id",
    ),
    "overhead": (
        "overhead",
        ("OVERHEAD",),
        "start end correlation_id overhead_kind object_kind object_id.pt.thread_id",
    ),
    "marker": (
        "marker",
        ("MARKER",),
        "timestamp flags_ id object_kind object_id.pt.thread_id name domain",
    ),
    "marker_data": (
        "marker_data",
        ("MARKER_DATA",),
        "id payload_kind payload.metric_value_double payload.metric_value_int64",
    ),
    "device": (
        "device",
        ("DEVICE",),
        "id name num_multiprocessors global_memory_size compute_capability_major"
        " compute_capability_minor uuid is_mig_enabled mig_uuid",
    ),
    "context": (
        "context",
        ("CONTEXT",),
        "context_id device_id null_stream_id parent_context_id is_green_context",
    ),
    "stream": ("stream", ("STREAM",), "stream_id context_id priority flag"),
}
#: Without these there is no recording worth the name.
NEEDED = {"CONCURRENT_KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE", "RUNTIME", "DRIVER"}

#: Calls that only look something up, and that libraries make around every launch. Recording them
#: costs more than they take; Nsight Systems leaves most of them out, too.
LOOK_UPS = re.compile(
    r"(cuda(GetLastError|PeekAtLastError|GetDevice|GetDeviceCount|DeviceGetAttribute"
    r"|FuncGetAttributes|PointerGetAttributes|StreamIsCapturing|StreamGetCaptureInfo|StreamGetFlags"
    r"|StreamGetPriority|StreamGetId|StreamGetDevice|ThreadExchangeStreamCaptureMode"
    r"|OccupancyMaxActiveBlocksPerMultiprocessor(WithFlags)?|GetDriverEntryPoint(ByVersion)?)"
    r"|cu(GetProcAddress|CtxGetCurrent|CtxSetCurrent|CtxPushCurrent|CtxPopCurrent|CtxGetDevice"
    r"|CtxGetId|CtxGetApiVersion|DeviceGet|DeviceGetCount|DeviceGetAttribute|DriverGetVersion"
    r"|DevicePrimaryCtxGetState|FuncGetAttribute|FuncGetModule|FuncGetName|KernelGetAttribute"
    r"|KernelGetName|PointerGetAttributes?|StreamIsCapturing|StreamGetCaptureInfo|StreamGetCtx"
    r"|StreamGetFlags|StreamGetPriority|StreamGetId|StreamGetDevice"
    r"|ThreadExchangeStreamCaptureMode|OccupancyMaxActiveBlocksPerMultiprocessor(WithFlags)?))"
    r"(_v\d+|_ptsz|_ptds)*"
)


def layouts(cupti: Any) -> dict[str, dict[str, Any]]:
    """Return kinds, size and fields of each family, as this version of cupti-python has them."""
    return {
        family: {
            "kinds": [int(cupti.ActivityKind[kind]) for kind in kinds],
            "size": (dtype := _newest(cupti, stem)).itemsize,
            "fields": {field: _place(dtype, field) for field in fields.split()},
        }
        for family, (stem, kinds, fields) in FAMILIES.items()
    }


def _newest(cupti: Any, stem: str) -> Any:
    """Return the newest revision of a record type, as activity_kernel10_dtype."""
    pattern = re.compile(rf"activity_{stem}(\d*)_dtype")
    matches = (pattern.fullmatch(name) for name in dir(cupti))
    revisions = {int(match[1] or 0): match[0] for match in matches if match}
    return getattr(cupti, revisions[max(revisions)])


def _place(dtype: Any, field: str) -> tuple[int, str]:
    """Return offset and NumPy type of a field, which may lie in a structure, as in a.b."""
    offset = 0
    for name in field.split("."):
        dtype, inside = dtype.fields[name][:2]
        offset += inside
    return offset, dtype.str


def call_names(cupti: Any) -> dict[int, dict[int, str]]:
    """Return {kind of record: {number: name of the CUDA call}}."""
    return {
        int(kind): {int(call): call.name for call in calls}
        for kind, calls in (
            (cupti.ActivityKind.RUNTIME, cupti.runtime_api_trace_cbid),
            (cupti.ActivityKind.DRIVER, cupti.driver_api_trace_cbid),
        )
    }
