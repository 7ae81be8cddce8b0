"""What a timeline shows of an analysis between two times, at the level of detail of a screen."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from gaptrace import detail
from gaptrace.analysis import Analysis
from gaptrace.lanes import find_lanes
from gaptrace.lookup import first_rows
from gaptrace.prepared import Prepared, prepare
from gaptrace.windows import check_order

_LENGTH = pl.col("end_ns") - pl.col("start_ns")


@dataclass(frozen=True)
class View:
    """What is seen of a trace between two times.

    Attributes:
        start_ns, end_ns: the window.
        devices: device_id, name.
        bins: device_id, bin, start_ns, end_ns; state: `busy` or one of `timelines.CAUSES`;
            covered_ns: exact nanoseconds of that state in the bin, above 0. What is left of a bin
            lies outside the analysis: before the first op or after the last one.
        pieces: device_id, start_ns, end_ns, cause, detail; gap_ns: of the whole gap; previous_op,
            next_op: names of the ops around it; call_name, lead_ns: launch of the op that ends it.
            Those pieces of gaps that are at least a bin long.
        lanes: rows of `lanes.LANES`.
        spans: rows of `lanes.SPANS`.
    """

    start_ns: int
    end_ns: int
    devices: pl.DataFrame
    bins: pl.DataFrame
    pieces: pl.DataFrame
    lanes: pl.DataFrame
    spans: pl.DataFrame


def view(
    analysis: Analysis | Prepared,
    from_ns: int | None = None,
    to_ns: int | None = None,
    *,
    device_bins: int = 1000,
    lane_bins: int = 500,
) -> View:
    """Return what is seen between two times; without them, of the whole window.

    Args:
        analysis: of the trace; whoever asks for more than one view of it prepares it once.
        from_ns: time since the session began.
        to_ns: likewise.
        device_bins: how finely busy and idle time of a device is told.
        lane_bins: how finely single spans are; for each lane at most twice as many are returned.

    Raises:
        WindowError: it ends before it begins.
    """
    prepared = analysis if isinstance(analysis, Prepared) else prepare(analysis)
    if from_ns != to_ns:  # who zooms in to a single time sees one nanosecond
        check_order(prepared.analysis.trace, from_ns, to_ns)
    windows = prepared.analysis.windows
    start_ns = int(windows["start_ns"].min()) if from_ns is None else from_ns  # type: ignore[arg-type]
    end_ns = int(windows["end_ns"].max()) if to_ns is None else to_ns  # type: ignore[arg-type]
    end_ns = max(end_ns, start_ns + 1)
    lanes, spans = find_lanes(prepared, start_ns, end_ns, lane_bins)
    edges = detail.bin_edges(start_ns, end_ns, device_bins)
    return View(
        start_ns=start_ns,
        end_ns=end_ns,
        devices=prepared.analysis.devices.select("device_id", "name"),
        bins=_bins(prepared, edges),
        pieces=_pieces(prepared, start_ns, end_ns, device_bins),
        lanes=lanes,
        spans=spans,
    )


def _bins(prepared: Prepared, edges: detail.Array) -> pl.DataFrame:
    """What is idle in the windows has a cause, and the rest is busy: both are all of it."""
    idle = [
        (device_id, cause, detail.covered(union, edges))
        for device_id, cause, union in prepared.states
    ]
    inside = zip(prepared.windows.keys["device_id"], prepared.windows.spans, strict=True)
    busy = [
        (
            device_id,
            "busy",
            detail.covered(spans.union, edges)
            - sum(ns for other, _, ns in idle if other == device_id),
        )
        for device_id, spans in inside
    ]
    frame = pl.DataFrame({"start_ns": edges[:-1], "end_ns": edges[1:]}).with_row_index("bin")
    parts = [
        frame.select(
            pl.lit(device_id, pl.Int64).alias("device_id"),
            pl.col("bin").cast(pl.Int64),
            "start_ns",
            "end_ns",
            pl.lit(state).alias("state"),
            pl.Series("covered_ns", covered_ns),
        )
        for device_id, state, covered_ns in busy + idle
    ]
    return pl.concat(parts).filter(pl.col("covered_ns") > 0)


def _pieces(prepared: Prepared, start_ns: int, end_ns: int, bins: int) -> pl.DataFrame:
    """Pieces at least a bin long, with the gap that they are part of."""
    width_ns = max(1, (end_ns - start_ns) // bins)
    analysis, ops, calls = prepared.analysis, prepared.analysis.trace.ops, prepared.named_calls
    long = analysis.idle[_long_pieces(prepared, start_ns, end_ns, width_ns)]
    gaps = analysis.gaps.select("previous_op_id", "next_op_id", gap_ns=_LENGTH).select(
        pl.all().gather(pl.lit(first_rows(prepared.gap_rows, long["gap_id"])))
    )
    before = first_rows(prepared.op_rows, gaps["previous_op_id"])
    after = first_rows(prepared.op_rows, gaps["next_op_id"])
    call = first_rows(prepared.call_rows, ops["call_id"].gather(after))
    return long.select(
        "device_id",
        "start_ns",
        "end_ns",
        pl.col("cause").cast(pl.String),
        pl.col("detail").cast(pl.String),
        gaps["gap_ns"],
        previous_op=ops["name"].gather(before).cast(pl.String),
        next_op=ops["name"].gather(after).cast(pl.String),
        call_name=calls["call_name"].gather(call).cast(pl.String),
        lead_ns=ops["start_ns"].gather(after) - calls["call_end_ns"].gather(call),
    ).sort("device_id", "start_ns")


def _long_pieces(prepared: Prepared, start_ns: int, end_ns: int, width_ns: int) -> detail.Array:
    """Rows of the idle pieces of at least a length that lie in a window at least in part."""
    # One that ends as the window begins does not lie in it.
    rows = [
        pieces.rows[detail.long_inside(pieces, start_ns + 1, end_ns, width_ns)]
        for pieces in prepared.idle.spans
    ]
    return np.concatenate([np.zeros(0, np.int64), *rows])
