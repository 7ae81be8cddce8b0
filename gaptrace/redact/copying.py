"""Writing the redacted copy of an export."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from gaptrace.errors import GaptraceError, TraceFormatError
from gaptrace.read.nsys_gpus import IS_UUID
from gaptrace.redact.dropped import Dropped, dropped_texts
from gaptrace.redact.kept import (
    KEPT,
    NODES_OF_USED_GRAPHS,
    NUMBERED,
    OPS,
    ROWS,
    ROWS_OF_WINDOW,
    STRING_IDS,
    TEXTS,
)

#: An API call: thread, start, end, process, correlation id.
Call = tuple[int, int, int, int, int | None]
#: Errors of SQLite that are about the file that is written.
_TARGETS_FAULT = ("SQLITE_FULL", "SQLITE_CANTOPEN", "SQLITE_IOERR", "SQLITE_READONLY")
_TYPES = {"INTEGER", "TEXT", "REAL"}


@dataclass(frozen=True)
class Cut:
    """The window that a copy is cut to.

    Attributes:
        window: from, to in nanoseconds: only device work that overlaps it, NVTX ranges that lie in
            it, API calls that overlap it.
        calls: the API calls that are kept besides those that overlap the window.
        middle_ns: `nsys_device.middle_of_work` of the source, noted in the copy.
    """

    window: tuple[int, int]
    calls: list[Call]
    middle_ns: int | None


def write_copy(
    source: Path,
    target: Path,
    hide: Callable[[bytes | str | None], str | None],
    *,
    cut: Cut | None,
    made_by: str,
) -> Dropped:
    """Write what `kept` lists of an export to a new file.

    No text is written and removed again: what is left out never is in the file, and nothing of it
    stays in free pages or in the unused rest of a page.

    Args:
        source: the export; opened read-only.
        target: does not exist.
        hide: gives the name to write for a name.
        cut: only what belongs to a window.
        made_by: is noted in the copy.

    Raises:
        TraceFormatError: the source is damaged.
        GaptraceError: the target cannot be written.
    """
    try:
        with closing(sqlite3.connect(_uri(source, "ro&immutable=1"), uri=True)) as db:
            db.isolation_level = None
            db.create_function("hide", 1, hide, deterministic=True)
            db.create_function("numbered", 1, _Numbers(), deterministic=True)
            db.execute("PRAGMA temp_store = MEMORY")
            db.execute("ATTACH ? AS copy", [_uri(target, "rwc")])
            # A copy that is not finished is thrown away: it needs neither journal nor sync.
            db.execute("PRAGMA copy.journal_mode = OFF")
            db.execute("PRAGMA copy.synchronous = OFF")
            present = _tables(db)
            if cut is not None:
                _note_used(db, present, cut)
            dropped = _copy(db, present, cut.window if cut else None)
            _sign(db, made_by, cut)
            db.execute("VACUUM copy")
            return dropped
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorname", "").startswith(_TARGETS_FAULT):
            reason = str(error).split(": ")[0]
            raise GaptraceError(
                f"{target.parent}: cannot write the copy there ({reason}); name another place"
            ) from error
        raise TraceFormatError(
            f"{source}: damaged or incomplete SQLite file ({' '.join(str(error).split())}); "
            "copy it again, or export the report again with nsys export --type sqlite"
        ) from error


def _uri(path: Path, mode: str) -> str:
    return f"{path.absolute().as_uri()}?mode={mode}"


def _tables(db: sqlite3.Connection) -> dict[str, dict[str, str]]:
    """Return {table: {column: its type}}."""
    # No exporter writes views, and the rows of one may have no end.
    names = db.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'")
    return {
        name: {
            row[1]: row[2] if row[2] in _TYPES else ""
            # table_info lists no generated columns; kind 1 is what a virtual table hides.
            for row in db.execute(f"PRAGMA main.table_xinfo({_quoted(name)})")
            if row[6] != 1
        }
        for (name,) in names.fetchall()
    }


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _note_used(db: sqlite3.Connection, present: dict[str, dict[str, str]], cut: Cut) -> None:
    """Note in temporary tables which ops and calls are kept, and which graphs they came from.

    An executable graph's nodes name the captured ones as originals, and its own creation row names
    the captured graph: both are noted.
    """
    db.execute("CREATE TEMP TABLE call (thread, start, stop, process, correlation)")
    db.execute("BEGIN")
    db.executemany("INSERT INTO call VALUES (?, ?, ?, ?, ?)", cut.calls)
    db.execute("COMMIT")
    db.execute("CREATE TEMP TABLE op (globalPid, correlationId, contextId, streamId)")
    db.execute("CREATE TEMP TABLE graph (pid, graph)")
    at = _times(cut.window)
    for table in sorted(OPS & present.keys()):
        rows = f"FROM {_source(table, present)} WHERE {ROWS_OF_WINDOW[table]}"
        db.execute(
            f"INSERT INTO op SELECT globalPid, correlationId, contextId, streamId {rows}", at
        )
        graph = "graphId" if "graphId" in KEPT[table].split() else "graphNodeId >> 32"
        db.execute(f"INSERT INTO graph SELECT DISTINCT globalPid, {graph} {rows}", at)
    for table in sorted({"CUDA_GRAPH_EVENTS", "CUDA_GRAPH_NODE_EVENTS"} & present.keys()):
        db.execute(
            "INSERT INTO graph SELECT DISTINCT globalTid & ~16777215, originalGraphNodeId >> 32"
            f" FROM {_source(table, present)} WHERE {NODES_OF_USED_GRAPHS}"
        )


def _source(table: str, present: dict[str, dict[str, str]]) -> str:
    """Return a table as all exporters have it: columns that this one lacks are null."""
    lacking = [column for column in KEPT[table].split() if column not in present[table]]
    nulls = "".join(f', NULL AS "{column}"' for column in lacking)
    return f"(SELECT *{nulls} FROM main.{table})"


def _times(window: tuple[int, int] | None) -> dict[str, int]:
    return {} if window is None else {"from": window[0], "to": window[1]}


def _copy(
    db: sqlite3.Connection, present: dict[str, dict[str, str]], window: tuple[int, int] | None
) -> Dropped:
    dropped = Dropped()
    rules = ROWS if window is None else ROWS_OF_WINDOW
    for table, wanted in KEPT.items():
        has = present.get(table, {})
        columns = {column: has[column] for column in wanted.split() if column in has}
        if not columns:
            continue
        rule = rules.get(table, "1")
        if window is not None and table == "CUDA_GRAPH_EVENTS" and "graphNodeId" in columns:
            rule = NODES_OF_USED_GRAPHS  # until 2023.4 this table held nodes, not graphs
        rows = f"{_source(table, present)} WHERE {rule}"
        kept = _fill(db, table, columns, rows, window)
        before = _count(db, table)
        if kept < before:
            dropped.rows[table] = (before - kept, before)
        if left_out := sorted(has.keys() - columns):
            dropped.columns[table] = left_out
    _fill_strings(db)
    dropped.tables = {
        table: count
        for table in sorted(present.keys() - KEPT.keys() - {"StringIds"})
        if not table.startswith(("ENUM_", "sqlite_")) and (count := _count(db, table))
    }
    dropped.texts = dropped_texts(db, present)
    return dropped


def _fill(
    db: sqlite3.Connection,
    table: str,
    columns: dict[str, str],
    rows: str,
    window: tuple[int, int] | None,
) -> int:
    """Create a table of the copy and fill it; one that gets no rows is not there."""
    declared = ", ".join(f"{column} {kind}" for column, kind in columns.items())
    db.execute(f"CREATE TABLE copy.{table} ({declared})")
    values = ", ".join(_value(table, column) for column in columns)
    filled = db.execute(f"INSERT INTO copy.{table} SELECT {values} FROM {rows}", _times(window))
    if filled.rowcount == 0:
        db.execute(f"DROP TABLE copy.{table}")
    return filled.rowcount


def _value(table: str, column: str) -> str:
    """Return the SQL for what is written of a column."""
    if column in TEXTS.get(table, "").split():
        return f'hide(CAST("{column}" AS BLOB))'
    if column in NUMBERED.get(table, "").split():
        return f'numbered(CAST("{column}" AS BLOB))'
    return _number(column)


class _Numbers:
    """Numbers the uuids of GPUs; one of zeros stays none."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def __call__(self, raw: bytes | None) -> str | None:
        if raw is None or not IS_UUID.search(text := raw.decode("utf-8", "replace")):
            return None
        return self._known.setdefault(text, f"uuid {len(self._known) + 1}")


