"""Read-only access to an SQLite file, columns as Arrow, without touching the file."""

import sqlite3
import stat
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import adbc_driver_manager
import adbc_driver_sqlite.dbapi as adbc
import polars as pl

from gaptrace.errors import GaptraceError, TraceFormatError

_MAGIC = b"SQLite format 3\x00"
#: The text encoding, at byte 56 of the header; zero while there are no tables.
_UTF_8 = b"\0\0\0\1"
#: Rows per Arrow batch: large enough that the per-batch cost vanishes (the default is 1024).
_BATCH_ROWS = 65_536


class ExportFile:
    """An SQLite export opened read-only; use it in a `with` block.

    `immutable=1` makes SQLite neither lock the file nor create a journal beside it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        _check_is_whole_sqlite(path)
        self._version = _version(path)
        uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        self._text = sqlite3.connect(uri, uri=True)
        self._text.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
        self._columns: adbc.Connection | None = None
        try:
            found = self.rows(
                "SELECT type, name FROM sqlite_master WHERE type IN ('table', 'view')"
            )
            self.tables = {
                str(name): self._columns_of(str(name)) for kind, name in found if kind == "table"
            }
            # No exporter writes views, and the rows of one may have no end.
            self._views = {str(name) for kind, name in found if kind == "view"}
            self._columns = adbc.connect(uri)
        except adbc_driver_manager.Error as error:
            self.close()
            raise self._damaged(error) from error
        except TraceFormatError:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        if self._columns is not None:
            self._columns.close()
        self._text.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
        # Without a lock a writer is not noticed by SQLite, which may have read some old and some
        # new pages.
        sound = error is None or isinstance(error, GaptraceError)
        if sound and _version(self.path) != self._version:
            raise TraceFormatError(
                f"{self.path}: the file changed while it was read; try again when it is complete"
            ) from error

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        """Return a small result as tuples; text that is not UTF-8 is decoded with replacements."""
        try:
            return self._text.execute(sql).fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            # SQLite quotes damaged names in its messages, as they are.
            raise self._damaged(error) from error

    def frame(
        self, table: str, columns: Mapping[str, tuple[str, pl.DataType | type[pl.DataType]]]
    ) -> pl.DataFrame:
        """Return {output: (column, dtype)} of a table; an absent table or column gives nulls.

        Raises:
            TraceFormatError: a value has another type than the schema says, pages are damaged, or
                there is a view instead of the table.
        """
        if table in self._views:
            raise TraceFormatError(
                f"{self.path}: {table} is a view, where an export has a table; "
                "export the report again with nsys export --type sqlite"
            )
        schema = pl.Schema({output: dtype for output, (_, dtype) in columns.items()})
        present = {
            output: (column, dtype)
            for output, (column, dtype) in columns.items()
            if column in self.tables.get(table, ())
        }
        if not present:
            return schema.to_frame()
        # The driver takes a column's type from its first batch of rows, where all may be null. So
        # a row of the right types goes first, and is dropped again.
        seeds = ", ".join(
            f"{_seed(dtype)} AS {_quote(output)}" for output, (_, dtype) in present.items()
        )
        selected = ", ".join(_select(column, dtype) for column, dtype in present.values())
        sql = f"SELECT {seeds} UNION ALL SELECT {selected} FROM {_quote(table)}"
        frame = self._arrow(sql, table).slice(1)
        for output, (column, dtype) in present.items():
            # SQLite stores anything anywhere, and a text or a fraction turned into an integer would
            # be a wrong time or id.
            if dtype == pl.Int64 and frame.schema[output] != pl.Int64:
                raise TraceFormatError(
                    f"{self.path}: column {column} of table {table} does not hold integers; "
                    "export the report again with nsys export --type sqlite"
                )
        texts = [_decoded(frame[output]) for output in present if schema[output] == pl.String]
        absent = [
            pl.lit(None, dtype).alias(output)
            for output, dtype in schema.items()
            if output not in present
        ]
        return frame.with_columns(*texts, *absent).select(schema.names())

    def _arrow(self, sql: str, table: str) -> pl.DataFrame:
        assert self._columns is not None
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
        # table_info lists no generated columns. Kind 1 is what a virtual table hides.
        rows = self.rows(f"PRAGMA table_xinfo({_quote(table)})")
        return {str(name) for _, name, *_, kind in rows if kind != 1}

    def _damaged(self, error: Exception) -> TraceFormatError:
        return TraceFormatError(
            f"{self.path}: damaged or incomplete SQLite file ({_first_line(error)}); "
            "copy it again, or export the report again with nsys export --type sqlite"
        )


def none_if_zero(column: str) -> pl.Expr:
    """Return a column in which the recorder's 0 for "none" is null."""
    return pl.when(pl.col(column) != 0).then(pl.col(column))


