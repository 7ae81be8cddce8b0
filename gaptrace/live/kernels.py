"""The kernels that calibration times with, compiled by NVRTC for the GPU at hand."""

from typing import Any

from gaptrace.errors import GpuError

#: Questions that `answer` answers: the quickest is the one that tells best when it was answered.
EXCHANGES = 8

#: Places in the page that host and GPU share, in words of 64 bits.
OPENED = 0  # host: the latest ticket of a latch that may go on
RAN_OUT = 1  # GPU: the latest ticket of a latch that did not wait any longer
ASKED = 2  # host: questions asked
GAVE_UP = 3  # GPU: 1 once no question came
STARTED = 4  # GPU: its clock when the work began
ANSWERS = 5  # GPU: its clock at each answer
LONGEST = ANSWERS + EXCHANGES  # GPU: the longest time between two looks of `watch` at its clock

#: `spin`: lasts a number of clocks of the multiprocessor.
#:
#: `latch`: lasts until the host opens it, so that what is queued behind it runs without the host,
#: or until its time is over, since a call of the host may wait for the GPU.
#:
#: `mark` and `answer`: the first and the last node of a graph. Both clocks of one moment are known
#: only by asking: the host writes a question, `answer` sees it, writes its clock, and the host sees
#: that. `mark` left the GPU's clock at the start of the graph; with marks = 1, `answer` is both.
#:
#: `watch`: looks at the clock again and again. It does not run while another program has its turn.
#:
#: `touch`: reads and writes memory, a number a thread, as small kernels of programs do.
SOURCE = f"""
typedef unsigned long long u64;

__device__ u64 mark_of_the_start;

__device__ __forceinline__ u64 now()
{{
    u64 ns;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
    return ns;
}}

extern "C" __global__ void spin(u64 clocks)
{{
    u64 begin = clock64();
    while (clock64() - begin < clocks) {{}}
}}

extern "C" __global__ void latch(volatile u64 *page, u64 ticket, u64 patience_ns)
{{
    if (threadIdx.x) return;
    u64 begin = now();
    while (page[{OPENED}] < ticket)
        if (now() - begin > patience_ns) {{
            page[{RAN_OUT}] = ticket;
            break;
        }}
}}

extern "C" __global__ void mark()
{{
    if (threadIdx.x) return;
    mark_of_the_start = now();
}}

extern "C" __global__ void touch(float *numbers)
{{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    numbers[i] = numbers[i] * 0.999f + 0.001f;
}}

extern "C" __global__ void watch(volatile u64 *page, u64 length_ns)
{{
    if (threadIdx.x) return;
    u64 begin = now(), last = begin, longest = 0;
    while (last - begin < length_ns) {{
        u64 seen = now();
        if (seen - last > longest) longest = seen - last;
        last = seen;
    }}
    page[{LONGEST}] = longest;
}}

extern "C" __global__ void answer(volatile u64 *page, u64 marks, u64 patience_ns)
{{
    if (threadIdx.x) return;
    u64 begin = now();
    page[{STARTED}] = marks ? begin : mark_of_the_start;
    for (int i = 0; i < {EXCHANGES}; i++) {{
        while (page[{ASKED}] <= i)
            if (now() - begin > patience_ns) {{
                page[{GAVE_UP}] = 1;
                return;
            }}
        page[{ANSWERS} + i] = now();
    }}
}}
"""
NAMES = ("spin", "latch", "mark", "answer", "watch", "touch")


def compile_kernels(capability: tuple[int, int]) -> bytes:
    """Return the machine code of the kernels.

    Args:
        capability: compute capability of the GPU.

    Raises:
        GpuError: NVRTC is not there, or does not know this GPU.
    """
    try:
        from cuda.bindings import nvrtc

        answered = nvrtc.nvrtcCreateProgram(SOURCE.encode(), b"gaptrace.cu", 0, None, None)
    except (ImportError, RuntimeError) as error:  # what cuda-bindings raises without the library
        raise GpuError(
            "calibration compiles its kernels with NVRTC, which was not found: "
            "pip install 'gaptrace[cuda13]' (or cuda12, to match the driver)"
        ) from error
    program = _compiled(answered, "creating a program")
    try:
        options = [f"--gpu-architecture=sm_{capability[0]}{capability[1]}".encode()]
        status = nvrtc.nvrtcCompileProgram(program, len(options), options)
        if status[0] != 0:
            raise GpuError(
                f"NVRTC cannot compile for a GPU of compute capability {capability[0]}."
                f"{capability[1]} ({status[0].name}: {_log(nvrtc, program)}); install an NVRTC "
                "that matches the driver"
            )
        size = _compiled(nvrtc.nvrtcGetCUBINSize(program), "asking for its size")
        code = bytes(size)
        _compiled(nvrtc.nvrtcGetCUBIN(program, code), "fetching the code")  # written into
        return code
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _compiled(result: tuple[Any, ...], doing: str) -> Any:
    status, *values = result
    if status != 0:
        raise GpuError(f"{doing}: NVRTC answered {getattr(status, 'name', status)}")
    return values[0] if values else None


def _log(nvrtc: Any, program: Any) -> str:
    status, size = nvrtc.nvrtcGetProgramLogSize(program)
    if status != 0 or size <= 1:
        return "it says nothing"
    log = b" " * size
    nvrtc.nvrtcGetProgramLog(program, log)
    return " ".join(log.decode(errors="replace").strip("\0").split())
