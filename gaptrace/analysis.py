"""One trace, analysed: every figure of a report, as frames, before anybody words or draws it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import polars as pl

from gaptrace import builds, gaps, graphs, intervals, launches, ranges
from gaptrace.calibration import Calibration
from gaptrace.copy_waits import delayed_copies
from gaptrace.coverage import check_coverage, recording_facts
from gaptrace.errors import WindowError
from gaptrace.exec_waits import exec_waits
from gaptrace.findings import Finding, find
from gaptrace.graph_faults import GraphFaults, graph_faults
from gaptrace.graph_use import graph_use
from gaptrace.largest_gaps import largest_gaps
from gaptrace.quantiles import quantiles
from gaptrace.range_instances import range_instances
from gaptrace.recommend import recommend
from gaptrace.recommendation import Recommendation
from gaptrace.steps import Steps, find_steps, step_summary, unit_summary
from gaptrace.topics import with_topics
from gaptrace.totals import over_details
from gaptrace.trace import Trace, TraceWarning
from gaptrace.windows import find_windows, starting_inside
from gaptrace.work import busy_with


@dataclass(frozen=True)
class Analysis:
    """What a trace says, inside its windows.

    Attributes:
        trace: what was analysed; with a device asked for, its ops are those of that device.
        windows: device_id, start_ns, end_ns; disjoint. Unless narrowed: first to last op.
        window_name: what was asked for, as `range step`; null for the whole trace.
        range_name: name or path of the NVTX ranges asked for; null for all.
        devices: device_id, name, first_ns, last_ns, span_ns, busy_ns, idle_ns, busy_fraction,
            op_count, gap_count, gap_ns (a struct, see `quantiles`).
        gaps: `gaps.device_gaps` and `gaps.edge_gaps`, cut to the windows.
        pieces: `gaps.idle_pieces` of the whole trace, before the first op and after the last, too.
        idle: the pieces cut to the windows.
        causes: device_id, cause, detail, idle_ns, piece_count; idle_ns sums to the device's.
        cause_totals: device_id, cause, idle_ns; see `totals.over_details`.
        largest_gaps: see `largest_gaps.largest_gaps`.
        ranges: see `ranges.range_summary`.
        range_windows: see `ranges.range_windows`; cut to the windows.
        range_causes: see `ranges.range_causes`.
        range_cause_totals: path, domain, device_id, cause, idle_ns; see `totals.over_details`.
        steps: see `steps.find_steps`; those that begin in a window.
        step_summary: see `steps.step_summary`.
        step_units: see `steps.unit_summary`.
        launches: see `launches.launches`; those whose ops start in a window, of a range those that
            were called in it: the device may be a step behind the host.
        executions: see `graphs.graph_executions`; likewise.
        graphs: see `graphs.graph_summary`.
        graph_sizes: see `graphs.graph_sizes`.
        build_costs: see `builds.build_costs`; of the whole trace.
        step_builds: see `builds.step_builds`.
        unit_builds: see `builds.unit_builds`.
        findings: what stands out: failures, what costs time (largest first), suspicions.
        recommendation: what to do about graphs and chunks.
        recording: see `coverage.recording_facts`; of the whole trace.
        warnings: what limits the figures.
    """

    trace: Trace
    windows: pl.DataFrame
    window_name: str | None
    range_name: str | None
    devices: pl.DataFrame
    gaps: pl.DataFrame
    pieces: pl.DataFrame
    idle: pl.DataFrame
    causes: pl.DataFrame
    cause_totals: pl.DataFrame
    largest_gaps: pl.DataFrame
    ranges: pl.DataFrame
    range_windows: pl.DataFrame
    range_causes: pl.DataFrame
    range_cause_totals: pl.DataFrame
    steps: Steps
    step_summary: pl.DataFrame
    step_units: pl.DataFrame
    launches: pl.DataFrame
    executions: pl.DataFrame
    graphs: pl.DataFrame
    graph_sizes: pl.DataFrame
    build_costs: pl.DataFrame
    step_builds: pl.DataFrame
    unit_builds: pl.DataFrame
    findings: tuple[Finding, ...]
    recommendation: Recommendation
    recording: dict[str, int]
    warnings: tuple[TraceWarning, ...]

    @cached_property
    def range_instances(self) -> pl.DataFrame:
        """See `range_instances.range_instances`; computed when it is first asked for."""
        return range_instances(self.range_windows, self.pieces)


def analyze(
    trace: Trace,
    *,
    device_id: int | None = None,
    range_name: str | None = None,
    from_ns: int | None = None,
    to_ns: int | None = None,
    calibration: Calibration | None = None,
) -> Analysis:
    """Analyse a trace, whole or narrowed.

    Args:
        trace: from `gaptrace.read.read`.
        device_id: only this physical GPU.
        range_name: only inside NVTX ranges of this name or path.
        from_ns: only from this time on, in nanoseconds since the session began.
        to_ns: only until this time.
        calibration: of the machine that the trace was recorded on; with it the recommendation can
            tell what a step costs without a recorder.

    Raises:
        NotRecordedError: idle time cannot be known from this trace.
        WindowError: there is no such device, range, or no device work in the window.
        TypeError: it is no trace.
    """
    if not isinstance(trace, Trace):
        raise TypeError("analyze takes a Trace, as gaptrace.read.read(path) gives; or open(path)")
    warnings = [*trace.warnings, *check_coverage(trace)]
    recording, faults = recording_facts(trace), graph_faults(trace)
    everything, trace = trace, _only_device(trace, device_id)
    whole = _whole(trace, everything)
    windows, name = find_windows(trace, whole.ranges, range_name, from_ns, to_ns)
    shown = _cut(whole, windows, is_narrowed=name is not None, is_range=range_name is not None)
    ops = trace.ops if name is None else _in_part(trace.ops, windows)
    devices = _devices(trace, windows, ops, shown.gaps)
    causes = gaps.causes(shown.pieces, ["device_id"])
    range_causes = ranges.range_causes(shown.ranges, whole.pieces)
    summary, nodes = step_summary(shown.steps, whole.pieces), graphs.graph_nodes(trace)
    built = builds.graph_builds(trace)
    in_steps = builds.step_builds(built, shown.steps.frame)
    findings, recommendation = _conclusions(trace, shown, windows, devices, faults, calibration)
    return Analysis(
        trace=trace,
        windows=windows,
        window_name=name,
        range_name=range_name,
        devices=devices,
        gaps=shown.gaps,
        pieces=whole.pieces,
        idle=shown.pieces,
        causes=causes,
        cause_totals=over_details(causes),
        largest_gaps=largest_gaps(trace, shown.gaps, shown.pieces, whole.tree),
        ranges=ranges.range_summary(shown.ranges, whole.pieces),
        range_windows=shown.ranges,
        range_causes=range_causes,
        range_cause_totals=over_details(range_causes),
        steps=shown.steps,
        step_summary=summary,
        step_units=unit_summary(summary, whole.launches),
        launches=shown.launches,
        executions=shown.executions,
        graphs=graphs.graph_summary(shown.executions, nodes),
        graph_sizes=graphs.graph_sizes(shown.executions, nodes),
        build_costs=builds.build_costs(built),
        step_builds=in_steps,
        unit_builds=builds.unit_builds(summary, in_steps),
        findings=findings,
        recommendation=recommendation,
        recording=recording,
        warnings=tuple(dict.fromkeys(warnings)),
    )


@dataclass(frozen=True)
class _Parts:
    """What is found in a trace: in all of it, or cut to the windows."""

    gaps: pl.DataFrame
    pieces: pl.DataFrame
    launches: pl.DataFrame
    tree: pl.DataFrame
    ranges: pl.DataFrame
    executions: pl.DataFrame
    steps: Steps


def _whole(trace: Trace, everything: Trace) -> _Parts:
    """Find out about all devices, and keep those of the trace.

    A range that worked on another device alone is not about these, which only everything tells.
    """
    on_devices = pl.col("device_id").is_in(trace.ops["device_id"].unique().implode())
    between = gaps.device_gaps(everything)
    all_gaps = pl.concat([between, gaps.edge_gaps(everything)])
    all_launches = launches.launches(everything, between)
    tree = ranges.range_tree(everything.nvtx)
    range_windows = ranges.range_windows(everything, tree, all_launches).filter(on_devices)
    executions = graphs.graph_executions(everything).filter(on_devices)
    return _Parts(
        gaps=all_gaps.filter(on_devices),
        pieces=gaps.idle_pieces(everything, all_gaps).filter(on_devices),
        launches=all_launches.filter(on_devices),
        tree=tree,
        ranges=range_windows,
        executions=executions,
        steps=find_steps(trace, range_windows, executions),
    )


def _cut(whole: _Parts, windows: pl.DataFrame, *, is_narrowed: bool, is_range: bool) -> _Parts:
    """Cut what has a length, and of the rest keep what begins in a window; all of the tree."""
    kept = whole
    if is_narrowed:
        begin = "call_start_ns" if is_range else "start_ns"
        kept = replace(
            whole,
            launches=starting_inside(whole.launches, windows, start=begin),
            ranges=intervals.intersect(whole.ranges, windows, ["device_id"]),
            executions=starting_inside(whole.executions, windows, start=begin),
            steps=replace(whole.steps, frame=starting_inside(whole.steps.frame, windows)),
        )
    cut_gaps, pieces = _numbered_apart(
        *(intervals.intersect(windows, each, ["device_id"]) for each in (whole.gaps, whole.pieces))
    )
    return replace(kept, gaps=cut_gaps, pieces=pieces)


def _numbered_apart(
    cut_gaps: pl.DataFrame, pieces: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Give parts of one gap that windows cut in several a number each, and their pieces, too."""
    if not cut_gaps["gap_id"].drop_nulls().is_duplicated().any():
        return cut_gaps, pieces
    numbered = cut_gaps.with_columns(
        gap_id=pl.when(pl.col("gap_id").is_not_null()).then(pl.int_range(pl.len(), dtype=pl.Int64))
    )
    own = numbered.select("device_id", "start_ns", _own="gap_id").sort("start_ns")
    placed = (
        pieces.with_row_index("_row")
        .sort("start_ns")
        .join_asof(own, on="start_ns", by="device_id", check_sortedness=False)
    )
    return numbered, placed.sort("_row").with_columns(gap_id="_own").select(pieces.columns)


