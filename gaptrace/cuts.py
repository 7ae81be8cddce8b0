"""Where a graph may be cut into chunks: the order of its nodes, the width of each cut, schedules.

Pure. Nodes are numbered 0..N-1; an edge `(a, b)` says that b waits for a. Edges are an array of
integers, shape `(E, 2)`. From `widths` on, numbers are positions in a topological order, so that
every edge points forward. A cut is named by the count of nodes before it, 1..N-1; arrays over cuts
have shape `(N + 1,)`, with 0 at both ends, where nothing is cut. A schedule is the list of chunk
sizes.
"""

import operator
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

from gaptrace.errors import ScheduleError

Ints = NDArray[np.int64]


def topological_order(nodes: int, edges: Ints) -> Ints:
    """Return the nodes so that each comes after all that it waits for; shape `(N,)`.

    Of the nodes that could come next it is always the one with the smallest number: a graph whose
    nodes are numbered as they were captured stays in the order of its capture.

    Raises:
        ValueError: the edges form a cycle.
    """
    if (edges[:, 0] < edges[:, 1]).all():
        return np.arange(nodes)
    successors: list[list[int]] = [[] for _ in range(nodes)]
    waits_for = np.bincount(edges[:, 1], minlength=nodes).tolist()
    for before, after in edges.tolist():
        successors[before].append(after)
    free = [node for node in range(nodes) if not waits_for[node]]
    heapify(free)
    order = []
    while free:
        order.append(heappop(free))
        for after in successors[order[-1]]:
            waits_for[after] -= 1
            if not waits_for[after]:
                heappush(free, after)
    if len(order) < nodes:
        raise ValueError("the edges form a cycle")
    return np.array(order, np.int64)


def widths(nodes: int, edges: Ints) -> Ints:
    """Return how many branches each cut goes across; shape `(N + 1,)`.

    1 (narrow): the cut changes nothing, since each first node behind it waits for each last node
    before it anyway. Otherwise some of them could run side by side, and the cut holds the later
    back until the earlier are done. The width is then the number of branches that end before the
    cut or that begin behind it, whichever is more, and at least 2: two chains that know nothing of
    each other are two branches even where the cut lies between them.

    A last node has no successor before the cut, a first node no predecessor behind it; a path from
    one to the other could only be an edge, so the cut is narrow if there are edges between all.
    """
    before, after = np.unique(edges, axis=0).reshape(-1, 2).T
    position = np.arange(nodes)
    successor, predecessor = np.full(nodes, nodes), np.full(nodes, -1)
    np.minimum.at(successor, before, after)
    np.maximum.at(predecessor, after, before)
    last = _covered(nodes, position + 1, successor)
    first = _covered(nodes, predecessor + 1, position)
    joined = _covered(nodes, predecessor[after] + 1, successor[before])
    found = np.where(joined == last * first, 1, np.maximum(np.maximum(last, first), 2))
    found[[0, -1]] = 0
    return found


def crossings(nodes: int, edges: Ints) -> Ints:
    """Return how many edges lie across each cut; shape `(N + 1,)`."""
    return _covered(nodes, edges[:, 0] + 1, edges[:, 1])


def _covered(nodes: int, begin: Ints, end: Ints) -> Ints:
    """Return in how many of the ranges `begin..end`, both included, each of 0..N lies."""
    begin, end = begin[begin <= end], end[begin <= end]
    steps = np.bincount(begin, minlength=nodes + 2) - np.bincount(end + 1, minlength=nodes + 2)
    return np.cumsum(steps)[: nodes + 1]


def dependents(nodes: int, edges: Ints, start: int) -> NDArray[np.bool_]:
    """Return which nodes wait for `start`, directly or through others; shape `(N,)`."""
    found = np.zeros(nodes, np.bool_)
    found[start] = True
    for before, after in edges[np.argsort(edges[:, 0], kind="stable")].tolist():
        if found[before]:
            found[after] = True
    found[start] = False
    return found


def sizes(nodes: int, chunk: int, *, remainder_first: bool = False) -> tuple[int, ...]:
    """Return the schedule of chunks of `chunk` nodes, and of what remains at the end, or in front.

    Raises:
        ScheduleError: there are no nodes, or the chunk holds none.
    """
    chunk = _whole(chunk, "a chunk")
    if nodes < 1:
        raise ScheduleError("the graph has no nodes: there is nothing to cut")
    whole, rest = divmod(nodes, chunk)
    remainder = (rest,) if rest else ()
    return (*remainder, *(chunk,) * whole) if remainder_first else (*(chunk,) * whole, *remainder)


def checked(schedule: Sequence[int], nodes: int) -> tuple[int, ...]:
    """Return the schedule as a tuple of ints if it cuts `nodes` nodes.

    Raises:
        ScheduleError: a size is not a positive whole number, or they do not sum to `nodes`.
    """
    found = tuple(
        _whole(size, f"chunk {index} of the schedule") for index, size in enumerate(schedule)
    )
    if sum(found) != nodes or not found:
        raise ScheduleError(
            f"the {len(found)} sizes of the schedule sum to {sum(found)}, but the graph has "
            f"{nodes} nodes: every node must be in one chunk"
        )
    return found


def _whole(size: object, what: str) -> int:
    try:
        number = operator.index(size)  # type: ignore[arg-type]
    except TypeError:
        number = 0
    if number < 1 or isinstance(size, bool):
        raise ScheduleError(f"{what} must be a whole number of nodes, 1 or more, not {size!r}")
    return number


def move_to_narrow(
    schedule: Sequence[int], costs: Ints, *, reach_fraction: float = 0.25
) -> tuple[int, ...]:
    """Return the schedule with each cut moved to the cheapest place near it.

    Near is within `reach_fraction` of the smaller of the two chunks that meet there: with a
    quarter, no chunk loses more than half of its nodes and none vanishes. Own judgement: far enough
    to leave a fork of a few nodes, near enough for the sizes to stay what was asked for. Of equally
    cheap places the nearest is taken, of those the earlier.

    Args:
        schedule: chunk sizes; their sum is N.
        costs: what each cut costs, as from `widths`; shape `(N + 1,)`.
        reach_fraction: below 0.5, so that cuts cannot meet.
    """
    size = np.asarray(schedule, np.int64)
    cuts = np.cumsum(size)[:-1]
    reaches = (np.minimum(size[:-1], size[1:]) * reach_fraction).astype(np.int64)
    moved = [0]
    for cut, reach in zip(cuts.tolist(), reaches.tolist(), strict=True):
        near = costs[cut - reach : cut + reach + 1]
        cheapest = np.flatnonzero(near == near.min()) - reach
        moved.append(cut + int(cheapest[np.abs(cheapest).argmin()]))
    return tuple(np.diff([*moved, int(size.sum())]).tolist())


def halve(schedule: Sequence[int]) -> int:
    """Return how many chunks to put in a first part, so that both hold about as many nodes.

    Of two chunks or more. A graph that is copied and halved again and again until each part is one
    chunk takes about N log(N / chunk) node copies, where one copy of it for each chunk takes
    N * N / chunk.
    """
    ends = np.cumsum(schedule)
    return int(np.abs(2 * ends[:-1] - ends[-1]).argmin()) + 1
