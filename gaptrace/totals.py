"""Sums of the figures of an analysis, for tables that show less: over details, over devices."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True)
class DeviceTotals:
    """Several devices taken together, maybe of several traces.

    Attributes:
        devices: how many.
        op_count, span_ns, busy_ns, idle_ns: sums over them.
    """

    devices: int
    op_count: int
    span_ns: int
    busy_ns: int
    idle_ns: int


def over_devices(devices: Sequence[pl.DataFrame]) -> DeviceTotals:
    """Add up the devices of all traces.

    Args:
        devices: `analysis.Analysis.devices` of each trace.
    """
    op_count, span_ns, busy_ns, idle_ns = (
        sum(int(frame[column].sum()) for frame in devices)
        for column in ("op_count", "span_ns", "busy_ns", "idle_ns")
    )
    return DeviceTotals(
        devices=sum(frame.height for frame in devices),
        op_count=op_count,
        span_ns=span_ns,
        busy_ns=busy_ns,
        idle_ns=idle_ns,
    )


def over_details(causes: pl.DataFrame) -> pl.DataFrame:
    """Add up the idle time of each cause, whatever its detail.

    Args:
        causes: `gaps.causes` or `ranges.range_causes`.

    Returns:
        its columns without detail and piece_count; idle_ns adds up to the same. Largest first, and
        of equal ones that with the largest detail.
    """
    key = [name for name in causes.columns if name not in ("detail", "idle_ns", "piece_count")]
    return (
        causes.group_by(key, maintain_order=True)
        .agg(pl.col("idle_ns").sum(), _largest=pl.col("idle_ns").max())
        .sort("idle_ns", "_largest", descending=True, maintain_order=True)
        .drop("_largest")
    )
