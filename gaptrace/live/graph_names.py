"""Names the CUDA graphs of CuPy and PyTorch in the trace, without the program's help.

Three ranges in the domain `gaptrace`, each with the number of the graph as its payload (1 for the
first graph of the process; a PyTorch graph that is captured again keeps its number):

- `capture`: from the begin of a capture to its end. A start/end range, since the two calls
  need not nest in the ranges that the program has open.
- `instantiate`: the call that turns the captured graph into an executable one. CuPy, and older
  PyTorch, end the capture in the same call.
- `replay`: the call that launches the graph.

The names carry no number: a program that captures anew each step would fill a report with them.
Naming costs host time: a push and a pop took 1.4 to 2.2 us under nsys 2023.4.4 on a small virtual
machine, to be compared with the 4 to 10 us of a graph launch.
"""

import functools
import itertools
from collections.abc import Callable
from types import ModuleType
from typing import Any

NAMED = "named"

_numbers = itertools.count(1)


def name_cupy_graphs(stream: ModuleType, domain: Any) -> str:
    """Replace begin and end of a capture on CuPy's streams.

    The end returns a stand-in for the graph, since a `cupy.cuda.Graph` accepts no new attributes.

    Args:
        stream: the module `cupy.cuda.stream`.
        domain: the NVTX domain.

    Returns:
        `NAMED`, or why the library was left alone.
    """
    base = getattr(stream, "_BaseStream", None)
    lacks = _lacking(base, "begin_capture", "end_capture")
    if lacks:
        return f"left alone: cupy.cuda.stream._BaseStream has no {lacks}"
    begin, end = base.begin_capture, base.end_capture  # type: ignore[union-attr]
    #: stream handle -> number of the graph that is being captured, its open range
    captures: dict[int, tuple[int, Any]] = {}

    @functools.wraps(begin)
    def begin_capture(self: Any, *args: Any, **kwargs: Any) -> Any:
        number = next(_numbers)
        opened = _open_capture(domain, number, lambda: begin(self, *args, **kwargs))
        captures[self.ptr] = number, opened

    @functools.wraps(end)
    def end_capture(self: Any, *args: Any, **kwargs: Any) -> Any:
        # A capture that was begun elsewhere gets its number here.
        number, opened = captures.pop(self.ptr, (0, None))
        if opened is not None:
            domain.end_range(opened)
        number = number or next(_numbers)
        domain.push_range(_attributes(domain, "instantiate", number))
        try:
            graph = end(self, *args, **kwargs)
        finally:
            domain.pop_range()
        return NamedCupyGraph(graph, domain, number)

    base.begin_capture = begin_capture  # type: ignore[union-attr]
    base.end_capture = end_capture  # type: ignore[union-attr]
    return NAMED


class NamedCupyGraph:
    """A `cupy.cuda.Graph` whose launches are named; in all else the graph itself."""

    __slots__ = ("_domain", "_graph", "_replay")

    def __init__(self, graph: Any, domain: Any, number: int) -> None:
        self._graph = graph
        self._domain = domain
        self._replay = _attributes(domain, "replay", number)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The class of the graph, for `isinstance`."""
        return type(self._graph)

    def launch(self, stream: Any = None) -> Any:
        """Launch the graph; see `cupy.cuda.Graph.launch`."""
        self._domain.push_range(self._replay)
        try:
            return self._graph.launch(stream)
        finally:
            self._domain.pop_range()

    def __getattr__(self, name: str) -> Any:
        """Pass everything else to the graph."""
        return getattr(self._graph, name)


def name_torch_graphs(graphs: ModuleType, domain: Any) -> str:
    """Replace the methods of `torch.cuda.CUDAGraph` that capture, instantiate and replay.

    Args:
        graphs: the module `torch.cuda.graphs`.
        domain: the NVTX domain.

    Returns:
        `NAMED`, or why the library was left alone.
    """
    cls = getattr(graphs, "CUDAGraph", None)
    lacks = _lacking(cls, "capture_begin", "capture_end", "replay")
    if cls is None or lacks:
        return f"left alone: torch.cuda.graphs.CUDAGraph has no {lacks}"
    begin, replay = cls.capture_begin, cls.replay

    @functools.wraps(begin)
    def capture_begin(self: Any, *args: Any, **kwargs: Any) -> None:
        number = _number_of(self)
        self._gaptrace_capture = _open_capture(domain, number, lambda: begin(self, *args, **kwargs))

    @functools.wraps(replay)
    def named_replay(self: Any) -> Any:
        attributes = getattr(self, "_gaptrace_replay", None)
        if attributes is None:
            attributes = _attributes(domain, "replay", _number_of(self))
            self._gaptrace_replay = attributes
        domain.push_range(attributes)
        try:
            return replay(self)
        finally:
            domain.pop_range()

    cls.capture_begin = capture_begin
    cls.replay = named_replay
    if hasattr(cls, "instantiate"):
        cls.instantiate = _instantiating(cls.instantiate, domain)
    _name_torch_capture_end(cls, domain)
    return NAMED


def _name_torch_capture_end(cls: Any, domain: Any) -> None:
    """Close the capture where it ends: newer versions instantiate in a call of its own."""
    if hasattr(cls, "capture_end_pre"):
        end_pre = cls.capture_end_pre

        @functools.wraps(end_pre)
        def capture_end_pre(self: Any) -> Any:
            try:
                return end_pre(self)
            finally:
                _close_capture(self, domain)

        cls.capture_end_pre = capture_end_pre
        return

    end = cls.capture_end
    instantiating_end = _instantiating(end, domain)

    @functools.wraps(end)
    def capture_end(self: Any) -> Any:
        _close_capture(self, domain)
        return end(self) if self._gaptrace_keeps_graph else instantiating_end(self)

    create = cls.__new__

    @functools.wraps(create)
    def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
        graph = create(cls, *args, **kwargs)
        # CUDAGraph(keep_graph=False); one that is kept is instantiated later, by instantiate().
        graph._gaptrace_keeps_graph = bool([*args, *kwargs.values(), False][0])
        return graph

    cls._gaptrace_keeps_graph = False
    if "__new__" in vars(cls):
        cls.__new__ = staticmethod(new)
    cls.capture_end = capture_end


def _instantiating(function: Callable[..., Any], domain: Any) -> Callable[..., Any]:
    @functools.wraps(function)
    def instantiate(self: Any) -> Any:
        domain.push_range(_attributes(domain, "instantiate", _number_of(self)))
        try:
            return function(self)
        finally:
            domain.pop_range()

    return instantiate


def _number_of(graph: Any) -> int:
    """Return the number of a PyTorch graph, the next free one if it has none yet."""
    number: int | None = getattr(graph, "_gaptrace_number", None)
    if number is None:
        number = graph._gaptrace_number = next(_numbers)
    return number


def _open_capture(domain: Any, number: int, begin: Callable[[], Any]) -> Any:
    """Begin a capture and return its open range; one that fails to begin leaves none open."""
    opened = domain.start_range(_attributes(domain, "capture", number))
    try:
        begin()
    except BaseException:
        domain.end_range(opened)
        raise
    return opened


def _close_capture(graph: Any, domain: Any) -> None:
    opened = getattr(graph, "_gaptrace_capture", None)
    if opened is not None:
        graph._gaptrace_capture = None
        domain.end_range(opened)


def _attributes(domain: Any, name: str, number: int) -> Any:
    return domain.get_event_attributes(name, payload=number)


def _lacking(cls: Any, *methods: str) -> str:
    return ", ".join(name for name in methods if not callable(getattr(cls, name, None)))
