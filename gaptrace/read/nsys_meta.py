"""The recording itself: versions, granularity, machine, the recorder's own complaints."""

import os
import re

from gaptrace.read.sqlite import ExportFile
from gaptrace.read.times import LAST_NS
from gaptrace.trace import Granularity, Meta, TraceWarning

#: EXPORT_PRODUCT_NAME of files that others than Nsight Systems wrote in its format.
_FORMATS = {"gaptrace CUPTI recorder": "gaptrace-cupti"}
_MODE = "CUDA_GRAPH_TRACE_OPTIONS:MODE"


def read_meta(export: ExportFile, granularity: Granularity | None) -> Meta:
    """Return what the export says of itself and of the machine."""
    exported = _exported(export)
    machine = _key_values(export, "TARGET_INFO_SYSTEM_ENV")
    return Meta(
        # A name of other bytes than UTF-8 can neither be printed nor written as it is.
        path=os.fsencode(export.path).decode(errors="replace"),
        format=_FORMATS.get(exported.get("EXPORT_PRODUCT_NAME", ""), "nsys-sqlite"),
        product_version=exported.get("EXPORT_PRODUCT_VERSION"),
        schema_version=exported.get("EXPORT_SCHEMA_VERSION"),
        granularity=granularity,
        duration_ns=_duration(export),
        driver=machine.get("NvDriverVersion"),
        cuda=_cuda_version(machine.get("CudaDriverVersion")),
        cpu=_known(machine.get("CpuDescription")),
        os=machine.get("OsDescription"),
    )


def _known(text: str | None) -> str | None:
    """A value that is not there may be written out, as `unknown`."""
    return None if text is None or text.lower() in ("", "unknown") else text


def capture_mode(export: ExportFile) -> str | None:
    """Return the recorded --cuda-graph-trace mode; null before 2023.3, which did not keep it."""
    # Until 2025.5 the key has a prefix per process, as in PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE.
    for name, value in _key_values(export, "META_DATA_CAPTURE").items():
        if name.endswith(_MODE):
            return value
    return None


def diagnostics(export: ExportFile, processes: set[int] | None = None) -> list[TraceWarning]:
    """Return the recorder's warnings and errors (severity 2 and 3), each text once.

    Args:
        export: the file.
        processes: leave out what is said of any other process: that a shell or a compiler "does not
            use CUDA" is no news.
    """
    columns = export.tables.get("DIAGNOSTIC_EVENT", set())
    if "text" not in columns or "severity" not in columns:
        return []
    process = "globalPid" if "globalPid" in columns else "NULL"
    rows = export.rows(
        f"SELECT text, {process} FROM DIAGNOSTIC_EVENT WHERE severity >= 2 ORDER BY rowid"
    )
    texts = [
        " ".join(str(text).split())
        for text, of in rows
        if processes is None or not isinstance(of, int) or of in processes or _is_nobody(of)
    ]
    return [TraceWarning("recorder_diagnostic", text) for text in dict.fromkeys(texts)]


def _is_nobody(global_pid: int) -> bool:
    """Say whether a globalPid names no process: what is said then concerns the whole session."""
    return global_pid >> 24 & 0xFFFFFF == 0


def partial_export(export: ExportFile) -> list[TraceWarning]:
    """Say when the export was asked to leave rows out or to move their times."""
    exported = _exported(export)
    warnings = [
        TraceWarning("partial_export", f"exported with {option} {value}: rows outside are missing")
        for key, option in (
            ("EXPORT_PARAM_TIMES_TO_EXPORT", "--times"),
            ("EXPORT_PARAM_TABLES_TO_EXPORT", "--tables"),
        )
        if (value := exported.get(key))
    ]
    if (shift := exported.get("EXPORT_CONFIG_TIME_SHIFT", "0")) != "0":
        warnings.append(
            TraceWarning("shifted_times", f"exported with all times shifted by {shift} ns")
        )
    return warnings


def noted_middle(export: ExportFile) -> int | None:
    """Return `times.middle` of what this was cut from, if it is a copy of a window.

    The window has a middle of its own, by which other rows would be left out.
    """
    noted = _exported(export).get("DERIVED_MIDDLE_NS", "")
    if not re.fullmatch(r"-?[0-9]{1,19}", noted) or abs(int(noted)) > LAST_NS:
        return None
    return int(noted)


def _exported(export: ExportFile) -> dict[str, str]:
    """What the export says of itself; where it has both tables, each tells what it knows."""
    older = _key_values(export, "EXPORT_META_DATA")
    return older | _key_values(export, "META_DATA_EXPORT")


def _duration(export: ExportFile) -> int | None:
    if "duration" not in export.tables.get("ANALYSIS_DETAILS", set()):
        return None
    ((duration,),) = export.rows("SELECT MAX(duration) FROM ANALYSIS_DETAILS")
    return duration if isinstance(duration, int) else None


def _cuda_version(number: str | None) -> str | None:
    """Turn CUDA's 13000 into 13.0."""
    if number is None or not re.fullmatch(r"[0-9]{4,6}", number):
        return number
    return f"{int(number) // 1000}.{int(number) % 1000 // 10}"


def _key_values(export: ExportFile, table: str) -> dict[str, str]:
    if not {"name", "value"} <= export.tables.get(table, set()):
        return {}
    rows = export.rows(f"SELECT name, value FROM {table}")
    return {str(name): str(value) for name, value in rows if value is not None}
