"""Whether somebody else uses the GPU, as its management library (NVML) tells it."""

import ctypes
import statistics
import time
from pathlib import Path

from gaptrace.errors import GpuError

_LIBRARY = "libnvidia-ml.so.1"
#: NVML tells the share of time with a kernel on the GPU over its last sample period, which NVIDIA's
#: documentation puts between 1/6 s and 1 s. The first looks may still see what ended just before.
_LOOKS_PASSED_OVER, _LOOKS = 4, 4
_PAUSE_S = 0.25
#: Percent: more than what an idle GPU shows, which is 0.
_BUSY = 5
_MOST_PROCESSES = 64


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


def refuse_busy(bus_id: bytes) -> bool:
    """Ask for two seconds whether the GPU works, before this process opens it.

    A process that holds the GPU open without using it does no harm.

    Args:
        bus_id: PCI address of the GPU.

    Returns:
        True if it does not; False if NVML does not answer.

    Raises:
        GpuError: it works for somebody.
    """
    try:
        nvml = ctypes.CDLL(_LIBRARY)
    except OSError:
        return False
    if nvml.nvmlInit_v2() != 0:
        return False
    try:
        device = ctypes.c_void_p()
        if nvml.nvmlDeviceGetHandleByPciBusId_v2(bus_id, ctypes.byref(device)) != 0:
            return False
        percent = _utilization(nvml, device)
        if percent is None:
            return False
        if percent >= _BUSY:
            raise GpuError(busy_message(f"{percent:.0f} % of the time", _processes(nvml, device)))
        return True
    finally:
        nvml.nvmlShutdown()


def busy_message(how: str, pids: list[int]) -> str:
    """Return the refusal: how busy, by whom as far as known, and what to do."""
    known = [f"{pid}{_name(pid)}" for pid in pids]
    by = f" by process {', '.join(known)}" if known else ", by a process that cannot be seen here"
    return (
        f"the GPU is in use ({how}{by}) and would be calibrated wrongly: end that, or choose an "
        "idle GPU with CUDA_VISIBLE_DEVICES"
    )


def _utilization(nvml: ctypes.CDLL, device: ctypes.c_void_p) -> float | None:
    looks: list[int] = []
    for _ in range(_LOOKS_PASSED_OVER + _LOOKS):
        found = _Utilization()
        if nvml.nvmlDeviceGetUtilizationRates(device, ctypes.byref(found)) != 0:
            return None
        looks.append(found.gpu)
        time.sleep(_PAUSE_S)
    return statistics.median(looks[_LOOKS_PASSED_OVER:])


def _processes(nvml: ctypes.CDLL, device: ctypes.c_void_p) -> list[int]:
    count = ctypes.c_uint(_MOST_PROCESSES)
    found = (_Process * _MOST_PROCESSES)()
    ask = getattr(nvml, "nvmlDeviceGetComputeRunningProcesses_v3", None)
    if ask is None or ask(device, ctypes.byref(count), found) != 0:
        return []
    return [process.pid for process in found[: count.value]]


def _name(pid: int) -> str:
    try:
        return f" ({Path(f'/proc/{pid}/comm').read_text(encoding='utf-8').strip()})"
    except OSError:
        return ""  # of another user, or outside this container
