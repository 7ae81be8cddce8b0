"""The probes of calibration: each returns figures of one round, by name and kind of graph.

Host figures are without what calling through Python costs (see `Bench`). What a probe cannot tell,
since a call waited for the GPU, is left out of what it returns.
"""

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from time import perf_counter_ns
from typing import Any

from gaptrace.live.bench import LATCH_NS, Bench, Kernel, Launch
from gaptrace.live.chains import Chains, executable
from gaptrace.live.driver import done

#: (name, nodes, branches) -> value: what `gaptrace.calibration.Sample` names.
Figures = dict[tuple[str, int | None, int], float]

#: Launches of one exec in a round; their median counts.
_LAUNCHES = 7
#: Repeats of a device time in a round; their median counts.
_REPEATS = 5
#: Clocks of a node whose gaps are measured: about 2 us, longer than the device needs to fetch the
#: next one, short enough that gaps are a good part of the whole.
_CLOCKS = 4_000
#: Single launches, nodes and graphs behind the latch: differences of two counts leave out what
#: comes once. Far below the 1,024 launches that are known to fit into a queue.
_FEW, _MANY = 32, 160
_GRAPHS = 16
#: Nodes of each of the queued graphs.
_GRAPH_NODES = (16, 128)
#: Clocks of the kernels that tell the clock's rate: one and two milliseconds, or so.
_LONG_CLOCKS = 2_000_000
#: How long a kernel watches whether it is taken off the GPU, and when it was.
_WATCH_NS, _ABSENCE_NS = 100_000_000, 500_000
#: Queue depths are tried up to here; seen are 1,024 launches or fewer.
MOST_LAUNCHES, MOST_GRAPHS = 4_096, 1_536
#: A latch that is to run out: long against the launches that fit before it, 4 us each.
_DEPTH_LATCH_NS = 100_000_000


def single_launches(bench: Bench) -> Figures:
    """Cost of a launch of one kernel on an idle device, and when the kernel begins."""
    call = bench.launching(bench.answer(marks=True), bench.stream)
    return _launch_figures("launch", [bench.timed_launch(call) for _ in range(_LAUNCHES)], None, 1)


def graph_costs(bench: Bench, chains: Chains, nodes: int, branches: int) -> Figures:
    """Everything that happens to one graph, in the order in which it happens to a program's.

    Captured, instantiated, launched first and again, captured and updated, launched, destroyed;
    then instantiated and uploaded.
    """
    cuda, stream, call = bench.cuda, bench.stream, bench.call
    ns: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        ns.setdefault(name, []).append(value)

    graph, capture_ns = chains.capture(nodes)
    note("capture_ns", capture_ns)
    made, instantiate_ns = call(cuda.cuGraphInstantiate, graph, 0, doing="instantiating")
    note("instantiate_ns", instantiate_ns)
    launch = partial(cuda.cuGraphLaunch, made, stream)
    first = bench.timed_launch(launch)
    again = [bench.timed_launch(launch) for _ in range(_LAUNCHES)]
    changed, capture_ns = chains.capture(nodes, variant=1)
    note("capture_ns", capture_ns)
    note("exec_update_ns", call(cuda.cuGraphExecUpdate, made, changed, doing="updating")[1])
    updated = bench.timed_launch(launch)
    note("destroy_exec_ns", call(cuda.cuGraphExecDestroy, made, doing="destroying")[1])
    note("destroy_graph_ns", call(cuda.cuGraphDestroy, graph, doing="destroying")[1])
    made, instantiate_ns = call(cuda.cuGraphInstantiate, changed, 0, doing="instantiating")
    note("instantiate_ns", instantiate_ns)
    begin = perf_counter_ns()
    note("upload_api_ns", call(cuda.cuGraphUpload, made, stream, doing="uploading")[1])
    bench.wait()
    note("upload_ns", perf_counter_ns() - begin - 2 * (bench.call_ns + bench.clock_ns))
    note("destroy_exec_ns", call(cuda.cuGraphExecDestroy, made, doing="destroying")[1])
    note("destroy_graph_ns", call(cuda.cuGraphDestroy, changed, doing="destroying")[1])
    return {
        **{(name, nodes, branches): statistics.median(values) for name, values in ns.items()},
        **_launch_figures("graph_first_launch", [first], nodes, branches),
        **_launch_figures("graph_launch", again, nodes, branches),
        **_launch_figures("graph_updated_launch", [updated], nodes, branches),
    }


