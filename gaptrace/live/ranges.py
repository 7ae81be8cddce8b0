"""NVTX ranges for the user's own code: `gaptrace.range`, and what `gaptrace.step` is made of.

Ranges go to the domain `gaptrace` through the `nvtx` package. Where that package is absent, or
no recorder is attached, nothing is recorded: a decorated function is returned unchanged and a
`with` block costs two empty calls. With one, the pace of the host is marked before a range every
two milliseconds at most, which takes some 12 us (`live.pace_marks`).
"""

import functools
import inspect
from collections.abc import Callable
from numbers import Integral
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast

from gaptrace.live.pace_marks import mark_pace

P = ParamSpec("P")
R = TypeVar("R")

#: The NVTX domain of everything that gaptrace itself marks.
DOMAIN = "gaptrace"


class Range:
    """A named range; made by `range`, to be entered with `with` or put on a function with `@`.

    It holds no state, so that one object can be entered again, nested, and shared by threads.
    """

    __slots__ = ("_attributes", "_domain")

    def __init__(self, domain: Any | None, attributes: Any | None) -> None:
        self._domain = domain
        self._attributes = attributes

    def __enter__(self) -> "Range":
        """Open the range on this thread."""
        if self._domain is not None:
            mark_pace(self._domain)
            self._domain.push_range(self._attributes)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the range, whether or not the block raised."""
        if self._domain is not None:
            self._domain.pop_range()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Put the range around every call of a function or a coroutine function."""
        return around(function, self._domain, lambda: self._attributes)


_OFF = Range(None, None)


def range(name: str, payload: float | None = None) -> Range:
    """Mark a stretch of host code, so that the report can say what the GPU did during it.

    Use it as a context manager or as a decorator. An exception closes the range and passes on.

    A `with` block belongs to one thread and nests inside the ranges open on it, so that an
    `await` in the block may let another task of the thread nest into it. On a coroutine function
    the decorator uses a range that may overlap others instead. Generators are refused: the caller
    decides when their body runs, so put a `with` block around the part that is meant.

    Args:
        name: what the range is called in reports; a few fixed names read better than one a step.
        payload: a number that tells ranges of one name apart, such as a step or a batch size.

    Raises:
        TypeError: used as a decorator on a generator function.

    Example:
        ```python
        with gaptrace.range("prefill", payload=batch_size):
            ...
        ```
    """
    domain = recording_domain()
    if domain is None:
        return _OFF
    if payload is None:
        return Range(domain, domain.get_event_attributes(name))
    return Range(domain, domain.get_event_attributes(name, payload=_plain(payload)))


def around(
    function: Callable[P, R], domain: Any | None, attributes: Callable[[], Any]
) -> Callable[P, R]:
    """Put a range around every call of a function, with attributes that are asked for each time.

    Raises:
        TypeError: it is a generator function.
    """
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            f"{function.__qualname__} is a generator: a range around its call would end before its "
            'body runs; put `with gaptrace.range("..."):` inside it'
        )
    if domain is None:
        return function
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wait(*args: Any, **kwargs: Any) -> Any:
            # Tasks of one thread interleave, and push/pop ranges of one thread must nest.
            mark_pace(domain)
            opened = domain.start_range(attributes())
            try:
                return await function(*args, **kwargs)
            finally:
                domain.end_range(opened)

        return cast(Callable[P, R], wait)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        mark_pace(domain)
        domain.push_range(attributes())
        try:
            return function(*args, **kwargs)
        finally:
            domain.pop_range()

    return call


@functools.cache
def recording_domain() -> Any | None:
    """Return the NVTX domain `gaptrace`, or None when nothing would record it.

    The question is asked once, at the first range: a recorder attaches before the program starts.
    """
    try:
        import nvtx
    except ImportError:
        return None
    domain = nvtx.get_domain(DOMAIN) if nvtx.enabled() else None
    # Without a recorder nvtx returns a stand-in that has no handle; before 0.2.12 its domains
    # have no push_range.
    return domain if hasattr(domain, "handle") and hasattr(domain, "push_range") else None


def _plain(payload: float) -> float:
    """Return a Python number: nvtx takes int and float, and no subclass or NumPy scalar.

    Of integers it takes those of 64 bits with a sign; others are rounded to a float.
    """
    is_whole = isinstance(payload, Integral) and -(2**63) <= payload < 2**63
    return int(payload) if is_whole else float(payload)
