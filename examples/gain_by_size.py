"""How the gain of a CUDA graph vanishes as the kernels grow.

    python examples/gain_by_size.py

Twenty kernels a step over n floats, launched one by one and as one graph. Small kernels end before
the host has launched the next one, and a graph saves that; large ones hide their launches.
"""

import argparse
import sys

from kernels import Kernels, cupy_or_exit

import gaptrace
from gaptrace.timings import gain

SIZES = (4_096, 16_384, 65_536, 262_144, 1_000_000, 4_000_000)
KERNELS = 20


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, metavar="N")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args(argv)
    cupy = cupy_or_exit("gain_by_size")
    kernels = Kernels(cupy)
    print(f"{'floats':>10}{'per launch us':>15}{'graph us':>10}{'gain us':>9}{'gain':>8}")
    for n in options.sizes:
        x, y = cupy.ones(n, dtype=cupy.float32), cupy.full(n, 0.001, dtype=cupy.float32)
        measured = gaptrace.measure(
            lambda x=x, y=y: kernels.run(x, y, KERNELS),
            arms=("per_launch", "graph"),
            state=x,
            rounds=options.rounds,
        )
        single, graph = measured.timings
        saved = gain(single, graph)
        shown = f"{saved.gain_ns / single.step_ns:>8.0%}" if saved.is_shown else f"{'none':>8}"
        print(
            f"{n:>10,}{single.step_ns / 1e3:>15.1f}{graph.step_ns / 1e3:>10.1f}"
            f"{saved.gain_ns / 1e3:>9.1f}{shown}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
