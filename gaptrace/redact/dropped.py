"""What a redacted copy leaves out, to be told."""

import re
import sqlite3
from dataclasses import dataclass, field

_PATH = re.compile(r"(?:[A-Za-z]:)?[\w.~-]*(?:[/\\][\w.+@-]+)+")


@dataclass
class Dropped:
    """What a copy leaves out.

    Attributes:
        tables: table -> its rows. Those of constants (ENUM_...) are not listed.
        columns: kept table -> its columns that are not.
        rows: kept table -> how many of its rows are not, and how many there were.
        texts: kind of string -> how many.
    """

    tables: dict[str, int] = field(default_factory=dict)
    columns: dict[str, list[str]] = field(default_factory=dict)
    rows: dict[str, tuple[int, int]] = field(default_factory=dict)
    texts: dict[str, int] = field(default_factory=dict)


def dropped_texts(db: sqlite3.Connection, present: dict[str, dict[str, str]]) -> dict[str, int]:
    """Count the strings left out, by what uses them or else by their form."""
    known: dict[int, str] = {}
    for kind, table, column in (
        ("outputs of programs", "ProcessStreams", "contentId"),
        ("names of threads", "ThreadNames", "nameId"),
    ):
        if column in present.get(table, {}):
            rows = db.execute(f"SELECT DISTINCT {column} FROM main.{table}")
            known |= {number: kind for (number,) in rows}
    counts: dict[str, int] = {}
    gone = db.execute(
        "SELECT id, CAST(value AS BLOB) FROM main.StringIds"
        " WHERE id NOT IN (SELECT id FROM copy.StringIds)"
    )
    for number, raw in gone:
        kind = known.get(number) or _kind_of((raw or b"").decode("utf-8", "replace"))
        counts[kind] = counts.get(kind, 0) + 1
    return dict(sorted(counts.items()))


def _kind_of(text: str) -> str:
    if "\0" in text or re.match(r"[A-Z_][A-Z0-9_]*=", text):
        return "environments of processes"
    return "paths" if _PATH.fullmatch(text) else "other texts"
