"""Cuts a captured graph into chunks that run one after the other on one stream.

Nodes are put in topological order and cut into intervals of it. The graph is copied, the copy
halved into two copies that keep one half each, and so on until each part is one chunk, which is
instantiated; the parts are destroyed, the original is left as it is. Edges inside a chunk stay; for
edges across a cut the order of the stream stands in, which is stricter.
"""

import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gaptrace import cuts
from gaptrace.errors import GpuError, ScheduleError
from gaptrace.live.driver import done, driver
from gaptrace.live.graph_handles import graph_handle, stream_handle
from gaptrace.live.graph_topology import Node, Topology, read_topology
from gaptrace.live.ranges import range as named_range

_EVENT_WAIT, _EVENT_RECORD, _SIGNAL, _WAIT, _MEMORY_OPS = 6, 7, 8, 9, 12
_REFUSED = {
    10: "CUDA neither copies nor takes apart a graph that allocates memory: allocate before the "
    "capture, or capture through gaptrace.capture; for cuBLAS set a workspace",
    11: "CUDA neither copies nor takes apart a graph that frees memory: allocate and free outside "
    "the capture, or capture through gaptrace.capture",
    13: "CUDA does not copy a graph with conditional nodes: capture what comes before and after it "
    "as graphs of their own",
}


class Chunks:
    """The chunks of a graph: one graph exec each, launched in order on one stream.

    Closed by `close()`, at the end of a `with` block, or when it is garbage collected. Keeps the
    graph object that was cut, but the chunks hold the same addresses as the graph: memory that the
    graph reads or writes must stay where it is, and a `CapturedGraph` or the `torch.cuda.CUDAGraph`
    must not be closed or reset before the chunks.

    Args:
        schedule: nodes of each chunk.
        widths: how many branches each cut goes across (`gaptrace.cuts.widths`); one fewer.
        warnings: what the cuts cost the graph, in sentences; empty if nothing.
        execs: handles (`CUgraphExec`) in order of launch; the chunks own them.
        source: kept until they are closed.
    """

    def __init__(
        self,
        schedule: tuple[int, ...],
        widths: tuple[int, ...],
        warnings: tuple[str, ...],
        execs: Sequence[Any],
        source: Any,
    ) -> None:
        self.schedule = schedule
        self.nodes = sum(schedule)
        self.widths = widths
        self.warnings = warnings
        self._execs = list(execs)
        self._api = driver()
        self._end = weakref.finalize(self, _destroy_execs, self._execs, source)
        # The driver may be gone by then, and frees all that a process has.
        self._end.atexit = False

    @property
    def execs(self) -> tuple[int, ...]:
        """Handles (`CUgraphExec`) of the chunks, in order of launch; none once closed."""
        return tuple(int(piece) for piece in self._execs)

    def launch(self, stream: Any = None) -> None:
        """Launch all chunks in order; returns without waiting for them.

        Args:
            stream: see `gaptrace.live.graph_handles.stream_handle`; None: the legacy default
                stream. The stream that PyTorch or CuPy has as current is not looked up.

        Raises:
            GpuError: the driver refuses, or the chunks are closed.
        """
        self._each(self._api.cuGraphLaunch, stream, "launching")

    def upload(self, stream: Any = None) -> None:
        """Upload all chunks to the device, so that the first launch does not pay for it.

        Args and errors as of `launch`.
        """
        self._each(self._api.cuGraphUpload, stream, "uploading")

    def _each(self, call: Any, stream: Any, doing: str) -> None:
        if not self._end.alive:
            raise GpuError(f"{doing} chunks that have been closed: split the graph again")
        handle = self._api.CUstream(stream_handle(stream))
        doing = f"{doing} a chunk of a graph"
        for piece in self._execs:
            done(call(piece, handle), doing)

    def close(self) -> None:
        """Free the chunks; those in flight still end. Closing again does nothing."""
        self._end()

    def __enter__(self) -> "Chunks":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def split(
    graph: Any,
    *,
    chunk: int | None = None,
    schedule: Sequence[int] | None = None,
    narrow: bool = True,
) -> Chunks:
    """Cut a captured graph into chunks, whose launch in order does what launching the graph does.

    A cut is a barrier: nothing behind it starts before all in front of it has ended. Where branches
    of the graph run side by side that costs time, of which `Chunks.warnings` tells; kernels of two
    branches that wait for each other in memory would wait forever.

    PyTorch: random numbers come from where the generator stood at the last `replay()`, since only
    that moves it. Chunks are instantiated without flags: node priorities do not count.

    Args:
        graph: see `gaptrace.live.graph_handles.graph_handle`; it is left as it is.
        chunk: nodes of each chunk; the last takes what remains. Without it and `schedule`, all of
            them: one chunk.
        schedule: or the nodes of each chunk, one by one, taken as they are.
        narrow: whether cuts of `chunk` move, by a quarter of it at most, to where they go across
            fewer branches, and of such places to one that cuts no programmatic edge.

    Raises:
        ScheduleError: both `chunk` and `schedule` are given, or it does not fit the graph.
        GpuError: the graph cannot be cut, or the driver refuses; nothing is left behind.
    """
    if chunk is not None and schedule is not None:
        raise ScheduleError(
            "give either chunk=, the nodes of each chunk, or schedule=, a list of them"
        )
    handle = graph_handle(graph)
    topology = read_topology(handle)
    nodes = len(topology.nodes)
    widths = cuts.widths(nodes, topology.edges)
    programmatic = cuts.crossings(nodes, topology.edges[topology.programmatic])
    if schedule is not None:
        found = cuts.checked(schedule, nodes)
    else:
        found = cuts.sizes(nodes, nodes if chunk is None else chunk)
        if narrow:
            found = cuts.move_to_narrow(found, 2 * widths + (programmatic > 0))
    _refuse(topology, found)
    places = np.cumsum(found)[:-1]
    warnings = tuple(_warnings(places, widths[places], programmatic[places]))
    execs = _instantiate(handle, [node.handle for node in topology.nodes], found)
    return Chunks(found, tuple(widths[places].tolist()), warnings, execs, graph)


