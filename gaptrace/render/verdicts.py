"""What a recommendation says, in sentences."""

from gaptrace.recommendation import Recommendation, UngraphedStep
from gaptrace.render.units import count, duration
from gaptrace.render.words import CAUSES
from gaptrace.schedules import is_even


def _most_of(cause: str, where: str = " before graphs") -> str:
    return f"most of the idle time{where} is {cause} ({CAUSES.get(cause, cause)})"


#: Why steps without graphs should stay so.
UNGRAPHED = {
    "dynamic_steps": "the kernels differ from step to step",
    "waits_inside": "the host waits or copies to and from pageable memory inside the step",
    "large_kernels": "the kernels are large enough to hide their launches",
    "nothing_to_gain": "a graph would not be faster",
}

#: Why chunk size is not the problem, for topics that are more than a cause.
_REASONS = {
    "value_loop": "the host reads a value after each small graph before it launches the next",
    "eager_bursts": "between replays some steps run kernel by kernel",
    "eager_bursts:rebuilt": "graphs are given up and built anew between replays",
    "graph_build:instantiated_alike": "graphs of one size are instantiated anew at every launch",
    "graph_build:alternating_shapes": "graphs of alternating shapes replace each other",
    "graph_build:more_shapes_than_kept": "more shapes take turns than graphs are kept",
    "graph_build:node_by_node": "graphs are pointed to other buffers node by node at every launch",
    "host_sync:tiny_copy": "the device waits while the host waits for copies of a few bytes",
    "host_code:after_wait": "the device runs dry while the host waits for it, and then the host "
    "runs code before it launches again",
    "host_code:before_graphs": _most_of("host_code"),
    "device_queued:in_graph": "the device pauses inside the graphs",
    "device_queued:cross_stream": "graphs wait for work of other streams",
    "dynamic_steps": "the kernels differ from step to step, so that no graph can be replayed",
    "waits_inside": "inside each step the host waits, or copies to or from pageable memory, which "
    "no graph can hold",
    "device_queued:between_ops": "the device pauses between ops that were launched in time",
}

_MISSING = {
    "nodes": (
        "Not to be told from this trace: the number of nodes of the graph is missing. Record once "
        "with gaptrace profile --granularity node."
    ),
    "steps": (
        "Not to be told from this trace: no step repeats in it. Mark the step with gaptrace.step "
        "and record again, or run gaptrace.tune on it."
    ),
    "few_steps": (
        "Not to be told from this trace: it holds too few steps that launch several kernels each. "
        "Record more of them, or run gaptrace.tune on one."
    ),
    "calibration_incomplete": (
        "Not to be told with this calibration: it lacks launch costs by number of nodes. Make a "
        "new one with gaptrace calibrate."
    ),
    "host_cost_by_nodes": (
        "Not to be told from this trace: how the launch cost of a graph grows with its nodes "
        "without a recorder. Run gaptrace calibrate on that machine and ask again, or "
        "gaptrace.tune on the step."
    ),
    "graph_launch_cost": (
        "No graph was launched, so what one would cost here is not to be told from this trace. "
        "Run gaptrace calibrate on that machine and ask again, or gaptrace.tune on the step."
    ),
}


def verdict(recommendation: Recommendation) -> str:
    """Return the advice in one sentence that a person can act on."""
    cause = recommendation.cause or ""
    match recommendation.verdict:
        case "one_graph":
            return _one_graph(recommendation)
        case "chunk":
            return _chunk(recommendation)
        case "merge":
            return _merge(recommendation)
        case "do_not_graph":
            return _do_not_graph(recommendation)
        case "no_difference_shown":
            return _leave(recommendation)
        case "not_a_chunk_problem":
            where = " before graphs" if recommendation.regime else ""
            reason = _REASONS.get(cause) or _most_of(cause, where)
            return f"Chunk size is not the problem: {reason}."
        case "needs_calibration":
            return _MISSING.get(cause, "This trace alone cannot tell.")


def _one_graph(found: Recommendation) -> str:
    nodes = count(found.nodes or 0)
    if found.calibration is None:
        return (
            f"Keep one graph of {found.nodes} CUDA nodes: even if all of its launch cost grew with "
            "its nodes, cutting it would gain less than 0.5 %."
        )
    if found.regime is None:
        return (
            f"Capture the step as one graph of {nodes} CUDA nodes: it saves about "
            f"{duration(found.gain_ns)} a step."
        )
    if found.gain_ns:
        return (
            f"Launch the step as one graph of {nodes} CUDA nodes, uncut: it saves "
            f"{duration(found.gain_ns)} a step."
        )
    return (
        f"Keep one graph of {nodes} CUDA nodes: without a recorder, cutting it would gain less "
        "than 0.5 %."
    )


