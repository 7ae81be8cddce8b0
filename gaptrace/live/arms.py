"""Measures the steps of a program while it runs: what `gaptrace profile --arms` asks for."""

import functools
import inspect
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from gaptrace.errors import GaptraceError
from gaptrace.live.notes import RunNotes

P = ParamSpec("P")
R = TypeVar("R")

#: Calls of a step that pass before it is measured: the first ones load, compile and fill pools.
_CALLS_BEFORE = 3


@dataclass(frozen=True)
class Plan:
    """What to measure of each step.

    Attributes:
        notes: where results go.
        settings: arms, chunks, rounds, steps, as `measure` takes them.
    """

    notes: RunNotes
    settings: dict[str, Any] = field(default_factory=dict)


_plan: Plan | None = None


def plan_arms(settings: str | None, notes: RunNotes) -> None:
    """Have every step of this process measured once, as the JSON in `GAPTRACE_ARMS` says."""
    global _plan
    _plan = Plan(notes, json.loads(settings)) if settings else None


def with_arms(function: Callable[P, R], name: str) -> Callable[P, R]:
    """Return the function, measured at its fourth call if this process was told to.

    The program goes on as if nothing had been measured: arrays among the arguments are put back,
    and the call itself is made. What cannot be measured is noted, and no reason to stop.
    """
    plan = _plan
    if plan is None:
        return function
    if inspect.iscoroutinefunction(function):
        plan.notes.arms[name] = {"error": f"step {name} is a coroutine, which cannot be captured"}
        return function
    calls = itertools.count()

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if next(calls) == _CALLS_BEFORE:
            plan.notes.arms[name] = _measured(lambda: function(*args, **kwargs), name, args, kwargs)
            plan.notes.write()
        return function(*args, **kwargs)

    def _measured(step: Callable[[], Any], name: str, *state: Any) -> dict[str, Any]:
        from gaptrace.live.measure import measure
        from gaptrace.timings import as_object

        try:
            return as_object(measure(step, state=state, **plan.settings))
        except GaptraceError as error:
            return {"error": f"step {name}: {error}"}

    return call
