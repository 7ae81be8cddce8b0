"""Ways to break the file that an export is, and to write to it while it is read."""

import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

from fuzz_breaks import Break, any_table, opened, quote

#: Each changes a file in place and returns what it did.
FILE_BREAKS: dict[str, Break] = {}
#: Writers that go on until the event is set.
DISTURBANCES: dict[str, Callable[[random.Random, Path, threading.Event], None]] = {}

# Bytes


def _in_bytes(change: Callable[[random.Random, bytearray], str]) -> Break:
    def apply(rng: random.Random, path: Path) -> str:
        raw = bytearray(path.read_bytes())
        done = change(rng, raw)
        path.write_bytes(raw)
        return done

    FILE_BREAKS[change.__name__] = apply
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
    with opened(path) as db:
        db.execute("PRAGMA journal_mode = WAL")
        table = any_table(rng, db)
        db.execute(f"INSERT INTO {quote(table)} SELECT * FROM {quote(table)} LIMIT 5")
        db.commit()
        saved = log.read_bytes()
    if kept and saved:
        log.write_bytes(saved)
    return "kept" if kept else "lost"


FILE_BREAKS["write_ahead_log"] = write_ahead_log


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
    with opened(path) as db:
        table = any_table(rng, db)
        db.execute(f"INSERT INTO {quote(table)} SELECT * FROM {quote(table)} LIMIT 50")
