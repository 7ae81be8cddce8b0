"""How long gaps are: how many of each length, and what holds the idle time in them."""

import polars as pl

from gaptrace.detail import length_bins

_LENGTH = pl.col("end_ns") - pl.col("start_ns")
#: Kinds of device gaps, by the launch of the op that ends them.
GAP_KINDS = ("queued", "starved", "unknown")


def gap_lengths(gaps: pl.DataFrame, pieces: pl.DataFrame) -> pl.DataFrame:
    """Count gaps by length and kind.

    A device gap is queued when the op that ends it had been launched before the gap began: then
    all of it is `device_queued`. It is starved when the host was late, and unknown when no launch
    is known, as after the last op.

    Args:
        gaps: `gaps.device_gaps`, maybe with edge gaps and cut to windows.
        pieces: `gaps.idle_pieces`, cut likewise.

    Returns:
        device_id; bin: see `detail.length_bins`; kind: one of `GAP_KINDS`; gap_count, idle_ns.
        Sorted. The sums over all rows are the number of gaps and the idle time, exactly.
    """
    cause = pl.col("cause").cast(pl.String)
    kinds = (
        _placed(gaps, pieces)
        .group_by("device_id", "_gap")
        .agg(
            kind=pl.when((cause == "device_queued").all())
            .then(pl.lit("queued"))
            .when((cause == "unrecorded").all() | pl.col("_is_last").first())
            .then(pl.lit("unknown"))
            .otherwise(pl.lit("starved")),
            ns=pl.col("_gap_ns").first(),
        )
    )
    return (
        kinds.group_by("device_id", "kind", bin=length_bins(pl.col("ns")))
        .agg(gap_count=pl.len().cast(pl.Int64), idle_ns=pl.col("ns").sum())
        .select("device_id", "bin", "kind", "gap_count", "idle_ns")
        .sort("device_id", "bin", "kind")
    )


def gap_length_causes(gaps: pl.DataFrame, pieces: pl.DataFrame) -> pl.DataFrame:
    """Split the idle time in gaps of each length by cause.

    Args:
        gaps: as for `gap_lengths`.
        pieces: likewise.

    Returns:
        device_id; bin: see `detail.length_bins`; cause, idle_ns. Sorted.
    """
    return (
        _placed(gaps, pieces)
        .group_by("device_id", "cause", bin=length_bins(pl.col("_gap_ns")))
        .agg(idle_ns=_LENGTH.sum())
        .select("device_id", "bin", "cause", "idle_ns")
        .sort("device_id", "bin", "cause")
    )


def of_all_devices(lengths: pl.DataFrame) -> pl.DataFrame:
    """Add up gaps of all devices.

    Args:
        lengths: from `gap_lengths` or `gap_length_causes`.

    Returns:
        its columns without device_id, a row for each bin and kind or cause. Sorted by these.
    """
    sums = [name for name in ("gap_count", "idle_ns") if name in lengths.columns]
    key = [name for name in lengths.columns if name not in ("device_id", *sums)]
    return lengths.group_by(key).agg(pl.col(sums).sum()).sort(key)


def _placed(gaps: pl.DataFrame, pieces: pl.DataFrame) -> pl.DataFrame:
    """Pieces with the gap in which they lie: _gap, _gap_ns, _is_last."""
    own = gaps.select(
        "device_id",
        _gap_ns=_LENGTH,
        _begin=pl.col("start_ns"),
        _is_last=pl.col("next_op_id").is_null(),
    ).with_row_index("_gap")
    # Gaps of a device are disjoint and pieces tile them: each lies in the last gap begun before it.
    return pieces.sort("start_ns").join_asof(
        own.sort("_begin"),
        left_on="start_ns",
        right_on="_begin",
        by="device_id",
        strategy="backward",
        check_sortedness=False,
    )
