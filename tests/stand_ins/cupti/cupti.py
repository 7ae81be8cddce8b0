"""What gaptrace uses of cupti-python 13.0 and of its library, with a GPU that does nothing.

A program "launches" by calling `launch`. The records reach gaptrace as CUPTI's do: through the two
callbacks, in buffers that gaptrace gave, when it flushes. Kernel records are 40 bytes longer than
cupti-python knows, as those of a newer library. With CUPTI_STAND_IN set to `refuses` the driver
refuses, with `short` records get lost, and with `busy` there is another subscriber.
"""

import ctypes
import enum
import itertools
import os
import threading
import time

import numpy as np
import spools

import gaptrace.live.cupti

MODE = os.environ.get("CUPTI_STAND_IN", "")
LONGER = {"kernel": 40}
_kinds = {
    "MEMCPY": 1, "MEMSET": 2, "KERNEL": 3, "DRIVER": 4, "RUNTIME": 5, "DEVICE": 8, "CONTEXT": 9,
    "CONCURRENT_KERNEL": 10, "MARKER": 12, "MARKER_DATA": 13, "OVERHEAD": 17, "MEMCPY2": 22,
    "CUDA_EVENT": 36, "STREAM": 37, "SYNCHRONIZATION": 38, "GRAPH_TRACE": 51,
}  # fmt: skip
ActivityKind = enum.IntEnum("ActivityKind", _kinds)
ActivityThreadIdType = enum.IntEnum("ActivityThreadIdType", {"DEFAULT": 0, "SYSTEM": 1})
CallbackIdResource = enum.IntEnum(
    "CallbackIdResource", {"GRAPH_CREATED": 9, "GRAPH_CLONED": 11, "GRAPHEXEC_CREATED": 18}
)
runtime_api_trace_cbid = enum.IntEnum(
    "runtime_api_trace_cbid", {"cudaGetLastError_v3020": 10, "cudaLaunchKernel_v7000": 13}
)
driver_api_trace_cbid = enum.IntEnum("driver_api_trace_cbid", {"cuLaunchKernel": 307})


class cuptiError(Exception):
    pass


def _dtype(family):
    _, size, fields = spools.LAYOUTS[family]
    simple = [field for field in fields if "." not in field[0] and field[0] != "kind"]
    inner = {}
    for name, kind, offset in fields:
        if "." in name:
            inner.setdefault(name.split(".")[0], []).append((name.split(".")[1:], kind, offset))
    names, formats, offsets = ["kind"], ["<i4"], [0]
    for name, kind, offset in simple:
        names, formats, offsets = [*names, name], [*formats, kind], [*offsets, offset]
    for name, parts in inner.items():
        at = min(offset for _, _, offset in parts)
        nested = {"names": [], "formats": [], "offsets": []}
        for path, kind, offset in parts:
            leaf = kind if len(path) == 1 else [(path[1], kind)]
            for key, value in zip(nested, (path[0], leaf, offset - at), strict=True):
                nested[key].append(value)
        names, formats, offsets = [*names, name], [*formats, np.dtype(nested)], [*offsets, at]
    layout = {"names": names, "formats": formats, "offsets": offsets, "itemsize": size}
    return np.dtype(layout)


for _family, _name in {
    "kernel": "kernel10", "memcpy": "memcpy6", "memcpy_peer": "memcpy_pto_p4", "memset": "memset4",
    "graph_trace": "graph_trace2", "api": "api", "synchronization": "synchronization2",
    "cuda_event": "cuda_event2", "overhead": "overhead3", "marker": "marker2",
    "marker_data": "marker_data", "device": "device5", "context": "context3", "stream": "stream",
}.items():  # fmt: skip
    globals()[f"activity_{_name}_dtype"] = _dtype(_family)

_enabled = set()
_switched_off = set()
_waiting = []
_given = []
_texts = {}
_numbers = itertools.count(1)


def get_timestamp():
    return time.time_ns()


def set_thread_id_type(kind):
    assert kind == 1


def activity_enable(kind):
    if MODE == "refuses":
        raise cuptiError("CUPTI_ERROR_NOT_COMPATIBLE")
    if kind == ActivityKind.CUDA_EVENT:
        raise cuptiError("CUPTI_ERROR_NOT_SUPPORTED")
    _enabled.add(kind)


def activity_enable_runtime_api(call, enable):
    assert not enable
    _switched_off.add(call)


activity_enable_driver_api = activity_enable_runtime_api


def _pointer(text):
    buffer = _texts.setdefault(text, ctypes.create_string_buffer(text.encode()))
    return ctypes.addressof(buffer)


def launch(name, times=1):
    """A call that launches, and its kernel."""
    if not _given:
        buffer, size, most = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
        _library.requested(*map(ctypes.pointer, (buffer, size, most)))
        _given.append((buffer.value, size.value))
    for _ in range(times):
        number = next(_numbers)
        now = get_timestamp() - spools.BEGIN
        thread = threading.get_native_id()
        call = {"start": now, "end": now + 1_000, "thread_id": thread, "correlation_id": number}
        _waiting.append(spools.record("api", cbid=13, **call))
        _waiting.append(
            spools.record("kernel", longer=LONGER["kernel"], start=now + 2_000, end=now + 3_000,
                          name=_pointer(name), correlation_id=number)
        )  # fmt: skip


class Library:
    """libcupti."""

    def cuptiGetVersion(self, version):
        version._obj.value = 130000
        return 0

    def cuptiActivityRegisterCallbacks(self, requested, completed):
        self.requested, self.completed = requested, completed
        return 0

    def cuptiActivityDisable(self, kind):
        _enabled.discard(kind)
        return 0

    def cuptiActivityFlushAll(self, flag):
        content = b"".join(_waiting)
        _waiting.clear()
        if content:
            buffer, size = _given.pop()
            assert len(content) <= size
            ctypes.memmove(buffer, content, len(content))
            self.completed(None, 0, buffer, size, len(content))
        return 0

    def cuptiActivityGetNextRecord(self, buffer, valid, record):
        at = record._obj.value
        kind = ctypes.c_uint32.from_address(at).value
        for family, (kinds, size, _) in spools.LAYOUTS.items():
            if kind in kinds:
                after = at + size + LONGER.get(family, 0)
                if after >= buffer + valid:
                    return 12
                record._obj.value = after
                return 0
        return 21

    def cuptiActivityGetNumDroppedRecords(self, context, stream, dropped):
        dropped._obj.value = 5 if MODE == "short" else 0
        return 0

    def cuptiSubscribe(self, subscriber, callback, user):
        if MODE == "busy":
            return 39
        subscriber._obj.value = 1
        return 0

    def cuptiEnableCallback(self, enable, subscriber, domain, number):
        return 0

    def cuptiUnsubscribe(self, subscriber):
        return 0


gaptrace.live.cupti._library_path = lambda: "libcupti.so"
_library = Library()
gaptrace.live.cupti.library = lambda path: _library
