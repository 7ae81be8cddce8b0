"""What repeats in a trace by its NVTX ranges; and what any repeats are, whoever found them.

A look either finds something that holds most of the device's work, or says why not. Which look to
believe is decided in `steps`; the others are in `sequences`.
"""

from dataclasses import dataclass

import polars as pl

from gaptrace import intervals
from gaptrace.periods import MIN_REPEATS
from gaptrace.trace import Trace

#: What repeats must hold this share of the device time of kernels and graphs; else it is a part of
#: a step, or not what the program is about. "Most of it": own choice.
LEAST_WORK_FRACTION = 0.5

#: Ranges that are steps fill this share of the time from the first one to the last: own choice.
LEAST_TIME_FRACTION = 0.5

_RANGES_OF = ["domain", "path", "process_id", "thread_id", "device_id"]
#: Ranges that gaptrace itself puts around the graphs of a program, which are no steps.
_GRAPH_NAMES = ("capture", "instantiate", "replay")
_LENGTH = pl.col("end_ns") - pl.col("start_ns")


@dataclass(frozen=True)
class Repeats:
    """Something that repeats.

    Attributes:
        unit: what, in words; of the first sequence where there are several.
        work_fraction: share of the device time of kernels and graphs that the repeats hold:
            launched inside, for ranges; started inside, for the others.
        rows: key: number of the sequence; unit: what repeats in it; device_id, process_id;
            thread_id: of push/pop ranges, else null; stream_id: null for ranges; start_ns, end_ns.
            In order of time within key and device, and not overlapping there.
    """

    unit: str
    work_fraction: float
    rows: pl.DataFrame


def device_work(trace: Trace) -> pl.DataFrame:
    """Return kernels and graphs: what a program is about, unlike its copies and sets.

    Returns:
        process_id, device_id, start_ns, work_ns: their duration; call_ns: when their launch began,
        null when it was not recorded. In order of start.
    """
    calls = trace.api.select("call_id", call_ns="start_ns")
    return (
        trace.ops.filter(pl.col("kind").is_in(["kernel", "graph"]))
        .select("process_id", "device_id", "start_ns", "call_id", work_ns=_LENGTH)
        .join(calls, on="call_id", how="left", maintain_order="left")
        .drop("call_id")
    )


def repeating_ranges(windows: pl.DataFrame, work: pl.DataFrame) -> Repeats | str:
    """Find the NVTX ranges that are steps.

    A name counts with at least `MIN_REPEATS` ranges of one path on one thread. First choice are the
    marks of `gaptrace.step` (domain `gaptrace`, and named `step` or with a payload that counts up
    by one), whatever they hold; then other names of that domain; then all others. The latter two
    must hold `LEAST_WORK_FRACTION` of the work, launched by any thread of their process, and fill
    `LEAST_TIME_FRACTION` of the time from the first of a sequence to its last: an operator that is
    called again and again inside a step may hold much work, but little time. Of several names, the
    outermost; of those, the one that holds most. Its paths (one per thread, rank, and range around
    it) are sequences of their own.

    Args:
        windows: `ranges.range_windows`.
        work: `device_work`.
    """
    rows = _on_one_thread(windows)
    if rows.is_empty():
        return "no NVTX range repeats on a thread"
    names = _names(rows, work)
    holds = pl.col("work_fraction") >= LEAST_WORK_FRACTION
    fills = pl.col("time_fraction") >= LEAST_TIME_FRACTION
    order = ["is_mark", pl.col("domain") == "gaptrace", pl.col("depth").neg(), "work_fraction"]
    best = (
        names.filter(pl.col("is_mark") | (holds & fills))
        .sort(order, descending=True, maintain_order=True)
        .head(1)
    )
    if best.is_empty():
        name, held, filled = (
            names.sort("work_fraction").select("name", "work_fraction", "time_fraction").row(-1)
        )
        return (
            f"NVTX range {name} repeats but holds {held:.1%} of the device time of kernels and "
            f"graphs and fills {filled:.1%} of the time from its first to its last"
        )
    rows = rows.join(best, on=["domain", "name"], how="semi", maintain_order="left")
    keys = rows.select("path", "process_id", "thread_id").unique(maintain_order=True)
    numbered = rows.join(
        keys.with_row_index("key"), on=keys.columns, nulls_equal=True, maintain_order="left"
    )
    return Repeats(
        best["name"][0],
        best["work_fraction"][0],
        numbered.with_columns(unit="path", stream_id=pl.lit(None, pl.Int64)),
    )


