"""What the terms of a report mean and what a verdict asks for, in sentences."""

from collections.abc import Mapping, Sequence
from typing import Any

from gaptrace.findings import Finding
from gaptrace.recommendation import Recommendation, UngraphedStep
from gaptrace.render.units import count, duration, share
from gaptrace.steps import Steps
from gaptrace.trace import Granularity

CAUSES = {
    "unrecorded": "the launch of what came next is not in the trace",
    "profiler": "the recorder held the host up",
    "device_queued": "submitted in time; the device had not begun",
    "launch_call": "inside the launch call of what came next",
    "graph_build": "capturing, instantiating, updating, uploading, destroying graphs",
    "host_sync": "the host waited, or was returning from waiting, for the device",
    "api_other": "other CUDA calls: allocation, module loading ...",
    "host_code": "no CUDA call: Python, framework, operating system",
}


def granularity(known: Granularity | None) -> str:
    """Say what the granularity of a recording shows and what it hides."""
    if known == "graph":
        return (
            "graph: each graph execution is one op. Idle time inside graphs cannot be seen and "
            "counts as busy; launch costs are near those without a recorder only for small graphs."
        )
    if known == "node":
        return (
            "node: each node of a graph is an op of its own. Idle time inside graphs is seen, but "
            "recording every node lengthens gaps and graph launches several times."
        )
    return "unknown: no graph was launched, and this recorder does not keep the setting."


def verdict(recommendation: Recommendation) -> str:
    """Return the advice in one sentence that a person can act on."""
    cause = recommendation.cause or ""
    match recommendation.verdict:
        case "one_graph" if recommendation.calibration:
            return _one_graph(recommendation)
        case "one_graph":
            return (
                f"Keep one graph of {recommendation.nodes} CUDA nodes: even if all of its launch "
                "cost grew with its nodes, cutting it would gain less than 0.5 %."
            )
        case "chunk":
            return _chunk(recommendation)
        case "merge" if recommendation.schedule:
            return (
                f"Launch the {count(recommendation.nodes or 0)} CUDA nodes of a step as one graph "
                f"instead of several: it saves {duration(recommendation.gain_ns)} a step."
            )
        case "merge":
            return (
                "Launch fewer, larger graphs: the device pauses between graphs that were launched "
                f"in time, for about {duration(recommendation.gain_ns)} a step without a recorder."
            )
        case "do_not_graph" if recommendation.predicted_ns:
            return (
                "Launch kernel by kernel: "
                + (
                    "the kernels are large enough to hide their launches"
                    if cause == "large_kernels"
                    else "a graph would not be faster"
                )
                + "."
            )
        case "do_not_graph":
            return (
                "Graphs would gain nothing here: none is launched, and the device hardly waits for "
                "what is launched without."
            )
        case "no_difference_shown" if recommendation.schedule:
            return (
                "Leave it as it is: no other size of graphs is faster by more than 0.5 % of a step."
            )
        case "no_difference_shown":
            return (
                "Leave it as it is: launches and builds of graphs leave the device idle for less "
                "than 0.5 % of the time."
            )
        case "not_a_chunk_problem":
            return f"Chunk size is not the problem: {_REASONS.get(cause) or _most_of(cause)}."
        case "needs_calibration":
            return _MISSING.get(cause, "This trace alone cannot tell.")


def _one_graph(found: Recommendation) -> str:
    nodes = count(found.nodes or 0)
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
    text += f" the graph into chunks of {count(found.chunk or 0)} CUDA nodes"
    if found.schedule and len(set(found.schedule[:-1])) > 1:
        text += f", or better into {len(found.schedule)} that grow"
    if found.gain_ns:
        text += f": it saves {duration(found.gain_ns)} a step"
    return f"{text}."


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


#: Why steps without graphs should stay so.
UNGRAPHED = {
    "dynamic_steps": "the kernels differ from step to step",
    "waits_inside": "the host waits or copies to and from pageable memory inside the step",
    "large_kernels": "the kernels are large enough to hide their launches",
    "nothing_to_gain": "a graph would not be faster",
}


def _most_of(cause: str) -> str:
    return f"most of the idle time before graphs is {cause} ({CAUSES.get(cause, cause)})"


def gain_cap(recommendation: Recommendation) -> str | None:
    """Say in one sentence what no change of graph sizes can exceed; None without graphs."""
    if recommendation.regime is None or recommendation.gain_cap_ns is None:
        return None
    cap = duration(recommendation.gain_cap_ns)
    if recommendation.verdict == "merge":
        return (
            f"merging cannot gain more than {cap} in this window: the pauses between queued "
            "graphs as traced, which the recorder lengthens"
        )
    return (
        f"no chunk size can gain more than {cap} in this window: the idle time in launches and "
        "builds of graphs"
    )


def figures(finding: Finding) -> str:
    """Return the evidence of a finding as text: times, shares, counts and names."""
    evidence = finding.evidence
    parts = []
    if "idle_ns" in evidence:
        of_window = share(float(evidence["fraction"]), 1)
        parts.append(f"{duration(float(evidence['idle_ns']))} ({of_window} of the span)")
    if template := _FIGURES.get(finding.code):
        parts.append(template.format_map({key: _shown(key, evidence[key]) for key in evidence}))
    if "largest" in evidence:
        longest = duration(float(evidence["largest_ns"]))
        after = "after" if finding.code == "host_code:after_wait" else "most of it"
        parts.append(f"{after} {evidence['largest']} ({longest})")
    if "ranges" in evidence:
        parts.append(f"in range {evidence['ranges']}")
    return ", ".join(parts)