def _launch_figures(
    what: str, launches: Sequence[Launch], nodes: int | None, branches: int
) -> Figures:
    figures = {(f"{what}_api_ns", nodes, branches): _median(each.api_ns for each in launches)}
    latencies = [each.latency_ns for each in launches if each.latency_ns is not None]
    if latencies:
        figures[f"{what}_latency_ns", nodes, branches] = _median(latencies)
    return figures


class Queued:
    """What the device does with work that was launched in time, and what queueing costs the host.

    Its graphs are made once; use it as a context manager through `queued`.
    """

    def __init__(self, bench: Bench, stack: ExitStack) -> None:
        self._bench = bench
        self._spin = bench.spin(_CLOCKS)
        self._long = [bench.spin(times * _LONG_CLOCKS) for times in (1, 2)]
        make, touch = partial(self._make, stack, self._spin), bench.touch()
        self._lines = [make(nodes) for nodes in (_FEW, _MANY)]
        self._small_lines = [self._make(stack, touch, nodes) for nodes in (_FEW, _MANY)]
        self._graphs = {nodes: [make(nodes) for _ in range(_GRAPHS)] for nodes in _GRAPH_NODES}
        self._wholes = {nodes: make(_GRAPHS * nodes) for nodes in _GRAPH_NODES}
        bench.wait()

    def _make(self, stack: ExitStack, kernel: Kernel, nodes: int) -> Any:
        return stack.enter_context(executable(self._bench, kernel, nodes))

    def round(self) -> Figures:
        """Measure the clock, then the gaps between kernels, nodes and graphs."""
        short_ns, long_ns = (self._device_ns(partial(self._launch, each, 1)) for each in self._long)
        if short_ns is None or long_ns is None or long_ns <= short_ns:
            return {}
        clocks_per_ns = _LONG_CLOCKS / (long_ns - short_ns)
        spin_ns = _CLOCKS / clocks_per_ns
        figures: Figures = {("sm_clock_hz", None, 1): 1e9 * clocks_per_ns}
        figures |= self._kernels(spin_ns)
        small_ns, node_ns = (self._node(lines) for lines in (self._small_lines, self._lines))
        if small_ns is not None:
            figures["small_node_ns", None, 1] = small_ns
        if node_ns is not None:
            gap_ns = node_ns - spin_ns
            figures["node_gap_ns", None, 1] = gap_ns
            figures |= self._cuts(gap_ns)
        return figures

    def _node(self, lines: Sequence[Any]) -> float | None:
        """Time of a node with the gap after it."""
        more_ns = self._difference(*(partial(self._queue, [line]) for line in lines))
        return None if more_ns is None else more_ns / (_MANY - _FEW)

    def _kernels(self, spin_ns: float) -> Figures:
        figures: Figures = {}
        kernel_ns = self._difference(
            *(partial(self._launch, self._spin, times) for times in (_FEW, _MANY))
        )
        if kernel_ns is not None:
            figures["kernel_gap_ns", None, 1] = kernel_ns / (_MANY - _FEW) - spin_ns
        with self._bench.latched() as held:
            begin = perf_counter_ns()
            self._launch(self._spin, _MANY)
            host_ns = perf_counter_ns() - begin - self._bench.clock_ns
            in_time = held()
        if in_time:
            figures["launch_queued_api_ns", None, 1] = host_ns / _MANY - self._bench.call_ns
        return figures

    def _cuts(self, node_gap_ns: float) -> Figures:
        """Gaps between queued graphs: what more than one graph of the same nodes they take."""
        figures: Figures = {}
        for nodes in _GRAPH_NODES:
            graphs, whole = self._graphs[nodes], self._wholes[nodes]
            cut_ns = self._difference(partial(self._queue, [whole]), partial(self._queue, graphs))
            if cut_ns is not None:
                figures["cut_gap_ns", nodes, 1] = cut_ns / (_GRAPHS - 1)
                figures["graph_gap_ns", nodes, 1] = cut_ns / (_GRAPHS - 1) + node_gap_ns
            with self._bench.latched() as held:
                begin = perf_counter_ns()
                self._queue(graphs)
                host_ns = perf_counter_ns() - begin - self._bench.clock_ns
                in_time = held()
            if in_time:
                each_ns = host_ns / _GRAPHS - self._bench.call_ns
                figures["graph_launch_queued_api_ns", nodes, 1] = each_ns
        return figures

    def _launch(self, kernel: Kernel, times: int) -> None:
        self._bench.launch(kernel, self._bench.stream, times)

    def _queue(self, graphs: Sequence[Any]) -> None:
        launch, stream = self._bench.cuda.cuGraphLaunch, self._bench.stream
        for each in graphs:
            launch(each, stream)

    def _difference(self, less: Callable[[], None], more: Callable[[], None]) -> float | None:
        less_ns, more_ns = self._device_ns(less), self._device_ns(more)
        return None if less_ns is None or more_ns is None else more_ns - less_ns

    def _device_ns(self, work: Callable[[], None]) -> float | None:
        times = [self._bench.device_ns(work) for _ in range(_REPEATS)]
        known = [time for time in times if time is not None]
        return _median(known) if known else None


