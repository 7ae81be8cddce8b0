"""A trace for Perfetto's viewer (ui.perfetto.dev) and its trace processor."""

from collections.abc import Callable
from pathlib import Path

import polars as pl

from gaptrace.analysis import Analysis
from gaptrace.drafts import new_file
from gaptrace.export.packets import PacketWriter
from gaptrace.export.tracks import tracks
from gaptrace.render.words import granularity
from gaptrace.trace import Trace


def write_perfetto(
    analysis: Analysis, target: Path, progress: Callable[[int], None] | None = None
) -> None:
    """Write a trace with its idle time, the causes of it, and two counters per device.

    See `tracks.tracks` for what is in it. Times are nanoseconds since the session began; where rows
    lie before that, all are moved so that the first is at 0.

    Args:
        analysis: of the whole trace.
        target: the file to make; nothing may be there.
        progress: told how many percent are done.

    Raises:
        GaptraceError: the package perfetto is missing, or the target exists or cannot be written.
    """
    laid = tracks(analysis)
    total, done = max(1, sum(track.frame.height for track in laid)), 0

    def tick(rows: int) -> None:
        nonlocal done
        done += rows
        if progress:
            progress(100 * done // total)

    about = f"granularity {granularity(analysis.trace.meta.granularity)}"
    with new_file(target) as draft, draft.open("xb") as file:
        writer = PacketWriter(file, offset_ns=_offset(analysis.trace), tick=tick)
        for track in laid:
            writer.write(track, about if track.place[0].startswith("GPU") else None)
        writer.finish()


def _offset(trace: Trace) -> int:
    """What must be added to all times so that none is below 0."""
    frames = (trace.ops, trace.api, trace.nvtx, trace.overhead)
    first = pl.concat([frame["start_ns"] for frame in frames]).min()
    return max(0, -int(first))  # type: ignore[arg-type]
