"""Ways to break rows and tables of an export: each changes a file and returns what it did."""

import random
import sqlite3
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


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a file that an earlier break may have ruined; what then fails is left as it is."""
    with closing(sqlite3.connect(path)) as db:
        db.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        try:
            yield db
            db.commit()
        except (sqlite3.Error, UnicodeError, OverflowError):
            db.rollback()


def any_table(rng: random.Random, db: sqlite3.Connection) -> str:
    found = db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1").fetchall()
    names = [name for (name,) in found if not name.startswith("sqlite_")]
    core = [name for name in names if name in CORE]
    if not names:
        raise sqlite3.OperationalError("no table is left")
    return str(rng.choice(core if core and rng.random() < 0.7 else names))


def _in_database(change: Callable[[random.Random, sqlite3.Connection, str], str]) -> Break:
    """Make a break from a change of one table."""

    def apply(rng: random.Random, path: Path) -> str:
        with opened(path) as db:
            return change(rng, db, any_table(rng, db))
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
    cursor = db.execute(f"SELECT * FROM {quote(table)}")
    return [column[0] for column in cursor.description], [list(row) for row in cursor]


def _replace(
    db: sqlite3.Connection, table: str, kind: str, columns: list[str], rows: list[Row]
) -> None:
    db.execute(f"DROP TABLE {quote(table)}")
    ddl = ", ".join(quote(column) + kind for column in columns)
    db.execute(f"CREATE TABLE {quote(table)} ({ddl})")
    marks = ", ".join("?" * len(columns))
    db.executemany(f"INSERT INTO {quote(table)} VALUES ({marks})", rows)


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
    how = rng.choice([how, how, how, how, "days"])
    shift = rng.choice([2**60, 2**61 - 10**6, -(2**61), -(10**5)])
    for row in rows:
        if how in ("together", "shifted") or rng.random() < 0.5:
            # An earlier break may have left texts here.
            begin, stop = (t if isinstance(t, int | float) else 0 for t in (row[start], row[end]))
            row[start], row[end] = {
                "reversed": (stop, begin),
                "empty": (begin, begin),
                "together": (1_000, 1_000),
                "huge": (rng.choice([-(2**61), 0, begin]), rng.choice([2**61, stop])),
                "days": (begin - 2**49, stop + 2**49),
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
def otherany_table(rng: random.Random, db: sqlite3.Connection, table: str) -> str:
    if rng.random() < 0.5:
        db.execute(f"DROP TABLE {quote(table)}")
        return f"{table} dropped"
    name = rng.choice([*ODD_NAMES, table.lower() + "2", any_table(rng, db) + " "])
    db.execute(f"ALTER TABLE {quote(table)} RENAME TO {quote(name)}")
    return f"{table} is {name!r}"


@_in_database
def text_that_is_not_utf8(rng: random.Random, db: sqlite3.Connection, table: str) -> str:
    column = rng.choice(_contents(db, table)[0])
    raw = rng.choice(["ff", "c328", "61ff62", "00ff", "eda080", "f8a1a1a1a1"])
    db.execute(f"UPDATE {quote(table)} SET {quote(column)} = CAST(X'{raw}' AS TEXT)")
    return f"{table}.{column} = {raw}"


@_in_database
def extra_objects(rng: random.Random, db: sqlite3.Connection, table: str) -> str:
    name, own = quote(rng.choice(ODD_NAMES)), quote(table)
    statement = rng.choice(
        [
            f"CREATE TABLE {name} ({name})",
            f"CREATE VIEW {name} AS SELECT * FROM {own}",
            f"CREATE VIEW {name} AS SELECT * FROM nowhere",
            f"CREATE TRIGGER {name} AFTER INSERT ON {own} BEGIN DELETE FROM {own}; END",
            f"CREATE INDEX {name} ON {own} ({quote(_contents(db, table)[0][0])})",
            f"CREATE VIRTUAL TABLE {name} USING fts5(a)",
            f"CREATE VIRTUAL TABLE {name} USING rtree(a, b, c)",
        ]
    )
    db.execute(statement)
    return statement


@_in_database
def a_view_instead(rng: random.Random, db: sqlite3.Connection, table: str) -> str:
    db.execute(f"ALTER TABLE {quote(table)} RENAME TO hidden")
    columns = ", ".join(map(quote, _contents(db, "hidden")[0]))
    view = rng.choice(
        [
            f"SELECT {columns} FROM hidden",
            f"SELECT {columns} FROM hidden, (SELECT 1 UNION SELECT 2)",
            "SELECT * FROM nowhere",
            f"SELECT * FROM {quote(table)}",
            "SELECT 1 AS start, 2 AS end, 'x' AS value, 1 AS id",
            f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT {columns} "
            "FROM hidden, n",
        ]
    )
    db.execute(f"CREATE VIEW {quote(table)} AS {view}")
    return f"{table}: {view}"


@_in_database
def another_kind_ofany_table(rng: random.Random, db: sqlite3.Connection, table: str) -> str:
    columns, rows = _contents(db, table)
    names, marks = ", ".join(map(quote, columns)), ", ".join("?" * len(columns))
    db.execute(f"DROP TABLE {quote(table)}")
    kind = rng.choice(["WITHOUT ROWID", "generated", "fts5", "rtree", "STRICT"])
    if kind == "fts5":
        db.execute(f"CREATE VIRTUAL TABLE {quote(table)} USING fts5({names})")
    elif kind == "rtree":
        db.execute(f"CREATE VIRTUAL TABLE {quote(table)} USING rtree(id, start, end)")
        return f"{table}: {kind}"
    elif kind == "generated":
        at = rng.randrange(len(columns))
        plain, other = [name for name in columns if name != columns[at]], quote(rng.choice(columns))
        value = rng.choice(
            ["7", f"{other} + 10", f"hex({other})", "NULL", "1.5", "json('[')", "-1"]
        )
        stored = rng.choice(["STORED", "VIRTUAL"])
        ddl = ", ".join([*map(quote, plain), f"{quote(columns[at])} AS ({value}) {stored}"])
        db.execute(f"CREATE TABLE {quote(table)} ({ddl})")
        for row in rows:
            del row[at]
        names, marks = ", ".join(map(quote, plain)), ", ".join("?" * len(plain))
        kind = f"generated {columns[at]} AS {value}"
    elif kind == "STRICT":
        typed = ", ".join(quote(name) + " ANY" for name in columns)
        db.execute(f"CREATE TABLE {quote(table)} ({typed}) STRICT")
    else:
        db.execute(f"CREATE TABLE {quote(table)} (k PRIMARY KEY, {names}) WITHOUT ROWID")
        rows, names, marks = [[i, *row] for i, row in enumerate(rows)], "k, " + names, marks + ", ?"
    db.executemany(f"INSERT INTO {quote(table)} ({names}) VALUES ({marks})", rows)
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
