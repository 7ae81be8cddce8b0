"""What is said of a mark when the mouse rests on it."""

import polars as pl

from gaptrace.render.units import count, duration, instant

_LONGEST_NAME = 90


def plain(text: str) -> str:
    """Return text that plotly shows as it is: names of kernels hold brackets, ranges anything."""
    half = (_LONGEST_NAME - 1) // 2
    short = text if len(text) <= _LONGEST_NAME else f"{text[:half]}…{text[-half:]}"
    one_line = " ".join(short.split())
    return one_line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def of_spans(spans: pl.DataFrame) -> list[str]:
    """Return a text for each row of `view.View.spans`."""
    return [_span(row) for row in spans.iter_rows(named=True)]


def _span(row: dict[str, object]) -> str:
    start, end = int(row["start_ns"]), int(row["end_ns"])  # type: ignore[call-overload]
    if row["covered_ns"] is not None:
        covered: int = row["covered_ns"]  # type: ignore[assignment]
        kind = f", mostly {row['kind']}" if row["kind"] else ""
        return (
            f"{count(row['span_count'])} shorter ones begin here{kind}<br>"  # type: ignore[arg-type]
            f"together {duration(covered)} of {duration(end - start)}<br>from {instant(start)}"
        )
    lines = [
        f"<b>{plain(str(row['name'] or row['kind']))}</b>",
        f"{duration(end - start)} from {instant(start)}",
    ]
    if row["call_name"] is not None:
        lines.append(f"launch: {plain(str(row['call_name']))}, {duration(row['api_ns'])}")  # type: ignore[arg-type]
    if row["lead_ns"] is not None:
        lines.append(f"lead {duration(row['lead_ns'])}")  # type: ignore[arg-type]
    if row["gap_ns"] is not None:
        cause = f", mostly {row['cause']}" if row["cause"] else ""
        lines.append(f"after a gap of {duration(row['gap_ns'])}{cause}")  # type: ignore[arg-type]
    return "<br>".join(lines)


def of_pieces(pieces: pl.DataFrame) -> list[str]:
    """Return a text for each row of `view.View.pieces`."""
    return [_piece(row) for row in pieces.iter_rows(named=True)]


def _piece(row: dict[str, object]) -> str:
    start, end = int(row["start_ns"]), int(row["end_ns"])  # type: ignore[call-overload]
    what = f" ({plain(str(row['detail']))})" if row["detail"] else ""
    lines = [
        f"<b>{row['cause']}</b>{what}",
        f"{duration(end - start)} from {instant(start)}",
    ]
    if row["gap_ns"] is not None:
        lines.append(f"of a gap of {duration(row['gap_ns'])}")  # type: ignore[arg-type]
    if row["previous_op"] or row["next_op"]:
        before, after = (plain(str(row[c] or "-")) for c in ("previous_op", "next_op"))
        lines.append(f"after {before}<br>before {after}")
    if row["call_name"] is not None:
        lines.append(f"launch: {plain(str(row['call_name']))}, lead {duration(row['lead_ns'])}")  # type: ignore[arg-type]
    return "<br>".join(lines)


def of_bins(bins: pl.DataFrame) -> list[str]:
    """Return a text for each bin of one device.

    Args:
        bins: start_ns, end_ns, and a column of nanoseconds for each state that occurs.
    """
    states = [name for name in bins.columns if name not in ("start_ns", "end_ns")]
    return [
        "<br>".join(
            [
                f"{duration(row['end_ns'] - row['start_ns'])} from {instant(row['start_ns'])}",
                *(f"{state} {duration(row[state])}" for state in states if row[state]),
            ]
        )
        for row in bins.iter_rows(named=True)
    ]
