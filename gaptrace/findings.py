"""What stands out in the figures: each finding with its number and the next step.

Rules only; a healthy trace gets none.
"""

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import polars as pl

from gaptrace.advice import CAPTURE_ADVICE, OTHERS, TOPICS
from gaptrace.graph_faults import GraphFaults
from gaptrace.graph_use import GraphUse

Severity = Literal["high", "medium", "low"]
_SEVERITIES = get_args(Severity)
Evidence = dict[str, int | float | str]

#: A topic is worth a finding when it holds at least this share of a device's window. Below it, even
#: removing it altogether would hardly show next to the usual run-to-run spread.
SHOW_FROM_FRACTION = 0.02
_HIGH_FROM_FRACTION = 0.25
_MEDIUM_FROM_FRACTION = 0.10
#: Of busy time: copies alone are said from half of it on, collectives from a tenth. Own choice.
_COPIES_FROM, _COLLECTIVES_FROM = 0.5, 0.1
#: NVTX ranges named in one finding.
_MOST_RANGES = 3


@dataclass(frozen=True)
class Finding:
    """One thing that costs time, or makes results wrong.

    Attributes:
        code: stable, for machines: a topic of idle time (see `topics.with_topics`), or a key of
            `advice.OTHERS`.
        severity: of what costs time by its share of the window: high from 25 %, medium from 10 %,
            else low. A failed launch is high, a failed capture too unless graphs run nevertheless
            (medium), a mere suspicion low.
        title: what, without figures.
        evidence: the figures. Of idle time: device_id, idle_ns, fraction (of the window), pieces;
            largest, largest_ns: the API call or phase that holds most of it; and others by code.
        advice: the next step.
    """

    code: str
    severity: Severity
    title: str
    advice: str
    evidence: Evidence = field(default_factory=dict)


def find(
    devices: pl.DataFrame,
    busy: pl.DataFrame,
    idle: pl.DataFrame,
    launches: pl.DataFrame,
    use: GraphUse,
    faults: GraphFaults,
    delayed: pl.DataFrame,
    waits: pl.DataFrame,
) -> tuple[Finding, ...]:
    """Return findings: failures, then what costs time, gravest first, then suspicions.

    Args:
        devices: `Analysis.devices`.
        busy: `work.busy_with`.
        idle: idle pieces, as `topics.with_topics` returns them.
        launches: `launches.launches` inside the window.
        use: `graph_use.graph_use`.
        faults: `graph_faults.graph_faults`.
        delayed: `copy_waits.delayed_copies`.
        waits: `exec_waits.exec_waits`.
    """
    topics = [_of_topic(row, launches, use) for row in _large_topics(idle, devices)]
    # Of several devices one may have idled less, and yet for more of its own time.
    topics.sort(key=lambda each: _SEVERITIES.index(each.severity))
    return (
        *_failed_launches(faults),
        *_failed_captures(faults, launches),
        *topics,
        *_no_kernels(busy, devices),
        *_contention(delayed, devices),
        *_exec_waits(waits, devices),
        *_unused_execs(faults, devices),
        *_stale_execs(faults),
    )


def _large_topics(idle: pl.DataFrame, devices: pl.DataFrame) -> list[dict[str, Any]]:
    """Topics that hold at least `SHOW_FROM_FRACTION` of their device's window, largest first."""
    detail = pl.coalesce("waited", "detail").cast(pl.String)
    # Code between the calls of a capture counts with them.
    detail = pl.when(detail == "in capture").then(pl.lit("capture")).otherwise(detail)
    by_detail = (
        idle.with_columns(detail=detail)
        .group_by("device_id", "topic", "detail")
        .agg(ns=(pl.col("end_ns") - pl.col("start_ns")).sum(), pieces=pl.len().cast(pl.Int64))
        .sort("ns", "detail", descending=[True, False])
    )
    return (
        by_detail.group_by("device_id", "topic", maintain_order=True)
        .agg(
            idle_ns=pl.col("ns").sum(),
            pieces=pl.col("pieces").sum(),
            largest=pl.col("detail").first(),
            largest_ns=pl.col("ns").first(),
        )
        .join(devices.select("device_id", "span_ns"), on="device_id")
        .with_columns(fraction=pl.col("idle_ns") / pl.col("span_ns"))
        .filter(pl.col("fraction") >= SHOW_FROM_FRACTION)
        .sort("idle_ns", "device_id", "topic", descending=[True, False, False])
        .to_dicts()
    )


