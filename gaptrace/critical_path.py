"""How long work on several streams takes at least: the longest chain of which each part waits."""

from bisect import bisect_left
from collections.abc import Hashable, Iterable
from typing import NamedTuple


class Work(NamedTuple):
    """Work given to a stream. It follows what the stream was given before.

    Attributes:
        at: number of the call that launched it.
        stream: on which.
        ns: how long it takes.
    """

    at: int
    stream: Hashable
    ns: int


class Wait(NamedTuple):
    """An order to a stream to wait for what another had been given.

    Attributes:
        at: number of the call.
        stream: that waits.
        awaited: stream on which the event was recorded; None where not known: then for all streams.
        recorded_at: number of the call that recorded it; None where not known: then for all that
            was given before this order.
    """

    at: int
    stream: Hashable
    awaited: Hashable | None
    recorded_at: int | None


class Path(NamedTuple):
    """A chain of work: how long it takes, and of how many pieces it is."""

    ns: int
    pieces: int


def critical_path(given: Iterable[Work | Wait]) -> Path:
    """Return the longest chain in which each piece of work must wait for the one before.

    Args:
        given: in any order; numbers of calls are unique.
    """
    # Per stream when its last work ends, after each call that changed that.
    changes: dict[Hashable, tuple[list[int], list[Path]]] = {}

    def reached(stream: Hashable, before: int) -> Path:
        calls, paths = changes.get(stream, ([], []))
        place = bisect_left(calls, before)
        return paths[place - 1] if place else Path(0, 0)

    for each in sorted(given, key=lambda each: each.at):
        path = reached(each.stream, each.at)
        if isinstance(each, Work):
            path = Path(path.ns + each.ns, path.pieces + 1)
        else:
            awaited = [*changes] if each.awaited is None else [each.awaited]
            until = each.at if each.recorded_at is None else each.recorded_at
            path = max(path, *(reached(stream, until) for stream in awaited), Path(0, 0))
        calls, paths = changes.setdefault(each.stream, ([], []))
        calls.append(each.at)
        paths.append(path)
    return max((paths[-1] for _, paths in changes.values()), default=Path(0, 0))
