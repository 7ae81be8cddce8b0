"""Records this process with CUPTI: its device work, CUDA calls and NVTX ranges, into a spool.

`start` is called before the program begins. CUPTI fills buffers and hands them over from a thread
of its own, so that a launch pays for its own record only. What happens to a buffer is kept small:
one Python object per record, as cupti-python makes them, would cost some 20 us each with the
interpreter lock held (2 us for each attribute that is read). So buffers come here raw, and records
are written to the spool as they are, sorted by kind; that costs 0.3 to 0.5 us each. (Measured with
cupti-python 13.0.1 on a small virtual machine.) cupti-python tells how records look, and
`gaptrace.record.cupti_file` reads them.

The spool (`gaptrace.spool`) begins with a header: `pid`, `granularity`, `begin_ns` (CUPTI's clock),
`utc_ns`, `cupti` and `cupti_python` (versions), `calls` {kind: {number: name}}, `families` {name:
{`kinds`: [...], `fields`: {field: [offset, NumPy type]}}}.

A process may record several times, one after the other, and after it has used CUDA: cells of a
notebook do (`gaptrace.cell`). What was made before is then known by its use alone.

A forked child records nothing, and leaves the spool to its parent: CUDA of the parent cannot be
used in it, and its own would need a recording of its own.
"""

import _thread
import atexit
import ctypes
import fcntl
import json
import os
import threading
import time
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gaptrace.errors import GpuError
from gaptrace.live.cupti_buffers import BufferPool, Families
from gaptrace.live.cupti_graphs import GraphEvents
from gaptrace.live.cupti_layouts import FAMILIES, LOOK_UPS, NEEDED, call_names, layouts
from gaptrace.spool import frame

#: How often what is complete goes to the spool: what a crash can lose at most.
_FLUSH_SECONDS = 1.0
_FORCED = 1  # CUPTI_ACTIVITY_FLAG_FLUSH_FORCED
#: Where NVTX looks for the library that takes its calls.
_INJECTION = "NVTX_INJECTION64_PATH"
#: The lowest number for the spool: a program that closes what it has not opened, and opens a file
#: of its own, shall not get records into that.
_FIRST_DESCRIPTOR = 200

#: Of this process, kept for as long as CUPTI may call them.
_recorders: list["CuptiRecorder"] = []
_pools: list[BufferPool] = []


def start(granularity: str, spool: str) -> "CuptiRecorder":
    """Start recording; it ends by `stop`, or by itself when the interpreter does.

    Args:
        granularity: `graph` or `node`.
        spool: the file to write, which is created.

    Raises:
        GpuError: cupti-python is missing, it does not find its library, CUPTI refuses to start on
            this driver, the spool cannot be written, or this process records already.
    """
    cupti = _cupti()
    if any(not recorder.has_ended for recorder in _recorders):
        raise GpuError("this process records itself already: end that recording first")
    recorder = CuptiRecorder(cupti, granularity, spool)
    _recorders.append(recorder)
    # Registered first, so that it runs after whatever the program registers.
    atexit.register(recorder.stop)
    os.register_at_fork(after_in_child=recorder.abandon)
    return recorder


def open_nvtx() -> None:
    """Have NVTX hand its ranges to CUPTI from now on, whether or not a recording runs.

    Every library asks the environment once, at its first range. So this comes before the first.

    Raises:
        GpuError: cupti-python is missing, or it does not find its library.
    """
    cupti = _cupti()
    try:
        cupti.get_timestamp()  # which loads the library
        os.environ.setdefault(_INJECTION, _library_path())
    except (cupti.cuptiError, OSError, RuntimeError) as error:
        raise GpuError(_why_not(error)) from error


def is_waiting() -> bool:
    """Whether ranges of NVTX lead to CUPTI, and nothing has been recorded with it yet.

    Once something was, CUPTI stays in the process, and what it costs there is not known.
    """
    return "libcupti" in Path(os.environ.get(_INJECTION, "")).name and not _recorders


def _cupti() -> Any:
    try:
        return import_module("cupti.cupti")
    except ImportError as error:
        raise GpuError(
            f"the package cupti-python cannot be imported ({error}): pip install 'gaptrace[cupti]'"
        ) from error


