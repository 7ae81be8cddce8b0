"""NVTX ranges as a tree of paths, and what each path costs the device.

A range is a time window on the host. What it cost a device is read off inside that window: busy
time, idle time, and the causes of the idle time. (The device extent of the work launched inside,
which other tools report, leaves out the wait for the first op: the very thing to be found.)
"""

import polars as pl

from gaptrace import intervals
from gaptrace.trace import Trace

_KEY = ["path", "domain", "device_id"]
#: PyTorch's emit_nvtx numbers each range (`aten::view, seq = 12, op_id = 314290`): without the
#: numbers, ranges of one operator are instances of one path.
_COUNTERS = r", (seq|op_id) = \d+"


def range_tree(nvtx: pl.DataFrame) -> pl.DataFrame:
    """Give every closed range its path: the names of the ranges around it, joined by `/`.

    Push/pop ranges nest per thread and domain. Start/end ranges may cross each other and end on
    another thread, so that their path is their name. Marks and ranges that the session's end cut
    off are left out.

    Args:
        nvtx: rows of `trace.NVTX`.

    Returns:
        path; domain: null for the default one; kind; depth: 0 for an outermost range; payload;
        process_id, thread_id, start_ns, end_ns. Sorted by start.
    """
    closed = nvtx.filter(pl.col("is_closed") & (pl.col("kind") != "mark")).with_columns(
        pl.col("name").str.replace_all(_COUNTERS, "")
    )
    # Null keys never match in a join; thread and domain identify a stack of ranges.
    rest = closed.filter(pl.col("kind") == "push_pop").with_columns(
        _stack=pl.format("{} {}", pl.col("thread_id"), pl.col("domain").fill_null(""))
    )
    crossing = closed.filter(pl.col("kind") == "start_end").with_columns(path="name")
    levels = [crossing.with_columns(depth=pl.lit(0, pl.Int64))]
    above: pl.DataFrame | None = None
    # Peel the outermost ranges off, level by level: as many passes as the ranges are deep.
    while not rest.is_empty():
        rest = rest.sort("start_ns", pl.col("end_ns").neg(), maintain_order=True)
        ended = pl.col("end_ns").cum_max().shift(1).over("_stack")
        # What ends later than the range around it would have to is not inside that.
        is_outer = ((pl.col("start_ns") >= ended) | (pl.col("end_ns") > ended)).fill_null(True)
        level = rest.filter(is_outer)
        rest = rest.filter(~is_outer)
        if above is None:
            level = level.with_columns(path="name")
        else:
            level = level.join_asof(
                above, on="start_ns", by="_stack", strategy="backward", check_sortedness=False
            ).with_columns(path=pl.col("_above") + "/" + pl.col("name"))
        above = level.select("_stack", "start_ns", _above="path")
        levels.append(level.drop("_stack").with_columns(depth=pl.lit(len(levels) - 1, pl.Int64)))
    columns = ["path", "domain", "kind", "depth", "payload", "process_id", "thread_id"]
    return pl.concat([level.select(*columns, "start_ns", "end_ns") for level in levels]).sort(
        "start_ns", "depth", maintain_order=True
    )