def _number(column: str) -> str:
    """Return the SQL for a number; SQLite stores anything anywhere, and text is not to be told."""
    return f"""CASE WHEN typeof("{column}") NOT IN ('text', 'blob') THEN "{column}" END"""


def _fill_strings(db: sqlite3.Connection) -> None:
    used = [
        f"SELECT {column} FROM copy.{table}"
        for table, wanted in KEPT.items()
        for column in wanted.split()
        if column in STRING_IDS and column in _columns_of_copy(db, table)
    ]
    db.execute("CREATE TABLE copy.StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)")
    if used:
        db.execute(
            "INSERT OR IGNORE INTO copy.StringIds SELECT id, hide(CAST(value AS BLOB))"
            f" FROM main.StringIds WHERE id IN ({' UNION '.join(used)}) ORDER BY id"
        )


def _columns_of_copy(db: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in db.execute(f"PRAGMA copy.table_info({table})")}


def _count(db: sqlite3.Connection, table: str) -> int:
    (count,) = db.execute(f"SELECT COUNT(*) FROM main.{_quoted(table)}").fetchone()
    return int(count)


def _sign(db: sqlite3.Connection, made_by: str, cut: Cut | None) -> None:
    notes = {"DERIVED_BY": made_by}
    if cut is not None:
        notes["DERIVED_WINDOW_NS"] = f"{cut.window[0]}-{cut.window[1]}"
        notes["DERIVED_MIDDLE_NS"] = str(cut.middle_ns)
    tables = ("META_DATA_EXPORT", "EXPORT_META_DATA")
    table = next((t for t in tables if _columns_of_copy(db, t) >= {"name", "value"}), None)
    if table is None and cut is not None:  # none before 2022, but the middle is read again
        table = tables[0]
        db.execute(f"DROP TABLE IF EXISTS copy.{table}")
        db.execute(f"CREATE TABLE copy.{table} (name TEXT, value TEXT)")
    if table is not None:
        db.executemany(f"INSERT INTO copy.{table} (name, value) VALUES (?, ?)", notes.items())
