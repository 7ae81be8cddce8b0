"""Building CUDA graphs: what was captured, instantiated, updated, when, and at what cost."""

import polars as pl

from gaptrace import intervals
from gaptrace.captures import captures
from gaptrace.quantiles import quantiles
from gaptrace.trace import CALL_PHASES, Trace

_STEP = ["key", "device_id", "step"]
_LENGTH = pl.col("end_ns") - pl.col("start_ns")


def graph_builds(trace: Trace) -> pl.DataFrame:
    """Return one row per act of building a graph, in order of start.

    Returns:
        process_id, thread_id, phase: capture, instantiate, update, upload, clone, destroy;
        start_ns, end_ns: of the call; of a capture, from its begin call to its end call with all
        that the host does between, which is what capturing costs.
    """
    calls = trace.api.filter((pl.col("kind") == "graph_build") & pl.col("capture_id").is_null())
    captured = captures(trace.api).with_columns(phase=pl.lit("capture", CALL_PHASES))
    columns = ["process_id", "thread_id", "phase", "start_ns", "end_ns"]
    rows = pl.concat([calls.select(columns), captured.select(columns)])
    return rows.sort("start_ns", maintain_order=True)


def build_costs(builds: pl.DataFrame) -> pl.DataFrame:
    """Add up the host time of building graphs, by phase.

    Args:
        builds: `graph_builds`.

    Returns:
        process_id, phase; count: how many; host_ns.
    """
    return builds.group_by("process_id", "phase", maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("count"), _LENGTH.sum().alias("host_ns")
    )


def step_builds(builds: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Say what each step builds: all that begins in it, on its thread where it has one.

    Where steps are told by device work (`steps.find_steps`), a host that runs ahead builds for the
    next step while the device is in this one.

    Args:
        builds: `graph_builds`.
        steps: rows of `steps.STEPS`.

    Returns:
        key, device_id, step, phase; count, host_ns. Steps that build nothing have no rows.
    """
    by = ["process_id", "thread_id"]
    threads = builds.select("process_id", _builder="thread_id").unique(maintain_order=True)
    of_threads = (
        steps.select(*_STEP, *by, "start_ns", "end_ns")
        .join(threads, on="process_id", how="inner", maintain_order="left")
        .filter(pl.col("thread_id").is_null() | (pl.col("thread_id") == pl.col("_builder")))
        .with_columns(thread_id="_builder")
        .drop("_builder")
    )
    begun = builds.with_columns(host_ns=_LENGTH, end_ns=pl.col("start_ns") + 1)
    return (
        intervals.intersect(of_threads, begun, by)
        .group_by(*_STEP, "phase", maintain_order=True)
        .agg(pl.len().cast(pl.Int64).alias("count"), pl.col("host_ns").sum())
        .sort(*_STEP, maintain_order=True)
    )


def unit_builds(step_summary: pl.DataFrame, step_builds: pl.DataFrame) -> pl.DataFrame:
    """Sum up what the steady steps of each sequence build (neither first nor warm-up).

    Args:
        step_summary: `steps.step_summary`.
        step_builds: `step_builds`.

    Returns:
        key, device_id, phase; building_steps: how many steady steps hold such a build; is_usual:
        all of them do; count, host_ns: structs as `quantiles` makes them, per building step.
    """
    own = ["key", "device_id"]
    steady = step_summary.filter(~(pl.col("is_first") | pl.col("is_warm_up"))).select(_STEP)
    return (
        step_builds.join(steady, on=_STEP, how="semi", maintain_order="left")
        .group_by(*own, "phase", maintain_order=True)
        .agg(
            building_steps=pl.len().cast(pl.Int64),
            count=quantiles(pl.col("count")),
            host_ns=quantiles(pl.col("host_ns")),
        )
        .join(steady.group_by(own).len("_steps"), on=own, maintain_order="left")
        .select(
            *own,
            "phase",
            "building_steps",
            "count",
            "host_ns",
            is_usual=pl.col("building_steps") == pl.col("_steps"),
        )
    )
