"""Ways to break an export: each changes a file in place and returns what it did, for the report."""

import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

Row = list[Any]
Break = Callable[[random.Random, Path], str]

ODD_NUMBERS = [0, -1, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**60, 2**61, 2**62, 2**63 - 1]
ODD_NUMBERS += [-(2**31), -(2**62), -(2**63), -(2**63) + 1]
ODD_TEXTS = [
    "",
    "soon",
    "12",
    "\0",
    "a\nb",
    "a\rb\x1b[31m",
    "²",
    "9" * 5_000,
    "☃" * 300,
    "x" * 100_000,
]
ODD_TEXTS += ["[bold]", "\u2028", "-" * 40, "TOKEN=ghp_" + "a" * 36, "{}", "%s", "A=1\0B=2"]
ODD_VALUES = [*ODD_NUMBERS, *ODD_TEXTS, None, None, None]
ODD_VALUES += [1.5, 1e300, float("inf"), -float("inf"), b"", b"\xff\xfe", b"\0" * 9]
ODD_NAMES = ["", '"', "'", "a b", "☃", "; DROP TABLE StringIds", "a\nb", "select", "%", "[x]", "`"]
#: The tables that matter most, so that few cases are lost on others.
CORE = ["StringIds", "NVTX_EVENTS"] + [
    f"CUPTI_ACTIVITY_KIND_{kind}"
    for kind in ("KERNEL", "MEMCPY", "GRAPH_TRACE", "RUNTIME", "SYNCHRONIZATION")
]
BREAKS: dict[str, Break] = {}
#: Writers that go on until the event is set.
DISTURBANCES: dict[str, Callable[[random.Random, Path, threading.Event], None]] = {}


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a file that an earlier break may have ruined; what then fails is left as it is."""
    with closing(sqlite3.connect(path)) as db:
        db.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        try:
            yield db
            db.commit()
        except (sqlite3.Error, UnicodeError, OverflowError):
            db.rollback()


def _table(rng: random.Random, db: sqlite3.Connection) -> str:
    found = db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1").fetchall()
    names = [name for (name,) in found if not name.startswith("sqlite_")]
    core = [name for name in names if name in CORE]
    if not names:
        raise sqlite3.OperationalError("no table is left")
    return str(rng.choice(core if core and rng.random() < 0.7 else names))


def _in_database(change: Callable[[random.Random, sqlite3.Connection, str], str]) -> Break:
    """Make a break from a change of one table."""

    def apply(rng: random.Random, path: Path) -> str:
        with _opened(path) as db:
            return change(rng, db, _table(rng, db))
        return "nothing: the file was broken before"

    BREAKS[change.__name__] = apply
    return apply


def _in_rows(change: Callable[[random.Random, list[str], list[Row]], str]) -> Break:
    """Make a break from a change of columns and rows; no NOT NULL or key of the table survives."""

    def rebuilt(rng: random.Random, db: sqlite3.Connection, table: str) -> str:
        columns, rows = _contents(db, table)
        done = change(rng, columns, rows)
        _replace(db, table, rng.choice(["", " INTEGER"]), columns, rows)
        return f"{table}: {done}"

    rebuilt.__name__ = change.__name__
    return _in_database(rebuilt)


def _contents(db: sqlite3.Connection, table: str) -> tuple[list[str], list[Row]]:
    cursor = db.execute(f"SELECT * FROM {_quote(table)}")
    return [column[0] for column in cursor.description], [list(row) for row in cursor]


def _replace(
    db: sqlite3.Connection, table: str, kind: str, columns: list[str], rows: list[Row]
) -> None:
    db.execute(f"DROP TABLE {_quote(table)}")
    ddl = ", ".join(_quote(column) + kind for column in columns)
    db.execute(f"CREATE TABLE {_quote(table)} ({ddl})")
    marks = ", ".join("?" * len(columns))
    db.executemany(f"INSERT INTO {_quote(table)} VALUES ({marks})", rows)


# Rows


@_in_rows
def odd_cells(rng: random.Random, columns: list[str], rows: list[Row]) -> str:
    done = []
    for _ in range(rng.randint(1, 4) if rows else 0):
        row, column = rng.randrange(len(rows)), rng.randrange(len(columns))
        rows[row][column] = value = rng.choice(ODD_VALUES)
        done.append(f"{columns[column]}[{row}] = {str(value)[:30]!r}")
    return ", ".join(done)


@_in_rows
def odd_column(rng: random.Random, columns: list[str], rows: list[Row]) -> str:
    column, value = rng.randrange(len(columns)), rng.choice(ODD_VALUES)
    for row in rows:
        if rng.random() < 0.9:
            row[column] = value
    return f"{columns[column]} = {str(value)[:30]!r}"


@_in_rows
def odd_numbers_all_over(rng: random.Random, columns: list[str], rows: list[Row]) -> str:
    share = rng.choice([0.02, 0.2, 0.9])
    for row in rows:
        for column, value in enumerate(row):
            if isinstance(value, int) and rng.random() < share:
                row[column] = rng.choice([*ODD_NUMBERS, None, rng.randrange(-(2**63), 2**63)])
    return f"{share:.0%}"


@_in_rows
def nulls(rng: random.Random, columns: list[str], rows: list[Row]) -> str:
    chosen = rng.sample(range(len(columns)), rng.randint(1, len(columns)))
    for row in rows:
        for column in chosen:
            if rng.random() < 0.8:
                row[column] = None
    return ", ".join(columns[column] for column in chosen)


@_in_rows
def odd_times(rng: random.Random, columns: list[str], rows: list[Row]) -> str:
    if not {"start", "end"} <= set(columns):
        return "no times"
    start, end = columns.index("start"), columns.index("end")
    how = rng.choice(["reversed", "empty", "together", "huge", "overlapping", "zero", "shifted"])
    shift = rng.choice([2**60, 2**61 - 10**6, -(2**61), -(10**5)])
    for row in rows:
        if how in ("together", "shifted") or rng.random() < 0.5:
            begin, stop = row[start] or 0, row[end] or 0
            row[start], row[end] = {
                "reversed": (stop, begin),
                "empty": (begin, begin),
                "together": (1_000, 1_000),
                "huge": (rng.choice([-(2**61), 0, begin]), rng.choice([2**61, stop])),
                "overlapping": (begin, stop + 10**6),
                "zero": (0, 0),
                "shifted": (begin + shift, stop + shift),
            }[how]
    return how


@_in_rows
def repeated_rows(rng: random.Random, columns: list[str], rows: list[Row]) -> str:
    rows += [list(row) for row in rows] * rng.choice([1, 3])
    return f"{len(rows)} rows"


@_in_rows
def one_id(rng: random.Random, columns: list[str], rows: list[Row]) -> str:
    ids = [i for i, name in enumerate(columns) if name.lower().endswith(("id", "tid", "node"))]
    for column in ids if rng.random() < 0.3 else rng.sample(ids, min(1, len(ids))):
        value = rng.choice([row[column] for row in rows] or [1])
        for row in rows:
            row[column] = value
    return "one id"


@_in_rows
def many_ids(rng: random.Random, columns: list[str], rows: list[Row]) -> str:
    ids = [i for i, name in enumerate(columns) if name.endswith(("Id", "Tid", "Pid", "id"))]
    rows += [list(row) for row in rows for _ in range(400 // len(rows))]
    chosen = rng.sample(ids, min(len(ids), rng.randint(1, 3)))
    for row in rows:
        for column in chosen:
            row[column] = rng.choice([rng.randrange(-(2**63), 2**63), rng.randrange(10**6)])
    return ", ".join(columns[column] for column in chosen)


@_in_rows
def no_rows(rng: random.Random, columns: list[str], rows: list[Row]) -> str:
    del rows[rng.choice([0, 0, 1]) :]
    return f"{len(rows)} left"


@_in_rows
def other_columns(rng: random.Random, columns: list[str], rows: list[Row]) -> str:
    how = rng.choice(["dropped", "renamed", "swapped", "added"])
    column = rng.randrange(len(columns))
    done = f"{columns[column]} {how}"
    if how == "dropped" and len(columns) > 1:
        del columns[column]
        for row in rows:
            del row[column]
    elif how == "renamed":
        columns[column] = rng.choice([*ODD_NAMES, columns[column].upper() + "2"])
    elif how == "swapped":
        other = rng.randrange(len(columns))
        columns[column], columns[other] = columns[other], columns[column]
    else:
        columns.append(rng.choice([*ODD_NAMES, "kind", "value_right"]))
        for row in rows:
            row.append(rng.choice(ODD_VALUES))
    return done


# Tables


@_in_database
def other_table(rng: random.Random, db: sqlite3.Connection, table: str) -> str:
    if rng.random() < 0.5:
        db.execute(f"DROP TABLE {_quote(table)}")
        return f"{table} dropped"
    name = rng.choice([*ODD_NAMES, table.lower() + "2", _table(rng, db) + " "])
    db.execute(f"ALTER TABLE {_quote(table)} RENAME TO {_quote(name)}")
    return f"{table} is {name!r}"


@_in_database
def text_that_is_not_utf8(rng: random.Random, db: sqlite3.Connection, table: str) -> str:
    column = rng.choice(_contents(db, table)[0])
    raw = rng.choice(["ff", "c328", "61ff62", "00ff", "eda080", "f8a1a1a1a1"])
    db.execute(f"UPDATE {_quote(table)} SET {_quote(column)} = CAST(X'{raw}' AS TEXT)")
    return f"{table}.{column} = {raw}"


@_in_database
def extra_objects(rng: random.Random, db: sqlite3.Connection, table: str) -> str:
    name, own = _quote(rng.choice(ODD_NAMES)), _quote(table)
    statement = rng.choice(
        [
            f"CREATE TABLE {name} ({name})",
            f"CREATE VIEW {name} AS SELECT * FROM {own}",
            f"CREATE VIEW {name} AS SELECT * FROM nowhere",
            f"CREATE TRIGGER {name} AFTER INSERT ON {own} BEGIN DELETE FROM {own}; END",
            f"CREATE INDEX {name} ON {own} ({_quote(_contents(db, table)[0][0])})",
            f"CREATE VIRTUAL TABLE {name} USING fts5(a)",
            f"CREATE VIRTUAL TABLE {name} USING rtree(a, b, c)",
        ]
    )
    db.execute(statement)
    return statement


@_in_database
def a_view_instead(rng: random.Random, db: sqlite3.Connection, table: str) -> str:
    db.execute(f"ALTER TABLE {_quote(table)} RENAME TO hidden")
    columns = ", ".join(map(_quote, _contents(db, "hidden")[0]))
    view = rng.choice(
        [
            f"SELECT {columns} FROM hidden",
            f"SELECT {columns} FROM hidden, (SELECT 1 UNION SELECT 2)",
            "SELECT * FROM nowhere",
            f"SELECT * FROM {_quote(table)}",
            "SELECT 1 AS start, 2 AS end, 'x' AS value, 1 AS id",
            f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT {columns} "
            "FROM hidden, n",
        ]
    )
    db.execute(f"CREATE VIEW {_quote(table)} AS {view}")
    return f"{table}: {view}"


@_in_database
def another_kind_of_table(rng: random.Random, db: sqlite3.Connection, table: str) -> str:
    columns, rows = _contents(db, table)
    names, marks = ", ".join(map(_quote, columns)), ", ".join("?" * len(columns))
    db.execute(f"DROP TABLE {_quote(table)}")
    kind = rng.choice(["WITHOUT ROWID", "generated", "fts5", "rtree", "STRICT"])
    if kind == "fts5":
        db.execute(f"CREATE VIRTUAL TABLE {_quote(table)} USING fts5({names})")
    elif kind == "rtree":
        db.execute(f"CREATE VIRTUAL TABLE {_quote(table)} USING rtree(id, start, end)")
        return f"{table}: {kind}"
    elif kind == "generated":
        made = rng.choice(columns)
        rest = ", ".join(_quote(name) for name in columns if name != made)
        stored = f"{_quote(made)} AS (7) {rng.choice(['STORED', 'VIRTUAL'])}"
        db.execute(f"CREATE TABLE {_quote(table)} ({rest or 'x'}, {stored})")
        return f"{table}: {kind} {made}"
    elif kind == "STRICT":
        typed = ", ".join(_quote(name) + " ANY" for name in columns)
        db.execute(f"CREATE TABLE {_quote(table)} ({typed}) STRICT")
    else:
        db.execute(f"CREATE TABLE {_quote(table)} (k PRIMARY KEY, {names}) WITHOUT ROWID")
        rows, names, marks = [[i, *row] for i, row in enumerate(rows)], "k, " + names, marks + ", ?"
    db.executemany(f"INSERT INTO {_quote(table)} ({names}) VALUES ({marks})", rows)
    return f"{table}: {kind}"


@_in_database
def forged_schema(rng: random.Random, db: sqlite3.Connection, table: str) -> str:
    db.execute("PRAGMA writable_schema = ON")
    change, value = rng.choice(
        [
            ("name = ?", f"sqlite_{table}"),
            ("name = ?", None),
            ("name = CAST(? AS TEXT)", b"\xff\xfe"),
            ("sql = ?", "garbage"),
            ("sql = ?", None),
            ("sql = ?", f"CREATE VIRTUAL TABLE {table} USING nothing(a)"),
            ("sql = ?", f"CREATE TABLE {table} (" + ", ".join(f"c{i}" for i in range(1999)) + ")"),
            ("rootpage = ?", rng.choice([0, 1, 2, 3, 10**6, -1])),
            ("type = ?", rng.choice(["view", "index", "nothing", None])),
            ("tbl_name = ?", "another"),
        ]
    )
    db.execute(f"UPDATE sqlite_master SET {change} WHERE name = ?", [value, table])
    return f"{table}: {change[:8]} {str(value)[:40]!r}"


# Bytes


def _in_bytes(change: Callable[[random.Random, bytearray], str]) -> Break:
    def apply(rng: random.Random, path: Path) -> str:
        raw = bytearray(path.read_bytes())
        done = change(rng, raw)
        path.write_bytes(raw)
        return done

    BREAKS[change.__name__] = apply
    return apply


def _page(rng: random.Random, raw: bytearray) -> tuple[int, int]:
    size = int.from_bytes(raw[16:18], "big") or 4096
    return rng.randrange(len(raw) // size + 1) * size, size


@_in_bytes
def flipped_bits(rng: random.Random, raw: bytearray) -> str:
    count = rng.choice([1, 1, 4, 32, 512])
    within = min(len(raw), rng.choice([100, 4096, len(raw), len(raw), len(raw)]))
    for _ in range(count if raw else 0):
        raw[rng.randrange(within)] ^= 1 << rng.randrange(8)
    return f"{count} in {within}"


@_in_bytes
def truncated(rng: random.Random, raw: bytearray) -> str:
    kept = rng.randrange(len(raw) + 1)
    del raw[kept:]
    if forged := rng.random() < 0.5:  # a header that promises nothing about the size
        raw[92:96] = b"\0\0\0\0"
    return f"{kept} bytes{' and no promise' * forged}"


@_in_bytes
def zeroed_page(rng: random.Random, raw: bytearray) -> str:
    at, size = _page(rng, raw)
    raw[at : at + size] = bytes(len(raw[at : at + size]))
    return f"at {at}"


@_in_bytes
def copied_page(rng: random.Random, raw: bytearray) -> str:
    (source, size), (target, _) = _page(rng, raw), _page(rng, raw)
    raw[target : target + size] = raw[source : source + size]
    return f"{source} to {target}"


@_in_bytes
def junk_at_the_end(rng: random.Random, raw: bytearray) -> str:
    raw += rng.randbytes(rng.choice([1, 4096, 5000]))
    return "junk"


# Files beside it


def write_ahead_log(rng: random.Random, path: Path) -> str:
    """A file whose newest rows are still in its write-ahead log, kept or lost."""
    kept, log = rng.random() < 0.5, path.with_name(path.name + "-wal")
    saved = b""
    with _opened(path) as db:
        db.execute("PRAGMA journal_mode = WAL")
        table = _table(rng, db)
        db.execute(f"INSERT INTO {_quote(table)} SELECT * FROM {_quote(table)} LIMIT 5")
        db.commit()
        saved = log.read_bytes()
    if kept and saved:
        log.write_bytes(saved)
    return "kept" if kept else "lost"


BREAKS["write_ahead_log"] = write_ahead_log


# Files that change while they are read


def _until(change: Callable[[random.Random, Path], None]) -> None:
    def go_on(rng: random.Random, path: Path, stop: threading.Event) -> None:
        while not stop.is_set() and path.stat().st_size < 10_000_000:
            change(rng, path)
            time.sleep(rng.choice([0, 0.001, 0.01]))

    DISTURBANCES[change.__name__] = go_on


@_until
def grows(rng: random.Random, path: Path) -> None:
    with path.open("ab") as file:
        file.write(rng.randbytes(4096))


@_until
def is_overwritten(rng: random.Random, path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(rng.randrange(0, max(1, path.stat().st_size), 512))
        file.write(rng.randbytes(512))


@_until
def is_replaced(rng: random.Random, path: Path) -> None:
    raw = path.read_bytes()
    beside = path.with_name("new")
    beside.write_bytes(raw[: rng.choice([len(raw), len(raw) // 2])])
    beside.replace(path)


@_until
def is_cut_short(rng: random.Random, path: Path) -> None:
    os.truncate(path, path.stat().st_size * rng.choice([10, 9]) // 10)


@_until
def gets_rows(rng: random.Random, path: Path) -> None:
    with _opened(path) as db:
        table = _table(rng, db)
        db.execute(f"INSERT INTO {_quote(table)} SELECT * FROM {_quote(table)} LIMIT 50")