@contextmanager
def queued(bench: Bench) -> Iterator[Queued]:
    """Give the probes of queued work; their graphs are freed afterwards."""
    with ExitStack() as stack:
        yield Queued(bench, stack)


def queue_depths(bench: Bench) -> Figures:
    """How many launches the host can be ahead of a held device before a call blocks.

    Of single kernels, and of different graphs of two nodes. The counts end at `MOST_LAUNCHES` and
    `MOST_GRAPHS`: these mean that no call blocked.
    """
    kernel, launch = bench.spin(0), bench.cuda.cuGraphLaunch
    singles = [bench.launching(kernel, bench.stream)] * MOST_LAUNCHES
    depths = {("launch_queue_depth", None): _depth(bench, singles)}
    with ExitStack() as stack:
        made = [stack.enter_context(executable(bench, kernel, 2)) for _ in range(MOST_GRAPHS)]
        bench.wait()
        graphs = [partial(launch, each, bench.stream) for each in made]
        depths["graph_queue_depth", None] = _depth(bench, graphs)
    return {(*key, 1): depth for key, depth in depths.items() if depth is not None}


def _depth(bench: Bench, calls: Sequence[Callable[[], Any]]) -> int | None:
    for _ in range(3):  # a host that was held up itself proves nothing
        with bench.latched(_DEPTH_LATCH_NS) as held:
            count, last_ns = _launch_until_let_go(calls, held)
        if count == len(calls) or last_ns > _DEPTH_LATCH_NS / 2:
            return count
    return None


def _launch_until_let_go(
    calls: Sequence[Callable[[], Any]], held: Callable[[], bool]
) -> tuple[int, int]:
    """Return how many calls came through while the device was held, and how long the last took."""
    last_ns = 0
    for count, launch in enumerate(calls):
        begin = perf_counter_ns()
        done(launch(), "filling the queue")
        last_ns = perf_counter_ns() - begin
        if not held():
            return count, last_ns
    return len(calls), last_ns


def is_alone(bench: Bench) -> bool:
    """Say whether a kernel of a tenth of a second runs without being taken off the GPU.

    Programs take turns on a GPU, each for some two milliseconds (the default time slice), unless a
    server (MPS) has them run together, which this does not see. Own choice of length and limit:
    many turns long, and far above what a look at the clock takes (below 0.1 ms even where the clock
    moves in steps), far below a turn.
    """
    return bench.longest_absence_ns(_WATCH_NS) < _ABSENCE_NS


def warm_up(bench: Bench) -> None:
    """Let the GPU reach its clock, and have every kernel loaded that a latch might else hold up."""
    bench.launch(bench.spin(_LONG_CLOCKS), bench.stream, 100)
    bench.wait()
    with bench.latched(LATCH_NS):
        pass
    single_launches(bench)
    chains = Chains(bench, 1)
    graph, _ = chains.capture(2)  # the only way to `mark`
    made = done(bench.cuda.cuGraphInstantiate(graph, 0), "instantiating")
    bench.timed_launch(partial(bench.cuda.cuGraphLaunch, made, bench.stream))
    bench.cuda.cuGraphExecDestroy(made)
    bench.cuda.cuGraphDestroy(graph)


def _median(values: Iterable[float]) -> float:
    return float(statistics.median(values))