def _conclusions(
    trace: Trace,
    shown: _Parts,
    windows: pl.DataFrame,
    devices: pl.DataFrame,
    faults: GraphFaults,
    calibration: Calibration | None,
) -> tuple[tuple[Finding, ...], Recommendation]:
    """Apply the rules of findings and of the recommendation."""
    use = graph_use(trace, shown.launches, shown.executions, windows, shown.tree)
    topics = with_topics(trace, shown.gaps, shown.pieces, use)
    delayed, waits = delayed_copies(trace, windows), exec_waits(trace, shown.executions)
    busy = busy_with(trace, windows)
    findings = find(devices, busy, topics, shown.launches, use, faults, delayed, waits)
    recommendation = recommend(
        trace,
        shown.executions,
        shown.launches,
        shown.gaps,
        topics,
        windows,
        use,
        shown.steps,
        calibration,
    )
    waiting = [each.evidence for each in findings if each.code == "collectives"]
    warnings = (*recommendation.warnings, *map(_of_collectives, waiting))
    return findings, replace(recommendation, warnings=warnings)


def _of_collectives(evidence: Mapping[str, Any]) -> TraceWarning:
    return TraceWarning(
        "collectives",
        f"for {evidence['fraction']:.0%} of the time device {evidence['device_id']} runs nothing "
        "but collectives, which may only wait for other ranks: figures of its steps hold that",
    )


