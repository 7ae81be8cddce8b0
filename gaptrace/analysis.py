"""One trace, analysed: every figure of a report, as frames, before anybody words or draws it."""

from dataclasses import dataclass, replace

import polars as pl

from gaptrace import gaps, graphs, intervals, launches, ranges
from gaptrace.copy_waits import delayed_copies
from gaptrace.coverage import check_coverage, recording_facts
from gaptrace.errors import WindowError
from gaptrace.exec_waits import exec_waits
from gaptrace.findings import Finding, find
from gaptrace.graph_faults import graph_faults
from gaptrace.graph_use import graph_use
from gaptrace.largest_gaps import largest_gaps
from gaptrace.quantiles import quantiles
from gaptrace.recommend import Recommendation, recommend
from gaptrace.steps import Steps, find_steps, step_summary, unit_summary
from gaptrace.topics import with_topics
from gaptrace.totals import over_details
from gaptrace.trace import Trace, TraceWarning


@dataclass(frozen=True)
class Analysis:
    """What a trace says, inside its windows.

    Attributes:
        trace: what was analysed; with a device asked for, its ops are those of that device.
        windows: device_id, start_ns, end_ns; disjoint. Unless narrowed: first to last op.
        window_name: what was asked for, as `range step`; null for the whole trace.
        devices: device_id, name, first_ns, last_ns, span_ns, busy_ns, idle_ns, busy_fraction,
            op_count, gap_count, gap_ns (a struct, see `quantiles`).
        gaps: `gaps.device_gaps` and `gaps.edge_gaps`, cut to the windows.
        idle: `gaps.idle_pieces`, cut to the windows.
        causes: device_id, cause, detail, idle_ns, piece_count; idle_ns sums to the device's.
        cause_totals: device_id, cause, idle_ns; see `totals.over_details`.
        largest_gaps: see `largest_gaps.largest_gaps`.
        ranges: see `ranges.range_summary`.
        range_causes: see `ranges.range_causes`.
        range_cause_totals: path, domain, device_id, cause, idle_ns; see `totals.over_details`.
        steps: see `steps.find_steps`; those that begin in a window.
        step_summary: see `steps.step_summary`.
        step_units: see `steps.unit_summary`.
        launches: see `launches.launches`; those whose ops start in a window.
        executions: see `graphs.graph_executions`; those that start in a window.
        graphs: see `graphs.graph_summary`.
        graph_sizes: see `graphs.graph_sizes`.
        builds: see `graphs.graph_builds`; of the whole trace.
        findings: what stands out: failures, what costs time (largest first), suspicions.
        recommendation: what to do about graphs and chunks.
        recording: see `coverage.recording_facts`; of the whole trace.
        warnings: what limits the figures.
    """

    trace: Trace
    windows: pl.DataFrame
    window_name: str | None
    devices: pl.DataFrame
    gaps: pl.DataFrame
    idle: pl.DataFrame
    causes: pl.DataFrame
    cause_totals: pl.DataFrame
    largest_gaps: pl.DataFrame
    ranges: pl.DataFrame
    range_causes: pl.DataFrame
    range_cause_totals: pl.DataFrame
    steps: Steps
    step_summary: pl.DataFrame
    step_units: pl.DataFrame
    launches: pl.DataFrame
    executions: pl.DataFrame
    graphs: pl.DataFrame
    graph_sizes: pl.DataFrame
    builds: pl.DataFrame
    findings: tuple[Finding, ...]
    recommendation: Recommendation
    recording: dict[str, int]
    warnings: tuple[TraceWarning, ...]


