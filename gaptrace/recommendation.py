"""What a recommendation is: a verdict with everything that it rests on. Records only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gaptrace.cost import ChunkModel
from gaptrace.trace import TraceWarning

Regime = Literal["replay", "update", "instantiate"]
Verdict = Literal[
    "one_graph",
    "chunk",
    "merge",
    "do_not_graph",
    "not_a_chunk_problem",
    "no_difference_shown",
    "needs_calibration",
]

#: Shares of a step or window below this are not told apart from noise; also the width of the
#: plateau.
NOISE_FRACTION = 0.005


@dataclass(frozen=True)
class Parameter:
    """A figure that the recommendation rests on.

    Attributes:
        name: what it is; a name ending in `_ns` is in nanoseconds.
        value: the estimate.
        source: `trace`; `calibration`: of this machine; `live`: measured in the process.
        evidence: the kind: `graph-granularity trace`, `node-granularity trace`, `trace`, or
            `timed`: without a recorder.
        samples: how many observations it is made of.
        low, high: between these it lies; null where the spread is unknown.
    """

    name: str
    value: float
    source: str
    evidence: str
    samples: int
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Alternative:
    """Another way to launch the step, and what choosing it would lose.

    Attributes:
        name: per_launch, one_graph, chunk, schedule, or now: as it was recorded.
        graphs: how many; 0 for per_launch.
        chunk: nodes of a chunk; null for schedule, per_launch, and now where sizes differ.
        step_ns: predicted.
        loss_ns: above the advised way; negative for a way that is faster, but not by enough.
        is_now: whether the step is launched in this way already.
        first: nodes of the first chunk, where the remainder comes first; null otherwise.
    """

    name: str
    graphs: int
    chunk: int | None
    step_ns: int
    loss_ns: int
    is_now: bool = False
    first: int | None = None


@dataclass(frozen=True)
class SizeTime:
    """A step cut into chunks of one size, for a curve.

    Attributes:
        chunk: CUDA nodes of a chunk; all of them for one graph.
        step_ns: predicted.
        low_ns, high_ns: with the inputs at whichever ends of what is known of them.
    """

    chunk: int
    step_ns: int
    low_ns: int
    high_ns: int


@dataclass(frozen=True, eq=False)
class Schedules:
    """Graphs by which a step can be launched, with the model that times each of them.

    Attributes:
        model: of the step without a recorder; `cost.chunk_times` says when each chunk runs.
        added_ns: what a step takes beyond the makespan of the model: until the host knows that it
            is done, less the time for which earlier work kept the device.
        now: node counts of the graphs as recorded, in launch order.
        advised: as advised; null where no sizes are.
        cut: in chunks of the best size that cuts the step; null for a step of one node.
    """

    model: ChunkModel
    added_ns: float
    now: tuple[int, ...]
    advised: tuple[int, ...] | None
    cut: tuple[int, ...] | None


@dataclass(frozen=True)
class Sensitivity:
    """By what factor a figure may be wrong before the advice loses more than NOISE_FRACTION.

    Attributes:
        name: of the figure.
        value: what it was taken to be: of a step or chunk as the name says, in nanoseconds.
        smaller: the factor below 1 at which the advice changes; null: not down to 1/16.
        larger: the factor above 1; null: not up to 16.
    """

    name: str
    value: float
    smaller: float | None
    larger: float | None


@dataclass(frozen=True)
class UngraphedStep:
    """What a graph would bring to steps that are launched kernel by kernel.

    Attributes:
        unit: what repeats: path of the range, or kernels.
        device_id: the device.
        verdict: one_graph, chunk, do_not_graph or not_a_chunk_problem.
        cause: of the latter two: dynamic_steps, waits_inside, large_kernels, nothing_to_gain.
        steps: how many were looked at.
        host_pace: the host's while they were recorded, over that at which it was calibrated, as far
            as it can be told; at most 1. Predictions are for the latter.
        kernels: of a step, by the median: the CUDA nodes that its graph would have.
        chunk, plateau, schedule: the advised chunk size, the sizes about as good, and the sizes in
            launch order; null where none is.
        launch_ns, launch_interval_ns: from one launch to the next without a recorder, the program's
            code included; its least and most.
        per_launch_ns, one_graph_ns, best_ns: a step as predicted without a recorder; best_ns in the
            best graphs that there are.
        build_ns: capture and instantiation, once.
        gain_ns, gain_interval_ns: what the best graph saves per step.
        break_even_replays: replays after which it has paid for capture and instantiation; null if
            it is not faster.
    """

    unit: str
    device_id: int
    verdict: Verdict
    cause: str | None
    steps: int
    host_pace: float
    kernels: int
    chunk: int | None
    plateau: tuple[int, int] | None
    schedule: tuple[int, ...] | None
    launch_ns: int
    launch_interval_ns: tuple[int, int]
    per_launch_ns: int
    one_graph_ns: int
    best_ns: int
    build_ns: int
    gain_ns: int
    gain_interval_ns: tuple[int, int]
    break_even_replays: int | None


@dataclass(frozen=True)
class Recommendation:
    """What to do about graphs and chunks. Sizes are in CUDA graph nodes, times in nanoseconds.

    Attributes:
        verdict: what to do.
        regime: how the program uses its graphs; null when it launches none.
        cause: for not_a_chunk_problem, the topic of the idle time (see `topics.with_topics`); for
            needs_calibration, the parameter that is missing.
        nodes: of one step; null when unknown.
        step: the NVTX range that the step is, where steps were found by ranges; else null.
        devices: those that run it, where the trace has several.
        chunk, plateau, schedule: the advised chunk size, the range of sizes about as good, and the
            sizes in launch order; null where no graph is advised. For no_difference_shown and
            merge, chunk and schedule are what is compared with.
        predicted_ns: a step without a recorder by arm: per_launch, one_graph, chunk, schedule,
            device_only, those that could be predicted. From the begin of the first launch, or from
            when the device is free if that is later, until the host knows that the step is done.
            Of schedule, as given here. Where chunk is all nodes, chunk here is the best size that
            cuts.
        measured_ns: timed makespan by name of the arm (`timings.Arm.name`); empty from a trace.
        gain_ns: what following the advice is expected to save per step.
        gain_interval_ns: the least and the most of it, with every input at either end of what is
            known of it; where the advice is to leave it, what the best other size could save.
        gain_cap_ns: idle time in the window that launches and builds of graphs account for, and
            with a calibration the pauses between the graphs of a step that is launched in pieces:
            no chunk size can gain more. For merge, the pauses between queued graphs as traced.
        break_even_replays: replays after which a graph has paid for itself; null when unknown, and
            where graphs are built in every step.
        amortised_ns: the advised step with its share of capture and instantiation, by how many
            replays share them; empty where graphs are built in every step, or none is advised.
        alternatives: other ways to launch the step, and what each would lose.
        by_size: the predicted step at sizes from 1 to all nodes, for a curve.
        closed_form: chunk sizes by a square root (`schedules.closed_form`), where the device is the
            slower side and where the host is: to explain; null where nothing could be predicted.
        schedules: ways to cut the step, for a picture of how chunks hide launches.
        sensitivity: by how much inputs may be wrong.
        ungraphed: what graphs would bring to steps that are launched kernel by kernel.
        calibration: what it was made on and when: gpu, driver, cuda, os, cpu, date; null without.
        inputs: the figures behind it.
        warnings: what limits it.
    """

    verdict: Verdict
    regime: Regime | None = None
    cause: str | None = None
    nodes: int | None = None
    step: str | None = None
    devices: tuple[int, ...] = ()
    chunk: int | None = None
    plateau: tuple[int, int] | None = None
    schedule: tuple[int, ...] | None = None
    predicted_ns: dict[str, int] = field(default_factory=dict)
    measured_ns: dict[str, int] = field(default_factory=dict)
    gain_ns: int | None = None
    gain_interval_ns: tuple[int, int] | None = None
    gain_cap_ns: int | None = None
    break_even_replays: int | None = None
    amortised_ns: dict[int, int] = field(default_factory=dict)
    alternatives: tuple[Alternative, ...] = ()
    by_size: tuple[SizeTime, ...] = ()
    closed_form: tuple[float, float] | None = None
    schedules: Schedules | None = None
    sensitivity: tuple[Sensitivity, ...] = ()
    ungraphed: tuple[UngraphedStep, ...] = ()
    calibration: Mapping[str, str | None] | None = None
    inputs: tuple[Parameter, ...] = ()
    warnings: tuple[TraceWarning, ...] = ()
