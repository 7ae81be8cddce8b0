"""By how much a figure may be wrong before the advice on sizes would be another."""

from dataclasses import replace

import numpy as np

from gaptrace.cost import HostCost, makespan
from gaptrace.predict import StepCosts, least_ns
from gaptrace.recommendation import NOISE_FRACTION, Sensitivity

#: Factors by which a figure is tried to be wrong: to 16 times, in steps of a fourth of an octave;
#: and halvings of the step in which the advice changes: the result is good to 5 %. Smaller losses
#: of the advice that begin and end within one step are not seen.
_WIDEST, _STEPS, _HALVINGS = 16.0, 16, 2


def sensitivity(costs: StepCosts, sizes: tuple[int, ...]) -> tuple[Sensitivity, ...]:
    """Say by what factor each figure may be wrong before these sizes are no longer about best.

    They are while no uniform size is faster by more than NOISE_FRACTION; the nearest factor at
    which one is, is sought step by step on a log scale: farther away they may be best again.
    """
    whole = float(costs.host(len(costs.node_ns)))
    values = {
        "host_fixed_ns": costs.host.fixed_ns,
        "host_by_nodes_ns": whole - costs.host.fixed_ns,
        "device_ns": costs.device_only_ns,
        "cut_gap_ns": costs.cut_gap_ns,
        "device_free_ns": costs.device_free_ns,
    }
    return tuple(
        Sensitivity(
            name, value, *(_turn(costs, sizes, name, end) for end in (1 / _WIDEST, _WIDEST))
        )
        for name, value in values.items()
        if value > 0
    )


def _turn(costs: StepCosts, sizes: tuple[int, ...], name: str, end: float) -> float | None:
    """The factor nearest to 1 on the way to `end` at which the sizes lose too much; or None."""

    def loses(factor: float) -> bool:
        return _loses(scaled(costs, name, factor), sizes)

    tried = [float(end ** (number / _STEPS)) for number in range(_STEPS + 1)]
    turn = next((number for number, factor in enumerate(tried) if number and loses(factor)), None)
    if turn is None:
        return None
    good, bad = tried[turn - 1], tried[turn]
    for _ in range(_HALVINGS):
        middle = float(np.sqrt(good * bad))
        good, bad = (good, middle) if loses(middle) else (middle, bad)
    return bad


def _loses(costs: StepCosts, sizes: tuple[int, ...]) -> bool:
    own, least = makespan(costs.model, sizes), least_ns(costs)
    return own - costs.device_free_ns > (least - costs.device_free_ns) * (1 + NOISE_FRACTION)


def scaled(costs: StepCosts, name: str, factor: float) -> StepCosts:
    """Return the costs with one figure of `sensitivity` that many times as large."""
    match name:
        case "host_fixed_ns":
            change = [(factor - 1) * each.fixed_ns for each in (costs.host, costs.ready)]
            host, ready = (
                HostCost(each.fixed_ns + by, each.nodes, tuple(ns + by for ns in each.ns))
                for each, by in zip((costs.host, costs.ready), change, strict=True)
            )
            return replace(costs, host=host, ready=ready)
        case "host_by_nodes_ns":
            host, ready = (
                replace(
                    each, ns=tuple(each.fixed_ns + factor * (ns - each.fixed_ns) for ns in each.ns)
                )
                for each in (costs.host, costs.ready)
            )
            return replace(costs, host=host, ready=ready)
        case "device_ns":
            return replace(costs, node_ns=costs.node_ns * factor)
        case "cut_gap_ns":
            return replace(costs, cut_gap_ns=costs.cut_gap_ns * factor)
        case "device_free_ns":
            return replace(costs, device_free_ns=costs.device_free_ns * factor)
        case _:
            raise ValueError(f"{name} is no figure of a step")
