"""Asks the NVIDIA driver what it is and which GPUs it has; prints one JSON object.

A program of its own, so that the asking process never initialises CUDA and survives a driver
that does not.
"""

import ctypes
import json
import sys


def ask() -> dict[str, object]:
    """Return `cuda_version`, `gpus` and `problem`, as in `gaptrace.record.machine.Driver`."""
    answer: dict[str, object] = {"cuda_version": None, "gpus": [], "problem": None}
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return answer | {"problem": "libcuda.so.1, the NVIDIA driver's library, is not installed"}
    number = ctypes.c_int()
    if cuda.cuDriverGetVersion(ctypes.byref(number)) == 0:
        answer["cuda_version"] = f"{number.value // 1000}.{number.value % 1000 // 10}"
    status = cuda.cuInit(0)
    if status != 0:
        text = ctypes.c_char_p()
        cuda.cuGetErrorName(status, ctypes.byref(text))
        name = text.value.decode() if text.value else f"error {status}"
        return answer | {"problem": f"cuInit failed with {name}"}
    cuda.cuDeviceGetCount(ctypes.byref(number))
    return answer | {"gpus": [_name(cuda, ordinal) for ordinal in range(number.value)]}


def _name(cuda: ctypes.CDLL, ordinal: int) -> str:
    device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    cuda.cuDeviceGet(ctypes.byref(device), ordinal)
    cuda.cuDeviceGetName(name, len(name), device)
    return name.value.decode(errors="replace")


if __name__ == "__main__":
    # A line of its own, whatever else Python prints when it starts.
    sys.stdout.write(f"\n{json.dumps(ask())}\n")
