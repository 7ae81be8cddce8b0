"""The proof of a copy: it gives the figures that its source gives, narrowed to the same window."""

from dataclasses import replace
from typing import Any

import polars as pl

from gaptrace.analysis import analyze
from gaptrace.errors import NotRecordedError
from gaptrace.redact.window import Window
from gaptrace.render.json import analysis_object
from gaptrace.trace import Trace

_OF_WINDOW = ("refused", "trace", "devices", "ranges", "graphs")
#: Each takes an analysis of its own. No host has more GPUs; damaged files name thousands.
_MOST_DEVICES = 64
_TOTALS = ("busy_ns", "idle_ns", "gap_count", "causes")


def answer(trace: Trace | str, **narrowed: Any) -> dict[str, Any]:
    """Analyse a trace and return all figures by name, or the reason why there are none.

    Left out is what a copy has another of: its path, and the warnings.

    Args:
        trace: the trace, or why it cannot be read as one.
        narrowed: see `analysis.analyze`.
    """
    if isinstance(trace, str):
        return {"refused": trace}
    try:
        found = analysis_object(analyze(trace, **narrowed))
    except NotRecordedError as error:
        return {"refused": str(error).removeprefix(f"{trace.meta.path}: ")}
    for own in ("warnings", "window"):
        del found[own]
    del found["trace"]["path"]
    return found


def of_window(figures: dict[str, Any]) -> dict[str, Any]:
    """Return the figures that a window has for itself.

    Findings and advice weigh what happened before, too: when graphs were built and whether they
    were ever launched. The granularity of old recordings shows only where a graph runs.
    """
    found = {name: figures[name] for name in _OF_WINDOW if name in figures}
    if "trace" in found:
        found["trace"] = {k: v for k, v in found["trace"].items() if k != "granularity"}
    return found


def totals(trace: Trace, window: Window, devices: list[dict[str, Any]]) -> dict[str, Any]:
    """Return busy, idle, gaps and causes of up to 64 devices as `analyze --from --to` gives them.

    The times asked for are those of the window, but not before the device's first op in it nor
    after its last: what a device does before and after is not in a copy.

    Args:
        trace: the whole source, or the copy.
        window: of the copy.
        devices: as in the figures of the copy.
    """
    found: dict[str, Any] = {}
    for row in devices[:_MOST_DEVICES]:
        begin, end = max(window[0], row["first_ns"]), min(window[1], row["last_ns"])
        if begin >= end:
            continue
        inside = answer(trace, device_id=row["device"], from_ns=begin, to_ns=end)
        if "refused" in inside:
            return inside
        (device,) = inside["devices"]
        found[f"device {row['device']}"] = {name: device[name] for name in _TOTALS}
    return found


def without(trace: Trace, hidden: dict[str, str]) -> Trace:
    """Return a trace in which what stands for hidden names stands in their place."""
    if not hidden:
        return trace

    def told(frame: pl.DataFrame, *columns: str) -> pl.DataFrame:
        return frame.with_columns(
            pl.col(column).cast(pl.String).replace(hidden).cast(frame.schema[column])
            for column in columns
        )

    return replace(
        trace,
        ops=told(trace.ops, "name"),
        nvtx=told(trace.nvtx, "name", "domain"),
        overhead=told(trace.overhead, "name"),
    )


def first_difference(source: Any, copy: Any, where: str = "") -> str | None:
    """Name the first place where two answers differ, with both values; None when nowhere."""
    if isinstance(source, dict) and isinstance(copy, dict):
        for key in [*(key for key in copy if key not in source), *source]:
            place = f"{where}.{key}" if where else str(key)
            if found := first_difference(source.get(key), copy.get(key), place):
                return found
        return None
    if isinstance(source, list) and isinstance(copy, list) and len(source) == len(copy):
        pairs = enumerate(zip(source, copy, strict=True))
        differences = (first_difference(a, b, f"{where}[{at}]") for at, (a, b) in pairs)
        return next(filter(None, differences), None)
    if source == copy:
        return None
    if isinstance(source, list) and isinstance(copy, list):
        source, copy = f"{len(source)} rows", f"{len(copy)} rows"
    return f"{where} is {_short(source)} in the source and {_short(copy)} in the copy"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
