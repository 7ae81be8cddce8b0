"""What goes wrong with graphs: failed captures and launches, execs unused, addresses gone stale."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from gaptrace.captures import captures
from gaptrace.trace import SUBMITTING, Trace

#: cudaErrorStreamCaptureUnsupported to cudaErrorCapturedEvent and ...WrongThread; the driver's
#: numbers are the same (CUDA runtime API, cudaError). 909 is a timeout, 910 a refused update.
CAPTURE_ERRORS = (900, 908)


@dataclass(frozen=True)
class GraphFaults:
    """What goes wrong with graphs, anywhere in the trace.

    Attributes:
        failed_captures: see `failed_captures`.
        failed_launches: see `failed_launches`.
        unused_execs: see `unused_execs`.
        stale_execs: see `stale_execs`.
    """

    failed_captures: pl.DataFrame
    failed_launches: pl.DataFrame
    unused_execs: pl.DataFrame
    stale_execs: pl.DataFrame


def graph_faults(trace: Trace) -> GraphFaults:
    """Look for faults in a whole trace, with the ops of all its devices."""
    return GraphFaults(
        failed_captures(trace), failed_launches(trace), unused_execs(trace), stale_execs(trace)
    )


def failed_captures(trace: Trace) -> pl.DataFrame:
    """Return the stream captures in which a call failed with a capture error.

    The call at fault is the first one that failed while the capture was open, by whichever thread
    of the process: what another thread does can end a capture, too.

    Returns:
        one row per failed capture: process_id, thread_id, start_ns; call_name, return_code: of the
        call at fault, which is the one that ended the capture when no other failed.
    """
    errors = trace.api.filter(pl.col("return_code").is_between(*CAPTURE_ERRORS)).select(
        "process_id", "start_ns", call_name="name", return_code="return_code"
    )
    first = errors.rename({"start_ns": "_failed_ns"}).sort("_failed_ns")
    return (
        captures(trace.api)
        .select("process_id", "thread_id", "start_ns", "end_ns")
        .join_asof(
            first,
            left_on="start_ns",
            right_on="_failed_ns",
            by="process_id",
            strategy="forward",
            check_sortedness=False,
        )
        .filter(pl.col("_failed_ns") < pl.col("end_ns"))
        .select("process_id", "thread_id", "start_ns", "call_name", "return_code")
    )


def failed_launches(trace: Trace) -> pl.DataFrame:
    """Count launches and copies that failed outside captures: their work was never done.

    Returns:
        call_name, return_code, calls; most calls first.
    """
    return (
        trace.api.filter(
            pl.col("kind").is_in(SUBMITTING)
            & pl.col("capture_id").is_null()
            & (pl.col("return_code").fill_null(0) != 0)
        )
        .group_by("name", "return_code", maintain_order=True)
        .agg(calls=pl.len().cast(pl.Int64))
        .sort("calls", descending=True, maintain_order=True)
        .rename({"name": "call_name"})
    )


def unused_execs(trace: Trace) -> pl.DataFrame:
    """Return the graph execs that were instantiated and never ran while others ran repeatedly.

    Execs that no other exec was launched twice after are left out: the recording may have ended
    before their turn came. Known only where the recorder keeps the creation of execs (graph
    granularity, since 2024).

    Returns:
        process_id, graph_exec_id; built_ns: duration of the call that instantiated it, null when
        that was not recorded.
    """
    ran = _launched(trace)
    steady = (
        ran.group_by("process_id", "graph_exec_id")
        .agg(_last_but_one=pl.col("launch_ns").sort(descending=True).get(1, null_on_oob=True))
        .group_by("process_id")
        .agg(pl.col("_last_but_one").max())
    )
    calls = trace.api.filter(pl.col("phase") == "instantiate").select(
        "thread_id", "start_ns", _end="end_ns", built_ns=pl.col("end_ns") - pl.col("start_ns")
    )
    made = trace.graph_events.filter(
        (pl.col("event") == "exec") & pl.col("graph_exec_id").is_not_null()
    )
    return (
        made.join(ran, on=["process_id", "graph_exec_id"], how="anti", maintain_order="left")
        .unique(["process_id", "graph_exec_id"], keep="first", maintain_order=True)
        .join(steady, on="process_id", how="inner", maintain_order="left")
        .filter(pl.col("time_ns") < pl.col("_last_but_one"))
        .join_asof(
            calls, left_on="time_ns", right_on="start_ns", by="thread_id", check_sortedness=False
        )
        .select(
            "process_id",
            "graph_exec_id",
            built_ns=pl.when(pl.col("time_ns") <= pl.col("_end")).then("built_ns"),
        )
    )


def stale_execs(trace: Trace) -> pl.DataFrame:
    """Return the graph execs that ran after memory from before their building had been freed.

    A graph holds the addresses of its buffers as they were when it was built or updated last.
    Which buffers a call frees is not recorded, but as soon as more has been freed than allocated
    since, something older is among it. Whether the graph uses that cannot be told.

    Returns:
        process_id, graph_exec_id; freed: calls that freed memory between the building and the
        last launch; call_name: the first of them.
    """
    done = pl.col("return_code").fill_null(0) == 0
    memory = trace.api.filter(pl.col("kind").is_in(["allocate", "free"]) & done).select(
        "process_id",
        "start_ns",
        "name",
        is_free=pl.col("kind") == "free",
        change=pl.when(pl.col("kind") == "free").then(1).otherwise(-1),
    )
    found = [
        _stale(uses, memory.filter(pl.col("process_id") == process_id))
        for (process_id,), uses in _baked_until(trace).group_by("process_id", maintain_order=True)
    ]
    rows = pl.concat([pl.DataFrame(schema=_STALE), *found])
    return rows.unique(["process_id", "graph_exec_id"], keep="first", maintain_order=True)


_STALE = pl.Schema(
    {
        "process_id": pl.Int64,
        "graph_exec_id": pl.Int64,
        "freed": pl.Int64,
        "call_name": pl.String,
    }
)


def _baked_until(trace: Trace) -> pl.DataFrame:
    """Per exec and building of it: process_id, graph_exec_id, baked_ns, and the last launch_ns.

    An update may be of any exec of its process; it counts for all. Execs whose building was not
    recorded are left out.
    """
    made = (
        trace.graph_events.filter(pl.col("graph_exec_id").is_not_null())
        .group_by("process_id", "graph_exec_id")
        .agg(_made_ns=pl.col("time_ns").min())
    )
    updates = (
        trace.api.filter(pl.col("phase") == "update")
        .select("process_id", "start_ns", _updated_ns="end_ns")
        .sort("start_ns")
    )
    return (
        _launched(trace)
        .join(made, on=["process_id", "graph_exec_id"], how="inner")
        .sort("launch_ns")
        .join_asof(
            updates,
            left_on="launch_ns",
            right_on="start_ns",
            by="process_id",
            check_sortedness=False,
        )
        .with_columns(baked_ns=pl.max_horizontal("_made_ns", "_updated_ns"))
        .group_by("process_id", "graph_exec_id", "baked_ns", maintain_order=True)
        .agg(pl.col("launch_ns").max())
    )


def _launched(trace: Trace) -> pl.DataFrame:
    """Launches of graphs: process_id, graph_exec_id, launch_ns."""
    return (
        trace.ops.filter(pl.col("graph_exec_id").is_not_null())
        .join(trace.api.select("call_id", launch_ns="start_ns"), on="call_id", how="inner")
        .select("process_id", "graph_exec_id", "launch_ns")
        .unique(maintain_order=True)
    )


def _stale(uses: pl.DataFrame, memory: pl.DataFrame) -> pl.DataFrame:
    """Rows of `_baked_until` of one process between whose times more was freed than allocated."""
    times = memory["start_ns"].to_numpy()
    balance = np.append(0, memory["change"].to_numpy().cumsum())  # balance[i]: before call i
    frees = np.append(0, memory["is_free"].to_numpy().cumsum())
    first, last = (
        np.searchsorted(times, uses[column].to_numpy(), side="left")
        for column in ("baked_ns", "launch_ns")
    )
    between = np.flatnonzero(last > first)
    first, last = first[between], last[between]
    if not len(between):
        return pl.DataFrame(schema=_STALE)
    bounds = np.ravel(np.column_stack([first + 1, last + 1]))
    # Every other slice lies between two uses.
    highest = np.maximum.reduceat(np.append(balance, balance[-1]), bounds)[::2]
    is_stale = highest > balance[first]
    chosen, first, last = between[is_stale], first[is_stale], last[is_stale]
    # The first call that freed since the building.
    frees_at = np.flatnonzero(memory["is_free"].to_numpy())
    names = memory["name"].cast(pl.String).gather(frees_at[frees[first]])
    return (
        uses[chosen]
        .select("process_id", "graph_exec_id")
        .with_columns(freed=pl.Series(frees[last] - frees[first], dtype=pl.Int64), call_name=names)
    )
