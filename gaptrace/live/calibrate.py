"""Measures one process's share of a calibration.

    python -m gaptrace.live.calibrate PLAN FILE

PLAN is a `gaptrace.samples.Plan` as a JSON object. FILE gets one JSON object: `samples`, those of
`gaptrace.samples.Sample`, or `error`, the text of a `GpuError`.
"""

import faulthandler
import gc
import json
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from gaptrace.errors import GpuError
from gaptrace.live.bench import Bench, first_device
from gaptrace.live.chains import LEAST_BRANCHED, Chains
from gaptrace.live.driver import done
from gaptrace.live.host_pace import HostPace
from gaptrace.live.idle import busy_message, refuse_busy
from gaptrace.live.probes import (
    Figures,
    graph_costs,
    is_alone,
    queue_depths,
    queued,
    single_launches,
    warm_up,
)
from gaptrace.samples import Plan, Sample

#: A process that is not done by then hangs: it takes some five seconds. Longer than whoever waits
#: for it without a recorder does; with one nobody else ends it.
_PATIENCE_S = 330


def measure(plan: Plan) -> list[Sample]:
    """Measure what the plan says on the first GPU that CUDA sees.

    Raises:
        GpuError: there is no GPU, it is in use, or it refused.
    """
    told = plan.guard and _told_idle()
    pace = HostPace(plan.loop_ns)
    with Bench(plan.call_ns) as bench:
        warm_up(bench)
        if plan.guard and not told and not is_alone(bench):
            raise GpuError(busy_message("kernels take turns with others", []))
        rounds = _rounds(bench, plan, pace)
    values: dict[tuple[str, int | None, int], list[float]] = {}
    for figures in rounds:
        for key, value in figures.items():
            values.setdefault(key, []).append(value)
    values["host_loop_ns", None, 1] = [float(ns) for ns in pace.loops_ns]
    return [Sample(*key, tuple(runs)) for key, runs in values.items()]


def _told_idle() -> bool:
    """Say whether the management library calls the GPU idle; False if it is silent."""
    from gaptrace.live.driver import driver

    bus_id = done(driver().cuDeviceGetPCIBusId(32, first_device()), "asking for the GPU's address")
    return refuse_busy(bus_id.split(b"\0")[0])


def _rounds(bench: Bench, plan: Plan, pace: HostPace) -> list[Figures]:
    """Measure everything `plan.rounds` times at full pace, each time in another order."""
    order = random.Random(plan.seed)
    rounds = []
    gc.collect()
    gc.disable()
    try:
        with queued(bench) as queues:
            probes: list[Callable[[], Figures]] = [partial(single_launches, bench), queues.round]
            for branches in plan.branches:
                chains = Chains(bench, branches)
                sizes = [each for each in plan.nodes if branches == 1 or each >= LEAST_BRANCHED]
                probes += [partial(graph_costs, bench, chains, each, branches) for each in sizes]
                probes[-len(sizes)]()  # the smallest once, for what only a first time costs
            for _ in range(plan.rounds):
                pace.undisturbed(bench.measure_calls)
                figures: Figures = {("binding_call_ns", None, 1): bench.call_ns}
                for probe in order.sample(probes, len(probes)):
                    figures |= pace.undisturbed(probe)
                rounds.append(figures)
        if plan.depths:
            rounds.append(queue_depths(bench))
    finally:
        gc.enable()
    return rounds


def main(arguments: Sequence[str]) -> None:
    """Measure, and write the file."""
    # Also where a call of the driver never returns, or a recorder waits for this process.
    faulthandler.dump_traceback_later(_PATIENCE_S, exit=True)
    given, path = json.loads(arguments[0]), Path(arguments[1])
    plan = Plan(tuple(given.pop("nodes")), tuple(given.pop("branches")), **given)
    try:
        content: dict[str, object] = {"samples": [asdict(sample) for sample in measure(plan)]}
    except GpuError as error:
        content = {"error": str(error)}
    path.write_text(json.dumps(content), encoding="utf-8")
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main(sys.argv[1:])
