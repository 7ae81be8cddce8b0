"""Kernels launched one by one between replays of graphs."""

import polars as pl

from gaptrace.ranges import innermost_ranges
from gaptrace.trace import Trace

#: Single launches between two replays, above the usual number there, that make a burst. A
#: judgement: set-up belongs to a replay (PyTorch fills in two random seeds, pytorch/pytorch#143572)
#: and takes a few kernels, a pass over a network takes dozens.
LEAST_BURST = 8

_KEY = ["process_id", "device_id"]


def eager_bursts(trace: Trace, launches: pl.DataFrame, tree: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels that were launched one by one where a replay usually follows a replay.

    Between two graph launches a program makes some number of single launches, often none. Where it
    makes `LEAST_BURST` more than it usually does (the median), a step ran without its graph. What
    `gaptrace profile --arms` launches one by one, to compare, is none of the program's.

    Returns:
        one row per kernel launch in a burst: burst_id, process_id, device_id, call_id; is_rebuilt:
        a graph was instantiated before the next replay; range: the innermost NVTX range around the
        launch, null when there is none.
    """
    is_graph = pl.col("call_kind") == "graph_launch"
    calls = (
        launches.filter(pl.col("call_kind").is_in(["launch", "graph_launch"]))
        .sort("call_start_ns")
        .with_columns(_replay=is_graph.cum_sum().over(_KEY))
    )
    singles = _of_the_program(trace, calls.filter(~is_graph))
    counts = singles.group_by(*_KEY, "_replay").agg(_singles=pl.len().cast(pl.Int64))
    between = (
        calls.filter(is_graph)
        .select(
            *_KEY,
            "_replay",
            _from="call_start_ns",
            _to=pl.col("call_start_ns").shift(-1).over(_KEY),
        )
        .filter(pl.col("_to").is_not_null())
        .join(counts, on=[*_KEY, "_replay"], how="left", maintain_order="left")
        .with_columns(pl.col("_singles").fill_null(0))
    )
    usual = pl.col("_singles").median().over(_KEY)
    bursts = _with_rebuilt(
        trace, between.filter(pl.col("_singles") >= usual + LEAST_BURST).with_row_index("burst_id")
    )
    found = singles.join(bursts, on=[*_KEY, "_replay"], how="inner", maintain_order="left")
    return innermost_ranges(tree, found.with_columns(time_ns="call_start_ns")).select(
        pl.col("burst_id").cast(pl.Int64), *_KEY, "call_id", "is_rebuilt", "range"
    )


def _of_the_program(trace: Trace, launches: pl.DataFrame) -> pl.DataFrame:
    """Launches outside the ranges of the arm per_launch (`timings.Arm.name`)."""
    arms = trace.nvtx.filter((pl.col("domain") == "gaptrace") & (pl.col("name") == "per_launch"))
    return (
        launches.sort("call_start_ns")
        .join_asof(
            arms.select("thread_id", _arm_ns="start_ns", _arm_end_ns="end_ns").sort("_arm_ns"),
            left_on="call_start_ns",
            right_on="_arm_ns",
            by="thread_id",
            check_sortedness=False,
        )
        .filter((pl.col("call_start_ns") >= pl.col("_arm_end_ns")).fill_null(True))
        .drop("_arm_ns", "_arm_end_ns")
    )


def _with_rebuilt(trace: Trace, bursts: pl.DataFrame) -> pl.DataFrame:
    built = trace.api.filter(pl.col("phase") == "instantiate").select(
        "process_id", _built="start_ns"
    )
    return (
        bursts.sort("_to")
        .join_asof(built, left_on="_to", right_on="_built", by="process_id", check_sortedness=False)
        .with_columns(is_rebuilt=(pl.col("_built") > pl.col("_from")).fill_null(False))
    )