class CuptiRecorder:
    """A running recording."""

    def __init__(self, cupti: Any, granularity: str, spool: str) -> None:
        self._cupti = cupti
        self._ended = threading.Event()
        self._flushing = threading.Lock()
        self._left_out: dict[str, str] = {}
        self._enabled: list[int] = []
        self._file = -1
        try:
            begin_ns, utc_ns = cupti.get_timestamp(), time.time_ns()
            self._library = library(_library_path())
            self._file = _opened(spool)
            families = Families(layouts(cupti))
            header = {
                "pid": os.getpid(),
                "granularity": granularity,
                "begin_ns": begin_ns,
                "utc_ns": utc_ns,
                "cupti": library_version(self._library),
                "cupti_python": _package_version(),
                "calls": call_names(cupti),
                "families": families.layouts,
            }
            self.write(frame(b"H", json.dumps(header).encode()))
            # Threads under the numbers that the system gives them, not those of pthread_self.
            cupti.set_thread_id_type(int(cupti.ActivityThreadIdType.SYSTEM))
            if not _pools:
                _pools.append(BufferPool(self._library, families))
            _pools[0].pass_to(self.write, self._start_flushing)
            _pools[0].register()
            self._enable(granularity)
            self._graphs = GraphEvents(self._library, cupti, self.write)
        except (cupti.cuptiError, OSError, RuntimeError) as error:
            self._disable()
            self.abandon()
            raise GpuError(_why_not(error)) from error
        if self._graphs.problem is not None:
            self._left_out["graphs made"] = self._graphs.problem
        for what, why in self._left_out.items():
            self.leave_out(what, why)
        # Read by the NVTX of every library at its first range.
        os.environ.setdefault(_INJECTION, _library_path())

    @property
    def has_ended(self) -> bool:
        """Whether nothing more is recorded."""
        return self._file < 0 or self._ended.is_set()

    def leave_out(self, what: str, why: str) -> None:
        """Note what is not recorded, and why."""
        self.write(frame(b"L", json.dumps({"left_out": {what: why}}).encode()))

    def write(self, content: bytes) -> None:
        """Write frames; once that failed, nothing more is written. Threads may call at once."""
        if self._file < 0:
            return
        try:
            # A file opened to append takes one write as a whole, whoever else writes.
            done = os.write(self._file, content)
            if done != len(content):
                self.abandon()  # the disk is full: what follows would be read as nonsense
        except OSError:
            self.abandon()

    def stop(self) -> None:
        """Write down what CUPTI still holds, and end the recording."""
        if self.has_ended:
            return
        self._ended.set()
        with self._flushing:
            # First what is complete, then the rest: buffers with work that the device has not done.
            self._library.cuptiActivityFlushAll(0)
            self._library.cuptiActivityFlushAll(_FORCED)
            self._disable()
            self._graphs.stop()
            self._library.cuptiActivityFlushAll(_FORCED)
        self.write(frame(b"E"))
        self.abandon()

    def abandon(self) -> None:
        """Write nothing more: it is over, this is a forked child, or the file cannot be written.

        Takes no lock: another thread of the parent may have held it during the fork.
        """
        if _pools:
            _pools[0].pass_to_nobody()
        descriptor, self._file = self._file, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _enable(self, granularity: str) -> None:
        cupti = self._cupti
        for family, (_, (kind, *others), _) in FAMILIES.items():
            if family == "graph_trace" and granularity == "node":
                continue  # with it, the nodes are not recorded
            for name in (kind, *(others if family == "api" else ())):
                number = int(cupti.ActivityKind[name])
                try:
                    cupti.activity_enable(number)
                    self._enabled.append(number)
                except cupti.cuptiError as error:
                    if name in NEEDED:
                        raise
                    self._left_out[name] = str(error)
        for calls, switch in (
            (cupti.runtime_api_trace_cbid, cupti.activity_enable_runtime_api),
            (cupti.driver_api_trace_cbid, cupti.activity_enable_driver_api),
        ):
            for call in calls:
                if LOOK_UPS.fullmatch(call.name):
                    try:
                        switch(int(call), 0)
                    except cupti.cuptiError:
                        break  # this version cannot: they are recorded like all others

    def _disable(self) -> None:
        for kind in self._enabled:
            self._library.cuptiActivityDisable(kind)

    def _start_flushing(self) -> None:
        # Not before there is something to flush: a program that never uses CUDA stays as it is.
        # Nor a thread that the program would find among its own.
        _thread.start_new_thread(self._flush_regularly, ())

    def _flush_regularly(self) -> None:
        while not self._ended.wait(_FLUSH_SECONDS):
            with self._flushing:
                if not self._ended.is_set():
                    self._library.cuptiActivityFlushAll(0)


def _opened(spool: str) -> int:
    low = os.open(spool, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    try:
        high = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _FIRST_DESCRIPTOR)
    except OSError:  # no such numbers here
        return low
    os.close(low)
    return high


def library(path: str) -> ctypes.CDLL:
    """Return libcupti; its functions are called without the interpreter lock, as CUPTI calls back.

    It is the one that cupti-python has loaded, whose own functions may keep the lock.
    """
    found = ctypes.CDLL(path)
    pointer, number = ctypes.c_void_p, ctypes.c_uint32
    found.cuptiActivityFlushAll.argtypes = (number,)
    found.cuptiActivityDisable.argtypes = (ctypes.c_int,)
    found.cuptiActivityGetNextRecord.argtypes = (pointer, ctypes.c_size_t, pointer)
    found.cuptiActivityGetNumDroppedRecords.argtypes = (pointer, number, pointer)
    found.cuptiSubscribe.argtypes = (pointer, pointer, pointer)
    found.cuptiUnsubscribe.argtypes = (pointer,)
    found.cuptiEnableCallback.argtypes = (number, pointer, ctypes.c_int, number)
    found.cuptiGetGraphId.argtypes = (pointer, pointer)
    found.cuptiGetGraphExecId.argtypes = (pointer, pointer)
    return found


def library_version(found: ctypes.CDLL) -> str:
    """Return the version of libcupti, as 13.0."""
    number = ctypes.c_uint32()
    found.cuptiGetVersion(ctypes.byref(number))
    return f"{number.value // 10000}.{number.value // 100 % 100}"


def _library_path() -> str:
    """Return where the libcupti lies that this process has loaded."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.partition("/")[2]
        if "libcupti.so" in path:
            return f"/{path}"
    raise RuntimeError("cupti-python has not loaded libcupti")


def _package_version() -> str | None:
    try:
        return version("cupti-python")
    except PackageNotFoundError:
        return None


def _why_not(error: Exception) -> str:
    reason = " ".join(str(error).split())
    return f"CUPTI (cupti-python {_package_version()}) cannot start: {reason}"
