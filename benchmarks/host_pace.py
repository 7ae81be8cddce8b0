"""Whether a short loop in Python tells how fast the host runs the driver's calls, on a GPU.

    python benchmarks/host_pace.py

Eight processes of some seconds, every other one under Nsight Systems, each timing in turn: a loop
of 5,000 passes, that of the marks in recordings, 50 launches, a capture of 128 kernels, an exec
update by it. Columns: each in us, at the fastest tenth, the median and the slowest tenth;
correlation of a launch with either loop; share of the time at full pace, that is within 25 % of the
fastest loop of all processes.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gaptrace.live import pace_marks
from gaptrace.live.bench import Bench
from gaptrace.live.driver import done
from gaptrace.live.host_pace import FULL, PASSES, fastest_loop_ns
from gaptrace.record.nsys import find_nsys
from gaptrace.record.recording import nsys_command

PROCESSES, SECONDS, LAUNCHES, NODES = 8, 4.5, 50, 128
NAMES = ("loop", "mark", "launch", "capture", "update")


def rows():
    """Ns of each thing, one row a turn."""
    with Bench() as bench:
        cuda, stream = bench.cuda, bench.stream
        call = bench.launching(bench.spin(0), stream)
        mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED

        def capture():
            done(cuda.cuStreamBeginCapture(stream, mode), "capturing")
            for _ in range(NODES):
                call()
            return done(cuda.cuStreamEndCapture(stream), "capturing")

        made = done(cuda.cuGraphInstantiate(capture(), 0), "instantiating")
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            before, mark = fastest_loop_ns(PASSES), fastest_loop_ns(pace_marks.PASSES)
            begin = time.perf_counter_ns()
            for _ in range(LAUNCHES):
                call()
            launched = time.perf_counter_ns()
            bench.wait()
            capturing = time.perf_counter_ns()
            graph = capture()
            captured = time.perf_counter_ns()
            cuda.cuGraphExecUpdate(made, graph)
            updated = time.perf_counter_ns()
            cuda.cuGraphLaunch(made, stream)
            cuda.cuGraphDestroy(graph)
            bench.wait()
            loop = min(before, fastest_loop_ns(PASSES))
            launch = (launched - begin) / LAUNCHES
            yield loop, mark, launch, captured - capturing, updated - captured


def process(folder, number):
    """Rows of a process of its own."""
    file = folder / f"{number}.json"
    command = [sys.executable, __file__, str(file)]
    if number % 2:
        command = nsys_command(command, folder / str(number), granularity="graph", nsys=find_nsys())
    subprocess.run(command, check=True, capture_output=True)
    return json.loads(file.read_text())


def main():
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(list(rows())))
        return
    with tempfile.TemporaryDirectory() as folder:
        found = [process(Path(folder), number) for number in range(PROCESSES)]
    fastest_ns = min(row[0] for process_rows in found for row in process_rows)
    for number, process_rows in enumerate(found):
        columns = list(zip(*process_rows, strict=True))
        loop, mark, launch, *_ = columns
        full = sum(ns <= FULL * fastest_ns for ns in loop) / len(loop)
        shown = (f"{name} {spread(column)}" for name, column in zip(NAMES, columns, strict=True))
        print("nsys" if number % 2 else "none", *shown, end=" ")
        found = (statistics.correlation(each, launch) for each in (loop, mark))
        print("correlation", *(f"{each:.2f}" for each in found), f"full pace {full:.0%}")


def spread(column):
    tenths = statistics.quantiles(column, n=10)
    return "/".join(f"{tenths[place] / 1e3:.1f}" for place in (0, 4, 8))


if __name__ == "__main__":
    main()
