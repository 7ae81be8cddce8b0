"""The step that a program makes of graphs, and what the device did in it, as it was recorded.

Other than `graph_step`, which needs nothing but the graphs themselves, this does not end a step
where a launch came too late: under a recorder launches come late that do not without. A step ends
where the host waits, where a marked step ends, and where a graph exec comes again.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from gaptrace.cost import Floats
from gaptrace.graphs import graph_nodes
from gaptrace.overlap import overlap_across, overlap_of_ways
from gaptrace.steps import Steps
from gaptrace.trace import Trace

_STREAM = ["process_id", "device_id", "context_id", "stream_id"]
_CHAIN = [*_STREAM, "chain", "turn"]
#: Share of the nodes that run beside others from which on a graph counts as branching. Own choice:
#: above what programmatic launch and clock rounding let overlap in a straight line.
_BRANCHING = 0.02
#: Executions launched in time from which on only these tell what the device takes. Own choice:
#: enough for a median.
_LEAST_IN_TIME = 3
#: Typical device time of graphs.
_SPAN_NS = (pl.col("end_ns") - pl.col("start_ns")).median().alias("span_ns")
#: Executions of a graph with branches of which nodes that run at once are looked for, at most. Own
#: choice: one is much like the next.
_SAMPLED = 9


@dataclass(frozen=True, eq=False)
class TracedStep:
    """The step that holds most of the device time of graphs; medians over its repeats.

    Attributes:
        ways: node counts of its graphs, in launch order: every way in which as many nodes are
            launched, that with most device time first.
        repeats: steps launched in the way that the times are of: as one graph if that occurs, else
            the first way.
        sizes: node counts of that way.
        node_ns: what each node adds to the time that the device works, shape `(N,)`.
        gap_ns: the idle time before each node, shape `(N,)`; 0 where it is part of node_ns: in
            graph granularity, and where nodes run beside others.
        overlap_ns: for a cut after 0..N nodes, how long nodes on both sides ran at once, shape
            `(N + 1,)`. In graph granularity from what the other ways took longer than one graph;
            0 where that is not known.
        spread: the device's time for a step, its 10th and 90th percentile as share of the median.
        device_free_ns: from the begin of the first launch call until earlier work was done.
        notice_ns: from the end of the device's work until the host, which waits for it, knows; null
            where it does not wait between most steps.
        is_waited_for: the host waits between most steps.
        has_branches: nodes of a graph run beside others.
        call_ids: its launch calls.
    """

    ways: tuple[tuple[int, ...], ...]
    repeats: int
    sizes: tuple[int, ...]
    node_ns: Floats
    gap_ns: Floats
    overlap_ns: Floats
    spread: tuple[float, float]
    device_free_ns: float
    notice_ns: float | None
    is_waited_for: bool
    has_branches: bool
    call_ids: pl.Series


def traced_step(trace: Trace, executions: pl.DataFrame, steps: Steps) -> TracedStep | None:
    """Return the step; None if it is not known how many nodes its graphs have.

    Args:
        trace: the trace.
        executions: `graphs.graph_executions` inside the window; at least one.
        steps: `steps.find_steps`; only those found by NVTX ranges count here.
    """
    rows = _in_chains(trace, executions, steps)
    chains = _chains(trace, rows)
    kinds = chains.group_by("nodes", maintain_order=True).agg(pl.col("device_ns").sum())
    total = kinds.sort("device_ns", descending=True)["nodes"][0]
    if total is None:
        return None
    alike = chains.filter(pl.col("nodes") == total)
    by_way = alike.group_by("sizes", maintain_order=True).agg(pl.col("device_ns").sum())
    ways = [tuple(each) for each in by_way.sort("device_ns", descending=True)["sizes"].to_list()]
    sizes = (total,) if (total,) in ways else ways[0]
    same = pl.Series([list(sizes)], dtype=pl.List(pl.Int64))
    own = alike.filter(pl.col("sizes") == same)
    own_rows = _placed(rows, own.select(_CHAIN))
    nodes = _node_times(trace, _in_time(own_rows), sizes)
    if sizes == (total,) and trace.meta.granularity != "node":
        nodes = nodes.with_overlap(_overlap_of_ways(rows, alike, total))
    middle, *ends = (float(own["device_ns"].quantile(at) or 0) for at in (0.5, 0.1, 0.9))
    is_waited_for = own["notice_ns"].null_count() <= own.height / 2
    low, high = (end / middle if middle else 1.0 for end in ends)
    return TracedStep(
        ways=tuple(ways),
        repeats=own.height,
        sizes=sizes,
        node_ns=nodes.adds_ns,
        gap_ns=nodes.gap_ns,
        overlap_ns=nodes.overlap_ns,
        spread=(low, high),
        device_free_ns=float(own["free_ns"].median() or 0),  # type: ignore[arg-type]
        notice_ns=own["notice_ns"].median() if is_waited_for else None,  # type: ignore[arg-type]
        is_waited_for=is_waited_for,
        has_branches=nodes.has_branches,
        call_ids=own_rows["call_id"],
    )


def _placed(rows: pl.DataFrame, chains: pl.DataFrame) -> pl.DataFrame:
    """The executions of these chains, with what is told of them, and position: in the chain."""
    return rows.join(chains, on=_CHAIN, how="inner", maintain_order="left").with_columns(
        position=pl.int_range(pl.len()).over(_CHAIN)
    )


def _in_chains(trace: Trace, executions: pl.DataFrame, steps: Steps) -> pl.DataFrame:
    """The executions with nodes, thread_id, at_ns: when they were launched, chain, turn."""
    waits = _waits(trace).select("thread_id", wait_end_ns="end_ns").sort("wait_end_ns")
    marks = steps.frame if steps.source == "nvtx" else steps.frame.clear()
    of = ["process_id", "device_id"]
    marks = marks.sort("start_ns").with_row_index("mark").select(*of, "mark", mark_ns="start_ns")
    before = pl.col("at_ns").shift(1).over(_STREAM)
    opens = (
        before.is_null()
        | (pl.col("wait_end_ns") > before).fill_null(False)
        | (pl.col("mark") != pl.col("mark").shift(1).over(_STREAM)).fill_null(False)
    )
    never_again = (
        (pl.col("opens").sum() == 1) & (pl.col("graph_exec_id").n_unique() == pl.len())
    ).over(_STREAM)
    return (
        executions.join(graph_nodes(trace), on=["process_id", "graph_exec_id"], how="left")
        .join(trace.api.select("call_id", "thread_id"), on="call_id", how="left")
        .with_columns(at_ns=pl.coalesce("call_start_ns", "start_ns"))
        .sort("at_ns", maintain_order=True)
        .join_asof(
            waits, left_on="at_ns", right_on="wait_end_ns", by="thread_id", check_sortedness=False
        )
        .join_asof(marks, left_on="at_ns", right_on="mark_ns", by=of, check_sortedness=False)
        .with_columns(opens=opens)
        # Built anew at every launch, without a wait: then a late launch is the only sign there is.
        .with_columns(opens=pl.col("opens") | (never_again & (pl.col("gap_kind") == "starved")))
        .with_columns(chain=pl.col("opens").fill_null(True).cum_sum().over(_STREAM))
        .with_columns(turn=pl.int_range(pl.len()).over(*_STREAM, "chain", "graph_exec_id"))
        .with_columns(turn=pl.col("turn").cum_max().over(*_STREAM, "chain"))
    )


def _chains(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    """One row per step: sizes, nodes (null: unknown), device_ns, free_ns, notice_ns."""
    busy = (
        trace.ops.select("device_id", "start_ns", busy_until_ns=pl.col("end_ns"))
        .with_columns(pl.col("busy_until_ns").cum_max().over("device_id"))
        .rename({"start_ns": "op_ns"})
        .with_columns(pl.col("op_ns") + 1)  # ops that began before, not with, the step
    )
    waits = _waits(trace).select("thread_id", wait_ns="start_ns", wait_end_ns="end_ns")
    chains = rows.group_by(_CHAIN, maintain_order=True).agg(
        pl.col("thread_id", "at_ns").first(),
        pl.col("start_ns").min(),
        pl.col("end_ns").max(),
        sizes=pl.col("nodes"),
        nodes=pl.when(pl.col("nodes").is_not_null().all()).then(pl.col("nodes").sum()),
        device_ns=(pl.col("end_ns") - pl.col("start_ns")).sum(),
    )
    next_ns = pl.col("at_ns").shift(-1).over("thread_id")
    return (
        chains.with_columns(next_ns=next_ns)
        .sort("start_ns")
        .join_asof(
            busy,
            left_on="start_ns",
            right_on="op_ns",
            by="device_id",
            check_sortedness=False,
        )
        .with_columns(
            free_ns=(pl.col("busy_until_ns") - pl.col("at_ns")).clip(lower_bound=0).fill_null(0)
        )
        .sort("end_ns")
        .join_asof(
            waits.sort("wait_end_ns"),
            left_on="end_ns",
            right_on="wait_end_ns",
            by="thread_id",
            strategy="forward",
            check_sortedness=False,
        )
        .sort("wait_end_ns", nulls_last=True)
        .join_asof(
            busy.rename({"busy_until_ns": "all_done_ns"}),
            left_on="wait_end_ns",
            right_on="op_ns",
            by="device_id",
            check_sortedness=False,
        )
        .with_columns(
            notice_ns=pl.when(
                (pl.col("wait_ns") <= pl.col("end_ns"))
                & (pl.col("wait_end_ns") <= pl.col("next_ns").fill_null(pl.col("wait_end_ns")))
            ).then((pl.col("wait_end_ns") - pl.col("all_done_ns")).clip(lower_bound=0))
        )
    )


def _waits(trace: Trace) -> pl.DataFrame:
    return trace.api.filter(
        pl.col("kind").is_in(["wait", "blocking_copy"]) & pl.col("capture_id").is_null()
    )


def _in_time(rows: pl.DataFrame, *by: str) -> pl.DataFrame:
    """The executions launched before the device was free, where there are a few; else all.

    The device begins a graph with branches before all of it is submitted. Launched on an idle
    device, such a graph has a part of its launch call in its time: 690 us instead of 625 in a
    decoder of 321 nodes, 920 instead of 715 in node granularity (H200, Nsight Systems 2025.3).
    """
    is_in_time = (pl.col("gap_kind") == "queued").fill_null(False)
    are_enough = is_in_time.sum().over("position", *by) >= _LEAST_IN_TIME
    return rows.filter(is_in_time | ~are_enough)


class _Nodes(NamedTuple):
    """As in `TracedStep`."""

    adds_ns: Floats
    gap_ns: Floats
    overlap_ns: Floats
    has_branches: bool

    def with_overlap(self, overlap_ns: Floats) -> "_Nodes":
        return self._replace(overlap_ns=overlap_ns, has_branches=bool(overlap_ns.any()))


def _node_times(trace: Trace, rows: pl.DataFrame, sizes: tuple[int, ...]) -> _Nodes:
    """What each node adds, the gap before each, and whether nodes run side by side.

    Where they do, none has a time of its own: then all share that of the graph.
    """
    total, has_branches = sum(sizes), False
    overlap_ns = np.zeros(total + 1)
    if trace.meta.granularity == "node":
        ops = _node_ops(trace, rows)
        beside = float(ops["is_beside"].mean() or 0)  # type: ignore[arg-type]
        has_branches = beside >= _BRANCHING
        each = (
            ops.group_by("position", "number")
            .agg(pl.col("adds_ns", "gap_ns").median())
            .sort("position", "number")
        )
        if each.height == total and not has_branches:
            adds_ns, gap_ns = each["adds_ns"].to_numpy(), each["gap_ns"].to_numpy()
            return _Nodes(adds_ns, gap_ns, overlap_ns, has_branches=False)
        if each.height == total:
            overlap_ns = _overlap(ops, sizes)
    whole = dict(rows.group_by("position").agg(_SPAN_NS).rows())
    each_ns = [np.full(size, whole[position] / size) for position, size in enumerate(sizes)]
    return _Nodes(np.concatenate(each_ns), np.zeros(total), overlap_ns, has_branches)


def _overlap_of_ways(rows: pl.DataFrame, alike: pl.DataFrame, nodes: int) -> Floats:
    """`overlap.overlap_of_ways`, of executions and of the chains of as many nodes."""
    way = pl.col("sizes").cast(pl.List(pl.String)).list.join("+")
    placed = _placed(rows, alike.select(*_CHAIN, way.alias("way")))
    spans = _in_time(placed, "way").group_by("way", "position").agg(_SPAN_NS)
    taken = dict(spans.group_by("way").agg(pl.col("span_ns").sum()).rows())
    one_ns = taken.pop(str(nodes))
    cut = {tuple(map(int, way.split("+"))): ns for way, ns in taken.items()}
    return overlap_of_ways(one_ns, cut) if cut else np.zeros(nodes + 1)


def _overlap(ops: pl.DataFrame, sizes: tuple[int, ...]) -> Floats:
    """Typical `overlap.overlap_across` in each graph; 0 between graphs."""
    whole = pl.col("position").replace_strict(dict(enumerate(sizes)))
    sampled = (
        ops.filter(pl.len().over("position", "call_id") == whole)
        .filter(pl.col("call_id").rank("dense").over("position") <= _SAMPLED)
        .sort("number")
    )
    found: dict[int, list[Floats]] = {position: [] for position in range(len(sizes))}
    parts = sampled.partition_by("position", "call_id", as_dict=True)
    for (position, _), part in parts.items():
        found[position].append(overlap_across(part["start_ns"], part["end_ns"]))
    graphs = [
        np.median(found[position] or [np.zeros(size + 1)], axis=0)
        for position, size in enumerate(sizes)
    ]
    return np.concatenate([*(each[:-1] for each in graphs), [0.0]])


def _node_ops(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    """Ops of the executions in order of creation of their nodes: position, number in the graph."""
    reached = pl.col("end_ns").cum_max().shift(1).over("call_id")
    since = pl.max_horizontal("start_ns", reached)
    return (
        trace.ops.filter(pl.col("graph_node_id").is_not_null())
        .join(rows.select("call_id", "position"), on="call_id", how="inner", maintain_order="left")
        .with_columns(
            adds_ns=(pl.col("end_ns") - since).clip(lower_bound=0),
            gap_ns=(pl.col("start_ns") - reached).clip(lower_bound=0).fill_null(0),
            is_beside=(pl.col("start_ns") < reached).fill_null(False),
            number=pl.col("graph_node_id").rank("ordinal").over("call_id"),
        )
    )
