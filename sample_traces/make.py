"""Make a small sample trace, free of anything personal, from a full Nsight Systems export.

    python make.py SOURCE.sqlite NAME --range per_launch --range graph:600 \
        --about "..." --command "nsys profile -t cuda,nvtx python demo.py"

The window runs from the first of the named NVTX ranges to the end of the last one, or between
--from and --to in nanoseconds since the session began. The sample is what gaptrace redact makes of
it, so what no analysis of gaps needs is not in it. A sample in which anything still looks personal
is not written. Writes NAME.sqlite and NAME.json (where it comes from), over older ones.
"""

import argparse
import json
import re
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from gaptrace.errors import GaptraceError
from gaptrace.read import read
from gaptrace.redact import redact
from gaptrace.redact.kept import KEPT
from gaptrace.redact.window import find_window

#: Text that must not be in a sample: paths, addresses, names of hosts and users.
PERSONAL = re.compile(
    r"(?<![\w)>*&])[/~]\w[\w.+-]*/|/(home|root|usr|opt|tmp|mnt|var|etc|srv|data)\b|[A-Za-z]:\\"
    r"|\w@\w|://|\b\d{1,3}(\.\d{1,3}){3}\b|\b(HOME|USER|HOSTNAME|PATH)="
    r"|\.(com|org|net|local|internal|lan)\b"
)


def main(argv: Sequence[str] | None = None) -> None:
    """Make one sample."""
    asked = _arguments().parse_args(argv)
    target = asked.out / f"{asked.name}.sqlite"
    if not asked.source.is_file():
        raise SystemExit(f"{asked.source}: no such file")
    if target.exists() and target.samefile(asked.source):
        raise SystemExit(f"{target}: is the source itself; choose another name or folder")
    part = target.with_suffix(".part")
    part.unlink(missing_ok=True)
    try:
        window = _window(asked)
        done = redact(
            asked.source,
            part,
            from_ns=window[0],
            to_ns=window[1],
            made_by="gaptrace sample_traces/make.py",
        )
        if done.hidden:
            raise SystemExit(f"{done.hidden} names look personal, nothing written")
        origin = provenance(asked.source, part, window) | {
            "window_ranges": asked.range or None,
            "about": asked.about,
            "command": asked.command,
            "licence": asked.licence,
        }
        check(part, json.dumps(origin))
        part.replace(target)
    except GaptraceError as error:
        raise SystemExit(str(error)) from error
    finally:
        part.unlink(missing_ok=True)
    target.with_suffix(".json").write_text(json.dumps(origin, indent=1) + "\n")
    sys.stdout.write(f"{target}: {target.stat().st_size:,} bytes, {origin['rows_kept']}\n")


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("source", type=Path, help="a full export; it is not changed")
    parser.add_argument("name", help="of the sample, without suffix")
    parser.add_argument("--range", action="append", default=[], help="NVTX range in the window")
    parser.add_argument("--from", dest="start", type=int, help="start of the window, ns")
    parser.add_argument("--to", dest="stop", type=int, help="end of the window, ns")
    parser.add_argument("--about", required=True, help="what ran, one sentence")
    parser.add_argument("--command", required=True, help="how it was recorded, without paths")
    parser.add_argument("--licence", default="MIT")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder")
    return parser


def _window(asked: argparse.Namespace) -> tuple[int, int]:
    """Return [from, to) in ns: the hull of the named ranges, or the two times given."""
    if not asked.range:
        if asked.start is None or asked.stop is None or asked.start >= asked.stop:
            raise SystemExit("name the window: --range, or --from and --to with from < to")
        return asked.start, asked.stop
    trace = read(asked.source)
    found = [find_window(trace, name, None, None) for name in asked.range]
    windows = [window for window in found if window is not None]
    return min(begin for begin, _ in windows), max(end for _, end in windows)


def provenance(source: Path, sample: Path, window: tuple[int, int]) -> dict[str, object]:
    """Say where a sample comes from and what was left out of it."""
    with closing(_open(source)) as full, closing(_open(sample)) as cut:
        return _provenance(full, cut, window)


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)


def _provenance(
    full: sqlite3.Connection, cut: sqlite3.Connection, window: tuple[int, int]
) -> dict[str, object]:
    before, after = _tables(full), _tables(cut)
    machine = dict(_pairs(cut, "TARGET_INFO_SYSTEM_ENV"))
    exported = dict(_pairs(cut, "META_DATA_EXPORT")) | dict(_pairs(cut, "EXPORT_META_DATA"))
    modes = [v for k, v in _pairs(cut, "META_DATA_CAPTURE") if k.endswith("OPTIONS:MODE")]
    known = {*KEPT, "StringIds"}
    kept = {t: _count(cut, t) if t in after else 0 for t in KEPT if "start" in before.get(t, [])}
    return {
        "gpu": [name for name, _ in _pairs(cut, "TARGET_INFO_GPU", "name, id")],
        "driver": machine.get("NvDriverVersion"),
        "cuda_driver_version": machine.get("CudaDriverVersion"),
        "cpu": machine.get("CpuDescription"),
        "os": machine.get("OsDescription"),
        "recorder": exported.get("EXPORT_PRODUCT_NAME"),
        "recorder_version": exported.get("EXPORT_PRODUCT_VERSION"),
        "schema": exported.get("EXPORT_SCHEMA_VERSION"),
        "granularity": modes[0].lower() if modes else None,
        "window_ns": list(window),
        "rows_kept": kept,
        "rows_dropped": {table: _count(full, table) - count for table, count in kept.items()},
        "tables_dropped": sorted(t for t in before if not t.startswith("ENUM_") and t not in known),
        "columns_dropped": "those that KEPT in make.py does not name",
    }


def _tables(db: sqlite3.Connection) -> dict[str, list[str]]:
    """Return {table: its columns}."""
    names = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return {
        name: [row[1] for row in db.execute(f'PRAGMA table_info("{name}")')] for (name,) in names
    }


def _pairs(
    db: sqlite3.Connection, table: str, columns: str = "name, value"
) -> Iterator[tuple[str, str]]:
    if table in _tables(db):
        yield from db.execute(f"SELECT {columns} FROM {table}")


def _count(db: sqlite3.Connection, table: str) -> int:
    (count,) = db.execute(f'SELECT COUNT(*) FROM "{table}"').fetchone()
    return int(count)


def check(path: Path, origin: str) -> None:
    """Refuse a sample in which any text, or its provenance, looks like a path or a person's."""
    with closing(_open(path)) as db:
        texts = [origin] + [
            str(value)
            for table, columns in _tables(db).items()
            for column in columns
            for (value,) in db.execute(
                f"SELECT DISTINCT {column} FROM {table} WHERE typeof({column}) = 'text'"
            )
        ]
    if found := [text for text in texts if PERSONAL.search(text)]:
        raise SystemExit(f"names look personal, nothing written: {found[:3]}")


if __name__ == "__main__":
    main()
