"""What is in a database file or a folder, for tests that look at what was written."""

import sqlite3
from contextlib import closing
from pathlib import Path


def rows_of(path: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(
        sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    ) as db:
        return db.execute(sql).fetchall()


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
