"""Does the trace hold what an idle figure needs? Asked before any idle figure is given."""

import polars as pl

from gaptrace import intervals
from gaptrace.captures import calls_beside
from gaptrace.errors import NotRecordedError
from gaptrace.trace import Trace, TraceWarning

#: Share of launches whose device work is missing above which no idle figure is given: the missing
#: work would count as idle. A judgement, not a measurement: below it the share is printed.
REFUSE_ABOVE_FRACTION = 0.1
#: Shares below this are not worth a line: a trace cut at a point always splits a few pairs.
MENTION_ABOVE_FRACTION = 0.01


def check_coverage(trace: Trace) -> list[TraceWarning]:
    """Compare what was launched with what was executed.

    Returns:
        warnings, none for a healthy trace.

    Raises:
        NotRecordedError: so much device work is missing that idle time cannot be known.
    """
    calls = _calls_that_submit(trace)
    _refuse_lost_graphs(trace, calls)
    silent = ~pl.col("process_id").is_in(trace.ops["process_id"].unique().implode())
    return [
        *_silent_processes(calls.filter(silent)),
        *_lost_work(trace, calls.filter(~silent)),
        *_ops_without_launch(trace),
        *_nameless_graphs(trace),
        *_early_ops(trace),
        *_open_ranges(trace),
    ]


def _calls_that_submit(trace: Trace) -> pl.DataFrame:
    """Successful kernel and graph launches outside captures, with has_ops and is_trailing.

    Copies and sets are left out: between host buffers, or of no bytes, they rightly have no op.

    Trailing calls are those that still waited when recording ended, which hides nothing between
    recorded ops: the last ones of their thread, whose work ran until nothing else of the process
    began on its devices, or after which nothing was called that ran there.
    """
    submits = (
        pl.col("kind").is_in(["launch", "graph_launch"])
        & pl.col("capture_id").is_null()
        & (pl.col("return_code").fill_null(0) == 0)
    )
    calls = trace.api.filter(submits).select(
        "call_id", "process_id", "thread_id", "kind", "correlation_id"
    )
    served = pl.col("call_id").is_in(trace.ops["call_id"].drop_nulls().implode())
    without = calls.filter(~served)
    # The runtime's call and the driver's inside it may both be there, with one correlation.
    twins = without.join(trace.ops, on=["process_id", "correlation_id"], how="semi")["call_id"]
    beside = calls_beside(trace.api)["call_id"]
    still_waiting = (pl.col("call_id") > pl.col("_served")) & (
        (pl.col("call_id") > pl.col("_last_call")) | (pl.col("_ran_until") >= pl.col("_last_begin"))
    )
    trailing = without.join(_last_work(trace), on="thread_id").filter(still_waiting)["call_id"]
    has_ops = served | pl.col("call_id").is_in(twins.implode())
    return (
        calls.filter(has_ops | ~pl.col("call_id").is_in(beside.implode()))
        .with_columns(
            has_ops=has_ops,
            is_trailing=~has_ops & pl.col("call_id").is_in(trailing.implode()),
        )
        .drop("correlation_id")
    )


def _last_work(trace: Trace) -> pl.DataFrame:
    """Say where the work of each thread ends, and that of its process on its devices.

    Returns:
        thread_id; _served: its last call with work; _ran_until: end of its work; _last_call,
        _last_begin: of the process, the last call with work on these devices and the last begin.
    """
    ops = _ops_of_threads(trace)
    on_devices = ops.group_by("process_id", "device_id").agg(
        _last_call=pl.col("call_id").max(), _last_begin=pl.col("start_ns").max()
    )
    own = ops.group_by("thread_id").agg(
        _served=pl.col("call_id").max(), _ran_until=pl.col("end_ns").max()
    )
    return (
        ops.select("thread_id", "process_id", "device_id")
        .unique()
        .join(on_devices, on=["process_id", "device_id"])
        .group_by("thread_id")
        .agg(pl.col("_last_call", "_last_begin").max())
        .join(own, on="thread_id")
    )


def _ops_of_threads(trace: Trace) -> pl.DataFrame:
    return trace.ops.join(trace.api.select("call_id", "thread_id"), on="call_id", how="inner")


def unfinished(trace: Trace) -> pl.DataFrame:
    """Return since when each device had work to do that recording no longer saw.

    Returns:
        device_id; since_ns: begin of the first launch call whose work still waited when recording
        ended. Of devices without such there is no row.
    """
    waiting = _calls_that_submit(trace).filter(~pl.col("has_ops") & pl.col("is_trailing"))
    uses = _ops_of_threads(trace)
    return (
        waiting.join(trace.api.select("call_id", "start_ns"), on="call_id")
        .join(uses.select("thread_id", "device_id").unique(), on="thread_id")
        .group_by("device_id")
        .agg(since_ns=pl.col("start_ns").min())
    )


def _refuse_lost_graphs(trace: Trace, calls: pl.DataFrame) -> None:
    graph_calls = calls.filter(pl.col("kind") == "graph_launch")
    if graph_calls.is_empty() or graph_calls["has_ops"].any():
        return
    raise NotRecordedError(
        f"{trace.meta.path}: {graph_calls.height} graph launches but no graph executions in this "
        "export, so their work would read as idle; export the .nsys-rep again with Nsight Systems "
        "2024.3 or newer, or record with --cuda-graph-trace=node"
    )


