"""The chunk model of one graph on this machine, from untraced times of its parts.

What `cost.ChunkModel` needs, told from launches of the first c nodes of the graph, alone and in a
row (`timings.LaunchCost`), and from arms timed alone and back to back (`timings.ArmTiming`):

- b(c) + g', the device's time for the first c nodes and the gap to the next graph: a row of
  launches, where that takes longer than the launch calls. In between, nodes are taken to be alike.
- g', the cost of a cut on the device: what chunks take longer back to back than one graph, per cut.
- a(c), the host's time: the launch call.
- when the device may start, from the begin of the call: alone, less b(c), less what passes from the
  device's end until the host knows, which is what one graph takes longer by the host's clock than
  between two events.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gaptrace.cost import ChunkModel, Floats, HostCost, NotIdentifiableError, makespan
from gaptrace.timings import ArmTiming, LaunchCost

#: A row counts as the device's when it takes this much longer than the launch calls in it. Own
#: choice: clear of the spread of either.
_DEVICE_BOUND = 1.25


@dataclass(frozen=True)
class Fit:
    """A model and how it reads the clock.

    Attributes:
        model: of the graph.
        notice_ns: from the device's end until the host knows; part of every step by the host's
            clock, whatever the schedule.
        cut_gap_ns: g', as in the model.
        error_fraction: largest of the relative errors of predicted against measured steps, over the
            arms that the fit was given.
    """

    model: ChunkModel
    notice_ns: float
    cut_gap_ns: float
    error_fraction: float

    def step_ns(self, schedule: Sequence[int]) -> float:
        """Return the step by the host's clock, until it knows that the device is done."""
        return makespan(self.model, schedule) + self.notice_ns


def fit(costs: Sequence[LaunchCost], graph: ArmTiming, chunks: Sequence[ArmTiming]) -> Fit:
    """Fit the model of a graph.

    Args:
        costs: launches of its first nodes, for several sizes, the whole among them.
        graph: the arm of one graph.
        chunks: arms of several.

    Raises:
        NotIdentifiableError: fewer than two sizes, or the device is never the slower side, so that
            its time cannot be told from the host's.
    """
    nodes = max(cost.nodes for cost in costs)
    cut_gap_ns = _cut_gap(graph, chunks)
    device = _device(costs, nodes, cut_gap_ns)
    notice_ns = max(0.0, graph.step_ns - graph.step_device_ns)
    sizes = [cost.nodes for cost in costs]
    launch = [cost.launch_ns for cost in costs]
    ready = [max(0.0, cost.alone_ns - float(device[cost.nodes]) - notice_ns) for cost in costs]
    model = ChunkModel(
        HostCost.fit(sizes, launch),
        nodes,
        np.diff(device),
        cut_gap_ns=cut_gap_ns,
        ready=HostCost.fit(sizes, ready),
    )
    errors = [
        abs(makespan(model, arm.arm.schedule) + notice_ns - arm.step_ns) / arm.step_ns
        for arm in (graph, *chunks)
    ]
    return Fit(model, notice_ns, cut_gap_ns, max(errors))


def _cut_gap(graph: ArmTiming, chunks: Sequence[ArmTiming]) -> float:
    """What a cut adds to a step back to back, by the median over the arms; never negative."""
    gaps = [
        (arm.queued_ns - graph.queued_ns) / (len(arm.arm.schedule) - 1)
        for arm in chunks
        if len(arm.arm.schedule) > 1
    ]
    return max(0.0, statistics.median(gaps)) if gaps else 0.0


def _device(costs: Sequence[LaunchCost], nodes: int, cut_gap_ns: float) -> Floats:
    """Return the device's time for the first 0..N nodes; shape `(N + 1,)`, never falling."""
    bound = [cost for cost in costs if cost.row_ns >= _DEVICE_BOUND * cost.launch_ns]
    if not bound:
        raise NotIdentifiableError(
            "launching takes as long as running in every size, so that the device's time cannot be "
            "told: the step is bound by the host"
        )
    at = [0, *(cost.nodes for cost in bound)]
    times = [0.0, *(max(0.0, cost.row_ns - cut_gap_ns) for cost in bound)]
    if at[-1] < nodes:  # the whole is bound by the host: nodes are as long as those before
        at.append(nodes)
        times.append(times[-1] / at[-2] * nodes)
    known = np.maximum.accumulate(np.array(times))
    return np.interp(np.arange(nodes + 1), at, known)
