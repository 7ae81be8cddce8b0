"""A trace in a few lines of HTML, for a cell of a notebook."""

from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, tostring

import polars as pl

from gaptrace.analysis import Analysis
from gaptrace.render.units import count, duration, share
from gaptrace.render.verdicts import verdict

#: Causes, findings: as many as are taken in at a glance; `report` has all.
_MOST_CAUSES, _MOST_FINDINGS = 4, 3


def summary(analysis: Analysis) -> str:
    """Return a fragment of HTML: what was recorded, each device's time, what stands out.

    Names from the trace are escaped. No style but the notebook's own.
    """
    box = Element("div")
    meta = analysis.trace.meta
    said = f" ({meta.granularity} granularity)" if meta.granularity else ""
    SubElement(SubElement(box, "p"), "b").text = f"{Path(meta.path).name}{said}"
    if analysis.window_name:
        SubElement(box, "p").text = f"only {analysis.window_name}"
    table = SubElement(box, "table")
    _row(table, "th", ("device", "span", "busy", "idle", "ops", "idle because of"))
    for device in analysis.devices.to_dicts():
        mine = analysis.cause_totals.filter(pl.col("device_id") == device["device_id"])
        causes = mine.select("cause", "idle_ns").head(_MOST_CAUSES).rows()
        _row(
            table,
            "td",
            (
                f"{device['device_id']} {device['name'] or ''}".strip(),
                duration(device["span_ns"]),
                share(device["busy_ns"], device["span_ns"]),
                duration(device["idle_ns"]),
                count(device["op_count"]),
                ", ".join(f"{cause} {share(ns, device['idle_ns'])}" for cause, ns in causes),
            ),
        )
    for warning in analysis.warnings:
        SubElement(box, "p").text = f"warning: {warning.message}"
    if analysis.findings:
        found = SubElement(box, "ol")
        for finding in analysis.findings[:_MOST_FINDINGS]:
            SubElement(found, "li").text = f"[{finding.severity}] {finding.title}"
    SubElement(box, "p").text = verdict(analysis.recommendation)
    return tostring(box, encoding="unicode", method="html")


def _row(table: Element, kind: str, cells: tuple[str, ...]) -> None:
    row = SubElement(table, "tr")
    for text in cells:
        SubElement(row, kind).text = text
