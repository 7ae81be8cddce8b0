"""Captures a function's GPU work as a CUDA graph whose handle can be had, and keeps its memory."""

import gc
import re
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from gaptrace.errors import GpuError
from gaptrace.live.driver import done, driver
from gaptrace.live.graph_handles import stream_handle
from gaptrace.live.streams import cupy_stream

_ADVICE = (
    "call the function once before, so that it compiles and allocates nothing any more, and take "
    "out what waits for the GPU or reads from it (.item(), printing, synchronising)"
)
_JOIN = (
    "have the stream that is captured wait for every side stream before the function returns "
    "(record an event there and wait for it)"
)
_NOTHING = (
    "the function launched nothing on the stream that was captured: have it use the current stream "
    "of PyTorch or CuPy, or hand its stream to gaptrace.capture(function, stream=...)"
)
_LEGACY_STREAMS = (0, 1)  # NULL and CU_STREAM_LEGACY


class CapturedGraph:
    """A captured graph, not instantiated, with the memory that it uses.

    Closed by `close()`, at the end of a `with` block, or when it is garbage collected. Until then
    it keeps the function and the memory pool of the capture, so that the addresses in the graph
    stay valid; memory that the function took from elsewhere is its owner's to keep.

    Args:
        handle: handle (`CUgraph`) of the graph.
        outputs: what the function returned; its arrays hold what the last launch wrote.
        free: frees the graph; what it refers to is kept until then.
    """

    def __init__(self, handle: int, outputs: Any, free: Callable[[], None]) -> None:
        self._handle = handle
        self.outputs = outputs
        self._end = weakref.finalize(self, free)
        # The driver may be gone by then, and frees all that a process has.
        self._end.atexit = False

    @property
    def handle(self) -> int:
        """Handle (`CUgraph`) of the graph. Raises GpuError once it is closed."""
        if not self._end.alive:
            raise GpuError("the captured graph has been closed: capture it again")
        return self._handle

    def close(self) -> None:
        """Free the graph and let go of its memory and outputs. Closing again does nothing."""
        self.outputs = None
        self._end()

    def __enter__(self) -> "CapturedGraph":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class _Recorder:
    """Begins and ends a capture; `end` returns the handle, `drop` frees what there is."""

    begin: Callable[[], None]
    end: Callable[[], int]
    drop: Callable[[], None]


def capture(function: Callable[[], Any], stream: Any = None) -> CapturedGraph:
    """Capture what a function does on the GPU as a graph, without running it there.

    Works for code that uses the current stream of PyTorch or CuPy, whichever the program has
    imported (both, if both), and for any code that launches on `stream`. Memory that PyTorch or
    CuPy allocates meanwhile comes from a pool of the capture's own, which the result keeps. Call
    the function once before: work that it does the first time only would become part of the graph,
    or forbid the capture.

    Args:
        function: called once, without arguments.
        stream: what to capture on, see `gaptrace.live.graph_handles.stream_handle`; None: a new
            stream. CUDA does not capture the legacy default stream.

    Raises:
        GpuError: CUDA refuses to capture something that the function does, or it launched nothing
            there. The stream no longer captures then. What else the function raises passes on.
    """
    with ExitStack() as stack:
        stack.enter_context(no_collection())
        torch, cupy = _in_use("torch"), _in_use("cupy")
        pointer = _stream(stream, torch, cupy, stack)
        _refuse_stream(pointer)
        recorder = _torch_recorder(torch, pointer, stack) if torch else _driver_recorder(pointer)
        pool = _use_cupy(cupy, pointer, stack) if cupy else None
        handle, outputs = _record(recorder, pointer, function)
    return CapturedGraph(handle, outputs, partial(_let_go, recorder.drop, function, pool))


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep Python's garbage collector from running.

    A graph or event that it freed during a capture would invalidate that.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _let_go(drop: Callable[[], None], _kept: Any, pool: Any) -> None:
    drop()
    if pool is not None:
        pool.free_all_blocks()  # CuPy keeps the memory of a pool that is dropped


def _in_use(library: str) -> Any:
    """Return the module if the program has imported it and it can use the GPU, else None."""
    module = sys.modules.get(library)
    if library == "torch" and module is not None and not module.cuda.is_initialized():
        return None
    return module


def _stream(stream: Any, torch: Any, cupy: Any, stack: ExitStack) -> int:
    """Return the handle of the stream, or of a new one that lives as long as the stack."""
    if stream is not None:
        return stream_handle(stream)
    if torch or cupy:
        made = torch.cuda.Stream() if torch else cupy.cuda.Stream(non_blocking=True)
        stack.callback(lambda: made)  # or it would end here
        return stream_handle(made)
    api, doing = driver(), "making a stream to capture on (use the GPU once before capturing)"
    own = done(api.cuStreamCreate(api.CUstream_flags.CU_STREAM_NON_BLOCKING.value), doing)
    stack.callback(api.cuStreamDestroy, own)
    return int(own)


def _refuse_stream(pointer: int) -> None:
    if pointer in _LEGACY_STREAMS:
        raise GpuError(
            "CUDA does not capture the legacy default stream: give gaptrace.capture another "
            "stream, or none, and it makes one"
        )
    if _capturing(pointer) != "NONE":
        raise GpuError("the stream is already being captured: end that capture first")


