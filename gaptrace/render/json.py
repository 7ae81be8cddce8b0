"""The analysis as one JSON object, stable across versions: schema gaptrace.analysis/1."""

from dataclasses import asdict
from typing import Any

import polars as pl

from gaptrace.analysis import Analysis
from gaptrace.quantiles import FIELDS
from gaptrace.recommendation import Recommendation
from gaptrace.render.app_nodes import app_sizes
from gaptrace.timelines import CAUSES
from gaptrace.trace import TraceWarning

ANALYSIS_SCHEMA = "gaptrace.analysis/1"
RECOMMENDATION_SCHEMA = "gaptrace.recommendation/1"

#: Instances of ranges in one object: enough for any loop that people look at one by one.
_MOST_INSTANCES = 10_000
_NOTHING = {name: 0 if name == "count" else None for name in FIELDS}


def analysis_object(analysis: Analysis) -> dict[str, Any]:
    """Return the analysis as plain lists, dicts and numbers; times in ns, missing is null."""
    return {
        "schema": ANALYSIS_SCHEMA,
        "trace": asdict(analysis.trace.meta),
        "window": analysis.window_name,
        "warnings": _warnings(analysis.warnings),
        "recording": analysis.recording,
        "devices": _devices(analysis),
        "ranges": _ranges(analysis),
        "range_instances": _instances(analysis),
        "steps": _steps(analysis),
        "graph_builds": analysis.build_costs.rename({"process_id": "process"}).to_dicts(),
        "graphs": [
            {"device": row.pop("device_id"), "stream": row.pop("stream_id"), **_renamed(row)}
            for row in analysis.graphs.to_dicts()
        ],
        "largest_gaps": [
            {"device": row.pop("device_id"), **row} for row in analysis.largest_gaps.to_dicts()
        ],
        "findings": [asdict(finding) for finding in analysis.findings],
        "recommendation": recommendation_object(analysis.recommendation),
    }


def recommendation_object(
    recommendation: Recommendation, app_nodes: int | None = None
) -> dict[str, Any]:
    """Return the recommendation as plain lists, dicts and numbers; times in ns, sizes in nodes.

    With the number of nodes that the application counts for the step, its sizes are in `app_nodes`.
    """
    arms = ("per_launch", "one_graph", "chunk", "schedule", "device_only")
    return {
        "schema": RECOMMENDATION_SCHEMA,
        "unit": "cuda graph nodes",
        "regime": recommendation.regime,
        "verdict": recommendation.verdict,
        "cause": recommendation.cause,
        "nodes": recommendation.nodes,
        "step": recommendation.step,
        "devices": list(recommendation.devices),
        "chunk": recommendation.chunk,
        "plateau": _list(recommendation.plateau),
        "schedule": _list(recommendation.schedule),
        "predicted_ns": {arm: recommendation.predicted_ns.get(arm) for arm in arms},
        "measured_ns": recommendation.measured_ns,
        "gain_ns": recommendation.gain_ns,
        "gain_interval_ns": _list(recommendation.gain_interval_ns),
        "gain_cap_ns": recommendation.gain_cap_ns,
        "break_even_replays": recommendation.break_even_replays,
        "amortised_ns": {str(count): ns for count, ns in recommendation.amortised_ns.items()},
        "closed_form": _list(recommendation.closed_form),
        "alternatives": [asdict(item) for item in recommendation.alternatives],
        "sensitivity": [asdict(item) for item in recommendation.sensitivity],
        "ungraphed": [
            {"device": row.pop("device_id"), **row} for row in map(asdict, recommendation.ungraphed)
        ],
        "app_nodes": app_sizes(recommendation, app_nodes),
        "calibration": recommendation.calibration and dict(recommendation.calibration),
        "inputs": [asdict(item) for item in recommendation.inputs],
        "warnings": _warnings(recommendation.warnings),
    }


def _devices(analysis: Analysis) -> list[dict[str, Any]]:
    return [
        {
            "device": row.pop("device_id"),
            **row,
            "gap_ns": row["gap_ns"] or _NOTHING,
            "causes": _causes(analysis.cause_totals, device_id=device_id),
            "cause_details": _details(analysis.causes, device_id),
        }
        for row in analysis.devices.to_dicts()
        for device_id in [row["device_id"]]
    ]


def _ranges(analysis: Analysis) -> list[dict[str, Any]]:
    return [
        {
            "path": row["path"],
            "domain": row["domain"],
            "count": row["count"],
            "device": row["device_id"],
            "span_ns": row["span_ns"],
            "busy_ns": row["busy_ns"],
            "idle_ns": row["idle_ns"],
            "causes": _causes(
                analysis.range_cause_totals,
                path=row["path"],
                domain=row["domain"],
                device_id=row["device_id"],
            ),
            "launches": row["launches"],
            "graph_launches": row["graph_launches"],
        }
        for row in analysis.ranges.to_dicts()
    ]


def _list(values: tuple[float, ...] | None) -> list[float] | None:
    return None if values is None else list(values)


def _steps(analysis: Analysis) -> dict[str, Any]:
    steps = analysis.steps
    named = {"device_id": "device", "process_id": "process", "stream_id": "stream"}
    of_each = ("key", "device_id", "step", "start_ns", "span_ns", "busy_ns", "idle_ns")
    flags = ("is_first", "is_warm_up", "is_outlier", "excess_ns", "grown_cause", "grown_ns")
    return {
        "source": steps.source,
        "unit": steps.unit,
        "reason": steps.reason,
        "work_fraction": steps.work_fraction,
        "sequences": [
            row | {"builds": _builds(analysis.unit_builds, key=row["key"], device_id=row["device"])}
            for row in analysis.step_units.drop("thread_id").rename(named).to_dicts()
        ],
        "steps": analysis.step_summary.select(of_each + flags)
        .rename({"device_id": "device"})
        .to_dicts(),
        "builds": analysis.step_builds.rename({"device_id": "device"}).to_dicts(),
    }


def _instances(analysis: Analysis) -> dict[str, Any]:
    """Instances of ranges, the first of them where there are very many; causes that took time."""
    rows = analysis.range_instances
    shown = rows.head(_MOST_INSTANCES).rename({"device_id": "device"}).drop("process_id")
    causes = CAUSES.categories.to_list()
    instances = [
        {key: value for key, value in row.items() if key not in causes}
        | {"causes": {cause: row[cause] for cause in causes if row[cause]}}
        for row in shown.to_dicts()
    ]
    return {"count": rows.height, "instances": instances}


def _warnings(warnings: tuple[TraceWarning, ...]) -> list[dict[str, str]]:
    return [asdict(warning) for warning in warnings]


def _causes(totals: pl.DataFrame, **key: str | int | None) -> dict[str, int]:
    """Nanoseconds of all causes, in their fixed order; those that took no time are 0."""
    mine = totals.filter(
        pl.all_horizontal(pl.col(column).eq_missing(value) for column, value in key.items())
    )
    found = dict(mine.select("cause", "idle_ns").rows())
    return {cause: found.get(cause, 0) for cause in CAUSES.categories}


def _builds(builds: pl.DataFrame, **key: int) -> list[dict[str, Any]]:
    return builds.filter(**key).drop(*key).to_dicts()


def _details(causes: pl.DataFrame, device_id: int) -> list[dict[str, Any]]:
    mine = causes.filter(pl.col("device_id") == device_id)
    return mine.select("cause", "detail", "idle_ns", pieces="piece_count").to_dicts()


def _renamed(row: dict[str, Any]) -> dict[str, Any]:
    return {"graph_exec": row.pop("graph_exec_id"), "process": row.pop("process_id"), **row}
