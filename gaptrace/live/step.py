"""`gaptrace.step`: a function whose calls are the steps of a program."""

import functools
import itertools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast, overload

from gaptrace.live import ranges
from gaptrace.live.plans import planned

P = ParamSpec("P")
R = TypeVar("R")


@overload
def step(function: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def step(*, name: str = "step") -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def step(
    function: Callable[P, R] | None = None, /, *, name: str = "step"
) -> Callable[P, R] | Callable[[Callable[P, R]], Callable[P, R]]:
    """Mark every call of a function as one step: a range whose payload counts the calls from 0.

    Args:
        function: the function that runs one step, when used as `@gaptrace.step`.
        name: what the steps are called in reports, as in `@gaptrace.step(name="decode")`.

    Raises:
        TypeError: used on a generator function, see `range`; or a name is given without `name=`.
    """
    if function is None:
        return functools.partial(_step, name=name)
    if not callable(function):
        raise TypeError(f"{function!r} is no function; write @gaptrace.step(name={function!r})")
    return _step(function, name=name)


def _step(function: Callable[P, R], *, name: str) -> Callable[P, R]:
    function = planned(function, name)
    domain = ranges.recording_domain()
    calls = itertools.count()
    return ranges.around(
        function, domain, lambda: cast(Any, domain).get_event_attributes(name, payload=next(calls))
    )
