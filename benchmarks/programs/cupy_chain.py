"""600 small kernels a step in CuPy, each on the result of the one before.

gaptrace profile --arms per_launch,graph,chunks benchmarks/programs/cupy_chain.py
"""

import argparse

import cupy
from timed_steps import add_option, print_median_step

import gaptrace

SOURCE = r"""
extern "C" __global__ void advance(float* x, int n, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float a = x[i];
    for (int k = 0; k < rounds; k++) a = a * 0.999f + 0.001f;
    x[i] = a;
}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=1, help="how long a kernel lasts")
    parser.add_argument("--steps", type=int, default=30)
    add_option(parser)
    options = parser.parse_args()
    kernel = cupy.RawModule(code=SOURCE).get_function("advance")
    x, n = cupy.ones(4_096, dtype=cupy.float32), cupy.int32(4_096)
    rounds = cupy.int32(options.rounds)

    @gaptrace.step(name="chain")
    def chain(x):
        for _ in range(options.kernels):
            kernel((16,), (256,), (x, n, rounds))
        return x

    def run():
        chain(x)
        stream.synchronize()

    with cupy.cuda.Stream(non_blocking=True) as stream:
        print_median_step(run, options.steps, full_pace=options.full_pace)


if __name__ == "__main__":
    main()
