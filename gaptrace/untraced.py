"""From a recorded step and a calibration of its machine to what it costs without a recorder.

- Launches of graphs, the cut gap and queue depths are the machine's: calibrated, untraced.
- The device's time is the program's: recorded. In graph granularity each node, in node granularity
  each gap inside a graph, less what the recorder was calibrated to add there; gaps not below 0. A
  gap may have been lengthened less than that, so its upper end is the gap as recorded.
- Building graphs and launching kernels one by one run the program's own code, which the recorder
  slows down too: recorded times are multiplied by calibrated time without over that with it, at
  the same number of nodes. The shape by node count is the calibration's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from gaptrace.builds import graph_builds
from gaptrace.calibration import REGIMES, Calibration
from gaptrace.captures import captures
from gaptrace.cost import Floats
from gaptrace.machine_costs import (
    OPPOSITE,
    Level,
    at_nodes,
    cut_gap,
    host_costs,
    node_gap_added,
    slowdown,
    value_of,
)
from gaptrace.predict import StepCosts
from gaptrace.rebuilds import LEAST_BUILDS
from gaptrace.recommendation import Parameter, Regime
from gaptrace.topics import PAUSE
from gaptrace.trace import SUBMITTING, Trace, TraceWarning
from gaptrace.traced_step import TracedStep

#: What the calibration calls them -> the phase of building in a trace.
_PHASES = {
    "capture_ns": "capture",
    "instantiate_ns": "instantiate",
    "exec_update_ns": "update",
    "destroy_graph_ns": "destroy",
    "destroy_exec_ns": "destroy",
}


@dataclass(frozen=True, eq=False)
class Untraced:
    """Costs of a step without a recorder.

    Attributes:
        at: as estimated, and with all figures at either end of their interval.
        inputs: the figures.
        warnings: what was missing.
    """

    at: Mapping[Level, StepCosts]
    inputs: tuple[Parameter, ...]
    warnings: tuple[TraceWarning, ...]

    @property
    def costs(self) -> StepCosts:
        """As estimated."""
        return self.at["value"]

    @property
    def ends(self) -> tuple[StepCosts, ...]:
        """With all figures, and with one kind of them, at either end of their interval."""
        found = []
        for end in (self.at["low"], self.at["high"]):
            found += [
                end,
                replace(self.costs, host=end.host, ready=end.ready),
                replace(self.costs, node_ns=end.node_ns),
                replace(self.costs, cut_gap_ns=end.cut_gap_ns),
                replace(self.costs, launch_ns=end.launch_ns),
            ]
        return tuple(found)


def recorder_of(trace: Trace) -> str:
    """Return the recorder of a trace under the name that calibrations give it."""
    name = "cupti" if trace.meta.format == "gaptrace-cupti" else "nsys"
    return f"{name}-{trace.meta.granularity or 'graph'}"


def untraced(
    trace: Trace,
    step: TracedStep,
    calibration: Calibration,
    regime: Regime,
    windows: pl.DataFrame,
) -> Untraced:
    """Return what a step of graphs costs without a recorder.

    Raises:
        NotIdentifiableError: the calibration lacks figures.
    """
    recorder = recorder_of(trace)
    build = _built(trace, step, calibration, regime, windows)
    warnings = []
    if recorder not in calibration.recorders:
        warnings.append(
            TraceWarning(
                "recorder_not_calibrated",
                f"the calibration has no figures of {recorder}, so that times of this trace could "
                "not be corrected by what it adds: run gaptrace calibrate where it is installed",
            )
        )
    at: dict[Level, StepCosts] = {
        level: _costs(step, calibration, regime, recorder, build, level)
        for level in ("value", "low", "high")
    }
    evidence = f"{trace.meta.granularity}-granularity trace"
    inputs = _inputs(step, at, calibration, regime, build, evidence)
    return Untraced(at, inputs, tuple(warnings))


@dataclass(frozen=True)
class _Built:
    """How the program builds graphs, as far as the trace holds it.

    Attributes:
        factors: on calibrated figures.
        acts: how often each phase was seen.
        code_ns: of the program, for each launch that it captures, at most: in ten recordings of
            six programs (H200) captures held 0.8 to 2.6 times the code between launches, 1.7 times
            in the median; captures: of which that is known.
    """

    factors: dict[str, float]
    acts: dict[str, int]
    code_ns: float
    captures: int

    def code_at(self, level: Level) -> float:
        """Return code_ns at its value and its ends: there may be as little as none."""
        return 0.0 if level == "low" else self.code_ns


def _built(
    trace: Trace,
    step: TracedStep,
    calibration: Calibration,
    regime: Regime,
    windows: pl.DataFrame,
) -> _Built:
    recorder, nodes = recorder_of(trace), round(float(np.median(step.sizes)))
    branches = _branches(step, calibration)
    begin, end = windows["start_ns"].min(), windows["end_ns"].max()
    length = pl.col("end_ns") - pl.col("start_ns")
    acts = (
        graph_builds(trace)
        .filter(pl.col("start_ns").is_between(begin, end))
        .group_by("phase")
        .agg(pl.len().alias("acts"), length.median().alias("median_ns"))
    )
    seen = {row["phase"]: row for row in acts.to_dicts()}
    factors: dict[str, float] = {}
    for name in REGIMES[regime]:
        if name not in _PHASES:
            continue
        phase = _PHASES[name]
        of_phase = [other for other in REGIMES[regime] if _PHASES.get(other) == phase]
        tables = (calibration.table(each, branches=branches) for each in of_phase)
        known = sum(at_nodes(table, nodes) or 0.0 for table in tables)
        if phase not in seen:  # not recorded, or not done: a program need not destroy
            factors[name] = 0.0 if phase == "destroy" else 1.0
        elif known > 0:
            # A program that destroys a graph and its exec makes two calls of one phase.
            untraced_ns = (
                len(of_phase)
                * seen[phase]["median_ns"]
                * slowdown(calibration, name, recorder, nodes)
            )
            factors[name] = untraced_ns / known
    recorded_ns, count = _captured_ns(trace.api)
    captured_ns = recorded_ns * slowdown(calibration, "capture_ns", recorder, nodes)
    capture = calibration.table("capture_ns", branches=branches)
    machine_ns = (at_nodes(capture, nodes) or 0.0) / nodes
    return _Built(
        factors,
        {phase: row["acts"] for phase, row in seen.items()},
        max(0.0, captured_ns - machine_ns),
        count,
    )


def _captured_ns(api: pl.DataFrame) -> tuple[float, int]:
    """Return the typical host time per node of a capture, as recorded, and of how many captures.

    What is done once, as compiling, may be in the one capture that a program makes. So of a shape
    that is captured fewer than `LEAST_BUILDS` times, pauses between launches (`PAUSE` times the
    usual interval) count as usual intervals.
    """
    key = ["process_id", "thread_id", "capture_id"]
    begins = pl.col("call_id") == pl.col("capture_id")
    since, usual = pl.col("start_ns").diff(), pl.col("start_ns").diff().median()
    pauses = (
        api.filter(pl.col("capture_id").is_not_null(), begins | pl.col("kind").is_in(SUBMITTING))
        .group_by(key)
        .agg(paused_ns=(since - usual).filter(since > PAUSE * usual).sum())
    )
    length = pl.col("end_ns") - pl.col("start_ns")
    is_rare = pl.len().over("process_id", "nodes") < LEAST_BUILDS
    per_node = (length - pl.when(is_rare).then("paused_ns").otherwise(0.0)) / pl.col("nodes")
    found = (
        captures(api)
        .filter(pl.col("is_sound") & (pl.col("nodes") > 0))
        .join(pauses, on=key, how="left", nulls_equal=True)
        .select(per_node.median().alias("ns"), pl.len().alias("captures"))
    )
    ns, count = found.row(0)
    return float(ns or 0.0), int(count)


def _branches(step: TracedStep, calibration: Calibration) -> int:
    """Of the calibrated graphs that are like the step's."""
    return 4 if step.has_branches and calibration.table("capture_ns", branches=4) else 1


