"""What `gaptrace.tune` says of chains of one-warp kernels that spin, and what it measured.

python benchmarks/tune.py
"""

import sys
import time

import gaptrace

SOURCE = r"""
extern "C" __global__ void spin(float* x, long long cycles) {
    long long begin = clock64();
    while (clock64() - begin < cycles);
    x[threadIdx.x] += 1.0f;
}
"""
#: Nodes, and clocks that each of them spins.
SETTINGS = ((600, 0), (2_000, 0), (600, 4_000), (2_000, 4_000), (2_000, 16_000))


def main():
    try:
        import cupy
    except ImportError:
        sys.exit("tune: needs CuPy: pip install 'gaptrace[cuda13]' (or cuda12)")
    kernel = cupy.RawKernel(SOURCE, "spin")
    for nodes, clocks in SETTINGS:
        x = cupy.zeros(32, dtype=cupy.float32)

        def step(x=x, nodes=nodes, clocks=clocks):
            for _ in range(nodes):
                kernel((1,), (32,), (x, cupy.int64(clocks)))

        begin = time.perf_counter()
        found = gaptrace.tune(step, state=x, rounds=5)
        took = time.perf_counter() - begin
        print(f"{nodes} nodes of {clocks} clocks: {found.verdict} {found.chunk} in {took:.1f} s")
        print("  predicted", found.predicted_ns)
        print("  measured", found.measured_ns)
        print("  inputs", {each.name: round(each.value, 4) for each in found.inputs})
    return 0


if __name__ == "__main__":
    sys.exit(main())
