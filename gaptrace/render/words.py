"""What the terms of a report mean and what a verdict asks for, in sentences."""

from gaptrace.recommend import Recommendation
from gaptrace.render.units import duration
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
        case "one_graph":
            return (
                f"Keep one graph of {recommendation.nodes} CUDA nodes: even if all of its launch "
                "cost grew with its nodes, cutting it would gain less than 0.5 %."
            )
        case "chunk":
            return f"Cut the graph into chunks of {recommendation.chunk} CUDA nodes."
        case "merge":
            return (
                "Launch fewer, larger graphs: the device pauses between graphs that were launched "
                f"in time, for about {duration(recommendation.gain_ns)} a step."
            )
        case "do_not_graph":
            return (
                "Leave it as it is: no graph is launched, and the device hardly waits, so that "
                "graphs would gain nothing."
            )
        case "no_difference_shown":
            return (
                "Leave it as it is: launches and builds of graphs leave the device idle for less "
                "than 0.5 % of the time."
            )
        case "not_a_chunk_problem":
            return (
                f"Chunk size is not the problem: most of the idle time before graphs is {cause} "
                f"({CAUSES.get(cause, cause)})."
            )
        case "needs_calibration":
            return _MISSING.get(cause, "This trace alone cannot tell.")


_MISSING = {
    "nodes": (
        "Not to be told from this trace: the number of nodes of the graph is missing. Record once "
        "with --granularity node."
    ),
    "host_cost_by_nodes": (
        "Not to be told from this trace: how the launch cost of a graph grows with its nodes "
        "without a recorder. Time the step without a recorder as one graph and in chunks of two or "
        "three sizes (examples/demo.py shows how) and keep the fastest."
    ),
    "graph_launch_cost": (
        "No graph was launched, so what one would cost here is not to be told from this trace. "
        "Capture one step as a graph and time it without a recorder against single launches "
        "(examples/demo.py shows how)."
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
