"""What a timeline shows of an analysis between two times, at the level of detail of a screen."""

from dataclasses import dataclass

import polars as pl

from gaptrace import detail
from gaptrace.analysis import Analysis
from gaptrace.lanes import find_lanes
from gaptrace.launches import calls_by_id

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
    analysis: Analysis,
    from_ns: int | None = None,
    to_ns: int | None = None,
    *,
    device_bins: int = 1000,
    lane_bins: int = 500,
) -> View:
    """Return what is seen between two times; without them, of the whole window.

    Args:
        analysis: of the trace.
        from_ns: time since the session began.
        to_ns: likewise.
        device_bins: how finely busy and idle time of a device is told.
        lane_bins: how finely single spans are; for each lane at most twice as many are returned.
    """
    windows = analysis.windows
    start_ns = int(windows["start_ns"].min()) if from_ns is None else from_ns  # type: ignore[arg-type]
    end_ns = int(windows["end_ns"].max()) if to_ns is None else to_ns  # type: ignore[arg-type]
    end_ns = max(end_ns, start_ns + 1)
    lanes, spans = find_lanes(analysis, start_ns, end_ns, lane_bins)
    return View(
        start_ns=start_ns,
        end_ns=end_ns,
        devices=analysis.devices.select("device_id", "name"),
        bins=_bins(analysis, start_ns, end_ns, device_bins),
        pieces=_pieces(analysis, start_ns, end_ns, device_bins),
        lanes=lanes,
        spans=spans,
    )


def _bins(analysis: Analysis, start_ns: int, end_ns: int, bins: int) -> pl.DataFrame:
    """What is idle in the windows has a cause, and the rest is busy: both are all of it."""
    key = ["device_id", "state"]
    idle = detail.by_bin(
        analysis.idle.select(
            "device_id", "start_ns", "end_ns", state=pl.col("cause").cast(pl.String)
        ),
        start_ns,
        end_ns,
        bins,
        key,
        are_disjoint=True,
    )
    inside = detail.by_bin(
        analysis.windows.with_columns(state=pl.lit("busy")), start_ns, end_ns, bins, key
    )
    of_bin = ["device_id", "bin"]
    lost = idle.group_by(of_bin).agg(idle_ns=pl.col("covered_ns").sum())
    busy = (
        inside.join(lost, on=of_bin, how="left", maintain_order="left")
        .with_columns(covered_ns=pl.col("covered_ns") - pl.col("idle_ns").fill_null(0))
        .filter(pl.col("covered_ns") > 0)
        .drop("idle_ns")
    )
    return pl.concat([busy, idle]).select(
        "device_id", "bin", "start_ns", "end_ns", "state", "covered_ns"
    )


def _pieces(analysis: Analysis, start_ns: int, end_ns: int, bins: int) -> pl.DataFrame:
    """Pieces at least a bin long, with the gap that they are part of."""
    width_ns = max(1, (end_ns - start_ns) // bins)
    inside = (pl.col("end_ns") > start_ns) & (pl.col("start_ns") < end_ns)
    long = analysis.idle.filter(inside & (width_ns <= _LENGTH))
    trace = analysis.trace
    gaps = analysis.gaps.filter(pl.col("gap_id").is_not_null()).select(
        "gap_id", "previous_op_id", "next_op_id", gap_ns=_LENGTH
    )
    names = trace.ops.select("op_id", "call_id", "start_ns", pl.col("name").cast(pl.String))
    calls = calls_by_id(trace).select("call_id", "call_name", "call_end_ns")
    before = names.select(previous_op_id="op_id", previous_op="name")
    after = names.select("call_id", next_op_id="op_id", next_op="name", next_start_ns="start_ns")
    return (
        long.join(gaps.unique("gap_id", keep="first"), on="gap_id", how="left")
        .join(before, on="previous_op_id", how="left")
        .join(after, on="next_op_id", how="left")
        .join(calls, on="call_id", how="left", maintain_order="left")
        .select(
            "device_id",
            "start_ns",
            "end_ns",
            pl.col("cause").cast(pl.String),
            pl.col("detail").cast(pl.String),
            "gap_ns",
            "previous_op",
            "next_op",
            pl.col("call_name").cast(pl.String),
            lead_ns=pl.col("next_start_ns") - pl.col("call_end_ns"),
        )
        .sort("device_id", "start_ns")
    )
