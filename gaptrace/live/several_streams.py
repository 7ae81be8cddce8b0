"""Has a process use the GPU as programs with several streams do, for graphs to run as in those."""

from typing import Any

from gaptrace.live.driver import done

#: Copies on another stream. Seen on an H200 (driver 580.159, CUDA 13.0): the seventh or eighth
#: single kernel or copy there, beside single kernels or copies on the first stream, has every graph
#: of the process take longer from then on. Own choice: several times that.
_COPIES = 32


def use_other_streams(cuda: Any) -> None:
    """Copy a few bytes on a stream of its own, again and again.

    A process that has ever launched on one stream only runs the nodes of its graphs closer to each
    other than one that has used two: by 0.18 us a node in lines of small kernels, by 0.33 to 0.37
    us in PyTorch decoders (H200, driver 580.159, CUDA 13.0). It stays so until the process ends,
    also when the stream is gone; before, a program can go from one pace to the other and back. Most
    programs have used several, and times that may jump by a tenth cannot be compared: so whatever
    is timed is timed after this.

    Args:
        cuda: the driver's calls, with a context that is current.

    Raises:
        GpuError: the GPU is out of memory, or failed.
    """
    doing = "using other streams"
    memory = done(cuda.cuMemAlloc(2 * _COPIES), doing)
    try:
        for _ in range(2):  # one of them may be the first that the process uses
            _copy_on_a_stream(cuda, int(memory), doing)
    finally:
        cuda.cuMemFree(memory)


def _copy_on_a_stream(cuda: Any, memory: int, doing: str) -> None:
    stream = done(cuda.cuStreamCreate(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING), doing)
    try:
        for _ in range(_COPIES):
            done(cuda.cuMemcpyDtoDAsync(memory, memory + _COPIES, 4, stream), doing)
        done(cuda.cuStreamSynchronize(stream), doing)
    finally:
        cuda.cuStreamDestroy(stream)