def _costs(
    step: TracedStep,
    calibration: Calibration,
    regime: Regime,
    recorder: str,
    build: _Built,
    level: Level,
) -> StepCosts:
    branches = _branches(step, calibration)
    host, ready = host_costs(calibration, regime, level, build.factors, branches)
    node_ns = device_times(step, calibration, recorder, level)
    idle_ns = step.device_free_ns
    if not step.is_waited_for:
        # Who waits for nothing is a step ahead soon, if the device is the slower side.
        idle_ns = max(idle_ns, float(node_ns.sum()) - float(host(len(node_ns))))
    call = value_of(calibration, "recorder_call_ns", OPPOSITE[level], recorder=recorder)
    api = value_of(calibration, "launch_queued_api_ns", level)
    latency = value_of(calibration, "launch_latency_ns", level)
    kernel_gap = value_of(calibration, "kernel_gap_ns", level)
    depth = calibration.figure("graph_queue_depth")
    return StepCosts(
        host=host,
        ready=ready,
        node_ns=node_ns,
        cut_gap_ns=max(0.0, cut_gap(calibration, level)),
        device_free_ns=max(0.0, idle_ns),
        notice_ns=max(0.0, (step.notice_ns or 0.0) - max(0.0, call)),
        launch_ns=api + build.code_at(level),
        launch_delta_ns=max(0.0, latency - value_of(calibration, "launch_api_ns", level)),
        kernel_gap_ns=max(0.0, kernel_gap - value_of(calibration, "node_gap_ns", level)),
        queue_depth=max(1, round(depth.value)) if depth else None,
        overlap_ns=step.overlap_ns,
    )