def range_windows(trace: Trace, tree: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Pair every range with the devices that it is about.

    Those are the devices on which it launched work; a range that launched none (a capture, a pause)
    is about all devices that its process uses. A push/pop range launches what its thread launches
    inside it, a start/end range what its process does.

    Args:
        trace: the trace.
        tree: `range_tree` of it.
        launches: `launches.launches` of it.

    Returns:
        range_id: row of the range in `tree`; the columns of that, device_id, launches,
        graph_launches.
    """
    numbered = tree.with_row_index("range_id")
    made = pl.concat(
        [
            _launched_inside(numbered, launches, "push_pop", "thread_id"),
            _launched_inside(numbered, launches, "start_end", "process_id"),
        ]
    )
    uses = trace.ops.select("process_id", "device_id").unique(maintain_order=True)
    return (
        numbered.join(uses, on="process_id", how="inner")
        .join(made, on=["range_id", "device_id"], how="left")
        .with_columns(pl.col("launches", "graph_launches").fill_null(0))
        .filter((pl.col("launches") > 0) | (pl.col("launches").sum().over("range_id") == 0))
        .sort("range_id", "device_id")
    )


def _launched_inside(
    numbered: pl.DataFrame, launches: pl.DataFrame, kind: str, key: str
) -> pl.DataFrame:
    ranges = numbered.filter(pl.col("kind") == kind).select("range_id", key, "start_ns", "end_ns")
    calls = launches.select(
        key, "device_id", "call_kind", start_ns="call_start_ns", end_ns=pl.col("call_start_ns") + 1
    )
    if ranges.is_empty():
        calls = calls.clear()
    instants = calls.select(key, "start_ns", "end_ns").unique()
    return (
        intervals.intersect(ranges, instants, [key])
        .join(calls.drop("end_ns"), on=[key, "start_ns"], how="inner")
        .group_by("range_id", "device_id")
        .agg(
            launches=pl.len().cast(pl.Int64),
            graph_launches=(pl.col("call_kind") == "graph_launch").sum().cast(pl.Int64),
        )
    )


def range_summary(windows: pl.DataFrame, pieces: pl.DataFrame) -> pl.DataFrame:
    """Add up what each path cost each device.

    Instances of one path that overlap in time (threads, ranks) count once on a device.

    Args:
        windows: `range_windows`, cut to a window or not.
        pieces: `gaps.idle_pieces`, of device gaps and of edge gaps.

    Returns:
        path, domain, device_id; count: instances; launches, graph_launches: calls made inside,
        where an instance is cut those of all of it;
        span_ns: time covered by the instances; idle_ns, busy_ns: of the device in it. In order of
        first appearance.
    """
    merged = intervals.merge(_without_null_domain(windows), _KEY)
    idle = (
        _idle_inside(merged, pieces)
        .group_by(_KEY)
        .agg(idle_ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
    )
    spans = merged.group_by(_KEY).agg(span_ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
    return (
        _without_null_domain(windows)
        # Several windows cut an instance into several rows.
        .unique([*_KEY, "range_id"], keep="first", maintain_order=True)
        .group_by(_KEY, maintain_order=True)
        .agg(
            count=pl.len().cast(pl.Int64),
            launches=pl.col("launches").sum(),
            graph_launches=pl.col("graph_launches").sum(),
        )
        .join(spans, on=_KEY, how="left", maintain_order="left")
        .join(idle, on=_KEY, how="left", maintain_order="left")
        .with_columns(pl.col("span_ns", "idle_ns").fill_null(0))
        .with_columns(
            busy_ns=pl.col("span_ns") - pl.col("idle_ns"),
            domain=pl.when(pl.col("domain") != "").then("domain"),
        )
    )


def range_causes(windows: pl.DataFrame, pieces: pl.DataFrame) -> pl.DataFrame:
    """Split the idle time of each path by cause; sums equal `range_summary`'s idle_ns exactly.

    Returns:
        path, domain, device_id, cause, detail, idle_ns.
    """
    merged = intervals.merge(_without_null_domain(windows), _KEY)
    return (
        _idle_inside(merged, pieces)
        .group_by(*_KEY, "cause", "detail", maintain_order=True)
        .agg(idle_ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
        .with_columns(domain=pl.when(pl.col("domain") != "").then("domain"))
    )


def _idle_inside(merged: pl.DataFrame, pieces: pl.DataFrame) -> pl.DataFrame:
    return intervals.intersect(
        merged,
        pieces.select("device_id", "start_ns", "end_ns", "cause", "detail"),
        ["device_id"],
    )


def _without_null_domain(windows: pl.DataFrame) -> pl.DataFrame:
    return windows.with_columns(pl.col("domain").fill_null(""))


def innermost_ranges(tree: pl.DataFrame, points: pl.DataFrame) -> pl.DataFrame:
    """Say in which push/pop range each instant of a thread lies.

    Args:
        tree: `range_tree`.
        points: thread_id, time_ns and others.

    Returns:
        points, in their order, with range: path of the range begun last of those open then on that
        thread, null when there is none.
    """
    nested = tree.filter(pl.col("kind") == "push_pop")
    numbered = points.with_row_index("_point")
    at = numbered.select("_point", "thread_id", "time_ns").sort("time_ns")
    order = {"_point": pl.UInt32, "range": pl.String, "_begin": pl.Int64, "depth": pl.Int64}
    found = [pl.DataFrame(schema=order)]
    # Ranges of one depth and domain do not overlap on a thread: only the last one begun is open.
    for _, level in nested.group_by("depth", "domain", maintain_order=True):
        begun = level.select("thread_id", "depth", "start_ns", _end="end_ns", range="path")
        inside = at.join_asof(
            begun.with_columns(_begin="start_ns"),
            left_on="time_ns",
            right_on="start_ns",
            by="thread_id",
            check_sortedness=False,
        ).filter(pl.col("time_ns") < pl.col("_end"))
        found.append(inside.select(*order))
    innermost = (
        pl.concat(found)
        .sort("_begin", "depth", maintain_order=True)
        .unique("_point", keep="last", maintain_order=True)
        .select("_point", "range")
    )
    return numbered.join(innermost, on="_point", how="left", maintain_order="left").drop("_point")