def _on_one_thread(windows: pl.DataFrame) -> pl.DataFrame:
    """Ranges of which enough are on one thread, with name and is_mark: made by `gaptrace.step`.

    Tasks of one thread that run at the same time are no sequence, and are left out.
    """
    within_its_like = ("/" + pl.col("path")).str.contains("/" + pl.col("name") + "/", literal=True)
    names_graph = (pl.col("domain") == "gaptrace") & pl.col("name").is_in(_GRAPH_NAMES)
    step_on = pl.col("payload").diff().over(_RANGES_OF)
    counts_up = pl.col("payload").is_not_null() & (step_on.is_null() | (step_on == 1))
    is_mark = (pl.col("domain") == "gaptrace") & ((pl.col("name") == "step") | counts_up)
    is_later = (pl.col("start_ns") >= pl.col("end_ns").cum_max().shift(1)).fill_null(True)
    return (
        windows.with_columns(
            pl.col("domain").fill_null(""),
            name=pl.col("path").str.split("/").list.last(),
            thread_id=pl.when(pl.col("kind") == "push_pop").then("thread_id"),
        )
        .filter(~within_its_like & ~names_graph)
        .filter((pl.len() >= MIN_REPEATS).over(_RANGES_OF) & is_later.all().over(_RANGES_OF))
        .with_columns(is_mark=is_mark)
    )


def _names(rows: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Per domain and name: is_mark, depth of the outermost, work_fraction, time_fraction."""
    name = ["domain", "name"]
    sequences = rows.group_by("name", *_RANGES_OF, maintain_order=True).agg(
        pl.col("is_mark").all(),
        pl.col("depth").first(),
        filled=_LENGTH.sum(),
        extent=pl.col("end_ns").max() - pl.col("start_ns").min(),
    )
    return (
        sequences.group_by(name, maintain_order=True)
        .agg(
            pl.col("is_mark").all(),
            pl.col("depth").min(),
            time_fraction=pl.col("filled").sum() / pl.col("extent").sum(),
        )
        .join(_launched_inside(rows, work), on=name, how="left", maintain_order="left")
        .with_columns(pl.col("work_fraction").fill_null(0.0))
    )


def _launched_inside(rows: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Per domain and name, the share of all work that was launched inside its ranges."""
    calls = work.filter(pl.col("call_ns").is_not_null()).sort("call_ns", maintain_order=True)
    done = pl.col("work_ns").cum_sum().over("process_id")
    merged = intervals.merge(rows, ["domain", "name", "process_id"])
    edges = pl.concat(
        merged.select("domain", "name", "process_id", at=column, sign=pl.lit(sign))
        for column, sign in (("start_ns", -1), ("end_ns", 1))
    )
    return (
        edges.sort("at")
        .join_asof(
            calls.select("process_id", "call_ns", done=done),
            left_on="at",
            right_on="call_ns",
            by="process_id",
            strategy="backward",
            allow_exact_matches=False,
            check_sortedness=False,
        )
        .group_by("domain", "name")
        .agg(inside_ns=(pl.col("sign") * pl.col("done").fill_null(0)).sum())
        .with_columns(work_fraction=pl.col("inside_ns") / max(int(calls["work_ns"].sum()), 1))
    )
