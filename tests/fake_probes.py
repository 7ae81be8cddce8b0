"""`gaptrace.live.calibrate` on the device that is a thread (`fake_gpu`), in a process of its own.

    python -m fake_probes PLAN FILE

With FAKE_PROBES set to `interrupt` it ends as Ctrl-C ends it, with `busy` the GPU is in use, with
`hangs` it waits for ever, and with `silent` it writes nothing.
"""

import os
import sys
import threading

from fake_gpu import FakeGpu

from gaptrace.errors import GpuError
from gaptrace.live import bench, calibrate, host_pace, probes

MODE = os.environ.get("FAKE_PROBES", "")


def measured(plan):
    if MODE == "interrupt":
        raise KeyboardInterrupt
    if MODE == "busy":
        raise GpuError("it is in use")
    if MODE == "hangs":
        threading.Event().wait()
    return measure(plan)


if __name__ == "__main__":
    sys.setswitchinterval(1e-4)  # host and device share one interpreter
    device = FakeGpu()
    bench.driver = lambda: device
    bench.compile_kernels = lambda capability: b""
    probes._GRAPH_NODES, probes._GRAPHS, probes._MANY, probes._CLOCKS = (2,), 3, 40, 10
    probes._LONG_CLOCKS = 10_000
    host_pace.PATIENCE_NS, host_pace.TRIES = 0, 1  # the device itself slows this host down
    measure, calibrate.measure = calibrate.measure, measured
    if MODE == "hangs":
        calibrate._PATIENCE_S = 1
    if MODE != "silent":
        calibrate.main(sys.argv[1:])
