"""What `gaptrace profile --arms` and `gaptrace verify` do with the steps of a running program."""

import functools
import inspect
import itertools
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar, cast

from gaptrace.errors import GaptraceError
from gaptrace.live.notes import RunNotes

P = ParamSpec("P")
R = TypeVar("R")

#: Calls of a step that pass before anything is done with it: the first ones load, compile and fill
#: pools.
CALLS_BEFORE = 3


@dataclass(frozen=True)
class _Plan:
    """What to do with each step: time its arms with these settings of `measure`, or replay it."""

    notes: RunNotes
    arms: dict[str, Any] | None
    replays: bool
    names: Counter[str] = field(default_factory=Counter)


_plan: _Plan | None = None


def plan_steps(notes: RunNotes, *, arms: str | None, replays: str | None) -> None:
    """Settle what is done with the steps of this process, before the program defines them.

    Args:
        notes: where results go.
        arms: settings of `live.measure.measure` as JSON, to time each step once.
        replays: anything, to replay each step beside its calls (`live.shadow`).
    """
    global _plan
    _plan = _Plan(notes, json.loads(arms) if arms else None, bool(replays))


def planned(function: Callable[P, R], name: str) -> Callable[P, R]:
    """Return a step as the plan of this process wants it; as it is where there is none.

    Its result is noted under its name, and a second step of that name as `name (2)`.
    """
    plan = _plan
    if plan is None or (plan.arms is None and not plan.replays):
        return function
    plan.names[name] += 1
    if plan.names[name] > 1:
        name = f"{name} ({plan.names[name]})"
    results = plan.notes.verify if plan.replays else plan.notes.arms
    if inspect.iscoroutinefunction(cast(Any, function)):
        results[name] = {"error": f"step {name} is a coroutine, which cannot be captured"}
        return function
    return _replayed(function, name, plan) if plan.replays else _timed(function, name, plan)


def _timed(function: Callable[P, R], name: str, plan: _Plan) -> Callable[P, R]:
    """Time a step at its fourth call, and go on as if nothing had been: see `measure`."""
    calls = itertools.count()

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if next(calls) == CALLS_BEFORE:
            plan.notes.arms[name] = timed(args, kwargs)
            plan.notes.write()
        return function(*args, **kwargs)

    def timed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        from gaptrace.live.measure import measure
        from gaptrace.timings import as_object

        try:
            step = functools.partial(function, *args, **kwargs)
            return as_object(measure(step, state=(args, kwargs), **plan.arms or {}))
        except GaptraceError as error:
            return {"error": f"step {name}: {error}"}
        except Exception as error:  # the program shall go on as if nothing had been
            return {"error": f"step {name}: {type(error).__name__}: {' '.join(str(error).split())}"}

    return call


def _replayed(function: Callable[P, R], name: str, plan: _Plan) -> Callable[P, R]:
    """Replay a step beside its calls, from the fourth on: see `shadow`."""
    from gaptrace.live.shadow import Shadow

    calls, shadow = itertools.count(), Shadow(function, name, plan.notes)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        number = next(calls)
        if number >= CALLS_BEFORE and shadow.is_open:
            return cast(R, shadow.call(number, args, kwargs))
        result = function(*args, **kwargs)
        shadow.see(result)
        return result

    return call
