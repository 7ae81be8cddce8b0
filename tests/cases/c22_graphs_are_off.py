"""Case 22: 42,000 of 42,000 graphs skipped.

Reported for a fork of llama.cpp (stew675, #41): the program was built with CUDA graphs and asked
for them, and its counters show that all 42,000 evaluations ran without one.

Say that graphs are off before naming any size. What a graph would bring here the recording cannot
say: it holds no graph launch to go by.
"""

from cases.program import US, Program
from cases.story import Story

PASSES, KERNELS, LAUNCH, BETWEEN, KERNEL = 12, 100, 5_000, 3_000, 4_000  # made up


def recorded():
    run = Program()
    for _ in range(PASSES):
        for _ in range(KERNELS):
            run.host(BETWEEN)
            run.launch(LAUNCH, KERNEL)
        run.wait(5 * US)
    return run.rows


GAPS, WAITS = PASSES * KERNELS - 1, PASSES - 1
#: Between passes the device waits for the whole of launch and code, else a kernel hides a part.
IN_PASSES = GAPS - WAITS

STORIES = {
    "as reported": Story(
        recorded(),
        findings=("no_graphs",),
        verdict="needs_calibration",
        cause="graph_launch_cost",
        regime=None,
        causes={
            "launch_call": IN_PASSES * (LAUNCH + BETWEEN - KERNEL) + WAITS * LAUNCH,
            "host_code": WAITS * BETWEEN,
            "host_sync": WAITS * 5 * US,
        },
        evidence={"no_graphs": {"kernels": 1200, "kernel_ns": KERNEL, "launch_ns": 8_000}},
        recommendation={"chunk": None, "plateau": None, "schedule": None, "nodes": None},
        says=(
            "no CUDA graph is launched, and many small kernels are launched one by one",
            "1,200 kernels of 4.00 us, one every 8.00 us",
            "before that no graph size can be advised",
        ),
    )
}
