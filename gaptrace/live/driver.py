"""Calls of the CUDA driver through cuda-bindings, with errors that say what to do."""

import functools
from typing import Any

from gaptrace.errors import GpuError

_NO_BINDINGS = (
    "this needs the package cuda-bindings, which is not installed: pip install 'gaptrace[cuda13]' "
    "(or cuda12, to match the driver)"
)


@functools.cache
def driver() -> Any:
    """Return the module `cuda.bindings.driver`.

    Raises:
        GpuError: cuda-bindings or the driver is not installed.
    """
    try:
        from cuda.bindings import driver as module
    except ImportError as error:
        raise GpuError(_NO_BINDINGS) from error
    try:
        module.cuDriverGetVersion()
    except RuntimeError as error:
        raise GpuError(f"no NVIDIA driver: {error}; run gaptrace doctor") from error
    return module


def done(result: tuple[Any, ...], doing: str) -> Any:
    """Return what a call of cuda-bindings gave besides its status.

    Args:
        result: what the call returned: the status and then its values.
        doing: what was being done, as in `cutting the graph`.

    Returns:
        None, the value, or a tuple of values.

    Raises:
        GpuError: the status is not success.
    """
    status, *values = result
    if status != 0:
        raise GpuError(f"{doing}: the driver answered {getattr(status, 'name', status)}")
    if not values:
        return None
    return values[0] if len(values) == 1 else tuple(values)


def driver_version() -> str:
    """Return the version of the NVIDIA driver, as `580.159.03`, from its management library.

    `unknown` where that library is missing.
    """
    import ctypes

    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return "unknown"
    text = ctypes.create_string_buffer(96)
    nvml.nvmlInit_v2()
    try:
        status = nvml.nvmlSystemGetDriverVersion(text, len(text))
    finally:
        nvml.nvmlShutdown()
    return text.value.decode(errors="replace") if status == 0 else "unknown"
