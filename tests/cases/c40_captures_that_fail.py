"""Case 40: captures that fail.

paiml/realizar#197: cuStreamEndCapture returns 901, the capture was invalidated; a change of the
same project lays it to capturing in global mode, in which calls of other threads count, and
captures in thread-local mode instead. nurl#591: a call on the default stream returns 906 because
the capturing stream was created as a blocking one.

Name the call between the beginning and the end of the capture that failed first. For 906, capture
on a non-blocking stream.
"""

from cases.program import US, Program
from cases.story import Story

KERNELS = 40


def recorded(begin, end, launch, fault=None):
    run = Program()
    run.call(begin, US)
    for _ in range(10):
        run.call(launch, 2 * US)
    if fault:
        run.call(fault, 5 * US, error=906)
    run.call(end, 2 * US, error=901)
    for _ in range(KERNELS):  # and then kernel by kernel
        run.launch(5 * US, 500 * US)
    return run.rows


def failed(rows, call, return_code, advice):
    return Story(
        rows,
        findings=("capture_failed",),
        verdict="do_not_graph",
        regime=None,
        causes={"device_queued": (KERNELS - 1) * US},
        evidence={
            "capture_failed": {"call": call, "return_code": return_code, "captures": 1},
        },
        says=(f"[high] a stream capture failed: {call} returned error {return_code}", advice),
    )


STORIES = {
    "invalidated": failed(
        recorded("cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuLaunchKernel"),
        "cuStreamEndCapture",
        901,
        "thread-local",
    ),
    "implicit": failed(
        recorded(
            "cudaStreamBeginCapture_v10000",
            "cudaStreamEndCapture_v10000",
            "cudaLaunchKernel_v7000",
            "cudaMemcpy_v3020",
        ),
        "cudaMemcpy",
        906,
        "cudaStreamNonBlocking",
    ),
}