def analyze(
    trace: Trace,
    *,
    device_id: int | None = None,
    range_name: str | None = None,
    from_ns: int | None = None,
    to_ns: int | None = None,
) -> Analysis:
    """Analyse a trace, whole or narrowed.

    Args:
        trace: from `gaptrace.read.read`.
        device_id: only this physical GPU.
        range_name: only inside NVTX ranges of this name or path.
        from_ns: only from this time on, in nanoseconds since the session began.
        to_ns: only until this time.

    Raises:
        NotRecordedError: idle time cannot be known from this trace.
        WindowError: there is no such device, range, or no device work in the window.
    """
    warnings = [*trace.warnings, *check_coverage(trace)]
    recording = recording_facts(trace)
    faults = graph_faults(trace)
    trace = _only_device(trace, device_id)
    between = gaps.device_gaps(trace)
    all_gaps = pl.concat([between, gaps.edge_gaps(trace)])
    pieces = gaps.idle_pieces(trace, all_gaps)
    all_launches = launches.launches(trace, between)
    tree = ranges.range_tree(trace.nvtx)
    range_windows = ranges.range_windows(trace, tree, all_launches)
    all_executions = graphs.graph_executions(trace)
    steps = find_steps(trace, range_windows, all_executions)
    windows, name = _windows(trace, range_windows, range_name, from_ns, to_ns)
    if name is not None:
        steps = replace(steps, frame=_starting_inside(steps.frame, windows))
    summary = step_summary(steps, pieces)
    if name is not None:
        range_windows = intervals.intersect(range_windows, windows, ["device_id"])
    executions = _starting_inside(all_executions, windows)
    idle = intervals.intersect(windows, pieces, ["device_id"])
    shown_gaps = intervals.intersect(windows, all_gaps, ["device_id"])
    devices = _devices(trace, windows, shown_gaps)
    causes = gaps.causes(idle, ["device_id"])
    inside = _starting_inside(all_launches, windows)
    builds = graphs.graph_builds(trace)
    nodes = graphs.graph_nodes(trace)
    use = graph_use(trace, inside, executions, windows, tree)
    topics = with_topics(trace, shown_gaps, idle, use)
    delayed = delayed_copies(trace, windows)
    range_causes = ranges.range_causes(range_windows, pieces)
    waits = exec_waits(trace, executions)
    return Analysis(
        trace=trace,
        windows=windows,
        window_name=name,
        devices=devices,
        gaps=shown_gaps,
        idle=idle,
        causes=causes,
        cause_totals=over_details(causes),
        largest_gaps=largest_gaps(trace, shown_gaps, idle, tree),
        ranges=ranges.range_summary(range_windows, pieces),
        range_causes=range_causes,
        range_cause_totals=over_details(range_causes),
        steps=steps,
        step_summary=summary,
        step_units=unit_summary(summary),
        launches=inside,
        executions=executions,
        graphs=graphs.graph_summary(executions, nodes),
        graph_sizes=graphs.graph_sizes(executions, nodes),
        builds=builds,
        findings=find(devices, topics, inside, use, faults, delayed, waits),
        recommendation=recommend(trace, executions, shown_gaps, topics, windows, use),
        recording=recording,
        warnings=tuple(dict.fromkeys(warnings)),
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


def _windows(
    trace: Trace,
    range_windows: pl.DataFrame,
    range_name: str | None,
    from_ns: int | None,
    to_ns: int | None,
) -> tuple[pl.DataFrame, str | None]:
    """Return the disjoint windows per device, and what they were asked as."""
    windows = (
        trace.ops.group_by("device_id")
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max())
        .sort("device_id")
    )
    names = []
    if from_ns is not None or to_ns is not None:
        windows = _between(trace, windows, from_ns, to_ns)
        end = "the end" if to_ns is None else f"{to_ns} ns"
        names.append(f"from {from_ns or 0} ns to {end}")
    if range_name is not None:
        ranged = _range_windows(trace, range_windows, range_name)
        windows = intervals.intersect(ranged, windows, ["device_id"]) if names else ranged
        names.insert(0, f"range {range_name}")
    if windows.is_empty():
        raise WindowError(f"{trace.meta.path}: nothing lies in {' and '.join(names)}")
    return windows, " and ".join(names) or None


def _range_windows(trace: Trace, range_windows: pl.DataFrame, name: str) -> pl.DataFrame:
    path = pl.col("path")
    named = range_windows.filter((path == name) | path.str.ends_with(f"/{name}"))
    if named.is_empty():
        known = range_windows["path"].unique(maintain_order=True).to_list()
        listed = ", ".join(known[:8]) + (" ..." if len(known) > 8 else "")
        raise WindowError(
            f"{trace.meta.path}: no NVTX range is named {name}; "
            + (f"there are: {listed}" if known else "it holds no NVTX ranges")
        )
    return intervals.merge(named, ["device_id"])


def _between(
    trace: Trace, active: pl.DataFrame, from_ns: int | None, to_ns: int | None
) -> pl.DataFrame:
    """Return the asked window per device; an open end is the device's own first or last op."""
    # Beyond the last row nothing is known, and what is unknown must not count as busy or idle.
    begin, end = gaps.recorded_extent(trace)
    asked = active.with_columns(
        start_ns=pl.col("start_ns") if from_ns is None else pl.lit(max(from_ns, begin), pl.Int64),
        end_ns=pl.col("end_ns") if to_ns is None else pl.lit(min(to_ns, end), pl.Int64),
    ).filter(pl.col("end_ns") > pl.col("start_ns"))
    if intervals.intersect(asked, active, ["device_id"]).is_empty():
        first, last = active.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
        raise WindowError(
            f"{trace.meta.path}: no device work in the window asked for; device work runs from "
            f"{first} ns to {last} ns"
        )
    return asked


def _starting_inside(rows: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Keep the rows whose start lies in a window of their device."""
    at_start = rows.select("device_id", "start_ns", end_ns=pl.col("start_ns") + 1).with_row_index()
    inside = intervals.intersect(at_start, windows, ["device_id"])["index"]
    return rows[inside]


def _devices(trace: Trace, windows: pl.DataFrame, shown_gaps: pl.DataFrame) -> pl.DataFrame:
    length = pl.col("end_ns") - pl.col("start_ns")
    ops = intervals.intersect(
        # An op of no length still ran; give it a nanosecond so that a window can hold it.
        trace.ops.select(
            "op_id",
            "device_id",
            "start_ns",
            end_ns=pl.max_horizontal("end_ns", pl.col("start_ns") + 1),
        ),
        windows,
        ["device_id"],
    )
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
