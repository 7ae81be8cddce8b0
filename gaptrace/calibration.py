"""What launches, graphs and gaps cost on one machine, measured without a recorder and with each.

Pure records and arithmetic: where the figures come from is in `gaptrace.live.probes`, where they
are kept in `gaptrace.record.calibrations`.

Names of figures; those ending in `_ns` are nanoseconds. Host figures are without what calling from
Python costs. `nodes` counts CUDA graph nodes; `branches` is 1 for nodes in a straight line.

| name | by nodes | is |
|---|---|---|
| `binding_call_ns` | | a call from Python that does nothing: left out of all others |
| `host_loop_ns` | | 5,000 passes of an empty loop in Python, when each probe began: the host's pace |
| `launch_api_ns`, `launch_latency_ns` | | launch of one kernel on an idle device: the call; from its begin to the kernel's first instruction (exposed latency) |
| `launch_queued_api_ns` | | the call while the device is held |
| `graph_launch_api_ns`, `graph_launch_latency_ns` | yes | launch of a graph that was launched before, on an idle device |
| `graph_first_launch_api_ns`, `.._latency_ns` | yes | the first launch of an exec |
| `graph_updated_launch_api_ns`, `.._latency_ns` | yes | the first one after an exec update |
| `graph_launch_queued_api_ns` | yes | the call while the device is held |
| `kernel_gap_ns`, `node_gap_ns` | | between kernels launched singly and in time; between nodes in a line. A kernel here ends with its last instruction and begins with its first |
| `small_node_ns` | | a node whose kernel reads and writes 4,096 numbers, with the gap after it |
| `graph_gap_ns`, `cut_gap_ns` | yes | between graphs launched in time; by how much that exceeds `node_gap_ns` |
| `capture_ns`, `instantiate_ns`, `upload_api_ns`, `exec_update_ns`, `destroy_graph_ns`, `destroy_exec_ns` | yes | host cost of these calls; a capture is with the launches in it |
| `upload_ns` | yes | until the upload is over |
| `sm_clock_hz` | | clock of the multiprocessors under this load |
| `launch_queue_depth`, `graph_queue_depth` | | launches that a held device lets through before a call blocks |
| `recorder_call_ns`, `recorder_node_ns`, `recorder_kernel_gap_ns`, `recorder_node_gap_ns`, `recorder_small_node_ns`, `recorder_graph_gap_ns` | | what a recorder adds to a launch, to each node of a launched graph, to those gaps and that node |
"""  # noqa: E501 - a table

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

#: Regime -> the host figures that make up the cost of a chunk in it. A program that captures anew
#: each step also frees what it captured.
REGIMES = {
    "replay": ("graph_launch_api_ns",),
    "update": ("capture_ns", "exec_update_ns", "graph_updated_launch_api_ns", "destroy_graph_ns"),
    "instantiate": (
        *("capture_ns", "instantiate_ns", "graph_first_launch_api_ns"),
        *("destroy_graph_ns", "destroy_exec_ns"),
    ),
}
#: A figure that differs by less than this share has not moved. Untraced sweeps on one idle H200
#: differed by several percent from run to run.
LEAST_FRACTION = 0.05


@dataclass(frozen=True)
class Machine:
    """What a calibration holds for; None where the system does not tell.

    Attributes:
        gpu: name of the GPU.
        driver: version of the NVIDIA driver.
        cuda: newest CUDA that the driver runs.
        os: system, kernel and C library.
        cpu: name of the processor.
    """

    gpu: str | None
    driver: str | None
    cuda: str | None
    os: str | None
    cpu: str | None


@dataclass(frozen=True)
class Figure:
    """One calibrated figure.

    Attributes:
        name: what it is (see the module).
        nodes: of the graph; None where there is none.
        branches: of the graph; 1 for a straight line, and where there is none.
        recorder: what recorded meanwhile, as `nsys-graph`; None without.
        value: the median of the runs.
        low, high: of the runs, a tenth left out at each end.
        runs: how many, over all processes.
    """

    name: str
    nodes: int | None
    branches: int
    recorder: str | None
    value: float
    low: float
    high: float
    runs: int

    @property
    def key(self) -> tuple[str, int | None, int, str | None]:
        """What the figure is about."""
        return self.name, self.nodes, self.branches, self.recorder