def _chunk(found: Recommendation) -> str:
    text = "Capture the step, and cut" if found.regime is None else "Cut"
    simple = f"chunks of {count(found.chunk or 0)} CUDA nodes"
    saves = f": it saves {duration(found.gain_ns)} a step" if found.gain_ns else ""
    if found.schedule and not is_even(found.schedule):
        first, *later = found.schedule
        if len(set(later)) == 1:
            many = f"a chunk of {count(first)} CUDA nodes, then chunks of {count(later[0])}"
            return f"{text} the graph into {many}{saves}."
        grows = list(found.schedule[:-1]) == sorted(found.schedule[:-1])
        many = f"{len(found.schedule)} {'growing' if grows else 'unequal'} chunks"
        equal = "" if found.chunk == found.nodes else f" The best equal ones are {simple}."
        return f"{text} the graph into {many}{saves}.{equal}"
    return f"{text} the graph into {simple}{saves}."


def _merge(found: Recommendation) -> str:
    if found.schedule:
        return (
            f"Launch the {count(found.nodes or 0)} CUDA nodes of a step as one graph instead of "
            f"several: it saves {duration(found.gain_ns)} a step."
        )
    return (
        "Launch fewer, larger graphs: the device pauses between graphs that were launched in time, "
        f"for about {duration(found.gain_ns)} a step without a recorder."
    )


def _do_not_graph(found: Recommendation) -> str:
    if found.predicted_ns:
        why = UNGRAPHED.get(found.cause or "", UNGRAPHED["nothing_to_gain"])
        return f"Launch kernel by kernel: {why}."
    return (
        "Graphs would gain nothing here: none is launched, and the device hardly waits for what is "
        "launched without."
    )


def _leave(found: Recommendation) -> str:
    if found.schedule:
        return "Leave it as it is: no other size of graphs is faster by more than 0.5 % of a step."
    return (
        "Leave it as it is: launches and builds of graphs leave the device idle for less than "
        "0.5 % of the time."
    )


def ungraphed(step: UngraphedStep) -> str:
    """Say in one sentence what a graph would bring to steps launched kernel by kernel."""
    what = f"{step.unit}, {count(step.kernels)} kernels one by one"
    if step.cause is not None:
        return f"{what}: no graph, since {UNGRAPHED[step.cause]}"
    low, high = (duration(each) for each in step.gain_interval_ns)
    text = (
        f"{what}: about {duration(step.per_launch_ns)} a step without a recorder, as one graph "
        f"{duration(step.one_graph_ns)} (saves {low} to {high})"
    )
    if step.break_even_replays is not None:
        text += f", paid for after {count(step.break_even_replays)} replays"
    return text


def gain_cap(recommendation: Recommendation) -> str | None:
    """Say in one sentence what no change of graph sizes can exceed; None without graphs."""
    found = recommendation
    if found.regime is None or found.gain_cap_ns is None:
        return None
    if found.verdict == "one_graph" and not found.gain_ns:
        return None
    cap = duration(found.gain_cap_ns)
    if found.verdict == "merge" and not found.schedule:
        return (
            f"merging cannot gain more than {cap} in this window: the pauses between queued "
            "graphs as traced, which the recorder lengthens"
        )
    between = ", and between the graphs of a step" if found.calibration else ""
    return (
        f"no chunk size can gain more than {cap} in this window: the idle time in launches and "
        f"builds of graphs{between}"
    )


def whose(recommendation: Recommendation) -> str | None:
    """Say which step it is about; None where there is but one, without a name."""
    devices = ", ".join(map(str, recommendation.devices))
    where = f"device{'s' * (len(recommendation.devices) > 1)} {devices}" if devices else ""
    if recommendation.step is None:
        return f"the step is that of {where}" if where else None
    return f"the step is {recommendation.step}" + (f" on {where}" if where else "")


def regime(recommendation: Recommendation) -> str:
    """Say how the program uses its graphs."""
    match recommendation.regime:
        case "replay":
            return "replay: graphs are built once and launched again and again"
        case "update":
            return "update: graphs are captured and their execs updated about once per launch"
        case "instantiate":
            return "instantiate: graphs are built anew about once per launch"
        case None:
            return "no graphs are launched"
