"""One GPU made ready for timing, and the two ways to time on it without the host in the figures."""

import ctypes
import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from time import perf_counter_ns
from typing import Any, NamedTuple

from gaptrace.errors import GpuError
from gaptrace.live.driver import done, driver
from gaptrace.live.kernels import (
    ANSWERS,
    ASKED,
    EXCHANGES,
    GAVE_UP,
    LONGEST,
    NAMES,
    OPENED,
    RAN_OUT,
    STARTED,
    compile_kernels,
)
from gaptrace.live.several_streams import use_other_streams

#: Blocks, threads and shared memory of a launch: one block of one warp, the least there is.
GRID = (1, 1, 1, 32, 1, 1, 0)
#: And of `touch`: a small kernel of a program.
_TOUCH_GRID = (16, 1, 1, 256, 1, 1, 0)
_NUMBERS = 16 * 256
#: A kernel, the address of its arguments, and its grid.
Kernel = tuple[Any, int, tuple[int, ...]]
#: A latch is open long before that unless a call waits for the GPU.
LATCH_NS = 200_000_000
_ANSWER_NS = 1_000_000_000
#: Looks at the page, at 20 ns or more each, before the GPU is given up.
_MOST_LOOKS = 200_000_000
_PAGE_WORDS = 512
_EMPTY_CALLS = 2_000


class Launch(NamedTuple):
    """What a timed launch took.

    Attributes:
        api_ns: in the launch call.
        latency_ns: from its begin to the first instruction of the work; None if the GPU could not
            be asked, since the call itself waited for it.
    """

    api_ns: float
    latency_ns: float | None


