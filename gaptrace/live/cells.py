"""Recording a part of a process that goes on: what a cell of a notebook needs around it.

The process has used CUDA before, and its devices may still be at work when the part begins and when
it ends. So both wait for them: else work would appear in a recording without its launch, and be
missing from the one that launched it.
"""

import ctypes
import functools
import sys

from gaptrace.errors import GpuError
from gaptrace.live.cupti import CuptiRecorder, open_nvtx, start
from gaptrace.live.imports import AfterImport
from gaptrace.live.notes import RunNotes
from gaptrace.live.ranges import recording_domain
from gaptrace.live.watch import name_default_domain, naming_actions


@functools.cache
def prepare() -> str | None:
    """Have NVTX ranges recorded from now on, and the graphs of CuPy and PyTorch named by them.

    To be called before anything uses NVTX, since its libraries ask for a recorder once.

    Returns:
        Why no range will be recorded; None if they will be.
    """
    try:
        open_nvtx()
    except GpuError as error:
        return str(error)
    recording_domain.cache_clear()
    if recording_domain() is None:
        if "nvtx" not in sys.modules:
            return "the package nvtx is not installed"
        return (
            "nothing takes them; if NVTX was used before %load_ext gaptrace, restart the kernel "
            "and load it first"
        )
    name_default_domain(sys.modules["nvtx"])
    actions = naming_actions(RunNotes(None, []))
    for name in actions.keys() & sys.modules.keys():
        actions.pop(name)(sys.modules[name])
    sys.meta_path.insert(0, AfterImport(actions))
    return None


def begin(spool: str) -> CuptiRecorder:
    """Start to record this process node by node, once its devices have done what they had to do.

    Args:
        spool: the file to write, which is created.

    Raises:
        GpuError: as `gaptrace.live.cupti.start`.
    """
    no_ranges = prepare()
    wait_for_devices()
    recorder = start("node", spool)
    if no_ranges is not None:
        recorder.leave_out("NVTX ranges", no_ranges)
    return recorder


def end(recorder: CuptiRecorder) -> None:
    """End a recording, once the devices have done what they were given."""
    wait_for_devices()
    recorder.stop()


def wait_for_devices() -> None:
    """Wait for all work in the primary contexts of this process, which libraries share.

    Creates none. What the driver answers is left to the program: it gets the same answer itself.
    """
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    count, flags, active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
    if cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return  # nothing has used CUDA yet
    for device in range(count.value):
        cuda.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active))
        context = ctypes.c_void_p()
        if not active.value or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) != 0:
            continue
        cuda.cuCtxPushCurrent_v2(context)
        cuda.cuCtxSynchronize()
        cuda.cuCtxPopCurrent_v2(ctypes.byref(context))
        cuda.cuDevicePrimaryCtxRelease_v2(device)
