"""What a captured graph is made of: its nodes in order, their types and edges."""

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaptrace import cuts
from gaptrace.errors import GpuError
from gaptrace.live.driver import done, driver

#: `CUgraphNodeType`, by number, so that types newer than the bindings can still be named.
TYPES = {
    0: "kernel",
    1: "memcpy",
    2: "memset",
    3: "host function",
    4: "child graph",
    5: "empty",
    6: "event wait",
    7: "event record",
    8: "external semaphore signal",
    9: "external semaphore wait",
    10: "memory allocation",
    11: "memory free",
    12: "batched memory operations",
    13: "conditional",
}
_CHILD = 4


@dataclass(frozen=True)
class Node:
    """A node: its handle, type and position; inside a child graph, that of the child's node."""

    position: int
    type: int
    handle: Any

    def __str__(self) -> str:
        return f"node {self.position} ({TYPES.get(self.type, f'type {self.type}')})"


@dataclass(frozen=True, eq=False)
class Topology:
    """A graph in topological order, which is the order of capture where it can be.

    Args:
        nodes: the nodes of the graph itself.
        inside: the nodes of its child graphs, and of theirs.
        edges: pairs of positions, shape `(E, 2)`.
        programmatic: which edges let the later kernel start before the earlier one has ended.
    """

    nodes: tuple[Node, ...]
    inside: tuple[Node, ...]
    edges: cuts.Ints
    programmatic: NDArray[np.bool_]


def read_topology(graph: int) -> Topology:
    """Return what the graph with this handle is made of.

    Raises:
        GpuError: the driver refuses, or is too old to tell how edges differ (before CUDA 12.3).
    """
    found = _nodes(graph)
    ends, programmatic = edges_between(graph)
    handles = np.array([int(node) for node in found], np.uint64)
    by_handle = np.argsort(handles)
    numbers = by_handle[np.searchsorted(handles, ends, sorter=by_handle)].astype(np.int64)
    order = cuts.topological_order(len(found), numbers)
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    nodes = tuple(_typed(found[number], place) for place, number in enumerate(order.tolist()))
    inside = tuple(node for parent in nodes for node in _inside(parent))
    return Topology(nodes, inside, position[numbers], programmatic)


def _nodes(graph: Any) -> list[Any]:
    api, doing = driver(), "reading the nodes of the graph"
    _, count = done(api.cuGraphGetNodes(graph), doing)
    nodes: list[Any] = done(api.cuGraphGetNodes(graph, count), doing)[0] if count else []
    return nodes


def _typed(handle: Any, position: int) -> Node:
    try:
        found = done(driver().cuGraphNodeGetType(handle), "reading the type of a node")
    except ValueError as error:
        raise GpuError(
            f"node {position} of the graph is of a type that the installed cuda-bindings does not "
            f"know ({error}): update cuda-bindings to the version of the driver"
        ) from error
    return Node(position, int(found), handle)


def _inside(parent: Node) -> Iterator[Node]:
    if parent.type != _CHILD:
        return
    child = done(driver().cuGraphChildGraphNodeGetGraph(parent.handle), "reading a child graph")
    for handle in _nodes(child):
        node = _typed(handle, parent.position)
        yield node
        yield from _inside(node)


def edges_between(graph: int) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Return the handles of both ends of each edge, shape `(E, 2)`, and whether it is programmatic.

    Straight from the driver's library: older cuda-bindings free the data of the edges before they
    return it (NVIDIA/cuda-python issue 1804), and the query without data, all that version 12 may
    have, is refused by the driver for a graph with programmatic edges.

    Raises:
        GpuError: the driver refuses, or is older than CUDA 12.3.
    """
    try:
        query = ctypes.CDLL("libcuda.so.1").cuGraphGetEdges_v2
    except (OSError, AttributeError) as error:
        raise GpuError(
            f"reading the edges of the graph needs a driver of CUDA 12.3: {error}"
        ) from error
    query.argtypes = [ctypes.c_void_p] * 5
    doing = "reading the edges of the graph"
    count = ctypes.c_size_t()
    done(_status(query(graph, None, None, None, ctypes.addressof(count))), doing)
    begin, end = np.zeros((2, count.value), np.uint64)
    # CUgraphEdgeData: from_port, to_port, type, five reserved bytes; all zero: a full dependency.
    data = np.zeros((count.value, 8), np.uint8)
    if count.value:
        arrays = (begin.ctypes.data, end.ctypes.data, data.ctypes.data)
        done(_status(query(graph, *arrays, ctypes.addressof(count))), doing)
    programmatic: NDArray[np.bool_] = (data[:, :3] != 0).any(axis=1)
    return np.stack([begin, end], axis=1), programmatic


def _status(number: int) -> tuple[Any]:
    return (driver().CUresult(number),)
