"""After how many steps a CUDA graph has paid for its capture and instantiation.

    python examples/break_even.py

The number follows from what was measured: (capture + instantiate) / (per launch - graph). Then it
is put to the test: whole loops, with the building in them, shorter and longer than that.
"""

import argparse
import statistics
import sys
import time

from kernels import Kernels, cupy_or_exit

import gaptrace

KERNELS = 75


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=4096, help="floats per kernel")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args(argv)
    cupy = cupy_or_exit("break_even")
    kernels = Kernels(cupy)
    stream = cupy.cuda.Stream(non_blocking=True)
    x = cupy.ones(options.n, dtype=cupy.float32)
    y = cupy.full(options.n, 0.001, dtype=cupy.float32)
    cupy.cuda.Device().synchronize()

    def step():
        kernels.run(x, y, KERNELS)

    measured = gaptrace.measure(
        step, arms=("per_launch", "graph"), state=x, stream=stream, rounds=options.rounds
    )
    single, graph = measured.timings
    print(f"capture {measured.capture_ns / 1e3:.0f} us, instantiate and upload", end=" ")
    print(f"{graph.instantiate_ns / 1e3:.0f} us; a step {single.step_ns / 1e3:.1f} us per launch,")
    print(f"{graph.step_ns / 1e3:.1f} us as a graph: break-even after", end=" ")
    replays = measured.break_even_replays
    if replays is None:
        print("no number of steps: the graph is not faster")
        return 0
    print(f"{replays} steps")

    def launches(steps):
        for _ in range(steps):
            with stream:
                step()
            stream.synchronize()

    def replayed(steps):
        with (
            gaptrace.capture(step, stream=stream) as captured,
            gaptrace.split(captured.handle, chunk=KERNELS) as pieces,
        ):
            for _ in range(steps):
                pieces.launch(stream)
                stream.synchronize()

    print(f"{'steps':>8}{'per launch us':>15}{'with building us':>18}")
    for steps in sorted({max(1, replays // 4), max(1, replays // 2), replays, 2 * replays}):
        totals = [
            statistics.median(_timed(way, steps) for _ in range(options.rounds))
            for way in (launches, replayed)
        ]
        print(f"{steps:>8}{totals[0] / 1e3:>15.0f}{totals[1] / 1e3:>18.0f}")
    return 0


def _timed(way, steps):
    begin = time.perf_counter_ns()
    way(steps)
    return time.perf_counter_ns() - begin


if __name__ == "__main__":
    sys.exit(main())
