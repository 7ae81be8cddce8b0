"""A program told call by call, and the rows that a recorder would write down of it.

One host thread and the streams it feeds. The host's clock moves with every call; an op begins when
its call lets it and its stream is free. All times are whole nanoseconds.
"""

from exports import DTOH, HTOD, api, graph_exec_made, graph_made, graph_trace, kernel, memcpy

US, MS = 1_000, 1_000_000
#: Kinds of memory in copies.
PAGEABLE, PINNED, DEVICE = 0, 1, 2
_COPIES = {
    "HtoD pageable": (HTOD, PAGEABLE, DEVICE),
    "DtoH pageable": (DTOH, DEVICE, PAGEABLE),
    "HtoD pinned": (HTOD, PINNED, DEVICE),
    "DtoH pinned": (DTOH, DEVICE, PINNED),
}


class Program:
    """What has been called so far; `now` is the host's clock, `free[stream]` the end of its ops."""

    def __init__(self, begins=MS):
        self.now = begins
        self.free = {}
        self.rows = {"api": [], "kernels": [], "memcpys": [], "graph_traces": []}
        self.rows |= {"graph_events": [], "nvtx": []}
        self._correlation = 0

    def host(self, ns):
        """Code of the host that calls nothing."""
        self.now += ns

    def call(self, name, ns, correlation=None, error=0):
        """One API call; returns when it began."""
        began = self.now
        self.now += ns
        self.rows["api"].append(
            api(name, began, self.now, correlation=correlation, returnValue=error)
        )
        return began

    def launch(self, call_ns, runs_ns, *, name="scale", stream=7, **when):
        """A kernel launched by itself."""
        start, correlation = self._submit("cudaLaunchKernel_v7000", call_ns, stream, **when)
        self.rows["kernels"].append(
            kernel(start, start + runs_ns, correlation=correlation, name=name, stream=stream)
        )
        self.free[stream] = start + runs_ns

    def replay(self, call_ns, runs_ns, *, graph_exec=2, stream=7, **when):
        """A graph, recorded in graph granularity."""
        start, correlation = self._submit("cudaGraphLaunch_v10000", call_ns, stream, **when)
        self.rows["graph_traces"].append(
            graph_trace(
                start,
                start + runs_ns,
                correlation=correlation,
                graph_exec=graph_exec,
                stream=stream,
            )
        )
        self.free[stream] = start + runs_ns

    def replay_nodes(self, call_ns, spans, *, graph_exec=2, stream=7, **when):
        """A graph, recorded in node granularity: spans holds (start, end) of nodes from its start.

        A span may carry a third member, the stream on which the node ran, and a fourth, its name.
        """
        start, correlation = self._submit("cudaGraphLaunch_v10000", call_ns, stream, **when)
        for number, (begin, end, *rest) in enumerate(spans):
            at, name = (*rest, *(stream, "scale")[len(rest) :])
            self.rows["kernels"].append(
                kernel(
                    start + begin,
                    start + end,
                    correlation=correlation,
                    node=(graph_exec << 32) + number,
                    stream=at,
                    name=name,
                )
            )
        self.free[stream] = start + max(end for _, end, *_ in spans)

    def copy(self, what, call_ns, runs_ns, *, size=4, stream=7, call="cudaMemcpyAsync", **when):
        """A copy, as in `DtoH pageable`."""
        start, correlation = self._submit(f"{call}_v3020", call_ns, stream, **when)
        kind, source, target = _COPIES[what]
        self.rows["memcpys"].append(
            memcpy(
                start,
                start + runs_ns,
                correlation=correlation,
                kind=kind,
                bytes=size,
                srcKind=source,
                dstKind=target,
                stream=stream,
            )
        )
        self.free[stream] = start + runs_ns

    def wait(self, returns_ns=5 * US, *, name="cudaStreamSynchronize_v3020", stream=7):
        """Wait until a stream is free; the call returns so long after that."""
        self.call(name, max(self.free.get(stream, 0) - self.now, 0) + returns_ns)

    def capture(self, nodes, launch_ns, *, between_ns=0):
        """A stream capture of so many kernels."""
        self.call("cudaStreamBeginCapture_v10000", US)
        self.rows["graph_events"].append(graph_made(self.now, graph=self._graphs() + 1))
        for _ in range(nodes):
            self.host(between_ns)
            self.call("cudaLaunchKernel_v7000", launch_ns, self._next())
        self.call("cudaStreamEndCapture_v10000", US)

    def instantiate(self, call_ns, graph_exec=2):
        """An exec of the graph captured last."""
        began = self.call("cudaGraphInstantiate_v12000", call_ns)
        self.rows["graph_events"].append(
            graph_exec_made(began + call_ns // 2, graph=self._graphs(), graph_exec=graph_exec)
        )

    def _graphs(self):
        return sum("graphExecId" not in row for row in self.rows["graph_events"])

    def _next(self):
        self._correlation += 1
        return self._correlation

    def _submit(self, name, call_ns, stream, *, begins_ns=None, gap_ns=US):
        """Call, and return when the op begins: `begins_ns` after the call did, when it returns if
        not said; or `gap_ns` after the stream's last op, if that is later.
        """
        correlation = self._next()
        began = self.call(name, call_ns, correlation)
        ready = began + (call_ns if begins_ns is None else begins_ns)
        if stream not in self.free:
            return ready, correlation
        return max(ready, self.free[stream] + gap_ns), correlation


def even_nodes(count, busy_ns, idle_ns):
    """Spans of so many nodes in a row that are busy and idle for exactly so long altogether."""
    busy = [busy_ns * number // count for number in range(count + 1)]
    idle = [idle_ns * number // max(count - 1, 1) for number in range(count)]
    return [(busy[i] + idle[i], busy[i + 1] + idle[i]) for i in range(count)]
