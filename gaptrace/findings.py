"""What stands out in the figures: each finding with its number and the next step.

Rules only; a healthy trace gets none.
"""

from dataclasses import dataclass, field
from typing import Literal

import polars as pl

Severity = Literal["high", "medium", "low"]

#: A cause is worth a finding when it holds at least this share of a device's window. Below it, even
#: removing the cause altogether would hardly show next to the usual run-to-run spread.
SHOW_FROM_FRACTION = 0.02
_HIGH_FROM_FRACTION = 0.25
_MEDIUM_FROM_FRACTION = 0.10


@dataclass(frozen=True)
class Finding:
    """One thing that costs time.

    Attributes:
        code: stable, for machines: the cause, or `cause:detail` where a detail decides the advice.
        severity: by share of the window: high from 25 %, medium from 10 %, else low.
        title: what, without figures.
        evidence: the figures: device_id, idle_ns, fraction (of the window), and others by code.
        advice: the next step.
    """

    code: str
    severity: Severity
    title: str
    advice: str
    evidence: dict[str, int | float | str] = field(default_factory=dict)


def find(
    devices: pl.DataFrame, causes: pl.DataFrame, launches: pl.DataFrame, builds: pl.DataFrame
) -> tuple[Finding, ...]:
    """Return findings, largest first.

    Args:
        devices: `Analysis.devices`.
        causes: `Analysis.causes`.
        launches: `launches.launches` inside the window.
        builds: `graphs.graph_builds`.
    """
    grouped = (
        causes.with_columns(topic=_topic())
        .group_by("device_id", "topic", maintain_order=True)
        .agg(
            idle_ns=pl.col("idle_ns").sum(),
            pieces=pl.col("piece_count").sum(),
            top_detail=pl.col("detail").sort_by("idle_ns", descending=True).first(),
            top_ns=pl.col("idle_ns").max(),
        )
        .join(devices.select("device_id", "span_ns"), on="device_id")
        .with_columns(fraction=pl.col("idle_ns") / pl.col("span_ns"))
        .filter(pl.col("fraction") >= SHOW_FROM_FRACTION)
        .sort("idle_ns", descending=True)
    )
    single = launches.filter(pl.col("call_kind") != "graph_launch").height
    instantiated = int(builds.filter(pl.col("phase") == "instantiate")["calls"].sum())
    extra: dict[str, dict[str, int | float | str]] = {
        "launch_call:single": {"single_launches": single},
        "graph_build": {"instantiated": instantiated},
    }
    return tuple(_finding(row, extra.get(row["topic"], {})) for row in grouped.to_dicts())


def _topic() -> pl.Expr:
    """The cause, split where parts of it want different advice."""
    detail = pl.col("detail").cast(pl.String)
    is_graph = detail.str.contains("GraphLaunch").fill_null(False)
    # Code between the calls of a capture is part of building the graph, and goes when that goes.
    builds = (pl.col("cause") == "host_code") & (detail == "in capture").fill_null(False)
    return (
        pl.when(builds)
        .then(pl.lit("graph_build"))
        .when((pl.col("cause") == "launch_call") & is_graph)
        .then(pl.lit("launch_call:graph"))
        .when(pl.col("cause") == "launch_call")
        .then(pl.lit("launch_call:single"))
        .when(pl.col("cause") == "device_queued")
        .then(pl.concat_str(pl.col("cause").cast(pl.String), detail, separator=":"))
        .otherwise(pl.col("cause").cast(pl.String))
    )


def _finding(row: dict[str, int | float | str], extra: dict[str, int | float | str]) -> Finding:
    topic, fraction = str(row["topic"]), float(row["fraction"])
    title, advice = _WORDS.get(topic, _WORDS["device_queued:between_ops"])
    evidence: dict[str, int | float | str] = {
        "device_id": row["device_id"],
        "idle_ns": row["idle_ns"],
        "fraction": fraction,
        "pieces": row["pieces"],
        **extra,
    }
    if row["top_detail"] is not None and ":" not in topic:
        evidence |= {"largest": row["top_detail"], "largest_ns": row["top_ns"]}
    return Finding(topic, _severity(fraction), title, advice, evidence)


def _severity(fraction: float) -> Severity:
    if fraction >= _HIGH_FROM_FRACTION:
        return "high"
    return "medium" if fraction >= _MEDIUM_FROM_FRACTION else "low"


#: topic -> (title, advice).
_WORDS = {
    "host_code": (
        "the host runs code between CUDA calls while the device waits",
        "narrow the report to the steady part with --range or --from/--to; if it stays, profile "
        "the Python or framework code there, or capture the step as a CUDA graph so that this "
        "code does not run at every step",
    ),
    "launch_call:single": (
        "the device waits for single launches",
        "capture the repeated launches of a step as a CUDA graph, or fuse small kernels",
    ),
    "launch_call:graph": (
        "the device waits for graph launches",
        "see the recommendation below; recording itself lengthens graph launches, so compare with "
        "a run without a recorder before cutting graphs",
    ),
    "graph_build": (
        "graphs are built while the device waits",
        "build each graph once and replay it; if its parameters change, update the exec instead "
        "of instantiating it anew",
    ),
    "host_sync": (
        "the device waits after the host has waited for it",
        "synchronise less often: keep values on the device, copy results asynchronously into "
        "pinned memory, read them one step later",
    ),
    "api_other": (
        "the device waits for other CUDA calls",
        "move allocation, module loading and other set-up out of the steady part: warm up first, "
        "and reuse memory through a pool",
    ),
    "device_queued:in_graph": (
        "the device pauses between the nodes inside a graph",
        "chunk size cannot change this: fuse small kernels, or use programmatic dependent launch",
    ),
    "device_queued:between_graphs": (
        "the device pauses between graphs that were launched in time",
        "launch fewer, larger graphs",
    ),
    "device_queued:cross_stream": (
        "the device pauses while work on one stream waits for another",
        "look at the events between these streams; put dependent small kernels on one stream",
    ),
    "device_queued:between_ops": (
        "the device pauses between ops that were launched in time",
        "these are the device's own start-up costs: use fewer, larger kernels, or a graph",
    ),
    "profiler": (
        "the recorder holds the host up",
        "figures near these times are of the recorder: record a shorter part, or without it",
    ),
    "unrecorded": (
        "idle time whose launch was not recorded",
        "record from before the launches on, without cutting the file, to learn its cause",
    ),
}
