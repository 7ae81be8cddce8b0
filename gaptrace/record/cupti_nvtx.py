"""NVTX ranges of a CUPTI recording, as rows of Nsight Systems' table NVTX_EVENTS.

CUPTI writes two records per range, one at each end, and a third with the payload. None says
whether it was pushed and popped, or started and ended.
"""

from typing import Any

from gaptrace.record.cupti_spool import Column
from gaptrace.spool import DEFAULT_DOMAIN

#: CUPTI_ACTIVITY_FLAG_MARKER_INSTANTANEOUS, _START, _END
_MARK_FLAG, _START_FLAG, _END_FLAG = 1, 2, 4
#: ENUM_NSYS_EVENT_TYPE
_MARK, _PUSH_POP, _START_END, _DOMAIN = 34, 59, 60, 75
#: CUpti_MetricValueKind
_DOUBLE, _UINT64, _INT64 = 0, 1, 4
_COLUMNS = (
    *("start", "end", "eventType", "text", "globalTid", "endGlobalTid", "domainId"),
    *("uint64Value", "int64Value", "doubleValue"),
)


def nvtx_rows(
    columns: dict[str, dict[str, Column]], texts: list[str], process: int, duration: int
) -> dict[str, list[Any]]:
    """Return the columns of NVTX_EVENTS.

    A range is taken as started and ended if it ended on another thread, if it and another one of
    its thread and domain overlap without one holding the other, or if it is a `capture` of
    gaptrace; all others as pushed and popped. One that never ended gets the duration of the
    session as its end, as in Nsight Systems.

    Args:
        columns: of `cupti_spool.Spool`; times count from the begin of the session.
        texts: names and domains.
        process: globalPid.
        duration: of the session.
    """
    ranges = _pairs(columns["marker"], texts, process)
    _tell_apart(ranges)
    domains: dict[str, int] = {}
    payloads = _payloads(columns["marker_data"])
    rows = []
    for row in ranges:
        name = row.pop("domain")
        row["domainId"] = domains.setdefault(name, len(domains) + 1) if name else 0
        if row["end"] is None and row["eventType"] != _MARK:
            row["end"] = duration
        rows.append(row | payloads.get(row.pop("id"), {}))
    first = min((row["start"] for row in rows), default=0)
    made = [
        {
            "start": first,
            "eventType": _DOMAIN,
            "text": name,
            "globalTid": process,
            "domainId": number,
        }
        for name, number in domains.items()
    ]
    return {column: [row.get(column) for row in made + rows] for column in _COLUMNS}


def _pairs(marker: dict[str, Column], texts: list[str], process: int) -> list[dict[str, Any]]:
    """One dict per range or mark, in order of start."""
    order = marker["timestamp"].argsort(kind="stable")
    fields = ("timestamp", "flags_", "id", "object_id.pt.thread_id", "name", "domain")
    records = zip(*(marker[field][order].tolist() for field in fields), strict=True)
    found: list[dict[str, Any]] = []
    opened: dict[int, dict[str, Any]] = {}
    for time, flags, number, thread, name, domain in records:
        where = process | thread & 0xFFFFFF
        if flags & _END_FLAG:
            row = opened.pop(number, None)
            if row is not None:
                row["end"] = time
                row["endGlobalTid"] = where if where != row["globalTid"] else None
        elif flags & (_START_FLAG | _MARK_FLAG):
            row = {
                "start": time,
                "end": None,
                "eventType": _PUSH_POP if flags & _START_FLAG else _MARK,
                "text": texts[name] if name >= 0 else None,
                "globalTid": where,
                "domain": texts[domain]
                if domain >= 0 and texts[domain] != DEFAULT_DOMAIN
                else None,
                "id": number,
            }
            found.append(row)
            if flags & _START_FLAG:
                opened[number] = row
    return found


def _tell_apart(ranges: list[dict[str, Any]]) -> None:
    """Mark ranges that cannot have been pushed and popped."""
    nested: dict[tuple[int, str | None], list[dict[str, Any]]] = {}
    for row in ranges:
        if row["eventType"] == _MARK:
            continue
        ours = row["domain"] == "gaptrace" and row["text"] == "capture"
        if ours or row.get("endGlobalTid") is not None:
            row["eventType"] = _START_END
            continue
        stack = nested.setdefault((row["globalTid"], row["domain"]), [])
        while stack and stack[-1]["end"] is not None and stack[-1]["end"] <= row["start"]:
            stack.pop()
        holder = stack[-1]["end"] if stack else None
        if holder is not None and (row["end"] is None or row["end"] > holder):
            row["eventType"] = _START_END
        else:
            stack.append(row)


def _payloads(data: dict[str, Column]) -> dict[int, dict[str, Any]]:
    """Marker -> its payload. Of no payload CUPTI says that it is an unsigned 0."""
    fields = ("id", "payload_kind", "payload.metric_value_int64", "payload.metric_value_double")
    found: dict[int, dict[str, Any]] = {}
    for number, kind, integer, fraction in zip(*(data[f].tolist() for f in fields), strict=True):
        if kind == _INT64 or (kind == _UINT64 and integer > 0):
            found[number] = {"int64Value" if kind == _INT64 else "uint64Value": integer}
        elif kind == _DOUBLE:
            found[number] = {"doubleValue": fraction}
    return found
