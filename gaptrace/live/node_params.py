"""What the kernel nodes of a graph were given: their parameters, and the addresses among them."""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gaptrace.errors import GpuError
from gaptrace.live.driver import done, driver

_POINTER_BYTES = 8


@dataclass(frozen=True)
class KernelNode:
    """A kernel node and the bytes of its parameters.

    Attributes:
        node: its number among all nodes of the graph.
        kernel: name of the kernel.
        parameters: the bytes of each parameter.
    """

    node: int
    kernel: str
    parameters: tuple[bytes, ...]


@dataclass(frozen=True)
class Word:
    """Eight aligned bytes of a parameter: an address, or a value.

    Attributes:
        node, kernel: of which kernel node.
        parameter: its number.
        offset: of the bytes in it; other than 0 in a structure passed by value.
        value: as an unsigned number.
    """

    node: int
    kernel: str
    parameter: int
    offset: int
    value: int


@dataclass(frozen=True)
class Change:
    """A parameter that a graph captured now would be given otherwise.

    Attributes:
        before, after: the eight bytes, or fewer at the end of a parameter.
    """

    before: Word
    after: Word


def kernel_nodes(graph: int) -> list[KernelNode]:
    """Return the kernel nodes of a graph, in the order of its nodes.

    Child graphs are not looked into. A node whose parameters were packed into one buffer
    (`CU_LAUNCH_PARAM_BUFFER_POINTER`) has them as one.

    Raises:
        GpuError: the driver refused; it must run CUDA 12.4 or newer to tell sizes of parameters.
    """
    cuda = driver()
    doing = "reading the kernel nodes of a graph"
    _, count = done(cuda.cuGraphGetNodes(graph), doing)
    nodes, _ = done(cuda.cuGraphGetNodes(graph, count), doing)
    kernel = cuda.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL
    return [
        KernelNode(number, *_name_and_parameters(cuda, node))
        for number, node in enumerate(nodes[:count])
        if done(cuda.cuGraphNodeGetType(node), doing) == kernel
    ]


def _name_and_parameters(cuda: Any, node: Any) -> tuple[str, tuple[bytes, ...]]:
    doing = "reading the parameters of a kernel node"
    given = done(cuda.cuGraphKernelNodeGetParams(node), doing)
    if int(given.func):
        name = done(cuda.cuFuncGetName(given.func), doing)
        sizes = _sizes(lambda index: cuda.cuFuncGetParamInfo(given.func, index))
    else:
        name = done(cuda.cuKernelGetName(given.kern), doing)
        sizes = _sizes(lambda index: cuda.cuKernelGetParamInfo(given.kern, index))
    text = name.decode(errors="replace") if isinstance(name, bytes) else str(name)
    if not int(given.kernelParams):
        return text, ()
    pointers = (ctypes.c_void_p * len(sizes)).from_address(int(given.kernelParams))
    return text, tuple(
        ctypes.string_at(pointer, size) for pointer, size in zip(pointers, sizes, strict=True)
    )


def _sizes(ask: Callable[[int], tuple[Any, ...]]) -> list[int]:
    """Sizes of all parameters: asked one by one until the driver knows of no more."""
    sizes: list[int] = []
    while True:
        status, *found = ask(len(sizes))
        if status != 0:
            if getattr(status, "name", "") == "CUDA_ERROR_INVALID_VALUE":
                return sizes
            raise GpuError(f"reading the parameters of a kernel: the driver answered {status!r}")
        sizes.append(int(found[1]))


def words(nodes: Sequence[KernelNode]) -> Iterator[Word]:
    """Return all parameters of nodes in pieces of eight bytes; the last of one may be shorter."""
    for node in nodes:
        for number, given in enumerate(node.parameters):
            for offset in range(0, len(given), _POINTER_BYTES):
                piece = given[offset : offset + _POINTER_BYTES]
                yield Word(node.node, node.kernel, number, offset, int.from_bytes(piece, "little"))


def addresses(nodes: Sequence[KernelNode]) -> list[Word]:
    """Return the words that are addresses in memory which CUDA knows of now."""
    return [word for word in words(nodes) if is_live(word.value)]


def is_live(address: int) -> bool:
    """Whether an address lies in memory that CUDA knows of: allocated, mapped or registered."""
    if address < 4096:  # counts and sizes, not worth a call
        return False
    cuda = driver()
    kind = cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    return bool(cuda.cuPointerGetAttribute(kind, address)[0] == 0)


def changes(before: Sequence[KernelNode], after: Sequence[KernelNode]) -> list[Change] | None:
    """Return what differs between the parameters of two captures of one step.

    Returns:
        the words that differ; None when the nodes themselves do: another number of them, or another
        kernel, so that no parameter can be compared.
    """
    if [(n.node, n.kernel) for n in before] != [(n.node, n.kernel) for n in after]:
        return None
    pairs = zip(words(before), words(after), strict=True)
    return [Change(one, other) for one, other in pairs if one.value != other.value]
