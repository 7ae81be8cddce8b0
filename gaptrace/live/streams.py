"""Makes a stream the current one of the libraries that are loaded."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any


class _Stream:
    """A stream by its handle, for `cupy.cuda.Stream.from_external`."""

    def __init__(self, pointer: int) -> None:
        self._pointer = pointer

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._pointer


def cupy_stream(cupy: Any, pointer: int) -> Any:
    """Return a CuPy stream for a stream that is not CuPy's own."""
    # CuPy 14.2 deprecates ExternalStream; older ones have nothing else.
    from_external = getattr(cupy.cuda.Stream, "from_external", None)
    return from_external(_Stream(pointer)) if from_external else cupy.cuda.ExternalStream(pointer)


@contextlib.contextmanager
def current_stream(pointer: int) -> Iterator[None]:
    """Make a stream the current one of CuPy and PyTorch, those of them that the program imported.

    Code that names its own stream is not changed by it.
    """
    with contextlib.ExitStack() as stack:
        cupy, torch = sys.modules.get("cupy"), sys.modules.get("torch")
        if cupy is not None:
            stack.enter_context(cupy_stream(cupy, pointer))
        if torch is not None and torch.cuda.is_initialized():
            stack.enter_context(torch.cuda.stream(torch.cuda.ExternalStream(pointer)))
        yield
