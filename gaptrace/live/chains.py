"""Graphs of any number of nodes for timing, captured as a program would capture them."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Any

from gaptrace.live.bench import Bench, Kernel
from gaptrace.live.driver import done

#: Nodes from which on a graph has four branches worth the name: first and last node besides.
LEAST_BRANCHED = 8


class Chains:
    """Captures graphs whose last node answers to the host (see `Bench.timed_launch`).

    The nodes are: the one that marks the start; empty kernels, in a line or in branches that all
    begin after it; the one that answers, which ends every branch.
    """

    def __init__(self, bench: Bench, branches: int) -> None:
        self._bench = bench
        self._streams = [bench.stream, *(bench.new_stream() for _ in range(branches - 1))]
        self._forked = bench.new_event()
        self._joined = [bench.new_event() for _ in range(branches - 1)]
        self._first, self._last = bench.mark(), bench.answer(marks=False)
        self._only = bench.answer(marks=True)
        #: Two that differ by a parameter, so that an update has something to change.
        self._empty = [bench.spin(0), bench.spin(1)]

    def capture(self, nodes: int, *, variant: int = 0) -> tuple[Any, float]:
        """Capture a graph and return it with the ns that the host took, without Python's part.

        Args:
            nodes: of the graph, at least `LEAST_BRANCHED` where there are branches.
            variant: 0 or 1: which parameters the empty kernels have.
        """
        bench, calls = self._bench, 2
        cuda = bench.cuda
        mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        first = [self._only] if nodes == 1 else [self._first]
        last = [self._last] if nodes > 1 else []
        shares = _shares(max(nodes - 2, 0), len(self._streams))
        begin = perf_counter_ns()
        done(cuda.cuStreamBeginCapture(bench.stream, mode), "beginning a capture")
        for kernel in first:
            bench.launch(kernel, bench.stream)
        calls += self._fork()
        for stream, share in zip(self._streams, shares, strict=True):
            bench.launch(self._empty[variant], stream, share)
        calls += self._join()
        for kernel in last:
            bench.launch(kernel, bench.stream)
        graph = done(cuda.cuStreamEndCapture(bench.stream), "capturing a graph for timing")
        end = perf_counter_ns()
        return graph, end - begin - (nodes + calls) * bench.call_ns - bench.clock_ns

    def _fork(self) -> int:
        if not self._joined:
            return 0
        cuda, (own, *others) = self._bench.cuda, self._streams
        cuda.cuEventRecord(self._forked, own)
        for stream in others:
            cuda.cuStreamWaitEvent(stream, self._forked, 0)
        return 1 + len(others)

    def _join(self) -> int:
        cuda, (own, *others) = self._bench.cuda, self._streams
        for stream, event in zip(others, self._joined, strict=True):
            cuda.cuEventRecord(event, stream)
            cuda.cuStreamWaitEvent(own, event, 0)
        return 2 * len(others)


@contextmanager
def executable(bench: Bench, kernel: Kernel, nodes: int) -> Iterator[Any]:
    """Give a graph exec of so many equal nodes in a line, launched once; free it afterwards."""
    cuda = bench.cuda
    mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    done(cuda.cuStreamBeginCapture(bench.stream, mode), "beginning a capture")
    bench.launch(kernel, bench.stream, nodes)
    graph = done(cuda.cuStreamEndCapture(bench.stream), "capturing a graph for timing")
    try:
        made = done(cuda.cuGraphInstantiate(graph, 0), "instantiating a graph for timing")
    finally:
        cuda.cuGraphDestroy(graph)
    try:
        done(cuda.cuGraphLaunch(made, bench.stream), "launching a graph for timing")
        yield made
    finally:
        cuda.cuGraphExecDestroy(made)


def _shares(nodes: int, branches: int) -> list[int]:
    """Share nodes out to branches as evenly as can be."""
    return [nodes // branches + (branch < nodes % branches) for branch in range(branches)]
