"""How long a timeline of a notebook takes to open and to draw a window, beside a plain pass.

    python benchmarks/timeline_speed.py --ops 5000000 --rounds 20

Writes the export of analyze_speed.py with that many kernels, and analyses it. Then times: what is
sorted once, together with the first figure; and for windows of several widths, at random places,
the view, the figure and its JSON: all that happens between a zoom and what a browser is sent. In
turn with each window, the plainest answer to how busy it was: one pass over the start and end of
every kernel. Prints medians and the longest of each, and the ratio of the medians.
"""

import argparse
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
from analyze_speed import write_export

from gaptrace.analysis import Analysis, analyze
from gaptrace.prepared import prepare
from gaptrace.read import read
from gaptrace.render.figures.timeline import draw
from gaptrace.view import view

#: Window widths as parts of the whole.
PARTS = (1, 2, 10, 100, 1_000, 10_000, 100_000)


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def plain(analysis: Analysis, from_ns: int, to_ns: int) -> int:
    """Sum up the kernels of a window, each by itself."""
    start, end = pl.col("start_ns").clip(from_ns, to_ns), pl.col("end_ns").clip(from_ns, to_ns)
    return int(analysis.trace.ops.select((end - start).sum()).item())


def line(name: str, taken: list[float]) -> str:
    return f"{name:<26}{statistics.median(taken):8.3f} s  (longest {max(taken):.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ops", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made.sqlite"
        write_export(path, options.ops)
        analysis = analyze(read(path))
    opened = [seconds(lambda: draw(view(prepare(analysis))).to_json()) for _ in range(5)]
    print(f"{'opened first':<26}{opened[0]:8.3f} s")
    print(line("opened again, 4 times", opened[1:]))
    prepared, dice = prepare(analysis), random.Random(1)
    first, last = analysis.windows.select("start_ns", "end_ns").row(0)
    for part in PARTS:
        width = (last - first) // part
        drawn, passed = [], []
        for _ in range(options.rounds):
            start = dice.randint(first, last - width)
            window = start, start + width
            drawn.append(seconds(lambda w=window: draw(view(prepared, *w)).to_json()))
            passed.append(seconds(lambda w=window: plain(analysis, *w)))
        ratio = statistics.median(drawn) / statistics.median(passed)
        print(line(f"1/{part} of the whole", drawn), f"  plain {line('', passed).strip()}", end="")
        print(f"  ratio {ratio:.1f}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory, analysis included, {peak:.0f} MiB")


if __name__ == "__main__":
    main()