def _of_topic(row: dict[str, Any], launches: pl.DataFrame, use: GraphUse) -> Finding:
    topic = row["topic"]
    title, advice = TOPICS[topic]
    evidence = {key: row[key] for key in ("device_id", "idle_ns", "fraction", "pieces")}
    evidence |= _figures_of(topic, row["device_id"], launches, use)
    # Elsewhere the detail is the topic, or says no more than it.
    is_named = topic.startswith(("graph_build", "host_sync", "api_other"))
    if row["largest"] is not None and (is_named or topic == "host_code:after_wait"):
        evidence |= {"largest": row["largest"], "largest_ns": row["largest_ns"]}
    return Finding(topic, _severity(row["fraction"]), title, advice, evidence)


def _figures_of(topic: str, device_id: int, launches: pl.DataFrame, use: GraphUse) -> Evidence:
    """What a topic's evidence holds besides its idle time."""
    here = pl.col("device_id") == device_id
    if topic == "launch_call:single":
        single = here & (pl.col("call_kind") != "graph_launch")
        return {"single_launches": launches.filter(single).height}
    if topic == "no_graphs":
        (row,) = use.ungraphed.filter(here).drop("device_id").to_dicts()
        return {name: round(value) for name, value in row.items()}
    if topic == "value_loop":
        loop = use.loops.filter(here)
        return {"iterations": loop.height} | _medians(loop, "duration_ns", "gap_ns")
    if topic.startswith("eager_bursts"):
        rebuilt = topic == "eager_bursts:rebuilt"
        return _of_bursts(use.bursts.filter(here & (pl.col("is_rebuilt") == rebuilt)))
    if topic.startswith("graph_build:"):
        counts = use.rebuilds.filter(pl.col("habit") == topic.removeprefix("graph_build:"))
        names = ("launches", "instantiated", "updated", "refused", "captures", "shapes", "kept")
        return {name: int(counts[name].sum()) for name in names}
    if topic == "graph_build":
        return {"instantiated": int(use.rebuilds["instantiated"].sum())}
    return {}


def _medians(rows: pl.DataFrame, *columns: str) -> Evidence:
    row = rows.select(pl.median(*columns)).row(0, named=True)
    return {name: round(value) for name, value in row.items()}


def _of_bursts(bursts: pl.DataFrame) -> Evidence:
    named = (
        bursts.drop_nulls("range")
        .group_by("range", maintain_order=True)
        .len()
        .sort("len", descending=True, maintain_order=True)["range"]
        .to_list()
    )
    more = ["..."] if len(named) > _MOST_RANGES else []
    figures: Evidence = {
        "bursts": bursts["burst_id"].n_unique(),
        "single_launches": bursts.height,
    }
    if named:
        figures["ranges"] = ", ".join(named[:_MOST_RANGES] + more)
    return figures


def _severity(fraction: float) -> Severity:
    if fraction >= _HIGH_FROM_FRACTION:
        return "high"
    return "medium" if fraction >= _MEDIUM_FROM_FRACTION else "low"


def _other(code: str, severity: Severity, evidence: Evidence, advice: str | None = None) -> Finding:
    title, usual = OTHERS[code]
    return Finding(code, severity, title, advice or usual, evidence)


def _failed_launches(faults: GraphFaults) -> list[Finding]:
    return [
        _other("launch_failed", "high", {"call": name, "return_code": code, "calls": calls})
        for name, code, calls in faults.failed_launches.rows()
    ]


