"""75 small kernels a step: launched one by one, as one CUDA graph, and in chunks of several graphs.

    gaptrace profile examples/demo.py --steps 20 --chunks 25 10

Every way of running the step is an arm with its own NVTX range: `per_launch`, `graph:75` (one graph
of 75 nodes), `graph:25` (three graphs of 25) and so on; `capture:75` is the making of the graphs.
Without a recorder the ranges cost nothing, and the times printed are those of the host clock.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import gaptrace

KERNELS = 75

SOURCE = r"""
extern "C" __global__ void scale(float* x, const float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 0.999f;
}
extern "C" __global__ void add(float* x, const float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += y[i];
}
extern "C" __global__ void relu(float* x, const float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = x[i] > 0.0f ? x[i] : 0.0f;
}
"""


class Work:
    """One step of the work: scale, add and relu in turn, on one stream."""

    def __init__(self, cupy, n):
        module = cupy.RawModule(code=SOURCE)
        self.kernels = [module.get_function(name) for name in ("scale", "add", "relu")]
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.start = cupy.linspace(-1, 1, n, dtype=cupy.float32)
        self.x, y = cupy.empty_like(self.start), cupy.full_like(self.start, 0.001)
        self.arguments = (self.x, y, cupy.int32(n))
        self.grid, self.block = ((n + 255) // 256,), (256,)
        self.cupy = cupy
        cupy.cuda.Device().synchronize()

    def launch(self, first: int = 0, count: int = KERNELS) -> None:
        """Launch some kernels of the step, one by one."""
        with self.stream:
            for number in range(first, first + count):
                self.kernels[number % 3](self.grid, self.block, self.arguments)

    def capture(self, chunk: int) -> list:
        """Return the step as graphs of at most `chunk` kernels each."""
        graphs = []
        for first in range(0, KERNELS, chunk):
            self.stream.begin_capture()
            self.launch(first, min(chunk, KERNELS - first))
            graphs.append(self.stream.end_capture())
        return graphs

    def reset(self) -> None:
        """Start over from the same numbers."""
        with self.stream:
            self.cupy.copyto(self.x, self.start)
        self.stream.synchronize()


def run_arm(work: Work, name: str, step: Callable[[], object], steps: int) -> tuple[list, bytes]:
    """Run an arm; return the host time of each step in microseconds, and the bits of the result."""
    step()  # the first one loads code and uploads graphs
    work.reset()
    times = []
    with gaptrace.range(name):
        for number in range(steps):
            begin = time.perf_counter_ns()
            with gaptrace.range("step", payload=number):
                step()
                work.stream.synchronize()
            times.append((time.perf_counter_ns() - begin) / 1000)
    return times, work.x.get().tobytes()


def run(work: Work, steps: int, chunks: Sequence[int]) -> int:
    """Run all arms and print one line each; return the exit status."""
    print(f"{'arm':<12}{'graphs':>8}{'median us/step':>17}{'fastest':>10}")
    times, expected = run_arm(work, "per_launch", work.launch, steps)
    print(f"{'per_launch':<12}{'-':>8}{statistics.median(times):>17.1f}{min(times):>10.1f}")
    for chunk in dict.fromkeys([KERNELS, *chunks]):
        with gaptrace.range(f"capture:{chunk}"):
            graphs = work.capture(chunk)
        name = f"graph:{chunk}"

        def replay(graphs=graphs):
            for graph in graphs:
                graph.launch(work.stream)

        times, result = run_arm(work, name, replay, steps)
        print(f"{name:<12}{len(graphs):>8}{statistics.median(times):>17.1f}{min(times):>10.1f}")
        if result != expected:
            print(f"demo: {name} computed something else than per_launch", file=sys.stderr)
            return 1
    print("all arms computed the same, bit for bit")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=4096, help="floats per kernel (default: 4096)")
    parser.add_argument("--steps", type=int, default=20, help="steps per arm (default: 20)")
    parser.add_argument(
        "--chunks",
        type=int,
        nargs="*",
        default=[25, 10],
        metavar="SIZE",
        help=f"kernels per graph, 1 to {KERNELS}, an arm each (default: 25 10)",
    )
    options = parser.parse_args(argv)
    if min(options.n, options.steps, *options.chunks) < 1 or max([1, *options.chunks]) > KERNELS:
        parser.error(f"--n and --steps start at 1, --chunks lie in 1 to {KERNELS}")
    try:
        import cupy
    except ImportError:
        print("demo: needs CuPy: pip install 'gaptrace[cuda13]' (or cuda12)", file=sys.stderr)
        return 1
    try:
        work = Work(cupy, options.n)
    except RuntimeError as error:  # no GPU, no driver, no NVRTC
        reason = str(error).splitlines()[0]
        print(f"demo: needs an NVIDIA GPU and CUDA's libraries: {reason}", file=sys.stderr)
        return 1
    return run(work, options.steps, options.chunks)


if __name__ == "__main__":
    sys.exit(main())
