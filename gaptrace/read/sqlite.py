"""Read-only access to an SQLite file, columns as Arrow, without touching the file."""

import sqlite3
from pathlib import Path
from types import TracebackType
from typing import Self

import adbc_driver_manager
import adbc_driver_sqlite.dbapi as adbc
import polars as pl

from gaptrace.errors import TraceFormatError

_MAGIC = b"SQLite format 3\x00"
#: Rows per Arrow batch: large enough that the per-batch cost vanishes (the default is 1024).
_BATCH_ROWS = 65_536


class ExportFile:
    """An SQLite export opened read-only; use it in a `with` block.

    `immutable=1` makes SQLite neither lock the file nor create a journal beside it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        _check_is_sqlite(path)
        uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        try:
            self._text = sqlite3.connect(uri, uri=True)
            self._text.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
            self._columns = adbc.connect(uri)
            self.tables = {
                name: self._columns_of(name)
                for (name,) in self._text.execute(
                    "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
                ).fetchall()
            }
        except (sqlite3.Error, adbc_driver_manager.Error) as error:
            raise self._damaged(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._columns.close()
        self._text.close()

    def has_rows(self, table: str) -> bool:
        """Say whether a table exists and holds at least one row."""
        return table in self.tables and bool(self.rows(f"SELECT 1 FROM {_quote(table)} LIMIT 1"))

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        """Return a small result as tuples; text that is not UTF-8 is decoded with replacements."""
        try:
            return self._text.execute(sql).fetchall()
        except sqlite3.Error as error:
            raise self._damaged(error) from error

    def frame(
        self, table: str, columns: dict[str, tuple[str, pl.DataType | type[pl.DataType]]]
    ) -> pl.DataFrame:
        """Return {output: (column, dtype)} of a table; an absent table or column gives nulls.

        Integer columns must hold integers: SQLite would store anything, and a converted text or
        fraction would be a wrong time or id.

        Raises:
            TraceFormatError: a value has another type than the schema says, or pages are damaged.
        """
        schema = pl.Schema({output: dtype for output, (_, dtype) in columns.items()})
        present = self.tables.get(table)
        if present is None:
            return schema.to_frame()
        selected = ", ".join(
            f"{_select(column, dtype) if column in present else 'NULL'} AS {_quote(output)}"
            for output, (column, dtype) in columns.items()
        )
        frame = self._arrow(f"SELECT {selected} FROM {_quote(table)}", table)
        for output, (column, dtype) in columns.items():
            if dtype == pl.Int64 and frame.schema[output] != pl.Int64:
                raise TraceFormatError(
                    f"{self.path}: column {column} of table {table} does not hold integers; "
                    "export the report again with nsys export --type sqlite"
                )
        return frame.cast(schema, strict=False)

    def _arrow(self, sql: str, table: str) -> pl.DataFrame:
        try:
            with self._columns.cursor() as cursor:
                cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": _BATCH_ROWS})
                cursor.execute(sql)
                return pl.DataFrame(cursor.fetch_arrow())
        except pl.exceptions.ComputeError as error:
            raise TraceFormatError(
                f"{self.path}: table {table} holds values of the wrong type "
                f"({_first_line(error)}); export the report again with nsys export --type sqlite"
            ) from error
        except adbc_driver_manager.Error as error:
            raise self._damaged(error) from error

    def _columns_of(self, table: str) -> set[str]:
        return {str(row[1]) for row in self._text.execute(f"PRAGMA table_info({_quote(table)})")}

    def _damaged(self, error: Exception) -> TraceFormatError:
        return TraceFormatError(
            f"{self.path}: damaged or incomplete SQLite file ({_first_line(error)}); "
            "copy it again, or export the report again with nsys export --type sqlite"
        )


def _check_is_sqlite(path: Path) -> None:
    if path.is_dir():
        raise TraceFormatError(f"{path}: is a folder; name the .sqlite or .nsys-rep file inside it")
    try:
        with path.open("rb") as file:
            head = file.read(len(_MAGIC))
    except FileNotFoundError as error:
        raise TraceFormatError(f"{path}: no such file; check the path") from error
    except OSError as error:
        raise TraceFormatError(
            f"{path}: cannot be read ({error.strerror}); check the file's permissions"
        ) from error
    if not head:
        raise TraceFormatError(f"{path}: the file is empty; export the report again")
    if head != _MAGIC:
        raise TraceFormatError(
            f"{path}: not an SQLite file; export the report with nsys export --type sqlite"
        )


def _select(column: str, dtype: pl.DataType | type[pl.DataType]) -> str:
    # Text travels as bytes: Arrow text must be UTF-8, and SQLite does not promise that.
    return f"CAST({_quote(column)} AS BLOB)" if dtype == pl.String else _quote(column)


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
