"""What repeats in a trace by the order in which graphs or kernels run on a stream."""

import numpy as np
import polars as pl

from gaptrace.graphs import graph_nodes
from gaptrace.periods import MIN_REPEATS, Ints, Repetition, bounds, copies, find_repetition
from gaptrace.repeats import LEAST_WORK_FRACTION, Repeats
from gaptrace.trace import NAMES, Trace

#: A unit of more graphs than this is named by its first ones.
_NAMED_GRAPHS = 4
_LENGTH = pl.col("end_ns") - pl.col("start_ns")


def repeating_graphs(trace: Trace, executions: pl.DataFrame, work: pl.DataFrame) -> Repeats | str:
    """Find a repeating sequence of graph execs; else of their sizes in nodes.

    The sizes give steps to a program that instantiates its graphs anew each time, so that no exec
    repeats, and tell its alternating shapes apart.

    Args:
        trace: the trace.
        executions: `graphs.graph_executions`.
        work: `device_work`.
    """
    if executions.is_empty():
        return "no graph was launched"
    by_exec = _sequences(executions.with_columns(token="graph_exec_id"), work, "graph exec", 1)
    if isinstance(by_exec, Repeats):
        return by_exec
    by_size = _sequences(_sized(trace, executions), work, "graph size", 1)
    return by_size if isinstance(by_size, Repeats) else f"{by_exec}; {by_size}"


def repeating_kernels(trace: Trace, executions: pl.DataFrame, work: pl.DataFrame) -> Repeats | str:
    """Find a repeating sequence of kernel names.

    A graph execution counts as one kernel, named by its size, in either granularity: no step begins
    inside of one. One kernel over and over shows no step.

    Args:
        trace: the trace.
        executions: `graphs.graph_executions`.
        work: `device_work`.
    """
    columns = ["process_id", "device_id", "context_id", "stream_id", "start_ns", "end_ns"]
    single = trace.ops.filter((pl.col("kind") == "kernel") & pl.col("graph_exec_id").is_null())
    graphs = _sized(trace, executions).with_columns(name=pl.lit("a graph", NAMES))
    launches = pl.concat(
        [
            # Names get even numbers, graphs odd ones.
            single.select(*columns, "name", token=2 * pl.col("name").to_physical().cast(pl.Int64)),
            graphs.select(*columns, "name", token=2 * pl.col("token") + 1),
        ]
    )
    return _sequences(launches.sort("start_ns", maintain_order=True), work, "kernel", 2)


def _sized(trace: Trace, executions: pl.DataFrame) -> pl.DataFrame:
    """Executions with nodes, and a token: equal for equal sizes; of unknown ones, for one exec."""
    exec_of = ["process_id", "graph_exec_id"]
    nodes = graph_nodes(trace).select(*exec_of, "nodes")
    return executions.join(nodes, on=exec_of, how="left", maintain_order="left").with_columns(
        token=pl.coalesce("nodes", -1 - pl.col("graph_exec_id"))
    )


def _sequences(
    ops: pl.DataFrame, work: pl.DataFrame, what: str, least_period: int
) -> Repeats | str:
    """Search the stream of each process and device on which most of these ops' time is spent."""
    owner = ["process_id", "device_id"]
    found: list[pl.DataFrame] = []
    held, note = 0, f"no sequence of {what}s repeats"
    for (process_id, device_id), own in ops.group_by(owner, maintain_order=True):
        rows = _steps_on(_busiest_stream(own), what, least_period)
        if rows is None:
            continue
        mine = work.filter(
            pl.col("process_id").eq_missing(process_id), pl.col("device_id") == device_id
        )
        inside = _started_inside(rows, mine)
        fraction = inside / max(int(mine["work_ns"].sum()), 1)
        if fraction >= LEAST_WORK_FRACTION:
            held += inside
            found.append(rows.with_columns(key=pl.lit(len(found))))
        else:
            note = (
                f"{rows['unit'][0]} repeated but with {fraction:.1%} of the device time of kernels "
                "and graphs"
            )
    if not found:
        return note
    return Repeats(found[0]["unit"][0], held / int(work["work_ns"].sum()), pl.concat(found))


def _busiest_stream(ops: pl.DataFrame) -> pl.DataFrame:
    stream = ["context_id", "stream_id"]
    busiest = (
        ops.group_by(stream, maintain_order=True)
        .agg(_LENGTH.sum().alias("_work"))
        .sort("_work", descending=True, maintain_order=True)
    )
    return ops.join(busiest.head(1), on=stream, how="semi", nulls_equal=True, maintain_order="left")


def _steps_on(stream: pl.DataFrame, what: str, least_period: int) -> pl.DataFrame | None:
    """The steps of one stream, whose ops are in order of start; None where nothing repeats."""
    start, end = stream["start_ns"].to_numpy(), stream["end_ns"].to_numpy()
    tokens = stream["token"].rank("dense").cast(pl.Int64).to_numpy()
    repetition = find_repetition(tokens, end - start, least_period)
    if repetition is None:
        return None
    running_end = np.maximum.accumulate(end)
    begins = copies(repetition, _begin(start, running_end, repetition))
    first, last = bounds(begins, repetition.period, end - start)
    # A step that touches the next one lasts until that begins; any other ends with its last op.
    following = np.append(first[1:], -1)
    next_start = np.append(start[first[1:]], np.iinfo(np.int64).max)
    ended = np.minimum(running_end[last - 1], next_start)
    unit = _unit(stream.slice(int(begins[0]), repetition.period), what)
    return (
        pl.DataFrame(
            {"start_ns": start[first], "end_ns": np.where(last == following, next_start, ended)}
        )
        .with_columns(
            pl.lit(stream[column][0], pl.Int64).alias(column)
            for column in ("device_id", "process_id", "stream_id")
        )
        .with_columns(unit=pl.lit(unit), thread_id=pl.lit(None, pl.Int64))
    )


def _begin(start: Ints, running_end: Ints, repetition: Repetition) -> int:
    """The op of the stretch where a step begins: the longest wait before it, by the median."""
    wait = np.append(0, np.maximum(start[1:] - running_end[:-1], 0))
    period, length = repetition.period, repetition.end - repetition.begin
    table = wait[repetition.begin :][: length // period * period].reshape(-1, period)
    # Beginning later must leave enough whole copies.
    choices = min(period, length - MIN_REPEATS * period + 1)
    return repetition.begin + int(np.argmax(np.median(table, axis=0)[:choices]))


def _unit(copy: pl.DataFrame, what: str) -> str:
    if what == "kernel":
        return f"{copy.height} kernels from {copy['name'][0]}"
    column = "token" if what == "graph exec" else "nodes"
    named = copy[column].head(_NAMED_GRAPHS).cast(pl.String).fill_null("?").to_list()
    shown = ", ".join(named + ["..."] * (copy.height > _NAMED_GRAPHS))
    if copy.height == 1:
        return f"graph exec {shown}" if what == "graph exec" else f"a graph of {shown} nodes"
    if what == "graph exec":
        return f"{copy.height} graph execs ({shown})"
    return f"{copy.height} graphs of {shown} nodes"


def _started_inside(rows: pl.DataFrame, work: pl.DataFrame) -> int:
    """Work that starts inside disjoint windows, in nanoseconds."""
    done = np.append(0, np.cumsum(work["work_ns"].to_numpy()))
    begin, end = (
        work["start_ns"].search_sorted(rows[column], side="left").to_numpy()
        for column in ("start_ns", "end_ns")
    )
    return int((done[end] - done[begin]).sum())
