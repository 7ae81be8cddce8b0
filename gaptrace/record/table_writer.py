"""Writes columns as tables of an SQLite file, texts as numbers into its table StringIds."""

import sqlite3
from typing import Any

import numpy as np

Rows = dict[str, Any]
_TYPES = dict.fromkeys(("value", "name", "uuid", "text"), "TEXT") | {"doubleValue": "REAL"}


class TableWriter:
    """Fills tables; texts become rows of StringIds."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._ids: dict[str, int] = {}

    def text_id(self, text: str) -> int:
        """Return the number of a text."""
        return self._ids.setdefault(text, len(self._ids) + 1)

    def table(self, name: str, rows: Rows) -> None:
        """Write a table, if it has rows: {column: values, or one value for all rows}."""
        lengths = [len(values) for values in rows.values() if isinstance(values, list | np.ndarray)]
        if lengths[0]:
            self._table(name, rows, lengths[0])

    def strings(self) -> None:
        """Write StringIds, when all other tables are there; every export has it."""
        ids, texts = list(self._ids.values()), list(self._ids)
        self._table("StringIds", {"id": ids, "value": texts}, len(ids))

    def _table(self, name: str, rows: Rows, length: int) -> None:
        declared = (f'"{column}" {_TYPES.get(column, "INTEGER")}' for column in rows)
        self._db.execute(f"CREATE TABLE {name} ({', '.join(declared)})")
        marks = ", ".join("?" * len(rows))
        columns = [_values(values, length) for values in rows.values()]
        self._db.executemany(f"INSERT INTO {name} VALUES ({marks})", zip(*columns, strict=True))


def _values(values: Any, length: int) -> list[Any]:
    if isinstance(values, np.ndarray):
        found: list[Any] = values.tolist()
        return found
    return values if isinstance(values, list) else [values] * length