def _silent_processes(calls: pl.DataFrame) -> list[TraceWarning]:
    """Processes that launched work of which the recording holds nothing: some workers' rows."""
    by_process = calls.group_by("process_id", maintain_order=True).len()
    return [
        TraceWarning(
            "process_without_device_rows",
            f"process {process // 2**24 % 2**24} launched {count:,} times but has no device rows: "
            "the idle time of the GPU that it used is overstated",
        )
        for process, count in by_process.rows()
    ]


def _lost_work(trace: Trace, calls: pl.DataFrame) -> list[TraceWarning]:
    warnings = []
    for is_graph, what in ((True, "graph launches"), (False, "single launches")):
        of_kind = calls.filter((pl.col("kind") == "graph_launch") == is_graph)
        lost = of_kind.filter(~pl.col("has_ops") & ~pl.col("is_trailing")).height
        fraction = lost / of_kind.height if of_kind.height else 0.0
        if fraction > REFUSE_ABOVE_FRACTION:
            raise NotRecordedError(
                f"{trace.meta.path}: the device work of {lost:,} of {of_kind.height:,} {what} "
                f"({fraction:.0%}) is not in this trace and would read as idle; record again, "
                "shorter or with larger buffers"
            )
        if fraction > MENTION_ABOVE_FRACTION:
            warnings.append(
                TraceWarning(
                    "lost_device_work",
                    f"the device work of {lost:,} of {of_kind.height:,} {what} ({fraction:.1%}) is "
                    "not in this trace; idle time is overstated by as much as it lasted",
                )
            )
    return warnings


def _ops_without_launch(trace: Trace) -> list[TraceWarning]:
    missing, ops = _without_call(trace), trace.ops.height
    fraction = missing / ops
    if fraction <= MENTION_ABOVE_FRACTION:
        return []
    return [
        TraceWarning(
            "ops_without_launch",
            f"{missing:,} of {ops:,} device rows ({fraction:.1%}) have no launch row: "
            "recording began after their launch, or the file was cut; idle time before them has "
            "the cause unrecorded",
        )
    ]


def _nameless_graphs(trace: Trace) -> list[TraceWarning]:
    """Work of graph launches none of which says its graph: some exporters leave the column out."""
    graph_calls = trace.api.filter(pl.col("kind") == "graph_launch")["call_id"]
    ops = trace.ops.filter(pl.col("call_id").is_in(graph_calls.implode()))
    if ops.is_empty() or ops["graph_exec_id"].null_count() < ops.height:
        return []
    return [
        TraceWarning(
            "graphs_not_named",
            f"no op of {ops['call_id'].n_unique()} graph launches says to which graph it belongs: "
            "nothing is said of graphs, and idle time inside them counts as between ops; export "
            "again with another version of Nsight Systems",
        )
    ]


def _without_call(trace: Trace) -> int:
    """How many ops have no launch and should: the driver migrates unified memory by itself."""
    lost = pl.col("call_id").is_null() & ~pl.col("is_unified_memory")
    return trace.ops.filter(lost).height


def _early_ops(trace: Trace) -> list[TraceWarning]:
    early = _early(trace)
    if early.is_empty():
        return []
    return [
        TraceWarning(
            "op_before_launch",
            f"{early.height:,} device rows start before their launch call: host and device clocks "
            "disagree, and causes next to them are shifted by as much",
        )
    ]


def _early(trace: Trace) -> pl.DataFrame:
    return (
        trace.ops.select("call_id", "start_ns")
        .join(trace.api.select("call_id", called_ns="start_ns"), on="call_id", how="inner")
        .filter(pl.col("start_ns") < pl.col("called_ns"))
    )


def _open_ranges(trace: Trace) -> list[TraceWarning]:
    names = trace.nvtx.filter(~pl.col("is_closed"))["name"].unique(maintain_order=True).to_list()
    if not names:
        return []
    shown = ", ".join(names[:3]) + (" ..." if len(names) > 3 else "")
    return [
        TraceWarning(
            "range_never_closed",
            f"NVTX ranges still open when recording ended are left out: {shown}",
        )
    ]


def recording_facts(trace: Trace) -> dict[str, int]:
    """Count what says how far the figures of a recording can be trusted.

    Returns:
        device_rows, launch_rows (kernel and graph launches that succeeded, outside captures);
        device_rows_without_launch, launches_without_device_rows; device_rows_before_launch: clocks
        that disagree; profiler_rows, profiler_ns: time that the recorder took from host threads,
        overlaps counted once per thread; driver_rows, driver_ns: loading and compiling, likewise;
        back_pressure_rows, back_pressure_ns: launch calls blocked by a full queue.
    """
    calls = _calls_that_submit(trace)
    facts = {
        "device_rows": trace.ops.height,
        "launch_rows": calls.height,
        "device_rows_without_launch": _without_call(trace),
        "launches_without_device_rows": int((~calls["has_ops"]).sum()),
        "device_rows_before_launch": _early(trace).height,
    }
    for kind in ("profiler", "driver", "back_pressure"):
        rows = trace.overhead.filter(pl.col("kind") == kind)
        busy = intervals.merge(rows, ["thread_id"])
        facts[f"{kind}_rows"] = rows.height
        facts[f"{kind}_ns"] = int((busy["end_ns"] - busy["start_ns"]).sum())
    return facts
