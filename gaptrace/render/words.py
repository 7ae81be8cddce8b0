"""What the terms of a report mean and what a verdict asks for, in sentences."""

from collections.abc import Mapping, Sequence
from typing import Any

from gaptrace.findings import Finding
from gaptrace.render.units import count, duration, share
from gaptrace.steps import Steps
from gaptrace.trace import Granularity

CAUSES = {
    "unrecorded": "the launch of what came next is not in the trace",
    "profiler": "the recorder held the host up",
    "device_queued": "submitted in time; the device had not begun",
    "launch_call": "inside the launch call of what came next",
    "graph_build": "inside a call that captures, instantiates, updates, uploads or destroys graphs",
    "host_sync": "the host waited, or was returning from waiting, for the device",
    "api_other": "other CUDA calls: allocation, module loading ...",
    "host_code": "no CUDA call: Python, framework, operating system",
}
#: Of `sensitivity.sensitivity`.
STEP_FIGURES = {
    "host_fixed_ns": "host cost of a chunk, whatever its size",
    "host_by_nodes_ns": "host cost that grows with nodes, of one graph",
    "device_ns": "device time of the step",
    "cut_gap_ns": "device gap that a cut adds",
    "device_free_ns": "earlier work when the step begins",
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
        after = "after" if finding.code == "host_code:after_wait" else "the largest part"
        parts.append(f"{after} {_part(str(evidence['largest']))} ({longest})")
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
    "copies": "{copy_ns} ({fraction} of the span) of copies alone, kernels {kernel_ns}",
    "collectives": "{collective_ns} ({fraction} of the span), all kernels {kernel_ns}",
    "copy_contention": "{delayed_ns} ({fraction} of the span) in {copies} copies, {direction}",
    "exec_waits_for_itself": "{waited_ns} ({fraction} of the span) in {executions} executions of "
    "{execs} execs",
    "graphs_never_launched": "{execs} execs, {built_ns} to instantiate",
    "stale_addresses": "{execs} execs launched after memory was freed, from {call} on in {freed} "
    "calls",
}


def _part(name: str) -> str:
    return "capture with the host code inside it" if name == "capture" else name


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


def run_ahead(unit: Mapping[str, Any]) -> str:
    """Say that the host runs ahead in the steps of a sequence, and by how much."""
    return (
        f"the host runs ahead in {unit['unit']}: when a step ends, the device works for "
        f"{duration(unit['behind_ns'])} more (median), so busy and idle are of other steps, too."
    )


def outlier(step: Mapping[str, Any]) -> str:
    """Say which step stands out, by how much and why."""
    return (
        f"step {step['step']} of {step['unit']} on device {step['device_id']} took "
        f"{duration(step['excess_ns'])} longer than the median{grown(step)}."
    )


def grown(step: Mapping[str, Any]) -> str:
    """Say what made a step longer, to be put after how much longer; empty if nothing did."""
    cause = step["grown_cause"]
    if cause and step["grown_ns"] <= step["excess_ns"]:
        return f", of which {cause} {duration(step['grown_ns'])}"
    # Other parts of it were shorter.
    return f", while {cause} grew by {duration(step['grown_ns'])}" if cause else ""


def builds(costs: Sequence[Mapping[str, Any]]) -> str | None:
    """Say what building graphs cost the host over the whole trace; None when nothing was built."""
    if not costs:
        return None
    parts = [f"{row['phase']} {count(row['count'])} in {duration(row['host_ns'])}" for row in costs]
    return (
        f"built on the host in the whole trace: {', '.join(parts)}; a capture counts with all host "
        "code inside it."
    )


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