def _shown(key: str, value: float | str) -> str:
    if isinstance(value, str):
        return value
    if key.endswith("_ns"):
        return duration(value)
    if key.endswith("_fraction") or key == "fraction":
        return share(value, 1)
    return str(value) if key == "return_code" else count(round(value))


_BUILT = "{instantiated} instantiated and {updated} updated for {launches} launches"
#: What a finding counts besides idle time, by code.
_FIGURES = {
    "no_graphs": "{kernels} kernels of {kernel_ns}, one every {launch_ns}",
    "value_loop": "{iterations} graphs of {duration_ns}, each {gap_ns} after the one before",
    "eager_bursts": "{single_launches} kernels in {bursts} bursts",
    "eager_bursts:rebuilt": "{single_launches} kernels in {bursts} bursts",
    "graph_build:instantiated_alike": _BUILT,
    "graph_build:alternating_shapes": _BUILT
    + ", {refused} updates refused, {shapes} shapes in {captures} captures",
    "graph_build:more_shapes_than_kept": _BUILT
    + ", {shapes} shapes take turns in {kept} kept graphs",
    "graph_build:instantiated": _BUILT,
    "graph_build:node_by_node": _BUILT,
    "graph_build:updated": _BUILT,
    "launch_failed": "{call} returned error {return_code}, calls: {calls}",
    "capture_failed": "{call} returned error {return_code}, captures lost: {captures}",
    "copy_contention": "{delayed_ns} ({fraction} of the span) in {copies} copies, {direction}",
    "exec_waits_for_itself": "{waited_ns} ({fraction} of the span) in {executions} executions of "
    "{execs} execs",
    "graphs_never_launched": "{execs} execs, {built_ns} to instantiate",
    "stale_addresses": "{execs} execs launched after memory was freed, from {call} on in {freed} "
    "calls",
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
    "calibration_incomplete": (
        "Not to be told with this calibration: it lacks launch costs by number of nodes. Make a "
        "new one with gaptrace calibrate."
    ),
    "host_cost_by_nodes": (
        "Not to be told from this trace: how the launch cost of a graph grows with its nodes "
        "without a recorder. Run gaptrace calibrate on that machine and ask again, or gaptrace.tune "
        "on the step."
    ),
    "graph_launch_cost": (
        "No graph was launched, so what one would cost here is not to be told from this trace. "
        "Run gaptrace calibrate on that machine and ask again, or gaptrace.tune on the step."
    ),
}


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


def step_source(steps: Steps) -> str:
    """Say how the steps were found, and how far that can be trusted."""
    medians = "medians of the steps after the first and the warm-up."
    match steps.source:
        case "nvtx":
            return f"found by NVTX ranges; {medians}"
        case "graph_exec":
            return (
                "found by the sequence of graph executions, which may be a part of an iteration or "
                f"several; {medians}"
            )
        case "kernels":
            return (
                "found by the sequence of kernel names, which may be a layer, an iteration or "
                f"several; {medians}"
            )
        case None:
            return f"nothing repeats: {steps.reason}"


def outlier(step: Mapping[str, Any]) -> str:
    """Say which step stands out, by how much and why."""
    grown = step["grown_cause"]
    why = f", of which {grown} {duration(step['grown_ns'])}" if grown else ""
    return (
        f"step {step['step']} of {step['unit']} on device {step['device_id']} took "
        f"{duration(step['excess_ns'])} longer than the median{why}."
    )


def builds(costs: Sequence[Mapping[str, Any]]) -> str | None:
    """Say what building graphs cost the host over the whole trace; None when nothing was built."""
    if not costs:
        return None
    parts = [f"{row['phase']} {count(row['count'])} in {duration(row['host_ns'])}" for row in costs]
    return f"built on the host: {', '.join(parts)}; a capture counts with all host code inside it."


def step_builds(unit: Mapping[str, Any]) -> str:
    """Say what the steps of a sequence build, and what that costs each."""
    parts = [
        f"{row['phase']} {count(row['count']['p50'])} in {duration(row['host_ns']['p50'])}"
        + ("" if row["is_usual"] else f" (in {count(row['building_steps'])} steps)")
        for row in unit["phases"]
    ]
    return f"steps of {unit['unit']} build graphs: {', '.join(parts)}."


def recording(facts: Mapping[str, int]) -> str:
    """Say in one line how complete a recording is and what it cost."""
    with_launch = facts["device_rows"] - facts["device_rows_without_launch"]
    parts = [f"{share(with_launch, facts['device_rows'])} of device rows have their launch"]
    if facts["launches_without_device_rows"]:
        parts.append(f"{count(facts['launches_without_device_rows'])} launches have no device row")
    if facts["profiler_rows"]:
        parts.append(f"the recorder held host threads up for {duration(facts['profiler_ns'])}")
    if facts["back_pressure_rows"]:
        blocked = duration(facts["back_pressure_ns"])
        parts.append(
            f"{count(facts['back_pressure_rows'])} launches blocked by a full queue ({blocked})"
        )
    return f"recording: {', '.join(parts)}"