def _warnings(places: cuts.Ints, widths: cuts.Ints, programmatic: cuts.Ints) -> Iterator[str]:
    """Yield what the cuts after `places` cost."""
    wide = int((widths > 1).sum())
    if wide:
        worst = int(widths.argmax())
        yield (
            f"{wide} of {len(places)} cuts go across branches that could run side by side (the "
            f"widest after node {places[worst] - 1}: {widths[worst]} branches): the cut holds the "
            "later ones back until the earlier ones are done"
        )
    if programmatic.any():
        yield (
            f"{int((programmatic > 0).sum())} of {len(places)} cuts go through programmatic edges: "
            "the later kernel no longer starts before the earlier one has ended"
        )


def _refuse(topology: Topology, schedule: Sequence[int]) -> None:
    """Raise GpuError if a node cannot be copied, or might wait for one of a later chunk."""
    for node in (*topology.nodes, *topology.inside):
        if node.type in _REFUSED:
            raise GpuError(f"{node} keeps the graph from being cut: {_REFUSED[node.type]}")
    every = sorted((*topology.nodes, *topology.inside), key=lambda node: node.position)
    count = len(topology.nodes)
    chunk_of = np.repeat(np.arange(len(schedule)), schedule)
    for node in every:
        if node.type not in (_EVENT_WAIT, _WAIT, _MEMORY_OPS):
            continue
        later = [
            other
            for other in _signals(node, every)
            if chunk_of[other.position] > chunk_of[node.position]
        ]
        if not later:
            continue
        after = cuts.dependents(count, topology.edges, node.position)
        for other in later:
            if not after[other.position]:
                raise GpuError(
                    f"{node} may wait for {other}, which would come in a later chunk, so that the "
                    "chunks would never end or read what is stale: put both into one chunk with "
                    "schedule=, or leave the graph whole"
                )


def _signals(wait: Node, every: Sequence[Node]) -> list[Node]:
    """Return the nodes for which a waiting node may wait without an edge that says so."""
    if wait.type == _MEMORY_OPS:
        return [node for node in every if node.position != wait.position]
    if wait.type == _WAIT:
        return [node for node in every if node.type == _SIGNAL]
    api, doing = driver(), "reading the event of a node"
    event = int(done(api.cuGraphEventWaitNodeGetEvent(wait.handle), doing))
    records = [node for node in every if node.type == _EVENT_RECORD]
    events = [int(done(api.cuGraphEventRecordNodeGetEvent(node.handle), doing)) for node in records]
    return [node for node, recorded in zip(records, events, strict=True) if recorded == event]


def _instantiate(graph: int, nodes: Sequence[Any], schedule: Sequence[int]) -> list[Any]:
    """Return an exec for each chunk of the nodes, which are in order; on failure leave none."""
    execs: list[Any] = []
    try:
        copy = done(driver().cuGraphClone(graph), "copying the graph")
        try:
            _use_up(copy, [_twin(node, copy) for node in nodes], schedule, execs)
        finally:
            done(driver().cuGraphDestroy(copy), "freeing a copy of the graph")
    except BaseException:
        _destroy_execs(execs)
        raise
    return execs


def _use_up(graph: Any, nodes: Sequence[Any], schedule: Sequence[int], execs: list[Any]) -> None:
    """Add an exec for each chunk of a graph that is ours: halve it until a part is one chunk.

    A recording that keeps graphs as wholes does not tell how many nodes a copy has: the range does.
    """
    if len(schedule) == 1:
        with named_range("cut", payload=schedule[0]):
            execs.append(done(driver().cuGraphInstantiate(graph, 0), "instantiating a chunk"))
        return
    chunks = cuts.halve(schedule)
    count = sum(schedule[:chunks])
    rest = done(driver().cuGraphClone(graph), "copying a part of the graph")
    try:
        twins = [_twin(node, rest) for node in nodes]
        for node in (*nodes[count:], *twins[:count]):
            done(driver().cuGraphDestroyNode(node), "taking a node out of a copy of the graph")
        _use_up(graph, nodes[:count], schedule[:chunks], execs)
        _use_up(rest, twins[count:], schedule[chunks:], execs)
    finally:
        done(driver().cuGraphDestroy(rest), "freeing a part of the graph")


def _twin(node: Any, copy: Any) -> Any:
    return done(
        driver().cuGraphNodeFindInClone(node, copy), "finding a node in a copy of the graph"
    )


def _destroy_execs(execs: list[Any], _source: Any = None) -> None:
    """Destroy all, the failure of one notwithstanding, and empty the list."""
    answers = [driver().cuGraphExecDestroy(piece) for piece in execs]
    execs.clear()
    for answer in answers:
        done(answer, "freeing the chunks of a graph")
