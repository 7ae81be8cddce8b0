"""A decoder whose cache grows: a graph of its step would go on reading the old cache.

    gaptrace verify examples/stale_graph.py            # names the node and the parameter; status 3
    gaptrace verify examples/stale_graph.py --fixed    # the cache stays in place: status 0

Run as it is, per launch, the program is right in both cases. Captured once and replayed, the first
one computes with memory that was freed: the mistake that every graph cache must guard against.
"""

import argparse
import sys

from kernels import cupy_or_exit

import gaptrace

SOURCE = r"""
extern "C" __global__ void append(float* cache, const float* token, const int* length, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) cache[*length * n + i] = token[i];
}
extern "C" __global__ void attend(const float* cache, float* token, const int* length, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    for (int row = 0; row <= *length; ++row) sum += cache[row * n + i];
    if (i < n) token[i] = 0.5f * sum / (*length + 1) + 0.25f;
}
extern "C" __global__ void advance(int* length) { *length += 1; }
"""
WIDTH = 256


class Decoder:
    def __init__(self, cupy, rows):
        module = cupy.RawModule(code=SOURCE)
        self.kernels = {name: module.get_function(name) for name in ("append", "attend", "advance")}
        self.cupy = cupy
        self.cache = cupy.zeros((rows, WIDTH), dtype=cupy.float32)
        self.token = cupy.ones(WIDTH, dtype=cupy.float32)
        self.length = cupy.zeros(1, dtype=cupy.int32)

    def grow(self):
        """Move the cache to one of twice its size."""
        cache = self.cupy.zeros((2 * len(self.cache), WIDTH), dtype=self.cupy.float32)
        cache[: len(self.cache)] = self.cache
        self.cache = cache

    @gaptrace.step(name="decode")
    def decode(self, cache, token, length):
        """One token: append it to the cache, attend to all of it."""
        n = self.cupy.int32(WIDTH)
        self.kernels["append"]((1,), (WIDTH,), (cache, token, length, n))
        self.kernels["attend"]((1,), (WIDTH,), (cache, token, length, n))
        self.kernels["advance"]((1,), (1,), (length,))
        return token


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--fixed", action="store_true", help="take the whole cache at the start")
    options = parser.parse_args(argv)
    cupy = cupy_or_exit("stale_graph")
    decoder = Decoder(cupy, options.tokens if options.fixed else 8)
    for number in range(options.tokens):
        if number == len(decoder.cache):
            decoder.grow()
        decoder.decode(decoder.cache, decoder.token, decoder.length)
    print(f"{options.tokens} tokens, checksum {float(decoder.token.sum()):.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
