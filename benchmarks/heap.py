"""Does the heap make steps that instantiate their graphs uneven, and slow to begin?

    python benchmarks/heap.py

Steps of 3,000 and 1,000 empty nodes in chunks of 100, captured and instantiated each time, and of
3,000 captured and exec-updated, on a host at full pace; in processes whose heap is as it is, that
keep memory once they have it (glibc's MALLOC_*_ variables), and that use huge pages, in turn. Of
each: the median step and its quartiles, what parts of it the calls take, the first chunk, and the
page faults: a step frees all its graphs, so that the heap may give their memory back and need it
anew.
"""

import argparse
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from functools import partial

from recommend import Step, destroy

from gaptrace.live.bench import Bench
from gaptrace.live.driver import done
from gaptrace.live.host_pace import HostPace

HEAPS = {
    "as it is": {},
    "keeps memory": {
        "MALLOC_TRIM_THRESHOLD_": str(2**32),
        "MALLOC_TOP_PAD_": str(2**26),
        "MALLOC_MMAP_MAX_": "0",
    },
    "huge pages": {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"},
}
SETTINGS = (("instantiate", 3_000, 100), ("instantiate", 1_000, 100), ("update", 3_000, 128))


def page_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def timed(step, regime, sizes, execs, variant):
    """One step: ns of all, of its first chunk and of each kind of call; page faults."""
    cuda, clock, fresh = step.bench.cuda, time.perf_counter_ns, []
    found = dict.fromkeys(("step", "first", "capture", "make", "launch", "free"), 0)
    faults, begin = page_faults(), clock()
    for place, (first, last) in enumerate(step.pieces(sizes)):
        at = [clock()]
        graph = step.capture(first, last, variant)
        at.append(clock())
        if regime == "update":
            cuda.cuGraphExecUpdate(execs[place], graph)
        else:
            fresh.append(done(cuda.cuGraphInstantiate(graph, 0), "instantiating"))
        at.append(clock())
        cuda.cuGraphLaunch((fresh or execs)[place], step.bench.stream)
        at.append(clock())
        cuda.cuGraphDestroy(graph)
        at.append(clock())
        for name, ns, before in zip(
            ("capture", "make", "launch", "free"), at[1:], at, strict=False
        ):
            found[name] += ns - before
        found["first"] = found["first"] or at[-1] - begin
    found["faults"] = page_faults() - faults
    step.bench.wait()
    found["step"] = clock() - begin
    destroy(step.bench, fresh)
    return found


def second_of_two(*arguments):
    timed(*arguments, 0)
    return timed(*arguments, 1)


def measure(heap, seconds):
    """Print a line for each setting, in a process that has that heap."""
    with Bench() as bench:
        pace = HostPace(patience_ns=10**11)
        for regime, nodes, size in SETTINGS:
            step = Step(bench, nodes, (0,))
            sizes = tuple(min(size, nodes - begin) for begin in range(0, nodes, size))
            execs = step.build(sizes) if regime == "update" else []
            rows, until = [], time.monotonic() + seconds
            while time.monotonic() < until or len(rows) < 5:
                row = pace.undisturbed(partial(second_of_two, step, regime, sizes, execs))
                if pace.was_full:
                    rows.append(row)
            low, median, high = statistics.quantiles([row["step"] for row in rows], n=4)
            parts = ", ".join(
                f"{name} {statistics.median(row[name] for row in rows) / 1e3:.0f}"
                for name in ("first", "capture", "make", "launch", "free")
            )
            faults = statistics.median(row["faults"] for row in rows)
            print(
                f"{heap:13} {regime:11} {nodes:5} {len(rows):4} steps {median / 1e3:7.0f} us "
                f"({low / 1e3:.0f} to {high / 1e3:.0f}): {parts} us; {faults:.0f} page faults",
                flush=True,
            )
            destroy(bench, execs)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="for each setting")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--heap", choices=HEAPS, help="of this process, which was started with it")
    options = parser.parse_args(argv)
    if options.heap:
        measure(options.heap, options.seconds)
        return 0
    for _ in range(options.turns):
        for heap in random.sample(list(HEAPS), len(HEAPS)):
            command = [sys.executable, __file__, "--heap", heap, "--seconds", str(options.seconds)]
            subprocess.run(command, env=os.environ | HEAPS[heap], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
