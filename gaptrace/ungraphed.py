"""What graphs would bring to steps that are launched kernel by kernel."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import starmap
from typing import Any

import numpy as np
import polars as pl

from gaptrace.calibration import Calibration
from gaptrace.cost import break_even_replays
from gaptrace.critical_path import Wait, Work, critical_path
from gaptrace.host_pace import host_pace, with_paces
from gaptrace.machine_costs import (
    Level,
    build_ns,
    cut_gap,
    host_costs,
    launch_slowdown,
    value_of,
)
from gaptrace.predict import StepCosts, best_sizes
from gaptrace.recommendation import NOISE_FRACTION, UngraphedStep, Verdict
from gaptrace.schedules import growing_with_reserve, plateau
from gaptrace.steps import Steps
from gaptrace.trace import Trace
from gaptrace.untraced import recorder_of

#: Steps below this many are too few to say that they are alike.
_LEAST_STEPS = 3
#: Share of the steps that must launch the same kernels in the same order, for a graph to be built
#: once and replayed. Own choice: warm-up and clean-up steps may differ.
_ALIKE = 0.75
#: Share of the calibrated gap between nodes that a kernel takes longer in a graph than recorded
#: alone. Measured on an H200, with a gap of 0.66 us: 0.29 us in 600 kernels in a line; 0.46, 0.51
#: and 0.16 us in decoders of 115, 321 and 673 nodes; 0.2 us less where a process has used a single
#: stream (`live.several_streams`).
_BETWEEN = {"low": 0.0, "value": 0.5, "high": 1.0}
#: What the runtime's launch call takes beyond the driver's, which is calibrated: 4.8 to 5.0 us were
#: recorded for PyTorch's where CuPy's took 4.0 to 4.4 (H200, processes that were not disturbed);
#: 0.4 to 0.6 us more where launches do nothing but follow each other.
_RUNTIME_NS = 700
_STEP = ["key", "device_id", "step"]
#: Steps whose longest chain is looked for; their median counts. Own choice: a step is much like the
#: next.
_SAMPLED = 9
_LEVELS: tuple[Level, ...] = ("value", "low", "high")


def ungraphed_steps(
    trace: Trace, launches: pl.DataFrame, steps: Steps, calibration: Calibration
) -> tuple[UngraphedStep, ...]:
    """Weigh graphs for every sequence of steps that launch kernels and no graph.

    A step without a recorder is predicted from its launches: host time from one to the next, in the
    median of the steps, each multiplied by how slow the host was meanwhile; and by what a launch
    takes without the recorder over with it, as calibrated; device time as recorded. In a graph
    kernels follow each other as closely as nodes do. What passes between them there is in part in
    the recorded kernel times: the interval is from nothing more to the calibrated gap between nodes
    (`_BETWEEN`). Kernels on several streams become branches, which take as long as they did one by
    one if each fills the device, and as long as the longest chain of them that wait for each other
    if none does: the interval holds both, and half way between is predicted (own choice; a decoder
    with two branches took 645 us, its longest chain 540 and all its kernels 890).

    Args:
        trace: the trace.
        launches: `launches.launches` inside the windows.
        steps: `steps.find_steps`, those that begin in the windows.
        calibration: of the machine.

    Returns:
        the sequences, that with most time first.

    Raises:
        NotIdentifiableError: the calibration lacks figures.
    """
    each = _measured(trace, launches, steps)
    rows = (
        each.group_by("key", "device_id", "unit", maintain_order=True)
        .agg(
            pl.len().alias("steps"),
            pl.col("kernels", "busy_ns", "waits").median(),
            pl.col("interval_ns", "api_ns", "loop_ns"),
            pl.col("chain_ns", "chain_kernels").median(),
            (pl.col("sequence").unique_counts().max() / pl.len()).alias("alike"),
            pl.col("span_ns").sum().alias("total_ns"),
        )
        .filter(pl.col("steps") >= _LEAST_STEPS, pl.col("kernels") >= 2)
        .sort("total_ns", descending=True)
    )
    return tuple(_weighed(row, trace, calibration) for row in rows.to_dicts())


def _measured(trace: Trace, launches: pl.DataFrame, steps: Steps) -> pl.DataFrame:
    """One row per step without graphs: kernels, interval_ns, busy_ns, waits, sequence, span_ns.

    And api_ns: the median launch call of the driver, or what is left of one of the runtime;
    loop_ns: see `host_pace.with_paces`; chain_ns, chain_kernels: see `_longest_chains`.
    """
    at = "call_start_ns" if steps.source == "nvtx" else "start_ns"
    names = trace.ops.filter(pl.col("call_id").is_not_null()).unique("call_id", keep="first")
    pageable = (pl.col("source_memory") == "pageable") | (pl.col("target_memory") == "pageable")
    names = names.select("call_id", pl.col("name").cast(pl.String), is_pageable=pageable)
    inside = _inside(launches.join(names, on="call_id", how="left"), steps.frame, at)
    kind = pl.col("call_kind").cast(pl.String)
    through = pl.col("call_name").cast(pl.String).str.starts_with("cuda")
    api = pl.col("call_end_ns") - pl.col("call_start_ns") - through * _RUNTIME_NS
    reached = pl.col("end_ns").cum_max().shift(1)
    works = (pl.col("end_ns") - pl.max_horizontal("start_ns", reached)).clip(lower_bound=0)
    found = (
        inside.sort("start_ns")
        .group_by(*_STEP, "unit", maintain_order=True)
        .agg(
            pl.col("process_id", "thread_id").first(),
            pl.col("call_start_ns").min().alias("first_ns"),
            pl.col("call_start_ns").max().alias("last_ns"),
            (pl.col("end_ns").max() - pl.col("call_start_ns").min()).alias("span_ns"),
            kind.is_in(["launch", "copy"]).sum().alias("kernels"),
            (kind == "graph_launch").sum().alias("graphs"),
            ((kind == "blocking_copy") | pl.col("is_pageable").fill_null(False))
            .sum()
            .alias("copies"),
            works.sum().alias("busy_ns"),
            api.filter(kind == "launch").median().alias("api_ns"),
            pl.col("name").sort_by("call_start_ns").str.join(">").hash().alias("sequence"),
            pl.col("stream_id").n_unique().alias("streams"),
        )
        .filter(pl.col("graphs") == 0)
    )
    waits = trace.api.filter((pl.col("kind") == "wait") & pl.col("capture_id").is_null()).select(
        "thread_id", wait_ns="start_ns"
    )
    waited = _between(found, waits).group_by(_STEP).agg(pl.len().alias("wait_count"))
    found = with_paces(trace, found)
    chains = _longest_chains(trace, inside, found)
    found = found.join(chains, on=_STEP, how="left", maintain_order="left")
    return found.join(waited, on=_STEP, how="left", maintain_order="left").with_columns(
        waits=pl.col("wait_count").fill_null(0) + pl.col("copies"),
        interval_ns=(pl.col("last_ns") - pl.col("first_ns")) / (pl.col("kernels") - 1),
    )


def _longest_chains(trace: Trace, inside: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    """The longest chain of kernels that wait for each other: chain_ns, chain_kernels.

    Of the first steps on several streams; there are no rows for others.
    """
    several = found.filter(pl.col("streams") > 1).group_by("key", "device_id").head(_SAMPLED)
    orders = trace.event_waits.select(
        "call_id", _stream("stream_id"), _stream("awaited_stream_id"), "recorded_call_id"
    )
    rows = []
    steps = inside.join(several, on=_STEP, how="semi", maintain_order="left")
    for step, work in steps.partition_by(_STEP, as_dict=True, maintain_order=True).items():
        ns = work.select("call_id", _stream("stream_id"), pl.col("end_ns") - pl.col("start_ns"))
        while_given = pl.col("call_id").is_between(ns["call_id"].min(), ns["call_id"].max())
        waits = orders.filter(while_given)
        path = critical_path([*starmap(Work, ns.rows()), *starmap(Wait, waits.rows())])
        rows.append((*step, *path))
    schema = {name: found.schema[name] for name in _STEP}
    schema |= {"chain_ns": pl.Int64(), "chain_kernels": pl.Int64()}
    return pl.DataFrame(rows, schema, orient="row")


def _stream(column: str) -> pl.Expr:
    return pl.format("{} {}", "process_id", column).alias(column)


def _inside(launches: pl.DataFrame, frame: pl.DataFrame, at: str) -> pl.DataFrame:
    """Launches with the step in which they lie; of steps that overlap, the last to begin."""
    own = frame.filter(~pl.col("is_first") & ~pl.col("is_warm_up")).select(
        *_STEP, "unit", "process_id", step_ns="start_ns", step_end_ns="end_ns"
    )
    return (
        launches.sort(at)
        .join_asof(
            own.sort("step_ns"),
            left_on=at,
            right_on="step_ns",
            by=["process_id", "device_id"],
            check_sortedness=False,
        )
        .filter(pl.col(at) < pl.col("step_end_ns"))
    )


def _between(found: pl.DataFrame, waits: pl.DataFrame) -> pl.DataFrame:
    """Waits that begin between the first and the last launch of a step."""
    return (
        waits.sort("wait_ns")
        .join_asof(
            found.select(*_STEP, "thread_id", "first_ns", "last_ns").sort("first_ns"),
            left_on="wait_ns",
            right_on="first_ns",
            by="thread_id",
            check_sortedness=False,
        )
        .filter(pl.col("wait_ns") < pl.col("last_ns"))
    )


def _weighed(row: Mapping[str, Any], trace: Trace, calibration: Calibration) -> UngraphedStep:
    costs, *ends = (_costs(row, trace, calibration, level) for level in _LEVELS)
    # Long gaps between nodes and short ones between launches speak against a graph.
    ends += [
        replace(costs, node_ns=ends[1].node_ns, launch_ns=ends[0].launch_ns),
        replace(costs, launch_ns=ends[1].launch_ns),
    ]
    found = plateau(costs.uniform_ns)
    sizes = best_sizes(costs, found.recommended, growing_with_reserve(costs.model))
    single_ns, best_ns = costs.per_launch_ns, costs.step_ns(sizes)
    gains = [each.per_launch_ns - each.step_ns(sizes) for each in (costs, *ends)]
    verdict, cause = _verdict(row, gains[0], single_ns)
    nodes = len(costs.node_ns)
    built_ns = build_ns(calibration, nodes, costs.launch_ns)
    return UngraphedStep(
        unit=row["unit"],
        device_id=row["device_id"],
        verdict=verdict or ("one_graph" if len(sizes) == 1 else "chunk"),
        cause=cause,
        steps=row["steps"],
        host_pace=float(np.median(host_pace(calibration, row["api_ns"], row["loop_ns"], "value"))),
        kernels=nodes,
        chunk=None if verdict else found.recommended,
        plateau=None if verdict else (found.lo, found.hi),
        schedule=None if verdict else sizes,
        launch_ns=round(costs.launch_ns),
        launch_interval_ns=(round(ends[0].launch_ns), round(ends[1].launch_ns)),
        per_launch_ns=round(single_ns),
        one_graph_ns=round(costs.step_ns((nodes,))),
        best_ns=round(best_ns),
        build_ns=round(built_ns),
        gain_ns=round(gains[0]),
        gain_interval_ns=(round(min(gains)), round(max(gains))),
        break_even_replays=break_even_replays(built_ns, single_ns, best_ns),
    )


def _verdict(
    row: Mapping[str, Any], gain_ns: float, single_ns: float
) -> tuple[Verdict | None, str | None]:
    """What speaks against a graph; None if nothing does."""
    if row["alike"] < _ALIKE:
        return "not_a_chunk_problem", "dynamic_steps"
    if row["waits"] >= 1:
        return "not_a_chunk_problem", "waits_inside"
    if gain_ns < NOISE_FRACTION * single_ns:
        is_large = row["busy_ns"] >= row["kernels"] * np.nanmedian(row["interval_ns"])
        return "do_not_graph", "large_kernels" if is_large else "nothing_to_gain"
    return None, None


def _costs(
    row: Mapping[str, Any], trace: Trace, calibration: Calibration, level: Level
) -> StepCosts:
    host, ready = host_costs(calibration, "replay", level, {})
    nodes, recorder = round(row["kernels"]), recorder_of(trace)

    def value(name: str) -> float:
        return value_of(calibration, name, level)

    pace = host_pace(calibration, row["api_ns"], row["loop_ns"], level)
    gap = _BETWEEN[level] * max(0.0, value("node_gap_ns"))
    return StepCosts(
        host=host,
        ready=ready,
        node_ns=np.full(nodes, _device_ns(row, gap, level) / nodes),
        cut_gap_ns=max(0.0, cut_gap(calibration, level)),
        device_free_ns=0.0,
        notice_ns=0.0,
        launch_ns=launch_slowdown(calibration, recorder, level)
        * float(np.nanmedian(row["interval_ns"] * pace)),
        launch_delta_ns=max(0.0, value("launch_latency_ns") - value("launch_api_ns")),
        kernel_gap_ns=max(0.0, value("kernel_gap_ns") - value("node_gap_ns")),
    )


def _device_ns(row: Mapping[str, Any], gap_ns: float, level: Level) -> float:
    """What the device takes for a step as one graph."""
    one_by_one_ns = float(row["busy_ns"] + row["kernels"] * gap_ns)
    if row["chain_ns"] is None:
        return one_by_one_ns
    chain_ns = float(row["chain_ns"] + row["chain_kernels"] * gap_ns)
    return {
        "low": chain_ns,
        "value": (chain_ns + one_by_one_ns) / 2,
        "high": one_by_one_ns,
    }[level]
