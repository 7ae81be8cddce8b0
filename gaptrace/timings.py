"""Ways to run one step, timed side by side without a recorder: which is faster, and how surely."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from gaptrace.errors import GaptraceError
from gaptrace.spread import median_error

Kind = Literal["per_launch", "graph", "chunks"]
KINDS: tuple[Kind, ...] = ("per_launch", "graph", "chunks")

#: Chunks that the default sizes cut a graph into: a geometric set wide enough to show where the
#: curve of step times turns. Sizes below the smallest pay more for launches than they can hide.
_DEFAULT_PARTS = (2, 4, 8, 16, 32)
_LEAST_DEFAULT_SIZE = 8


@dataclass(frozen=True)
class Arm:
    """One way to run the step.

    Attributes:
        kind: kernel by kernel, as one graph, or as several.
        schedule: CUDA nodes of each graph, in launch order; empty for per_launch.
    """

    kind: Kind
    schedule: tuple[int, ...] = ()

    @property
    def chunk(self) -> int | None:
        """Nodes of the largest graph; None for per_launch."""
        return max(self.schedule, default=None)

    @property
    def name(self) -> str:
        """Return `per_launch`, `graph:600`, `chunk:100`, or `schedule:4+12+36`."""
        if self.kind == "per_launch":
            return self.kind
        if self.kind == "graph":
            return f"graph:{self.chunk}"
        body = self.schedule[1:-1] or self.schedule[:1]
        ends = (self.schedule[0], self.schedule[-1])
        if all(size == self.chunk for size in body) and min(ends) <= max(ends) == self.chunk:
            return f"chunk:{self.chunk}"
        return f"schedule:{'+'.join(map(str, self.schedule))}"


@dataclass(frozen=True)
class ArmTiming:
    """The times of one arm. All in nanoseconds.

    Attributes:
        arm: which.
        alone_ns: of each step in each round, from before its first launch until the host knows that
            the device is done; host clock.
        device_ns: of as many other steps, from an event before the work to one after it.
        back_to_back_ns: per round, the mean of steps launched one after the other with one wait
            at the end; host clock.
        instantiate_ns: of its graph execs: instantiating, for chunks also cutting, and uploading,
            once all is loaded; None for per_launch.
        difference: largest absolute difference of its results from those of per_launch; 0.0 when
            they are equal bit for bit, None when nothing could be compared.
    """

    arm: Arm
    alone_ns: tuple[tuple[int, ...], ...]
    device_ns: tuple[tuple[int, ...], ...]
    back_to_back_ns: tuple[int, ...]
    instantiate_ns: int | None = None
    difference: float | None = None

    @property
    def rounds_ns(self) -> tuple[float, ...]:
        """Median step alone, per round."""
        return tuple(statistics.median(steps) for steps in self.alone_ns)

    @property
    def step_ns(self) -> float:
        """Median over the rounds of the step alone."""
        return statistics.median(self.rounds_ns)

    @property
    def error_ns(self) -> float | None:
        """By how much `step_ns` may be off by chance (`spread`); None for too few rounds."""
        return median_error(self.rounds_ns)

    @property
    def step_device_ns(self) -> float:
        """Median over the rounds of the time between the events."""
        return statistics.median(statistics.median(steps) for steps in self.device_ns)

    @property
    def queued_ns(self) -> float:
        """Median over the rounds of the step back to back."""
        return statistics.median(self.back_to_back_ns)


@dataclass(frozen=True)
class Measurement:
    """One step, timed in several arms in random order, round by round.

    Attributes:
        timings: the arms, in the order asked for.
        nodes: CUDA nodes of the step as a graph; None when no arm has one.
        capture_ns: host time of capturing it, once all is loaded.
        steps: steps alone per arm and round; as many are launched back to back.
        gpu, driver, cuda: where.
        warnings: what limits it.
        is_recorded: a recorder was attached, so that its cost is in every time.
    """

    timings: tuple[ArmTiming, ...]
    nodes: int | None
    capture_ns: int | None
    steps: int
    gpu: str
    driver: str
    cuda: str
    warnings: tuple[str, ...] = ()
    is_recorded: bool = False

    def of(self, kind: Kind) -> tuple[ArmTiming, ...]:
        """Return the timings of a kind of arm."""
        return tuple(timing for timing in self.timings if timing.arm.kind == kind)

    @property
    def fastest(self) -> ArmTiming:
        """The arm whose step alone takes least."""
        return min(self.timings, key=lambda timing: timing.step_ns)

    @property
    def as_fast(self) -> tuple[ArmTiming, ...]:
        """The other arms from which no difference to the fastest is shown."""
        fastest = self.fastest
        return tuple(
            timing
            for timing in self.timings
            if timing is not fastest and not gain(timing, fastest).is_shown
        )

    def gain_of(self, timing: ArmTiming) -> "Gain":
        """Return what an arm saves against the first; see `gain`."""
        return gain(self.timings[0], timing)

    @property
    def break_even_replays(self) -> int | None:
        """Steps after which one graph has paid for its capture and instantiation.

        None when it never does, or when an arm for it is missing.
        """
        single, graph = self.of("per_launch"), self.of("graph")
        if not single or not graph or self.capture_ns is None:
            return None
        gain_ns = single[0].step_ns - graph[0].step_ns
        build_ns = self.capture_ns + (graph[0].instantiate_ns or 0)
        return -int(-build_ns // gain_ns) if gain_ns > 0 else None


@dataclass(frozen=True)
class LaunchCost:
    """The first nodes of a graph, as a graph of their own. Medians over rounds, in nanoseconds.

    Attributes:
        nodes: how many.
        launch_ns: the launch call, with the device idle.
        alone_ns: from the begin of the call until the host knows that the device is done.
        row_ns: per launch, of launches one after the other with one wait at the end: the device's
            time and the gap to the next, or the host's, whichever is longer.
    """

    nodes: int
    launch_ns: float
    alone_ns: float
    row_ns: float


@dataclass(frozen=True)
class Gain:
    """What one arm saves against another, per step.

    Attributes:
        gain_ns: median over the rounds of the differences within each; negative when it is slower.
        error_ns: by how much that may be off by chance (`spread`); None for too few rounds.
    """

    gain_ns: float
    error_ns: float | None

    @property
    def is_shown(self) -> bool:
        """Whether the difference is more than chance."""
        return self.error_ns is not None and abs(self.gain_ns) > self.error_ns


def gain(slow: ArmTiming, fast: ArmTiming) -> Gain:
    """Return what the second arm saves against the first.

    Differences are taken within a round, where the two ran close to each other, so that a clock or
    a neighbour that changes over the rounds does not widen them.
    """
    differences = [a - b for a, b in zip(slow.rounds_ns, fast.rounds_ns, strict=True)]
    return Gain(statistics.median(differences), median_error(differences))


def default_chunks(nodes: int) -> tuple[int, ...]:
    """Return chunk sizes worth trying: halves, quarters ... of the graph, down to 8 nodes."""
    sizes = (-(-nodes // parts) for parts in _DEFAULT_PARTS)
    return tuple(dict.fromkeys(size for size in sizes if _LEAST_DEFAULT_SIZE <= size < nodes))


def as_object(measurement: Measurement) -> dict[str, Any]:
    """Return plain lists, dicts and numbers, for JSON; `measurement_of` reads them back."""
    return asdict(measurement)


def measurement_of(found: Mapping[str, Any]) -> Measurement:
    """Return the measurement that `as_object` wrote.

    Raises:
        GaptraceError: it is none.
    """
    try:
        timings = tuple(_timing_of(timing) for timing in found["timings"])
        rest = {name: found[name] for name in Measurement.__dataclass_fields__ if name in found}
        return Measurement(**rest | {"timings": timings, "warnings": tuple(found["warnings"])})
    except (KeyError, TypeError) as error:
        raise GaptraceError(f"not a measurement of arms: {error}; measure again") from error


def _timing_of(found: Mapping[str, Any]) -> ArmTiming:
    arm = Arm(found["arm"]["kind"], tuple(found["arm"]["schedule"]))
    return ArmTiming(
        arm,
        _nested(found["alone_ns"]),
        _nested(found["device_ns"]),
        tuple(found["back_to_back_ns"]),
        found["instantiate_ns"],
        found["difference"],
    )


def _nested(rounds: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(steps) for steps in rounds)
