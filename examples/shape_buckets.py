"""Decoding with lengths that vary: a graph for each length, or for a few buckets with padding.

    python examples/shape_buckets.py

A toy decoder step attends over `length` rows of a cache. A graph is fixed to one length, so either
a graph is built for each new length, or lengths are padded to the next bucket and masked.
"""

import argparse
import statistics
import sys
import time

from kernels import cupy_or_exit

import gaptrace

LAYERS, WIDTH = 12, 128


class Decoder:
    """A cache, the current token, and where its result goes."""

    def __init__(self, cupy, most):
        random = cupy.random.default_rng(0)
        self.cache = random.standard_normal((LAYERS, most, WIDTH), dtype=cupy.float32)
        self.query = random.standard_normal(WIDTH, dtype=cupy.float32)
        self.state = cupy.empty(WIDTH, dtype=cupy.float32)
        self.length = cupy.zeros(1, dtype=cupy.int32)
        self.places = cupy.arange(most, dtype=cupy.int32)
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.cupy = cupy
        self.graphs = {}
        cupy.cuda.Device().synchronize()

    def step(self, rows):
        """One token over so many rows, of which those from `length` on are masked."""
        cupy, hidden = self.cupy, self.query
        for layer in range(LAYERS):
            seen = self.cache[layer, :rows]
            scores = (seen * hidden).sum(axis=1)
            scores = cupy.where(self.places[:rows] < self.length, scores, cupy.float32(-1e30))
            weights = cupy.exp(scores - scores.max())
            hidden = (seen * (weights / weights.sum())[:, None]).sum(axis=0)
        cupy.copyto(self.state, hidden)

    def eager(self, length):
        """Run the step per launch."""
        with self.stream:
            self.step(length)

    def replay(self, rows):
        """Run the step as the graph for so many rows, built when it is first asked for."""
        if rows not in self.graphs:
            captured = gaptrace.capture(lambda: self.step(rows), stream=self.stream)
            self.graphs[rows] = captured, gaptrace.split(captured)
        self.graphs[rows][1].launch(self.stream)

    def release(self):
        """Free all graphs; return how many there were."""
        built = len(self.graphs)
        for captured, graph in self.graphs.values():
            graph.close()
            captured.close()
        self.graphs.clear()
        return built

    def decode(self, lengths, run):
        """Decode a token at each length; return the sum of their states, and host times in us."""
        total, times = self.cupy.zeros(WIDTH, dtype=self.cupy.float32), []
        for length in lengths:
            begin = time.perf_counter_ns()
            with self.stream:
                self.length.fill(length)
            run(length)
            self.stream.synchronize()
            times.append((time.perf_counter_ns() - begin) / 1e3)
            with self.stream:
                total += self.state
        self.stream.synchronize()
        return total.get(), times


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=96, help="tokens to decode")
    parser.add_argument("--first", type=int, default=20, help="length at the first token")
    parser.add_argument("--bucket", type=int, default=32, help="lengths are padded to this")
    options = parser.parse_args(argv)
    lengths = range(options.first, options.first + options.tokens)
    decoder = Decoder(cupy_or_exit("shape_buckets"), lengths.stop + options.bucket)

    def padded(length):
        decoder.replay(-(-length // options.bucket) * options.bucket)

    ways = {
        "per launch": decoder.eager,
        "a graph per length": decoder.replay,
        f"buckets of {options.bucket}": padded,
    }
    decoder.decode(lengths, decoder.eager)  # loads and compiles
    expected, close = None, True
    print(f"{'way':<22}{'median us':>11}{'all tokens ms':>15}{'graphs':>8}  largest difference")
    for name, run in ways.items():
        found, times = decoder.decode(lengths, run)
        expected = found if expected is None else expected
        difference = float(abs(found - expected).max())
        close = close and difference <= 1e-3 * float(abs(expected).max())
        print(
            f"{name:<22}{statistics.median(times):>11.1f}{sum(times) / 1e3:>15.2f}"
            f"{decoder.release():>8}  {difference:.2g}"
        )
    return 0 if close else 1


if __name__ == "__main__":
    sys.exit(main())
