"""Makes a stream the current one of the libraries that are loaded."""

import contextlib
import sys
from collections.abc import Iterator


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
