"""A stand-in for `cuda.bindings.driver` whose device is a thread, for probes where there is no GPU.

It runs the four kernels of `gaptrace.live.kernels` in the order of their launches, blocks a launch
once `DEPTH` are queued, and knows what has not been freed. Its times mean nothing.
"""

import ctypes
import itertools
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from gaptrace.live import kernels

DEPTH = 200
_ARGUMENTS = {"spin": 1, "latch": 3, "mark": 0, "answer": 3, "touch": 1}
Ok = tuple[int]


def words(address: int, count: int) -> Any:
    return (ctypes.c_uint64 * count).from_address(address)


class FakeGpu:
    CU_MEMHOSTALLOC_DEVICEMAP = 2
    CUdevice_attribute = SimpleNamespace(
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR=75,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR=76,
    )
    CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=1)
    CUevent_flags = SimpleNamespace(CU_EVENT_DEFAULT=0, CU_EVENT_DISABLE_TIMING=2)
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2)

    def __init__(self) -> None:
        self.live: dict[int, str] = {}  # handle -> what it is
        self.captured: list[int] = []  # nodes of every graph that was captured
        self.copied: Counter[int] = Counter()  # by stream
        self.refuses: set[str] = set()  # names of calls that fail
        self._handles = itertools.count(1000)
        self._nodes: dict[int, list[tuple[str, list[int]]]] = {}
        self._capture: list[tuple[str, list[int]]] | None = None
        self._buffers: dict[int, Any] = {}
        self._times: dict[int, int] = {}
        self._marked = 0
        self._queue: queue.Queue[Callable[[], object]] = queue.Queue(maxsize=DEPTH)
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while True:
            self._queue.get()()
            self._queue.task_done()

    def _run(self, name: str, arguments: list[int]) -> None:
        begin = time.perf_counter_ns()
        if name == "spin":
            while time.perf_counter_ns() - begin < arguments[0] / 2:
                time.sleep(0)
        elif name == "mark":
            self._marked = begin
        elif name == "touch":
            assert self.live[arguments[0]] == "memory"
        elif name == "latch":
            page, ticket, patience_ns = words(arguments[0], 16), *arguments[1:]
            while page[kernels.OPENED] < ticket:
                time.sleep(0)
                if time.perf_counter_ns() - begin > patience_ns:
                    page[kernels.RAN_OUT] = ticket
                    return
        else:
            self._answer(begin, *arguments)

    def _answer(self, begin: int, address: int, marks: int, patience_ns: int) -> None:
        page = words(address, 16)
        page[kernels.STARTED] = begin if marks else self._marked
        for number in range(kernels.EXCHANGES):
            while page[kernels.ASKED] <= number:
                time.sleep(0)
                if time.perf_counter_ns() - begin > patience_ns:
                    page[kernels.GAVE_UP] = 1
                    return
            page[kernels.ANSWERS + number] = time.perf_counter_ns()

    def _new(self, kind: str) -> tuple[int, int]:
        handle = next(self._handles)
        self.live[handle] = kind
        return 0, handle

    def _drop(self, handle: int, kind: str) -> Ok:
        assert self.live.pop(handle) == kind
        return (0,)

    def cuInit(self, flags: int) -> Ok:
        return (0,)

    def cuDeviceGetCount(self) -> tuple[int, int]:
        return 0, 1

    def cuDeviceGet(self, number: int) -> tuple[int, int]:
        return 0, number

    def cuDeviceGetAttribute(self, attribute: int, device: int) -> tuple[int, int]:
        return 0, 9

    def cuDeviceGetPCIBusId(self, size: int, device: int) -> tuple[int, bytes]:
        return 0, b"0000:01:00.0".ljust(size, b"\0")

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple[int, int]:
        return self._new("context")

    def cuDevicePrimaryCtxRelease(self, device: int) -> Ok:
        (handle,) = (handle for handle, kind in self.live.items() if kind == "context")
        return self._drop(handle, "context")

    def cuCtxSetCurrent(self, context: int) -> Ok:
        return (0,)

    def cuModuleLoadData(self, code: bytes) -> tuple[int, int]:
        return self._new("module")

    def cuModuleUnload(self, module: int) -> Ok:
        return self._drop(module, "module")

    def cuModuleGetFunction(self, module: int, name: bytes) -> tuple[int, str]:
        return 0, name.decode()

    def cuStreamCreate(self, flags: int) -> tuple[int, int]:
        return self._new("stream")

    def cuStreamDestroy(self, stream: int) -> Ok:
        return self._drop(stream, "stream")

    def cuStreamGetFlags(self, stream: int) -> tuple[int, int]:
        return 0, 1

    def cuStreamSynchronize(self, stream: int) -> Ok:
        self._queue.join()
        return (0,)

    def cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> Ok:
        assert self._capture is not None
        return (0,)

    def cuEventCreate(self, flags: int) -> tuple[int, int]:
        return self._new("event")

    def cuEventDestroy(self, event: int) -> Ok:
        return self._drop(event, "event")

    def cuEventRecord(self, event: int, stream: int) -> Ok:
        if self._capture is None:
            self._queue.put(lambda: self._times.update({event: time.perf_counter_ns()}))
        return (0,)

    def cuEventElapsedTime(self, begin: int, end: int) -> tuple[int, float]:
        return 0, (self._times[end] - self._times[begin]) / 1e6

    def cuMemHostAlloc(self, size: int, flags: int) -> tuple[int, int]:
        buffer = ctypes.create_string_buffer(size)
        address = ctypes.addressof(buffer)
        self._buffers[address], self.live[address] = buffer, "page"
        return 0, address

    def cuMemAlloc(self, size: int) -> tuple[int, int]:
        return self._new("memory")

    def cuMemsetD32(self, memory: int, value: int, count: int) -> Ok:
        assert (self.live[memory], value, count) == ("memory", 0, 4_096)
        return (0,)

    def cuMemcpyDtoDAsync(self, to: int, source: int, size: int, stream: int) -> Ok:
        assert self.live[stream] == "stream"
        assert self.live[to] == "memory"
        self.copied[stream] += 1
        return (0,)

    def cuMemFree(self, memory: int) -> Ok:
        return self._drop(memory, "memory")

    def cuMemHostGetDevicePointer(self, address: int, flags: int) -> tuple[int, int]:
        return 0, address

    def cuMemFreeHost(self, address: int) -> Ok:
        return self._drop(address, "page")

    def cuLaunchKernel(self, name: str, *rest: int) -> Ok:
        *grid, stream, pointers, extra = rest
        assert (self.live[stream], extra) == ("stream", 0)
        assert grid == ([16, 1, 1, 256, 1, 1, 0] if name == "touch" else [1, 1, 1, 32, 1, 1, 0])
        count = _ARGUMENTS[name]
        arguments = [words(each, 1)[0] for each in words(pointers, count)] if count else []
        if self._capture is not None:
            self._capture.append((name, arguments))
        else:
            self._queue.put(lambda: self._run(name, arguments))
        return (0,)

    def cuStreamBeginCapture(self, stream: int, mode: int) -> Ok:
        assert self._capture is None
        self._capture = []
        return (0,)

    def cuStreamEndCapture(self, stream: int) -> tuple[int, int]:
        assert self._capture is not None
        _, graph = self._new("graph")
        self._nodes[graph], self._capture = self._capture, None
        self.captured.append(len(self._nodes[graph]))
        return 0, graph

    def cuGraphInstantiate(self, graph: int, flags: int) -> tuple[int, int]:
        _, made = self._new("exec")
        self._nodes[made] = self._nodes[graph]
        return 0, made

    def cuGraphExecUpdate(self, made: int, graph: int) -> tuple[int, str]:
        if "cuGraphExecUpdate" in self.refuses:
            return 910, "failure"
        names = [[name for name, _ in self._nodes[each]] for each in (made, graph)]
        assert names[0] == names[1]
        self._nodes[made] = self._nodes[graph]
        return 0, "success"

    def cuGraphUpload(self, made: int, stream: int) -> Ok:
        return (0,)

    def cuGraphLaunch(self, made: int, stream: int) -> Ok:
        nodes = self._nodes[made]
        assert self.live[made] == "exec"
        self._queue.put(lambda: [self._run(*node) for node in nodes])
        return (0,)

    def cuGraphDestroy(self, graph: int) -> Ok:
        return self._drop(graph, "graph")

    def cuGraphExecDestroy(self, made: int) -> Ok:
        return self._drop(made, "exec")