@dataclass(frozen=True)
class Calibration:
    """All figures of one machine.

    Attributes:
        machine: the machine.
        date: when, ISO 8601 in UTC.
        gaptrace: version of gaptrace that measured.
        recorders: the recorders under which figures were measured, as `nsys-graph` -> its version.
        figures: the figures.
    """

    machine: Machine
    date: str
    gaptrace: str
    recorders: Mapping[str, str]
    figures: tuple[Figure, ...]

    def figure(
        self,
        name: str,
        *,
        nodes: int | None = None,
        branches: int = 1,
        recorder: str | None = None,
    ) -> Figure | None:
        """Return one figure; None if it could not be measured."""
        key = name, nodes, branches, recorder
        return next((figure for figure in self.figures if figure.key == key), None)

    def table(
        self, name: str, *, branches: int = 1, recorder: str | None = None
    ) -> tuple[Figure, ...]:
        """Return a figure at every node count, ascending; empty if there is none."""
        found = (
            figure
            for figure in self.figures
            if figure.nodes is not None
            and (figure.name, figure.branches, figure.recorder) == (name, branches, recorder)
        )
        return tuple(sorted(found, key=lambda figure: figure.nodes or 0))


@dataclass(frozen=True)
class Line:
    """A host cost as a straight line: so much for the call and so much for each node.

    For people to read; the tables say more, since the cost of a node grows with their number.
    """

    fixed_ns: float
    node_ns: float


def line(figures: Sequence[Figure]) -> Line | None:
    """Return the line through a table's first and last point; None for fewer than two.

    The fixed part is not less than 0.
    """
    if len(figures) < 2:
        return None
    first, last = figures[0], figures[-1]
    few, many = first.nodes or 0, last.nodes or 0
    node_ns = (last.value - first.value) / (many - few)
    return Line(max(0.0, first.value - few * node_ns), node_ns)


def spread_fraction(figures: Sequence[Figure]) -> float | None:
    """Return the typical (median) spread of figures, by their values; None where all are 0."""
    fractions = [(each.high - each.low) / abs(each.value) for each in figures if each.value]
    return statistics.median(fractions) if fractions else None


@dataclass(frozen=True)
class Moved:
    """A figure that is not what it was."""

    before: Figure
    after: Figure


@dataclass(frozen=True)
class Check:
    """A saved calibration against one made now.

    Attributes:
        machine: what of the machine differs: field -> saved, now.
        compared: how many figures without a recorder are in both.
        moved: those that moved beyond their spread.
        missing: those that were saved and could not be measured now.
    """

    machine: Mapping[str, tuple[str | None, str | None]]
    compared: int
    moved: tuple[Moved, ...]
    missing: tuple[Figure, ...]


def compare(saved: Calibration, now: Calibration) -> Check:
    """Say which figures moved beyond what they differ by from run to run.

    A figure has moved if the runs of then and now, from low to high, are further apart than either
    is wide, and by more than `LEAST_FRACTION`. Only figures without a recorder count: those under
    one come from a single process, and processes differ by more than the rounds of one.
    """
    new = {each.key: each for each in now.figures}
    old = [each for each in saved.figures if each.recorder is None]
    pairs = [Moved(each, new[each.key]) for each in old if each.key in new]
    return Check(
        machine={
            field.name: (before, after)
            for field in fields(Machine)
            if (before := getattr(saved.machine, field.name))
            != (after := getattr(now.machine, field.name))
        },
        compared=len(pairs),
        moved=tuple(pair for pair in pairs if _apart(pair)),
        missing=tuple(each for each in old if each.key not in new),
    )


def _apart(pair: Moved) -> bool:
    before, after = pair.before, pair.after
    distance = max(before.low - after.high, after.low - before.high)
    width = max(before.high - before.low, after.high - after.low)
    return distance > max(width, LEAST_FRACTION * max(abs(before.value), abs(after.value)))