class Bench:
    """A GPU with a stream, streams for branches, the kernels, and a page shared with the host.

    A context manager: everything is freed at its end. Host times are without what calling through
    Python costs: `call_ns` for each call and `clock_ns` for reading the clock, measured on a call
    of the driver that only looks a number up, so that its own few nanoseconds go with them. Calls
    with more arguments cost some 0.1 us more than that one, which stays in the figures.
    """

    def __init__(self, call_ns: float | None = None) -> None:
        """Choose the first GPU that CUDA sees.

        Args:
            call_ns: what a call costs; by default measured. Given where a recorder may lengthen
                the call that it is measured on.
        """
        self.cuda = driver()
        self.call_ns = call_ns or 0.0
        self.clock_ns = 0.0
        self._given_call_ns = call_ns
        self._undo = ExitStack()
        self._ticket = 0

    def __enter__(self) -> "Bench":
        try:
            self._prepare()
        except BaseException:
            self._undo.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        # Whatever still waits for the host shall not hold up the end.
        self._page[OPENED] = self._ticket
        self._page[ASKED] = EXCHANGES
        self._undo.close()

    def _prepare(self) -> None:
        cuda, undo = self.cuda, self._undo
        device = first_device()
        context = done(cuda.cuDevicePrimaryCtxRetain(device), "opening the GPU")
        undo.callback(cuda.cuDevicePrimaryCtxRelease, device)
        done(cuda.cuCtxSetCurrent(context), "opening the GPU")
        major, minor = (
            done(cuda.cuDeviceGetAttribute(attribute, device), "asking for the capability")
            for attribute in (
                cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            )
        )
        module = done(cuda.cuModuleLoadData(compile_kernels((major, minor))), "loading kernels")
        undo.callback(cuda.cuModuleUnload, module)
        self._functions = {
            name: done(cuda.cuModuleGetFunction(module, name.encode()), f"finding {name}")
            for name in NAMES
        }
        use_other_streams(cuda)
        self.stream = self.new_stream()
        self._share_page()
        self._events = [self.new_event(timed=True) for _ in range(2)]
        self._latch_values = (ctypes.c_uint64 * 3)(self._page_address, 0, 0)
        self._latch = self.kernel("latch", self._latch_values)
        self.measure_calls()

    def _share_page(self) -> None:
        flags = self.cuda.CU_MEMHOSTALLOC_DEVICEMAP
        host = done(self.cuda.cuMemHostAlloc(8 * _PAGE_WORDS, flags), "sharing a page")
        self._undo.callback(self.cuda.cuMemFreeHost, host)
        words = (ctypes.c_uint64 * _PAGE_WORDS).from_address(int(host))
        self._page = memoryview(words).cast("B").cast("Q")
        self._page[:] = memoryview(bytes(8 * _PAGE_WORDS)).cast("Q")
        address = done(self.cuda.cuMemHostGetDevicePointer(host, 0), "sharing a page")
        self._page_address = int(address)

    def new_stream(self) -> Any:
        """Return a stream that does not wait for the default one; freed with the bench."""
        flags = self.cuda.CUstream_flags.CU_STREAM_NON_BLOCKING
        stream = done(self.cuda.cuStreamCreate(flags), "making a stream")
        self._undo.callback(self.cuda.cuStreamDestroy, stream)
        return stream

    def new_event(self, *, timed: bool = False) -> Any:
        """Return an event; freed with the bench."""
        flags = self.cuda.CUevent_flags
        flag = flags.CU_EVENT_DEFAULT if timed else flags.CU_EVENT_DISABLE_TIMING
        event = done(self.cuda.cuEventCreate(flag), "making an event")
        self._undo.callback(self.cuda.cuEventDestroy, event)
        return event

    def kernel(self, name: str, values: Any, grid: tuple[int, ...] = GRID) -> Kernel:
        """Return a kernel with its arguments, as `launch` takes it.

        Args:
            name: of the kernel.
            values: a ctypes array of 64-bit words, read anew at each launch.
            grid: as `GRID`.
        """
        size = ctypes.sizeof(ctypes.c_uint64)
        first = ctypes.addressof(values)
        pointers = (ctypes.c_void_p * len(values))(*(first + size * i for i in range(len(values))))
        self._undo.callback(lambda *kept: None, values, pointers)  # as long as the bench
        return self._functions[name], ctypes.addressof(pointers) if len(values) else 0, grid

    def spin(self, clocks: int) -> Kernel:
        """Return a kernel that lasts so many clocks."""
        return self.kernel("spin", (ctypes.c_uint64 * 1)(clocks))

    def touch(self) -> Kernel:
        """Return a kernel that reads and writes 4,096 numbers of memory of its own."""
        memory = done(self.cuda.cuMemAlloc(4 * _NUMBERS), "allocating memory")
        self._undo.callback(self.cuda.cuMemFree, memory)
        done(self.cuda.cuMemsetD32(memory, 0, _NUMBERS), "filling memory")
        return self.kernel("touch", (ctypes.c_uint64 * 1)(int(memory)), _TOUCH_GRID)

    def mark(self) -> Kernel:
        """Return the first node of a graph whose start is wanted."""
        return self.kernel("mark", (ctypes.c_uint64 * 0)())

    def answer(self, *, marks: bool) -> Kernel:
        """Return its last node; with `marks` the only one."""
        values = (ctypes.c_uint64 * 3)(self._page_address, marks, _ANSWER_NS)
        return self.kernel("answer", values)

    def longest_absence_ns(self, length_ns: int) -> int:
        """Return the longest time for which a kernel was off the GPU while it meant to run.

        The kernel looks at its clock for so long; the figure is the longest time between two looks,
        that is a fraction of a microsecond if nothing came between.
        """
        self._page[LONGEST] = 0
        values = (ctypes.c_uint64 * 2)(self._page_address, length_ns)
        self.launch(self.kernel("watch", values), self.stream)
        self.wait()
        return int(self._page[LONGEST])

    def launching(self, kernel: Kernel, stream: Any) -> Callable[[], Any]:
        """Return the call that launches a kernel, with no more Python in it than need be."""
        function, arguments, grid = kernel
        return partial(self.cuda.cuLaunchKernel, function, *grid, stream, arguments, 0)

    def launch(self, kernel: Kernel, stream: Any, times: int = 1) -> None:
        """Launch a kernel again and again."""
        call = self.launching(kernel, stream)
        result = (0,)
        for _ in range(times):
            result = call()
        done(result, "launching")

    def wait(self) -> None:
        """Wait until the stream is done.

        Raises:
            GpuError: some work failed.
        """
        done(self.cuda.cuStreamSynchronize(self.stream), "waiting for the GPU")

    def measure_calls(self) -> None:
        """Measure what a call and reading the clock cost the host, for all host times from now."""
        ask, stream = self.cuda.cuStreamGetFlags, self.stream
        if self._given_call_ns is None:
            begin = perf_counter_ns()
            for _ in range(_EMPTY_CALLS):
                ask(stream)
            self.call_ns = (perf_counter_ns() - begin) / _EMPTY_CALLS
        clock = [-perf_counter_ns() + perf_counter_ns() for _ in range(_EMPTY_CALLS)]
        self.clock_ns = statistics.median(clock)

    def call(self, function: Callable[..., Any], *arguments: Any, doing: str) -> tuple[Any, float]:
        """Call the driver once and return what it gave and the ns it took."""
        begin = perf_counter_ns()
        result = function(*arguments)
        end = perf_counter_ns()
        return done(result, doing), end - begin - self.call_ns - self.clock_ns

    @contextmanager
    def latched(self, patience_ns: int = LATCH_NS) -> Iterator[Callable[[], bool]]:
        """Hold the stream while the block queues work, then let it go and wait for it.

        Gives a function that says whether the stream is still held; if not, the latch has run out
        of patience, and what was queued began too early.
        """
        self._ticket += 1
        ticket = self._ticket
        self._latch_values[1], self._latch_values[2] = ticket, patience_ns
        self.launch(self._latch, self.stream)
        try:
            yield lambda: self._page[RAN_OUT] != ticket
        finally:
            self._page[OPENED] = ticket
        self.wait()

    def device_ns(self, work: Callable[[], object]) -> float | None:
        """Return how long the device takes for what `work` queues on the stream.

        The time between two events around it, all queued before the device begins. None if the
        work could not be queued without the device.
        """
        cuda, (begin, end) = self.cuda, self._events
        with self.latched() as held:
            cuda.cuEventRecord(begin, self.stream)
            work()
            cuda.cuEventRecord(end, self.stream)
            in_time = held()
        elapsed_ms = done(cuda.cuEventElapsedTime(begin, end), "reading the time between events")
        return 1e6 * float(elapsed_ms) if in_time else None

    def timed_launch(self, launch: Callable[[], Any]) -> Launch:
        """Launch work on the idle device that ends with `answer`, and say when it began.

        The GPU's clock is compared with the host's after the launch call, `EXCHANGES` times: the
        answer lies between question and sight of it, in the middle but for the unequal ways there
        and back, a few tenths of a microsecond. The quickest exchange counts.

        Args:
            launch: the launch call.
        """
        page = self._page
        page[ASKED] = page[GAVE_UP] = 0
        for place in range(ANSWERS, ANSWERS + EXCHANGES):
            page[place] = 0
        begin = perf_counter_ns()
        result = launch()
        end = perf_counter_ns()
        done(result, "launching")
        exchanges = self._exchanges()
        self.wait()
        overhead_ns = self.call_ns + self.clock_ns
        latency_ns = None
        if exchanges:
            _, middle, answered = min(exchanges)
            latency_ns = middle - (answered - page[STARTED]) - begin - overhead_ns / 2
        return Launch(end - begin - overhead_ns, latency_ns)

    def _exchanges(self) -> list[tuple[int, float, int]]:
        """Ask the GPU for its clock; return duration, middle on the host's clock, the GPU's."""
        page, exchanges, looks = self._page, [], 0
        for number in range(EXCHANGES):
            place = ANSWERS + number
            asked = perf_counter_ns()
            page[ASKED] = number + 1
            while not page[place]:
                looks += 1
                if looks > _MOST_LOOKS:
                    raise GpuError(
                        "the GPU does not begin a launched kernel within seconds; end what else "
                        "runs on it and calibrate again"
                    )
                if page[GAVE_UP]:
                    return []
            seen = perf_counter_ns()
            exchanges.append((seen - asked, (asked + seen) / 2, page[place]))
        return exchanges


def first_device() -> Any:
    """Start CUDA and return the first device that it sees, without opening it.

    Raises:
        GpuError: CUDA cannot start, or sees none.
    """
    cuda = driver()
    done(cuda.cuInit(0), "starting CUDA")
    if done(cuda.cuDeviceGetCount(), "counting GPUs") == 0:
        raise GpuError("CUDA sees no GPU; look at CUDA_VISIBLE_DEVICES")
    return done(cuda.cuDeviceGet(0), "choosing the GPU")