def device_times(step: TracedStep, calibration: Calibration, recorder: str, level: Level) -> Floats:
    """Return what each node takes of the device without the recorder, the gap before included."""
    added = node_gap_added(calibration, recorder, OPPOSITE[level])
    by = {"value": 1.0, "low": step.spread[0], "high": step.spread[1]}[level]
    if not step.gap_ns.any():
        return np.maximum(step.node_ns * by - max(0.0, added), 0.0)
    gaps = step.gap_ns if level == "high" else np.maximum(step.gap_ns - max(0.0, added), 0.0)
    return step.node_ns * by + gaps


def _inputs(
    step: TracedStep,
    at: Mapping[Level, StepCosts],
    calibration: Calibration,
    regime: Regime,
    build: _Built,
    evidence: str,
) -> tuple[Parameter, ...]:
    nodes = len(step.node_ns)

    def calibrated(name: str, of: Mapping[Level, float], *figures: str) -> Parameter:
        own = figures or REGIMES[regime]
        known = (f for f in calibration.figures if f.recorder is None and f.name in own)
        runs = min((each.runs for each in known), default=0)
        return Parameter(
            name, of["value"], "calibration", "timed", runs, *sorted((of["low"], of["high"]))
        )

    def traced(name: str, value: float, samples: int, *ends: float) -> Parameter:
        return Parameter(name, value, "trace", evidence, samples, *sorted(ends))

    device: dict[Level, float] = {level: each.device_only_ns for level, each in at.items()}
    found = [
        traced("nodes", float(nodes), step.repeats),
        traced("graphs_per_step", float(len(step.sizes)), step.repeats),
        traced("device_ns", device["value"], step.repeats, device["low"], device["high"]),
        traced("device_free_ns", at["value"].device_free_ns, step.repeats),
        traced("notice_ns", at["value"].notice_ns, step.repeats),
        calibrated("host_one_graph_ns", {k: float(v.host(nodes)) for k, v in at.items()}),
        calibrated("host_one_node_ns", {k: float(v.host(1)) for k, v in at.items()}),
        calibrated("start_one_graph_ns", {k: float(v.ready(nodes)) for k, v in at.items()}),
        calibrated("cut_gap_ns", {k: v.cut_gap_ns for k, v in at.items()}, "cut_gap_ns"),
        calibrated(
            "single_launch_ns",
            {k: v.launch_ns - build.code_at(k) for k, v in at.items()},
            "launch_queued_api_ns",
        ),
    ]
    if build.code_ns:
        found.append(
            traced("code_per_launch_ns", build.code_ns, build.captures, 0.0, build.code_ns)
        )
    for name, factor in build.factors.items():
        samples = build.acts.get(_PHASES[name], 0)
        if samples:
            found.append(traced(f"{name.removesuffix('_ns')}_factor", factor, samples))
    return tuple(found)