def context() -> pl.Expr:
    """Return the context of rows with context_id and green_context_id, the inner one of the two.

    A green context and its parent count their streams apart. Both are contexts of one numbering
    (CUPTI, CUpti_ActivityGreenContext: contextId and parentContextId), so either can stand alone.
    """
    return pl.coalesce(none_if_zero("green_context_id"), "context_id")


def _head_and_size(path: Path) -> tuple[bytes, int]:
    try:
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # opening a pipe may wait forever
            raise TraceFormatError(
                f"{path}: a pipe or device, in which SQLite cannot seek; save it as a file first"
            )
        with path.open("rb") as file:
            return file.read(100), file.seek(0, 2)
    except IsADirectoryError as error:
        raise TraceFormatError(
            f"{path}: is a folder; name the .sqlite or .nsys-rep file inside it"
        ) from error
    except FileNotFoundError as error:
        raise TraceFormatError(f"{path}: no such file; check the path") from error
    except OSError as error:
        raise TraceFormatError(
            f"{path}: cannot be read ({error.strerror}); check the file's permissions"
        ) from error


def _check_is_whole_sqlite(path: Path) -> None:
    head, size = _head_and_size(path)
    if not head:
        raise TraceFormatError(f"{path}: the file is empty; export the report again")
    if not head.startswith(_MAGIC):
        raise TraceFormatError(
            f"{path}: not an SQLite file; export the report with nsys export --type sqlite"
        )
    if size < _promised_size(head):
        raise TraceFormatError(
            f"{path}: damaged or incomplete SQLite file ({size} of {_promised_size(head)} bytes); "
            "copy it again, or export the report again with nsys export --type sqlite"
        )
    if head[56:60] not in (_UTF_8, bytes(4)):
        raise TraceFormatError(
            f"{path}: its text is not in UTF-8, as that of every export is; "
            "copy it again, or export the report again with nsys export --type sqlite"
        )
    for beside in (path.with_name(f"{path.name}-{kind}") for kind in ("wal", "journal")):
        if _holds_changes(beside):
            raise TraceFormatError(
                f"{path}: part of it is still in {beside.name}, as a program is writing it or "
                "was stopped; let that program end, or export the report again"
            )


def _holds_changes(beside: Path) -> bool:
    """Say whether a log beside the file is in use: its header is not zero (SQLite, file format)."""
    try:
        with beside.open("rb") as file:
            return file.read(1) not in (b"", b"\0")
    except OSError:
        return False


def _version(path: Path) -> tuple[int, int] | None:
    """Return what changes when a file is written: its size and the time of the last write."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def _promised_size(head: bytes) -> int:
    """Return how long the header says the file is; 100 bytes, the header itself, if it does not.

    SQLite pads a last page that was cut off with zeros and goes on. From its file format: page size
    at byte 16 (1 means 65,536), page count at 28, which holds if the counters at 24 and 92 agree.
    """
    if len(head) < 100 or head[24:28] != head[92:96]:
        return 100
    page_size = int.from_bytes(head[16:18], "big")
    return (65_536 if page_size == 1 else page_size) * int.from_bytes(head[28:32], "big")


def _select(column: str, dtype: pl.DataType | type[pl.DataType]) -> str:
    # Text travels as bytes: Arrow text must be UTF-8, and SQLite does not promise that.
    if dtype == pl.String:
        return f"CAST({_quote(column)} AS BLOB)"
    return f"CAST({_quote(column)} AS REAL)" if dtype == pl.Float64 else _quote(column)


def _seed(dtype: pl.DataType | type[pl.DataType]) -> str:
    if dtype == pl.String:
        return "X'00'"
    return "0.0" if dtype == pl.Float64 else "0"


def _decoded(column: pl.Series) -> pl.Series:
    try:
        return column.cast(pl.String)
    except pl.exceptions.ComputeError:
        text = [None if raw is None else raw.decode("utf-8", "replace") for raw in column]
        return pl.Series(column.name, text, dtype=pl.String)


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