def _capturing(pointer: int) -> str:
    """Return NONE, ACTIVE or INVALIDATED."""
    state = done(driver().cuStreamIsCapturing(pointer), "reading whether a stream is captured")
    return str(state.name).rpartition("_")[2]


def _record(recorder: _Recorder, pointer: int, function: Callable[[], Any]) -> tuple[int, Any]:
    """Return the handle of the graph and what the function returned."""
    recorder.begin()
    try:
        outputs = function()
    except BaseException as error:
        # CuPy asks first and raises itself, so that the capture is still sound.
        refused = isinstance(error, RuntimeError) and "captur" in str(error).lower()
        refused = refused or _capturing(pointer) == "INVALIDATED"
        with suppress(GpuError):
            recorder.end()
        recorder.drop()
        if not refused:
            raise
        raise GpuError(f"CUDA does not capture this ({_said(error)}): {_ADVICE}") from error
    try:
        handle = recorder.end()
    except GpuError as error:
        recorder.drop()
        advice = _JOIN if "unjoined" in str(error).lower() else _ADVICE
        raise GpuError(f"{error}: {advice}") from error
    if not done(driver().cuGraphGetNodes(handle), "reading the captured graph")[1]:
        recorder.drop()
        raise GpuError(_NOTHING)
    return handle, outputs


def _said(error: BaseException) -> str:
    """Return the first line of an error and the name of the CUDA error if another line has it."""
    lines = str(error).splitlines() or [""]
    names = re.findall(r"\b(?:cudaError|CUDA_ERROR_)\w+", str(error))
    named = f", {names[0]}" if names and names[0] not in lines[0] else ""
    return f"{type(error).__name__}: {lines[0]}{named}"


def _driver_recorder(pointer: int) -> _Recorder:
    api = driver()
    graphs: list[Any] = []

    def begin() -> None:
        mode = api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        done(api.cuStreamBeginCapture(pointer, mode), "beginning the capture")

    def end() -> int:
        graphs.append(done(api.cuStreamEndCapture(pointer), "ending the capture"))
        return int(graphs[0])

    def drop() -> None:
        while graphs:
            done(api.cuGraphDestroy(graphs.pop()), "freeing a captured graph")

    return _Recorder(begin, end, drop)


def _torch_recorder(torch: Any, pointer: int, stack: ExitStack) -> _Recorder:
    """Capture through PyTorch, so that its allocator and its random numbers take part."""
    try:
        graph = torch.cuda.CUDAGraph(keep_graph=True)
    except TypeError as error:
        raise GpuError(
            "gaptrace.capture needs PyTorch 2.8 or newer, for keep_graph=True"
        ) from error
    pool = torch.cuda.graph_pool_handle()
    stack.enter_context(torch.cuda.stream(torch.cuda.ExternalStream(pointer)))

    def begin() -> None:
        _torch_call(
            torch, pool, partial(graph.capture_begin, pool=pool, capture_error_mode="thread_local")
        )

    def end() -> int:
        _torch_call(torch, pool, graph.capture_end)
        return int(graph.raw_cuda_graph())

    return _Recorder(begin, end, graph.reset)


def _torch_call(torch: Any, pool: Any, call: Callable[[], None]) -> None:
    """Begin or end a capture; where that fails, PyTorch's allocator would go on with the pool."""
    try:
        with _no_word_of_empty_graphs():
            call()
    except RuntimeError as error:
        device = torch.cuda.current_device()
        for name in ("_cuda_endAllocateToPool", "_cuda_releasePool"):
            with suppress(RuntimeError, AttributeError):
                getattr(torch._C, name)(device, pool)
        _reset_generator(torch)
        raise GpuError(f"PyTorch could not capture ({_said(error)})") from error


def _reset_generator(torch: Any) -> None:
    """Have the generator of random numbers know that no capture is on.

    A failed capture leaves it in the state of one (seen with PyTorch 2.11); one that ends well does
    not.
    """
    empty = torch.cuda.CUDAGraph()
    with suppress(RuntimeError), _no_word_of_empty_graphs():
        empty.capture_begin(capture_error_mode="thread_local")
        empty.capture_end()


@contextmanager
def _no_word_of_empty_graphs() -> Iterator[None]:
    """PyTorch warns of them; here they are an error of their own, or meant."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The CUDA Graph is empty", UserWarning)
        yield


def _use_cupy(cupy: Any, pointer: int, stack: ExitStack) -> Any:
    """Have CuPy use the stream and a memory pool of its own; return the pool."""
    pool = cupy.cuda.MemoryPool(partial(_allocate, cupy))
    stack.enter_context(cupy_stream(cupy, pointer))
    stack.enter_context(cupy.cuda.using_allocator(pool.malloc))
    return pool


def _allocate(cupy: Any, size: int) -> Any:
    """Allocate for the pool: CUDA forbids this in a thread that captures, unless it is relaxed."""
    api, doing = driver(), "allocating memory for the capture"
    relaxed = api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = done(api.cuThreadExchangeStreamCaptureMode(relaxed), doing)
    try:
        return cupy.cuda.MemoryPointer(cupy.cuda.Memory(size), 0)
    finally:
        done(api.cuThreadExchangeStreamCaptureMode(before), doing)
