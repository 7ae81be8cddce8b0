"""Every frame of a trace and of its analysis as a file: Parquet or CSV."""

import json
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import polars as pl

from gaptrace import __version__
from gaptrace.analysis import Analysis
from gaptrace.drafts import new_folder
from gaptrace.export.columns import describe, unit

FRAMES_SCHEMA = "gaptrace.frames/1"


def frames(analysis: Analysis) -> dict[str, pl.DataFrame]:
    """Return the frames of a `Trace` as `trace/ops` ... and of an `Analysis` as `analysis/gaps` ...

    The steps are those of `steps.Steps.frame`; what is no frame (findings, recommendation) is in
    the JSON.
    """
    found = {}
    for folder, holder in (("trace", analysis.trace), ("analysis", analysis)):
        for name in (field.name for field in fields(holder)):
            if isinstance(frame := getattr(holder, name), pl.DataFrame):
                found[f"{folder}/{name}"] = frame
    found["analysis/range_instances"] = analysis.range_instances
    found["analysis/steps"] = analysis.steps.frame
    return found


def write_parquet(
    analysis: Analysis, target: Path, progress: Callable[[int], None] | None = None
) -> None:
    """Write one Parquet file per frame, `trace/ops.parquet` ..., into a new folder.

    Each file's metadata holds gaptrace.schema (`FRAMES_SCHEMA`), gaptrace.version, gaptrace.frame,
    and as JSON gaptrace.columns (per column unit and description), gaptrace.trace (the recording,
    as in `analyze --json`) and gaptrace.warnings.

    Args:
        analysis: of the whole trace.
        target: the folder to make; nothing may be there.
        progress: told how many percent are done.

    Raises:
        GaptraceError: the target exists or cannot be written.
    """

    def write(name: str, frame: pl.DataFrame, path: Path) -> None:
        metadata = _metadata(analysis, name, frame)
        try:
            frame.write_parquet(path.with_suffix(".parquet"), metadata=metadata)
        except pl.exceptions.ComputeError as error:  # what polars makes of a full disk here
            raise OSError(str(error)) from error

    with new_folder(target) as draft:
        _write_all(frames(analysis), draft, write, progress)


def write_csv(
    analysis: Analysis, target: Path, progress: Callable[[int], None] | None = None
) -> None:
    """Write one CSV file per frame, `trace/ops.csv` ..., into a new folder.

    Structs are flat: `gap_ns.p50`. Missing is empty, and an empty text is `""`. What the columns
    are stands in `columns.csv`: frame, column, type, unit, description.

    Args:
        analysis: of the whole trace.
        target: the folder to make; nothing may be there.
        progress: told how many percent are done.

    Raises:
        GaptraceError: the target exists or cannot be written.
    """
    flat = {name: flattened(frame) for name, frame in frames(analysis).items()}
    columns = [
        {"frame": name, "column": column, "type": str(dtype.base_type())} | about
        for name, frame in flat.items()
        for (column, dtype), about in zip(
            frame.schema.items(), _columns(name, frame).values(), strict=True
        )
    ]

    def write(_: str, frame: pl.DataFrame, path: Path) -> None:
        frame.write_csv(path.with_suffix(".csv"))

    with new_folder(target) as draft:
        _write_all(flat, draft, write, progress)
        pl.DataFrame(columns, infer_schema_length=None).write_csv(draft / "columns.csv")


def flattened(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame with its structs taken apart: column `gap_ns` becomes `gap_ns.p50` ..."""
    return frame.select(
        pl.col(name).struct.field(field.name).alias(f"{name}.{field.name}")
        if field
        else pl.col(name)
        for name, dtype in frame.schema.items()
        for field in (dtype.fields if isinstance(dtype, pl.Struct) else [None])
    )


def _write_all(
    all_frames: dict[str, pl.DataFrame],
    folder: Path,
    write: Callable[[str, pl.DataFrame, Path], None],
    progress: Callable[[int], None] | None,
) -> None:
    total, done = max(1, sum(frame.height for frame in all_frames.values())), 0
    for name, frame in all_frames.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        write(name, frame, path)
        done += frame.height
        if progress:
            progress(100 * done // total)


def _metadata(analysis: Analysis, name: str, frame: pl.DataFrame) -> dict[str, str]:
    return {
        "gaptrace.schema": FRAMES_SCHEMA,
        "gaptrace.version": __version__,
        "gaptrace.frame": name,
        "gaptrace.columns": json.dumps(_columns(name, frame)),
        "gaptrace.trace": json.dumps(asdict(analysis.trace.meta)),
        "gaptrace.warnings": json.dumps([asdict(warning) for warning in analysis.warnings]),
    }


def _columns(name: str, frame: pl.DataFrame) -> dict[str, dict[str, Any]]:
    return {
        column: {"unit": unit(column), "description": describe(name, column)}
        for column in frame.columns
    }
