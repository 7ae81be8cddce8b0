"""What the columns of the exported frames are, for people who meet them outside of gaptrace."""

from gaptrace.quantiles import FIELDS
from gaptrace.render.words import CAUSES

#: Columns that mean the same in every frame.
_EVERYWHERE = {
    "api_ns": "duration of the launch call, which is not what the device waited",
    "awaited_stream_id": "stream on which the event was recorded last; null when not known",
    "behind_ns": "from the end of a step until the device has done what was launched, median",
    "busy_fraction": "busy_ns / span_ns",
    "building_steps": "steps in which this phase happened",
    "busy_excess_ns": "busy time beyond the median of the steps",
    "busy_ns": "time in which at least one op ran on the device",
    "bytes": "size of a copy or set",
    "call_end_ns": "end of the launch call",
    "call_id": "number of the API call in trace/api; of an op: the one that launched it",
    "call_kind": "kind of the launch call, as in trace/api",
    "call_name": "launch call; copies with direction, memory and, if tiny, size",
    "call_start_ns": "start of the launch call",
    "capture_id": "call that began the stream capture around this one; null outside",
    "cause": "why the device was idle",
    "cause_ns": "part of the gap that is due to its largest cause",
    "compute_capability": "of the GPU",
    "context_id": "CUDA context; a green context has its own",
    "correlation_id": "number that the recorder gave the launch; unique within the process",
    "depth": "0 for an outermost range",
    "detail": "API call, phase of a graph build, or what a queued op stood behind",
    "device_id": "physical GPU or MIG slice",
    "domain": "NVTX domain; null for the default one",
    "end_ns": "end, since the session began; half open",
    "event": "what was made: graph, exec, node",
    "event_id": "CUDA event",
    "excess_ns": "span beyond the median of the steps",
    "execs": "graph execs of this size",
    "executions": "graph executions",
    "exposed_latency_ns": "start - start of the launch call, where the device was idle by then",
    "first_ns": "start of the first op",
    "first_span_ns": "span of the first step",
    "gap_count": "gaps of the device",
    "gap_id": "number of the gap in analysis/gaps, of each part where windows cut it in several; "
    "null before the first and after the last op",
    "gap_ns": "length of a gap",
    "gap_kind": "queued: launched before the previous graph ended; starved: launched too late",
    "graph_exec_id": "instantiated graph; null for work outside graphs",
    "graph_id": "graph (template)",
    "graph_launches": "graph launch calls",
    "graph_node_id": "CUDA node of a graph; null outside node granularity",
    "grown_cause": "cause that grew most against the median of the steps",
    "grown_ns": "by how much that cause grew",
    "host_ns": "time on the host",
    "idle_ns": "time in which no op ran on the device",
    "instance": "number of the instance of its path, from 0",
    "is_closed": "false when the session ended before the range did",
    "is_first": "first step of its sequence",
    "is_outlier": "far longer than the other steps",
    "is_unified_memory": "migration by the driver; belongs to no stream",
    "is_usual": "in most steps",
    "is_warm_up": "leading step that is far longer than the steady ones",
    "key": "number of the sequence of steps",
    "last_ns": "end of the last op",
    "launch_api_ns": "duration of the launch calls",
    "launches": "launch calls",
    "lead_ns": "start - end of the launch call: how far ahead the host was",
    "memory_bytes": "memory of the device",
    "duration_ns": "from start to end of the executions",
    "next_op": "name of the op that ends the gap",
    "next_op_id": "op that ends the gap",
    "nodes": "CUDA nodes of the graph; null when unknown",
    "op_count": "ops",
    "op_id": "number of the op",
    "outlier_steps": "steps far longer than the others",
    "path": "names of the NVTX ranges from the outermost to this one, joined by /",
    "payload": "number given with the range",
    "phase": "phase of building graphs",
    "piece_count": "pieces of gaps",
    "previous_end_ns": "end of the op before the gap",
    "previous_op": "name of the op before the gap",
    "previous_op_id": "op whose end begins the gap",
    "process_id": "process, as the recorder numbers it",
    "queued_gap_ns": "gaps before executions that were launched in time",
    "range": "path of the innermost NVTX range open as the launch began; null outside",
    "range_id": "number of the NVTX range; several windows cut one into several rows",
    "recorded_call_id": "call that recorded the event last; null when not known",
    "return_code": "of the call; 0 is success",
    "sm_count": "multiprocessors",
    "source_memory": "where a copy reads",
    "span_ns": "length of the window",
    "start_ns": "start, since the session began",
    "starved_gap_ns": "gaps before executions that were launched too late",
    "step": "number of the step in its sequence on its device, from 0",
    "steps": "steps",
    "stream_id": "stream; unique within process, device and context",
    "target_memory": "where a copy writes",
    "thread_id": "host thread, as the recorder numbers it",
    "time_ns": "when it happened, since the session began",
    "unit": "what repeats: path of the range, graphs, kernels",
    "warm_up_steps": "leading steps that are far longer than the steady ones",
} | {cause: f"idle time: {meaning}" for cause, meaning in CAUSES.items()}

#: Columns that mean something else from frame to frame.
_OWN = {
    "trace/ops": {
        "kind": "kernel, memcpy, memset, graph (one graph execution), decompress",
        "name": "kernel, direction of a copy, memset, graph",
    },
    "trace/api": {"kind": "what the call does", "name": "API function, without version"},
    "trace/nvtx": {"kind": "push_pop, start_end, mark", "name": "given by the program"},
    "trace/overhead": {
        "kind": "profiler: only when recording; driver: always; back_pressure: queue full",
        "name": "what the recorder or the driver did",
    },
    "trace/devices": {"name": "of the GPU"},
    "analysis/devices": {"name": "of the GPU"},
    "analysis/ranges": {"count": "instances"},
    "analysis/range_windows": {"kind": "push_pop or start_end"},
    "analysis/build_costs": {"count": "API calls; of captures: captures"},
    "analysis/step_builds": {"count": "API calls; of captures: captures"},
    "analysis/unit_builds": {"count": "API calls in a step that had any"},
}

_QUANTILES = dict(
    zip(FIELDS, ("how many values", "median", "90 %", "99 %", "largest value"), strict=True)
)


def describe(frame: str, column: str) -> str:
    """Say what a column of an exported frame is; `gap_ns.p90` is a field of the struct `gap_ns`.

    Raises:
        KeyError: nothing is said of that column.
    """
    name, _, quantile = column.partition(".")
    own = _OWN.get(frame, {})
    text = own[name] if name in own else _EVERYWHERE[name]
    return f"{text}: {_QUANTILES[quantile]}" if quantile else text


def unit(column: str) -> str | None:
    """Return the unit of a column, ns, byte or 1 (a ratio); null for numbers, names and ids."""
    name, _, quantile = column.partition(".")
    if quantile == "count":
        return None
    if name.endswith("_ns") or name in CAUSES:
        return "ns"
    if name.endswith("_fraction"):
        return "1"
    return "byte" if name == "bytes" or name.endswith("_bytes") else None
