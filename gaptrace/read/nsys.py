"""Nsight Systems SQLite exports, from before 2022 to 2026, as a `Trace`.

Columns are selected by name and everything outside the core is optional, since columns were added
in the middle and tables are written only when they have rows ("lazy" export).
"""

from pathlib import Path

import polars as pl

from gaptrace.errors import NotRecordedError, TraceFormatError
from gaptrace.read.link import unmark_what_ran
from gaptrace.read.nsys_device import device_rows, middle_of_work, read_ops
from gaptrace.read.nsys_gpus import read_gpus
from gaptrace.read.nsys_host import (
    read_api,
    read_event_waits,
    read_graph_events,
    read_nvtx,
    read_overhead,
)
from gaptrace.read.nsys_meta import (
    capture_mode,
    diagnostics,
    partial_export,
    read_meta,
)
from gaptrace.read.secrets import secrets
from gaptrace.read.sqlite import ExportFile
from gaptrace.read.times import check_totals
from gaptrace.trace import SUBMITTING, Granularity, Trace, TraceWarning


def read_nsys(path: Path) -> Trace:
    """Read one export.

    Raises:
        TraceFormatError: damaged, or not an export of Nsight Systems.
        NotRecordedError: no device activity in it; the message says what there is instead.
    """
    with ExportFile(path) as export:
        if "StringIds" not in export.tables:
            raise TraceFormatError(
                f"{path}: an SQLite file, but not an Nsight Systems export (no StringIds table); "
                "name one that nsys export --type sqlite made"
            )
        strings = _strings(export)
        rows = device_rows(export)
        around = middle_of_work(export, rows)
        api, of_api = read_api(export, strings, around)
        devices, places = read_gpus(export)
        ops, of_ops = read_ops(rows, strings, places, api, around)
        api = unmark_what_ran(api, ops)
        if ops.is_empty():
            raise NotRecordedError(_nothing_recorded(export, api, of_ops))
        # Helper processes ask CUDA for a number of devices, and no more.
        launching = api.filter(pl.col("kind").is_in(SUBMITTING))["process_id"].unique()
        using_cuda = {*ops["process_id"].unique(), *launching}
        meta = read_meta(export, _granularity(capture_mode(export), ops))
        nvtx, of_nvtx = read_nvtx(export, strings, around, meta.duration_ns)
        overhead, of_overhead = read_overhead(export, strings, around)
        graph_events, of_graphs = read_graph_events(export, around)
        trace = Trace(
            meta=meta,
            ops=ops,
            api=api,
            nvtx=nvtx,
            overhead=overhead,
            event_waits=read_event_waits(export, api),
            graph_events=graph_events,
            devices=devices,
            warnings=(
                *of_ops,
                *of_api,
                *of_nvtx,
                *of_overhead,
                *of_graphs,
                *partial_export(export),
                *diagnostics(export, using_cuda),
                *secrets(export),
            ),
        )
    check_totals(trace)
    return trace


def _strings(export: ExportFile) -> pl.DataFrame:
    rows = export.rows("SELECT id, value FROM StringIds")
    try:
        if any(isinstance(value, float) for _, value in rows):
            raise TypeError("polars would take a number for text")
        strings = pl.DataFrame(
            rows, schema={"name_id": pl.Int64, "value": pl.String}, orient="row", strict=True
        )
    except (TypeError, pl.exceptions.PolarsError, OverflowError) as error:
        raise TraceFormatError(
            f"{export.path}: table StringIds does not hold pairs of id and text; "
            "export the report again with nsys export --type sqlite"
        ) from error
    # Not in SQL: SQLite believes a NOT NULL, and damaged pages hold nulls all the same.
    return strings.drop_nulls().unique("name_id", keep="first", maintain_order=True)


def _granularity(mode: str | None, ops: pl.DataFrame) -> Granularity | None:
    """Say what the rows show; the recorded option decides only when no graph ran."""
    if ops["graph_node_id"].is_not_null().any():
        return "node"
    if (ops["kind"] == "graph").any():
        return "graph"
    return {"node": "node", "graph": "graph"}.get((mode or "").lower())  # type: ignore[return-value]


def _nothing_recorded(export: ExportFile, api: pl.DataFrame, left_out: list[TraceWarning]) -> str:
    if left_out:
        return (
            f"{export.path}: {'; '.join(warning.message for warning in left_out)}; "
            "nothing is left, record again"
        )
    reasons = "; ".join(warning.message for warning in diagnostics(export))
    because = f" (the recorder says: {reasons})" if reasons else ""
    if api.is_empty():
        return (
            f"{export.path}: no CUDA activity was recorded{because}; "
            "record with nsys profile -t cuda,nvtx, and check that the program uses CUDA"
        )
    launches = api.filter(pl.col("kind").is_in(SUBMITTING)).height
    return (
        f"{export.path}: {api.height} CUDA API calls ({launches} launches) but no device activity "
        f"was recorded{because}; idle time cannot be known, record again and let the program end"
    )