def _failed_captures(faults: GraphFaults, launches: pl.DataFrame) -> list[Finding]:
    runs_graphs = (launches["call_kind"] == "graph_launch").any()
    causes = faults.failed_captures.group_by("call_name", "return_code", maintain_order=True).len()
    return [
        _other(
            "capture_failed",
            "medium" if runs_graphs else "high",
            {"call": name, "return_code": code, "captures": captures},
            CAPTURE_ADVICE.get(code),
        )
        for name, code, captures in causes.rows()
    ]


def _no_kernels(busy: pl.DataFrame, devices: pl.DataFrame) -> list[Finding]:
    """Busy time that is mostly copies, or kernels that may only wait for other ranks."""
    found = []
    for row in busy.join(devices.select("device_id", "span_ns", "busy_ns"), on="device_id").rows(
        named=True
    ):
        for code, name, share in (
            ("copies", "copy_ns", _COPIES_FROM),
            ("collectives", "collective_ns", _COLLECTIVES_FROM),
        ):
            fraction = row[name] / row["span_ns"] if row["span_ns"] else 0.0
            if fraction >= SHOW_FROM_FRACTION and row[name] >= share * row["busy_ns"]:
                evidence: Evidence = {
                    "device_id": row["device_id"],
                    name: row[name],
                    "kernel_ns": row["kernel_ns"],
                    "fraction": fraction,
                }
                found.append(_other(code, _severity(fraction), evidence))
    return found


def _contention(delayed: pl.DataFrame, devices: pl.DataFrame) -> list[Finding]:
    found = []
    for device_id, span_ns in devices.select("device_id", "span_ns").rows():
        here = delayed.filter(pl.col("device_id") == device_id)
        fraction = int(here["delayed_ns"].sum()) / span_ns if span_ns else 0.0
        if fraction >= SHOW_FROM_FRACTION:
            evidence: Evidence = {
                "device_id": device_id,
                "delayed_ns": int(here["delayed_ns"].sum()),
                "fraction": fraction,
                "copies": here.height,
                "direction": ", ".join(here["name"].cast(pl.String).unique().sort()),
            }
            found.append(_other("copy_contention", _severity(fraction), evidence))
    return found


def _exec_waits(waits: pl.DataFrame, devices: pl.DataFrame) -> list[Finding]:
    found = []
    for device_id, span_ns in devices.select("device_id", "span_ns").rows():
        here = waits.filter(pl.col("device_id") == device_id)
        waited_ns = int(here["waited_ns"].sum())
        fraction = waited_ns / span_ns if span_ns else 0.0
        if fraction >= SHOW_FROM_FRACTION:
            evidence: Evidence = {
                "device_id": device_id,
                "waited_ns": waited_ns,
                "fraction": fraction,
                "executions": here.height,
                "execs": here.select("process_id", "graph_exec_id").unique().height,
            }
            found.append(_other("exec_waits_for_itself", _severity(fraction), evidence))
    return found


def _unused_execs(faults: GraphFaults, devices: pl.DataFrame) -> list[Finding]:
    built_ns = int(faults.unused_execs["built_ns"].sum())
    longest_ns = max(devices["span_ns"].to_list(), default=0)
    if not built_ns or built_ns < SHOW_FROM_FRACTION * longest_ns:
        return []
    evidence: Evidence = {"execs": faults.unused_execs.height, "built_ns": built_ns}
    return [_other("graphs_never_launched", "low", evidence)]


def _stale_execs(faults: GraphFaults) -> list[Finding]:
    stale = faults.stale_execs
    if stale.is_empty():
        return []
    evidence: Evidence = {
        "execs": stale.height,
        "freed": int(stale["freed"].max()),  # type: ignore[arg-type]
        "call": stale["call_name"][0],
    }
    return [_other("stale_addresses", "low", evidence)]
