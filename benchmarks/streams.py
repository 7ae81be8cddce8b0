"""How long a graph takes while a process uses one stream, and once it has used another, on a GPU.

    python benchmarks/streams.py

A process launches twenty kernels on its stream and replays a graph of 300 small ones there; then
something is done on another stream, and the graph is replayed again, twelve times. Each kind of
thing in a process of its own, since what it changes stays. Figures are us by events around the
graph, medians of five replays.
"""

import statistics
import subprocess
import sys

from gaptrace.live import bench
from gaptrace.live.chains import executable
from gaptrace.live.driver import done

NODES, TIMES, BYTES = 300, 12, 1_024


def kernel(own, graph, other, memory):
    own.launch(own.spin(0), other)


def kernel_on_its_own_stream(own, graph, other, memory):
    own.launch(own.spin(0), own.stream)


def eight_kernels(own, graph, other, memory):
    own.launch(own.spin(0), other, 8)


def kernel_beside_graphs_only(own, graph, other, memory):
    kernel(own, graph, other, memory)


def copy(own, graph, other, memory):
    own.cuda.cuMemcpyDtoDAsync(memory, int(memory) + BYTES, 4, other)


def memory_set(own, graph, other, memory):
    own.cuda.cuMemsetD8Async(memory, 0, 4, other)


def event(own, graph, other, memory):
    own.cuda.cuEventRecord(own.new_event(), other)


def the_graph(own, graph, other, memory):
    own.cuda.cuGraphLaunch(graph, other)


KINDS = (
    *(kernel_on_its_own_stream, kernel, eight_kernels, kernel_beside_graphs_only),
    *(copy, memory_set, event, the_graph),
)


def paces(do):
    """Us of the graph before, and after each time something was done."""
    bench.use_other_streams = lambda cuda: None  # which is what is looked at
    with bench.Bench() as own, executable(own, own.spin(0), NODES) as graph:
        other = own.new_stream()
        memory = done(own.cuda.cuMemAlloc(2 * BYTES), "allocating")
        events = [own.new_event(timed=True) for _ in range(2)]
        if do is not kernel_beside_graphs_only:
            own.launch(own.spin(0), own.stream, 20)
        yield pace(own, graph, events)
        for _ in range(TIMES):
            do(own, graph, other, memory)
            done(own.cuda.cuStreamSynchronize(other), "waiting")
            yield pace(own, graph, events)
        own.cuda.cuMemFree(memory)


def pace(own, graph, events):
    cuda, found = own.cuda, []
    for _ in range(5):
        cuda.cuEventRecord(events[0], own.stream)
        cuda.cuGraphLaunch(graph, own.stream)
        cuda.cuEventRecord(events[1], own.stream)
        own.wait()
        found.append(1_000 * done(cuda.cuEventElapsedTime(*events), "timing"))
    return statistics.median(found)


def main():
    if len(sys.argv) > 1:
        (do,) = (kind for kind in KINDS if kind.__name__ == sys.argv[1])
        print(f"{do.__name__:>25}", *(f"{us:.0f}" for us in paces(do)))
        return
    for kind in KINDS:
        subprocess.run([sys.executable, __file__, kind.__name__], check=True)


if __name__ == "__main__":
    main()
