"""How a program uses graphs: what it builds at every launch, and what runs between its replays."""

from dataclasses import dataclass

import polars as pl

from gaptrace.bursts import eager_bursts
from gaptrace.launches import TINY_COPY_BYTES
from gaptrace.rebuilds import rebuilds
from gaptrace.trace import Trace

#: Replays that wait for a value read before them, from which on they are a loop. A judgement.
LEAST_ITERATIONS = 8
#: Gap before a replay in a loop, in durations of the replay, from which on the reading costs as
#: much as the work. A judgement: a step of some milliseconds that ends with a value is no loop.
LOOP_GAP = 0.5
#: Kernels launched one by one from which on graphs are missed. A judgement: below, they are a
#: set-up or a handful of large kernels.
LEAST_KERNELS = 100

_KEY = ["process_id", "device_id"]


@dataclass(frozen=True)
class GraphUse:
    """What graphs are used for, inside the windows.

    Attributes:
        rebuilds: see `rebuilds.rebuilds`.
        bursts: see `bursts.eager_bursts`.
        loops: see `value_loops`.
        ungraphed: see `ungraphed_kernels`.
    """

    rebuilds: pl.DataFrame
    bursts: pl.DataFrame
    loops: pl.DataFrame
    ungraphed: pl.DataFrame


def graph_use(
    trace: Trace,
    launches: pl.DataFrame,
    executions: pl.DataFrame,
    windows: pl.DataFrame,
    tree: pl.DataFrame,
) -> GraphUse:
    """Look at how graphs are used.

    Args:
        trace: the trace.
        launches: `launches.launches` inside the windows.
        executions: `graphs.graph_executions` inside the windows.
        windows: device_id, start_ns, end_ns.
        tree: `ranges.range_tree`.
    """
    return GraphUse(
        rebuilds(trace, executions, windows),
        eager_bursts(trace, launches, tree),
        value_loops(trace, executions),
        ungraphed_kernels(launches, executions),
    )


def value_loops(trace: Trace, executions: pl.DataFrame) -> pl.DataFrame:
    """Return the graph executions that waited until the host had read a value.

    Between the graph before and such an execution a tiny copy went to the host, which launched only
    then. There are at least `LEAST_ITERATIONS` of them, and the gaps are at least `LOOP_GAP` of the
    executions, by their medians: short iterations whose continuation the host decides.

    Returns:
        process_id, device_id, call_id: of the graph launch; read_op_id: the copy; gap_ns: graph
        gap before the execution; duration_ns: of the execution.
    """
    reads = trace.ops.filter(
        (pl.col("kind") == "memcpy")
        & (pl.col("name").cast(pl.String) == "copy DtoH")
        & (pl.col("bytes") <= TINY_COPY_BYTES)
        & pl.col("graph_exec_id").is_null()
    ).select(*_KEY, read_op_id="op_id", _read_ns="start_ns")
    waited = (
        executions.filter(pl.col("gap_kind") == "starved")
        .join_asof(reads, left_on="start_ns", right_on="_read_ns", by=_KEY, check_sortedness=False)
        .filter(pl.col("_read_ns") >= pl.col("start_ns") - pl.col("gap_ns"))
        .with_columns(duration_ns=pl.col("end_ns") - pl.col("start_ns"))
    )
    is_loop = (pl.len().over(_KEY) >= LEAST_ITERATIONS) & (
        pl.col("gap_ns").median().over(_KEY) >= LOOP_GAP * pl.col("duration_ns").median().over(_KEY)
    )
    return waited.filter(is_loop).select(*_KEY, "call_id", "read_op_id", "gap_ns", "duration_ns")


def ungraphed_kernels(launches: pl.DataFrame, executions: pl.DataFrame) -> pl.DataFrame:
    """Say where many small kernels run and no graph does.

    Small: shorter than the host takes from one launch to the next, so that the device waits.

    Returns:
        device_id; kernels: launched one by one, at least `LEAST_KERNELS`; kernel_ns, launch_ns:
        medians of their duration and of the time from one launch call to the next.
    """
    single = launches.filter(
        (pl.col("call_kind") == "launch")
        & ~pl.col("device_id").is_in(executions["device_id"].unique().implode())
    )
    return (
        single.sort("call_start_ns")
        .with_columns(_since=pl.col("call_start_ns").diff().over("thread_id"))
        .group_by("device_id", maintain_order=True)
        .agg(
            kernels=pl.len().cast(pl.Int64),
            kernel_ns=(pl.col("end_ns") - pl.col("start_ns")).median(),
            launch_ns=pl.col("_since").median(),
        )
        .filter((pl.col("kernels") >= LEAST_KERNELS) & (pl.col("kernel_ns") < pl.col("launch_ns")))
    )
