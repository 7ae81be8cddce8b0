"""What a cut takes from a graph whose branches run side by side. Pure."""

import math
from collections.abc import Mapping
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from gaptrace.cost import Floats

#: Share of the whole by which straight lines differ between one graph and pieces of it, and more:
#: up to 0.6 % in recordings of four programs on an H200, and 17 % where branches were cut through.
_SHARE = 0.02


def overlap_across(start_ns: ArrayLike, end_ns: ArrayLike) -> Floats:
    """Return, for a cut after each count of nodes, how long nodes on both sides ran at once.

    As two graphs, the later of which waits for the earlier, the same nodes take so much longer.
    Gaps between nodes that others filled are left out: of 142 us by which 21 pieces of a decoder
    with two branches took longer than one graph, this says 99, and the cuts' own gaps are some 30
    (H200, benchmarks/RESULTS.md).

    Args:
        start_ns: of N nodes, in the order in which they are cut; shape `(N,)`.
        end_ns: of the same.

    Returns:
        shape `(N + 1,)`, 0 at both ends, where nothing is cut.
    """
    starts, ends = np.asarray(start_ns, np.float64), np.asarray(end_ns, np.float64)
    nodes = len(starts)
    begun = iter(np.argsort(starts, kind="stable").tolist())
    following = next(begun, None)
    first, last = list[int](), list[int]()  # of those at work, least and largest number on top
    change = np.zeros(nodes + 2)
    for now, until in pairwise(np.unique([*starts, *ends])):
        while following is not None and starts[following] <= now:
            heappush(first, following)
            heappush(last, -following)
            following = next(begun, None)
        while first and ends[first[0]] <= now:
            heappop(first)
        while last and ends[-last[0]] <= now:
            heappop(last)
        if first:
            change[first[0] + 1] += until - now
            change[1 - last[0]] -= until - now
    return np.asarray(np.cumsum(change)[: nodes + 1], np.float64)


def overlap_of_ways(one_ns: float, ways: Mapping[tuple[int, ...], float]) -> Floats:
    """Return the same where nodes are not told apart, from how long graphs of them ran.

    What the graphs of a way take together beyond one graph of all nodes is shared out evenly among
    its cuts, but for those that cost nothing in another way. Cuts that no way has are taken to cost
    as much as those that one has, on average. Up to `_SHARE` of the whole is called nothing.

    Args:
        one_ns: device time of one graph of all nodes.
        ways: sizes of the graphs into which they were cut -> device time of these together; at
            least one way.

    Returns:
        as `overlap_across`.
    """
    nodes = sum(next(iter(ways)))
    more = {way: ns - one_ns for way, ns in ways.items()}
    cuts = {way: np.cumsum(way)[:-1].tolist() for way in ways}
    free = {cut for way in ways if more[way] < _SHARE * one_ns for cut in cuts[way]}
    known: dict[int, float] = dict.fromkeys(free, 0.0)
    for way in ways:
        dear = [cut for cut in cuts[way] if cut not in free]
        if more[way] >= _SHARE * one_ns:
            for cut in dear:
                known[cut] = min(more[way] / len(dear), known.get(cut, math.inf))
    found = np.full(nodes + 1, np.mean(list(known.values()) or [0.0]))
    found[list(known)] = list(known.values())
    found[[0, -1]] = 0.0
    return found
