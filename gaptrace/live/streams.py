"""Streams of any library as plain pointers, and made current in the libraries that are loaded."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from gaptrace.errors import GpuError


def stream_pointer(stream: Any) -> int:
    """Return the CUDA stream handle of a stream.

    Args:
        stream: a handle; a stream of CuPy, PyTorch, Numba or cuda.bindings; anything that follows
            the `__cuda_stream__` protocol of cuda.core.

    Raises:
        GpuError: it is none of these.
    """
    if isinstance(stream, int):
        return stream
    for attribute in ("ptr", "cuda_stream"):  # CuPy, PyTorch
        pointer = getattr(stream, attribute, None)
        if isinstance(pointer, int):
            return pointer
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return int((protocol() if callable(protocol) else protocol)[1])
    handle = getattr(stream, "handle", stream)  # Numba holds a c_void_p or a number
    try:
        return int(getattr(handle, "value", handle) or 0)
    except TypeError:
        raise GpuError(
            f"{type(stream).__name__} is no CUDA stream that gaptrace knows: pass its handle as int"
        ) from None


@contextlib.contextmanager
def current_stream(pointer: int) -> Iterator[None]:
    """Make a stream the current one of CuPy and PyTorch, those of them that the program imported.

    Code that names its own stream is not changed by it.
    """
    with contextlib.ExitStack() as stack:
        cupy, torch = sys.modules.get("cupy"), sys.modules.get("torch")
        if cupy is not None:
            stack.enter_context(cupy.cuda.ExternalStream(pointer))
        if torch is not None and torch.cuda.is_available():
            stack.enter_context(torch.cuda.stream(torch.cuda.ExternalStream(pointer)))
        yield
