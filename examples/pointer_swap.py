"""Two input buffers that take turns, under a graph that holds the address of one.

    python examples/pointer_swap.py

A graph keeps the addresses of its capture. Replayed on, it reads the first buffer for ever, which
is shown. Three ways to mend it: capture again and update the exec, copy into one fixed buffer, or
hold a graph for each buffer. All are timed.
"""

import argparse
import statistics
import sys
import time

from kernels import Kernels, cupy_or_exit

import gaptrace

KERNELS = 30


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=65_536, help="floats per buffer")
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args(argv)
    cupy = cupy_or_exit("pointer_swap")
    from cuda.bindings import driver

    kernels = Kernels(cupy)
    stream = cupy.cuda.Stream(non_blocking=True)
    inputs = [cupy.full(options.n, value, dtype=cupy.float32) for value in (0.001, 0.002)]
    fixed = inputs[0].copy()
    x = cupy.zeros(options.n, dtype=cupy.float32)
    cupy.cuda.Device().synchronize()

    def captured_with(y):
        return gaptrace.capture(lambda: kernels.run(x, y, KERNELS), stream=stream)

    def run(launch):
        """Run all steps; return the result and the median host time of a step."""
        x.fill(0)
        cupy.cuda.Device().synchronize()
        times = []
        for number in range(options.steps):
            begin = time.perf_counter_ns()
            launch(number)
            stream.synchronize()
            times.append(time.perf_counter_ns() - begin)
        return x.get(), statistics.median(times) / 1e3

    def per_launch(number):
        with stream:
            kernels.run(x, inputs[number % 2], KERNELS)

    expected, single_us = run(per_launch)
    print(f"{'way':<24}{'us/step':>9}  result")
    print(f"{'per launch':<24}{single_us:>9.1f}  -")

    def say(way, found):
        result, us = found
        verdict = "the same" if (result == expected).all() else "WRONG: reads the first buffer"
        print(f"{way:<24}{us:>9.1f}  {verdict}")
        return bool((result == expected).all())

    good = []
    with captured_with(inputs[0]) as first, captured_with(inputs[1]) as second:
        with gaptrace.split(first.handle, chunk=KERNELS) as graph:
            stale = say("graph, addresses stale", run(lambda number: graph.launch(stream)))

            def update(number):
                with captured_with(inputs[number % 2]) as again:
                    status, _ = driver.cuGraphExecUpdate(graph.execs[0], again.handle)
                    assert status == 0, status
                graph.launch(stream)

            good.append(say("capture, exec update", run(update)))
        with (
            gaptrace.split(first.handle, chunk=KERNELS) as even,
            gaptrace.split(second.handle, chunk=KERNELS) as odd,
        ):
            pair = (even, odd)
            good.append(say("a graph per buffer", run(lambda n: pair[n % 2].launch(stream))))
    with captured_with(fixed) as own, gaptrace.split(own.handle, chunk=KERNELS) as graph:

        def copy(number):
            with stream:
                cupy.copyto(fixed, inputs[number % 2])
            graph.launch(stream)

        good.append(say("copy to a fixed buffer", run(copy)))
    return 0 if all(good) and not stale else 1


if __name__ == "__main__":
    sys.exit(main())
