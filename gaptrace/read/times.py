"""Times that cannot be real: rows that have them are left out and counted.

So every difference of two times in a `Trace`, and every sum of them, fits into 64 bits.
"""

import polars as pl

from gaptrace.errors import TraceFormatError
from gaptrace.trace import Trace, TraceWarning

#: Nothing recorded is further than this from the middle of the device work: 13 days. Recordings
#: last minutes; stamps of another clock (time since boot, since 1970) and unset ones are further.
FURTHEST_NS = 2**50
#: No time is beyond, so that there is room for "forever": it is 73 years from the session's start,
#: or the year 2043 where times count from 1970.
LAST_NS = 2**61
#: What all durations of a trace may add up to. No figure sums more, and 64 bits hold twice as much.
MOST_NS = 2**62


def was_recorded() -> pl.Expr:
    """Say whether a device row has times: CUPTI writes start = end = 0 for "not collected"."""
    return (pl.col("start_ns") != 0) | (pl.col("end_ns") != 0)


def middle(rows: pl.DataFrame) -> int | None:
    """Return the median start of device rows with start_ns and end_ns; None if there are none."""
    sound = was_recorded() & has_sound_times(None)
    found = rows.filter(sound)["start_ns"].quantile(0.5, interpolation="lower")
    return None if found is None else int(found)


def is_near(column: str, around: int | None) -> pl.Expr:
    """Say whether a time is near enough to the middle of the device work, if there is any."""
    lowest, highest = -LAST_NS, LAST_NS
    if around is not None:
        lowest, highest = max(around - FURTHEST_NS, lowest), min(around + FURTHEST_NS, highest)
    return pl.col(column).is_between(lowest, highest)


def has_sound_times(around: int | None) -> pl.Expr:
    """Say whether start_ns and end_ns of a row are in order and near the device work."""
    near = is_near("start_ns", around) & is_near("end_ns", around)
    return near & (pl.col("end_ns") >= pl.col("start_ns"))


def keep_sound(
    rows: pl.DataFrame, sound: pl.Expr, what: str, effect: str
) -> tuple[pl.DataFrame, list[TraceWarning]]:
    """Return the sound rows, and a warning that counts the others and says what follows."""
    kept = rows.filter(sound)
    lost = rows.height - kept.height
    if not lost:
        return kept, []
    message = (
        f"{lost} of {rows.height} {what} have no, reversed or impossible times and are left out; "
        f"{effect}"
    )
    return kept, [TraceWarning("invalid_times", message)]


def check_totals(trace: Trace) -> None:
    """Refuse a trace whose durations add up to more than any figure can hold.

    Busy and idle time of ranges and steps is counted per device, and gaps per stream.

    Raises:
        TraceFormatError: they do.
    """
    frames = (trace.ops, trace.api, trace.nvtx, trace.overhead)
    # As fractions, since this very sum may not fit into 64 bits.
    length = (pl.col("end_ns") - pl.col("start_ns")).cast(pl.Float64).sum()
    total = sum(float(frame.select(length).item()) for frame in frames)
    first, last = trace.ops.select(
        pl.col("start_ns").min().cast(pl.Float64), pl.col("end_ns").max().cast(pl.Float64)
    ).row(0)
    streams = trace.ops.select("process_id", "device_id", "context_id", "stream_id").n_unique()
    devices = trace.ops["device_id"].n_unique()
    if (total + (last - first) * streams) * devices > MOST_NS:
        days = (total + (last - first) * streams) / 86_400e9
        raise TraceFormatError(
            f"{trace.meta.path}: the spans in it add up to {days:,.0f} days, which cannot be; "
            "export the report again with nsys export --type sqlite"
        )
