"""Do all arms compute the same? Each is run once from one state, and what it leaves is compared."""

from collections.abc import Sequence
from typing import Any

from gaptrace.errors import ResultError
from gaptrace.live import arrays
from gaptrace.live.arms import Runner, Start, put_back, wait
from gaptrace.timings import Arm

#: Largest difference of results, as a share of their largest value, that still counts as the same
#: unless asked for otherwise: several roundings of float32. Own choice.
TOLERANCE = 1e-5


def differences(
    runners: Sequence[Runner], start: Start, pointer: int, tolerance: float
) -> list[float | None]:
    """Compare what each arm leaves with what the step per launch leaves."""
    expected = _results(runners[0], start, pointer)
    if not expected:
        return [None] * len(runners)
    found_differences: list[float | None] = []
    for runner in runners:
        found = _results(runner, start, pointer)
        worst, problem = _compared(expected, found, tolerance)
        if problem is not None:
            raise ResultError(_explained(runner.arm, problem))
        found_differences.append(worst)
    return found_differences


def _explained(arm: Arm, problem: str) -> str:
    if arm.kind == "per_launch":
        return (
            f"the step run twice from one state gives two results ({problem}): name all arrays "
            "that it changes with state=, or allow for its spread with tolerance="
        )
    return (
        f"arm {arm.name} computes something else than the step per launch ({problem}): the graph "
        "holds the addresses and values of its capture; copy inputs into fixed buffers, and keep "
        "host decisions out of the step"
    )


def _results(runner: Runner, start: Start, pointer: int) -> list[Any]:
    """Run an arm once from the start; return its outputs and the state that it leaves, on the host.

    Outputs are poisoned first: those of a replay lie where an earlier arm may have left them right.
    """
    for array in runner.outputs():
        arrays.poison(array)
    put_back(start)
    runner.launch()
    wait(pointer)
    left = [*runner.outputs(), *(array for array, _ in start)]
    return [arrays.on_host(array) for array in left]


def _compared(expected: list[Any], found: list[Any], tolerance: float) -> tuple[float, str | None]:
    """Return the largest difference, and what is wrong if it is too large."""
    if len(expected) != len(found):
        return float("inf"), f"{len(found)} arrays instead of {len(expected)}"
    worst = 0.0
    for number, (one, other) in enumerate(zip(expected, found, strict=True)):
        difference = arrays.largest_difference(one, other)
        worst = max(worst, difference)
        if difference > tolerance * arrays.magnitude(one):
            return worst, f"array {number} differs by up to {difference:g}"
    return worst, None
