"""How long `gaptrace analyze` takes, beside the least that any tool must do with the same file.

    python benchmarks/analyze_speed.py --ops 1000000 --rounds 5

Writes an export of that many kernels (two streams, one launch call each, a cudaMalloc at every
fourth, an NVTX range at every hundredth) into a temporary folder. Then, in turn, runs as whole
processes: the report, and a plain union of all kernel intervals by the sqlite3 module (busy and
idle time, no cause, no range, no graph). Prints the median of each, their spread, peak memory of
the report, and the ratio of the medians: the price of the explanation, whatever the machine.
"""

import argparse
import random
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL,
    deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL,
    correlationId INTEGER, globalPid INTEGER, shortName INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,
    eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER,
    nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL,
    text TEXT, globalTid INTEGER, domainId INTEGER);
"""
PROCESS = (1 << 48) | (100 << 24)
THREAD = PROCESS | 100

UNION = """
import sqlite3, sys
rows = sqlite3.connect(sys.argv[1]).execute(
    "SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchall()
rows.sort()
idle, latest = 0, rows[0][1]
for start, end in rows:
    if start > latest:
        idle += start - latest
    if end > latest:
        latest = end
print(latest - rows[0][0] - idle, idle)
"""


def launches(count: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Number, call start and end, kernel start and end."""
    dice = random.Random(1)
    now = free = 1_000
    for number in range(1, count + 1):
        returned = now + dice.randint(2_000, 5_000)
        start = max(returned + dice.randint(500, 2_000), free if number % 2 else 0)
        end = start + dice.randint(1_000, 9_000)
        yield number, now, returned, start, end
        free = max(free, end)
        now = returned + dice.randint(200, 3_000)
        if number % 1_000 == 0:  # the host waits for the device now and then
            now = max(now, free) + 5_000


def write_export(path: Path, count: int) -> None:
    """Write the export in one pass."""
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript(SCHEMA)
        names = ["cudaLaunchKernel_v7000", "cudaMalloc_v3020", *(f"kernel_{i}" for i in range(100))]
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(names))
        kernels, calls, ranges = [], [], []
        for number, called, returned, start, end in launches(count):
            kernels.append((start, end, 0, 1, 7 + number % 2, number, PROCESS, 2 + number % 100))
            calls.append((called, returned, 0, THREAD, number, 0, 0))
            if number % 4 == 0:
                calls.append((returned + 1, returned + 100, 0, THREAD, count + number, 1, 0))
            if number % 100 == 0:
                ranges.append((called, end, 59, "step", THREAD, 0))
        for table, rows in (
            ("CUPTI_ACTIVITY_KIND_KERNEL", kernels),
            ("CUPTI_ACTIVITY_KIND_RUNTIME", calls),
            ("NVTX_EVENTS", ranges),
        ):
            marks = ", ".join("?" * len(rows[0]))
            db.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)


def seconds(command: list[str]) -> float:
    """Wall time of a whole process."""
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ops", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made.sqlite"
        write_export(path, options.ops)
        commands = {
            "gaptrace analyze": [sys.executable, "-m", "gaptrace", "analyze", str(path)],
            "plain union": [sys.executable, "-c", UNION, str(path)],
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(options.rounds):
            for name, command in commands.items():
                times[name].append(seconds(command))
    for name, taken in times.items():
        low, mid, high = min(taken), statistics.median(taken), max(taken)
        print(f"{name:<18}{mid:7.2f} s  ({low:.2f} to {high:.2f}, {options.rounds} rounds)")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    analyze, union = (statistics.median(taken) for taken in times.values())
    print(f"ratio {analyze / union:.1f}, peak memory of the larger {peak:.0f} MiB")


if __name__ == "__main__":
    main()
