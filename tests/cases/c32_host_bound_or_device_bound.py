"""Case 32: the same step, five times faster with a graph, or not at all.

fangwei123456/spikingjelly#740. A training step launched kernel by kernel takes 77.507 ms at batch 8
and 184.010 ms at batch 96; as a graph 15.260 ms (5.08 times faster) and 182.076 ms (1.01 times).

A step takes the longer of what the host and what the device need: 77 or 15 ms at batch 8, 77 or
182 ms at batch 96. There the device is the slower side, and the gain of a graph vanishes.
"""

import pytest

from cases.program import US, Program
from cases.story import Story
from gaptrace.cost import ChunkModel, HostCost, per_launch_ns

STEPS, KERNELS = 3, 200  # made up
HOST, SMALL, LARGE = 77_507_000, 15_260_000, 182_076_000
LAUNCH = 7_000
BETWEEN = HOST // KERNELS - LAUNCH


def recorded(device):
    run = Program()
    for _ in range(STEPS * KERNELS):
        run.host(BETWEEN)
        run.launch(LAUNCH, device // KERNELS)
    return run.rows


GAPS = STEPS * KERNELS - 1

STORIES = {
    "batch 8": Story(
        recorded(SMALL),
        findings=("no_graphs",),
        verdict="needs_calibration",
        cause="graph_launch_cost",
        regime=None,
        causes={
            "host_code": GAPS * (BETWEEN - SMALL // KERNELS),
            "launch_call": GAPS * LAUNCH,
        },
    ),
    "batch 96": Story(
        recorded(LARGE),
        findings=(),
        verdict="do_not_graph",
        regime=None,
        causes={"device_queued": GAPS * US},
        says=("Graphs would gain nothing here",),
    ),
}


def model():
    def eager(device):
        step = ChunkModel(HostCost.linear(0, 0), KERNELS, device / KERNELS)
        return per_launch_ns(step, HOST / KERNELS, 1_000)

    assert eager(SMALL) == pytest.approx(HOST, rel=0.002)
    assert eager(LARGE) == pytest.approx(LARGE, rel=0.004)
    assert round(HOST / SMALL, 2) == 5.08
    assert round(184_010_000 / LARGE, 2) == 1.01
