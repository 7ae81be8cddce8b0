"""600 small kernels as one graph, in chunks of 100 and of 20: by themselves, and under recorders.

    python benchmarks/chunks_of_600.py
    gaptrace profile --granularity graph benchmarks/chunks_of_600.py
    gaptrace profile --granularity node benchmarks/chunks_of_600.py
    gaptrace profile --recorder cupti benchmarks/chunks_of_600.py

A recorder lengthens the launch of a graph by so much per node, which is what chunks hide. The table
that it prints under a recorder is of times that the recorder made.
"""

import sys

import gaptrace
from gaptrace.render.arms import arms_text

KERNELS = 600
SOURCE = r"""
extern "C" __global__ void add(float* x, const float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += y[i];
}
"""


def main():
    try:
        import cupy
    except ImportError:
        sys.exit("chunks_of_600: needs CuPy: pip install 'gaptrace[cuda13]' (or cuda12)")
    n = 4096
    kernel = cupy.RawKernel(SOURCE, "add")
    x, y = cupy.zeros(n, dtype=cupy.float32), cupy.full(n, 0.5, dtype=cupy.float32)

    def step():
        for _ in range(KERNELS):
            kernel(((n + 255) // 256,), (256,), (x, y, cupy.int32(n)))

    measured = gaptrace.measure(step, state=x, chunks=(100, 20), rounds=15)
    sys.stdout.write(arms_text([("600 kernels", measured)], width=100, color=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
