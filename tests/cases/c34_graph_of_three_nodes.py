"""Case 34: from how many nodes on a graph is worth its launch.

ahrefs/ocannl#488. Chains of empty kernels on a laptop under WSL2: 64 launches and a wait take
411.7 us, the same as a graph 49.1 us. Its author reads off 6.4 us a launch, and 15 us and 0.58 us a
node for the graph. The launch calls themselves return after 2.65 us: what takes 6.4 us is the
device's side of a launch there.

A graph wins from three nodes on. The recording says that the device pauses between kernels that
were launched in time, and that no graph runs; what one would cost it cannot say.
"""

from cases.program import Program
from cases.story import Story

ROUNDS, KERNELS, LAUNCH, KERNEL = 5, 64, 2_650, 1_000  # the kernel's time is made up
PAUSE, RETURN = 6_400 - KERNEL, 5_000
#: The host is ahead from the third kernel on; of the second the device sees the call, too.
SECOND = LAUNCH - KERNEL


def recorded():
    run = Program()
    for _ in range(ROUNDS):
        for number in range(KERNELS):
            run.launch(LAUNCH, KERNEL, gap_ns=PAUSE if number else 0)
        run.wait(RETURN)
    return run.rows


STORIES = {
    "as reported": Story(
        recorded(),
        findings=("device_queued:between_ops",),
        verdict="needs_calibration",
        cause="graph_launch_cost",
        regime=None,
        causes={
            "device_queued": ROUNDS * ((KERNELS - 1) * PAUSE - SECOND),
            "host_sync": (ROUNDS - 1) * RETURN,
            "launch_call": (ROUNDS - 1) * LAUNCH + ROUNDS * SECOND,
        },
    )
}


def model():
    def launched(nodes):
        return 6.4 * nodes

    def as_graph(nodes):
        return 15 + 0.58 * nodes

    assert min(nodes for nodes in range(1, 99) if as_graph(nodes) < launched(nodes)) == 3
