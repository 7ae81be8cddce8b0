"""The raw handles behind graphs and streams of CuPy, PyTorch, cuda.core and cuda.bindings."""

import contextlib
from typing import Any

from gaptrace.errors import GpuError

_EXECUTABLE = "an executable graph cannot be cut: hand over the graph that it was instantiated from"


def graph_handle(graph: Any) -> int:
    """Return the handle (`CUgraph`) of a graph as it was captured or built.

    Args:
        graph: a handle as an int or of `cuda.bindings`, a `torch.cuda.CUDAGraph` that keeps its
            graph, a `GraphDefinition` or finished `GraphBuilder` of `cuda.core`, a
            `cupy.cuda.Graph`, or what `gaptrace.capture` returned.

    Raises:
        GpuError: it is none of these, holds no captured graph, or does not hand it out.
    """
    cls = graph.__class__  # CuPy's graph shows its own class while gaptrace names its launches
    if cls.__name__ in ("CUgraphExec", "cudaGraphExec_t"):
        raise GpuError(_EXECUTABLE)
    if cls.__name__ in ("CUgraph", "cudaGraph_t"):
        handle = int(graph)
    elif isinstance(graph, int) and not isinstance(graph, bool):
        handle = graph
    elif hasattr(cls, "raw_cuda_graph"):
        handle = _of_torch(graph)
    elif hasattr(cls, "capture_begin"):
        raise GpuError(
            "this PyTorch does not hand out captured graphs: PyTorch 2.8 or newer does, for "
            "torch.cuda.CUDAGraph(keep_graph=True)"
        )
    elif hasattr(cls, "graph_definition"):
        handle = _of_builder(graph)
    elif hasattr(graph, "handle"):
        return graph_handle(graph.handle)
    elif hasattr(cls, "debug_dot_str"):
        handle = _of_cupy(graph)
    else:
        raise GpuError(
            f"{cls.__module__}.{cls.__qualname__} is no graph that gaptrace knows: hand over its "
            "handle (CUgraph) as an int, or capture through gaptrace.capture(function)"
        )
    if not handle:
        raise GpuError("the graph has no handle: it was not captured, or it has been destroyed")
    return handle


def _of_torch(graph: Any) -> int:
    try:
        return int(graph.raw_cuda_graph())
    except RuntimeError as error:
        raise GpuError(
            "PyTorch has no captured graph to hand out: make it with "
            "torch.cuda.CUDAGraph(keep_graph=True) and capture into it first "
            f"({_first_line(error)})"
        ) from error


def _of_builder(builder: Any) -> int:
    try:
        return graph_handle(builder.graph_definition)
    except RuntimeError as error:
        raise GpuError(
            "the GraphBuilder has no finished graph to hand out: call end_building() on the "
            f"builder that began it ({_first_line(error)})"
        ) from error


def _of_cupy(graph: Any) -> int:
    try:
        return int(graph.graph)
    except AttributeError as error:
        raise GpuError(
            "this CuPy does not hand out its captured graphs: capture through "
            "gaptrace.capture(function), which works with CuPy, and cut what it returns"
        ) from error


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def stream_handle(stream: Any) -> int:
    """Return the handle (`CUstream`) of a stream.

    Args:
        stream: a handle as an int or of `cuda.bindings`, or a stream of CuPy (`ptr`), PyTorch
            (`cuda_stream`) or of any library that follows the protocol `__cuda_stream__`. None is
            the legacy default stream, 0.

    Raises:
        GpuError: it is none of these.
    """
    if stream is None:
        return 0
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for name in ("cuda_stream", "ptr"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    if not isinstance(stream, bool | str | float):
        with contextlib.suppress(TypeError, ValueError):
            return int(stream)
    raise GpuError(
        f"{type(stream).__name__} is no stream that gaptrace knows: hand over its handle as an int"
    )
