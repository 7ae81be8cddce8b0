"""The step that a program's graphs make: the graph executions launched without a pause between."""

from dataclasses import dataclass

import polars as pl

from gaptrace.graphs import graph_nodes
from gaptrace.trace import Trace


@dataclass(frozen=True)
class GraphStep:
    """The chain of graph executions that takes most of the device's time.

    A chain is one starved graph execution and the queued ones after it: what the host launched
    without pausing. Chains of as many graphs and nodes are alike; times are medians over them.

    Attributes:
        nodes: CUDA nodes of all its graphs; null when unknown.
        graphs: executions in the chain.
        chains: how many are alike.
        device_ns: from its first start to its last end.
        launch_api_ns: time in its launch calls; 0 when none was recorded.
        exposed_latency_ns: from the first launch call's begin to the first start; null when that
            call was not recorded.
        queued_gap_ns: between its graphs; null for a single one.
        call_ids: launch calls of all that are alike.
    """

    nodes: int | None
    graphs: int
    chains: int
    device_ns: float
    launch_api_ns: float
    exposed_latency_ns: float | None
    queued_gap_ns: float | None
    call_ids: tuple[int, ...]


def largest_step(trace: Trace, executions: pl.DataFrame) -> GraphStep:
    """Return the step that the graph executions of a window make.

    Args:
        trace: the trace.
        executions: `graphs.graph_executions` inside the window; at least one.
    """
    stream = ["process_id", "device_id", "context_id", "stream_id"]
    opens = (pl.col("gap_kind") != "queued").fill_null(True)
    chains = (
        executions.join(graph_nodes(trace), on=["process_id", "graph_exec_id"], how="left")
        .with_columns(_chain=opens.cum_sum().over(stream))
        .group_by(*stream, "_chain", maintain_order=True)
        .agg(
            graphs=pl.len(),
            nodes=pl.when(pl.col("nodes").is_not_null().all()).then(pl.col("nodes").sum()),
            device_ns=pl.col("end_ns").max() - pl.col("start_ns").min(),
            launch_api_ns=pl.col("api_ns").sum(),
            exposed_ns=(pl.col("start_ns") - pl.col("call_start_ns")).first(),
            gap_ns=pl.col("gap_ns").slice(1).median(),
            call_ids=pl.col("call_id"),
        )
    )
    alike = ["graphs", "nodes"]
    kinds = chains.group_by(alike, maintain_order=True).agg(
        pl.len().alias("chains"),
        pl.col("device_ns").sum().alias("total_ns"),
        pl.col("device_ns", "launch_api_ns", "exposed_ns", "gap_ns").median(),
        pl.col("call_ids").explode(),
    )
    row = kinds.sort("total_ns", descending=True).row(0, named=True)
    return GraphStep(
        nodes=row["nodes"],
        graphs=row["graphs"],
        chains=row["chains"],
        device_ns=row["device_ns"],
        launch_api_ns=row["launch_api_ns"] or 0.0,
        exposed_latency_ns=row["exposed_ns"],
        queued_gap_ns=row["gap_ns"],
        call_ids=tuple(each for each in row["call_ids"] if each is not None),
    )