def _only_device(trace: Trace, device_id: int | None) -> Trace:
    if device_id is None:
        return trace
    ops = trace.ops.filter(pl.col("device_id") == device_id)
    if ops.is_empty():
        known = ", ".join(map(str, trace.ops["device_id"].unique().sort()))
        raise WindowError(
            f"{trace.meta.path}: device {device_id} ran nothing; devices with work: {known}"
        )
    return replace(trace, ops=ops)


def _in_part(ops: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Ops that run in a window, at least in part; a row for each window."""
    return intervals.intersect(
        # An op of no length still ran; give it a nanosecond so that a window can hold it.
        ops.select(
            "op_id",
            "device_id",
            "start_ns",
            end_ns=pl.max_horizontal("end_ns", pl.col("start_ns") + 1),
        ),
        windows,
        ["device_id"],
    )


def _devices(
    trace: Trace, windows: pl.DataFrame, ops: pl.DataFrame, shown_gaps: pl.DataFrame
) -> pl.DataFrame:
    length = pl.col("end_ns") - pl.col("start_ns")
    counts = ops.group_by("device_id").agg(op_count=pl.col("op_id").n_unique().cast(pl.Int64))
    idle = shown_gaps.group_by("device_id").agg(
        idle_ns=length.sum(), gap_count=pl.len().cast(pl.Int64), gap_ns=quantiles(length)
    )
    return (
        windows.group_by("device_id")
        .agg(
            first_ns=pl.col("start_ns").min(), last_ns=pl.col("end_ns").max(), span_ns=length.sum()
        )
        .sort("device_id")
        .join(counts, on="device_id", how="left")
        .join(idle, on="device_id", how="left")
        .join(trace.devices.select("device_id", "name"), on="device_id", how="left")
        .with_columns(pl.col("op_count", "idle_ns", "gap_count").fill_null(0))
        .with_columns(busy_ns=pl.col("span_ns") - pl.col("idle_ns"))
        # A device whose ops all lasted nothing has no time of which it could be busy a part.
        .with_columns(
            busy_fraction=pl.when(pl.col("span_ns") > 0).then(pl.col("busy_ns") / pl.col("span_ns"))
        )
        .sort("device_id")
    )
