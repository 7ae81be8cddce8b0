"""The part of a recommendation that a calibration of the machine makes possible."""

from collections.abc import Sequence
from dataclasses import asdict, replace

import polars as pl

from gaptrace.calibration import Calibration
from gaptrace.calibration_match import differences
from gaptrace.cost import NotIdentifiableError, amortised_ns, break_even_replays
from gaptrace.host_pace import slow_host
from gaptrace.machine_costs import Level, build_ns
from gaptrace.predict import Advice, StepCosts, advise, by_size, gain_interval
from gaptrace.recommendation import (
    NOISE_FRACTION,
    Recommendation,
    Regime,
    Schedules,
    UngraphedStep,
)
from gaptrace.schedules import closed_form, is_even
from gaptrace.sensitivity import sensitivity
from gaptrace.steps import Steps
from gaptrace.trace import Trace, TraceWarning
from gaptrace.traced_step import TracedStep
from gaptrace.ungraphed import ungraphed_steps
from gaptrace.untraced import Untraced, recorder_of, untraced


def known_from(base: Recommendation, trace: Trace, calibration: Calibration) -> Recommendation:
    """Note which calibration was used, and how its machine differs from the trace's."""
    known = asdict(calibration.machine) | {"date": calibration.date}
    warnings = [
        TraceWarning(
            "calibration_differs",
            f"the calibration was made with {field} {own}, the trace with {other}: what launches "
            "cost may differ",
        )
        for field, (own, other) in differences(calibration, trace).items()
    ]
    if not trace.devices["name"].drop_nulls().len():
        warnings.append(
            TraceWarning(
                "calibration_unsure",
                "the trace does not name its GPU: whether the calibration is of such a one, of "
                f"{calibration.machine.gpu}, is not known",
            )
        )
    return replace(base, calibration=known, warnings=(*base.warnings, *warnings))


def predicted(
    base: Recommendation,
    trace: Trace,
    step: TracedStep,
    calibration: Calibration,
    regime: Regime,
    idle: pl.DataFrame,
    windows: pl.DataFrame,
    ungraphed: tuple[UngraphedStep, ...],
) -> Recommendation:
    """Return the recommendation that the model makes of a step without a recorder.

    Args:
        base: what is known already.
        trace: the trace.
        step: the step of graphs.
        calibration: of the machine.
        regime: of the program.
        idle: pieces of gaps before graphs that sizes can change, with next_op_id.
        windows: device_id, start_ns, end_ns.
        ungraphed: steps without graphs; one of as many kernels says what launching singly costs.
    """
    try:
        found = untraced(trace, step, calibration, regime, windows)
        nodes = len(found.costs.node_ns)
        alike = [each for each in ungraphed if each.kernels == nodes]
        found = _launched_singly(found, alike)
        costs, ends = found.costs, found.ends
        built_ns = build_ns(calibration, nodes, costs.launch_ns)
    except NotIdentifiableError:
        return replace(base, verdict="needs_calibration", cause="calibration_incomplete")
    cap_ns = _cap(trace, step, idle)
    advice = advise(costs, step.ways, cap_ns)
    is_graph = advice.verdict != "do_not_graph"
    advised_ns = costs.step_ns(advice.sizes) if is_graph else costs.per_launch_ns
    gain_interval_ns = gain_interval(advice, ends, cap_ns)
    warnings = _warnings(step, advice, costs, gain_interval_ns)
    return replace(
        base,
        verdict=advice.verdict,
        cause=None,
        nodes=nodes,
        chunk=advice.chunk if is_graph else None,
        plateau=advice.plateau if is_graph else None,
        schedule=advice.sizes if is_graph else None,
        predicted_ns=advice.predicted_ns,
        gain_ns=round(advice.gain_ns),
        gain_interval_ns=gain_interval_ns,
        # Where graphs are built in every step, the step holds what they cost.
        break_even_replays=break_even_replays(built_ns, costs.per_launch_ns, advised_ns)
        if regime == "replay"
        else None,
        amortised_ns=amortised_ns(advised_ns, built_ns) if is_graph and regime == "replay" else {},
        alternatives=advice.alternatives,
        by_size=by_size(costs, ends),
        closed_form=closed_form(costs.model),
        schedules=Schedules(
            costs.model,
            costs.notice_ns - costs.device_free_ns,
            advice.now,
            advice.sizes if is_graph else None,
            advice.cut,
        ),
        sensitivity=sensitivity(costs, advice.sizes) if is_graph else (),
        # The same step: as a graph it is known from its graph, not from its launches.
        ungraphed=tuple(each for each in ungraphed if each.kernels != nodes),
        inputs=found.inputs,
        warnings=(*base.warnings, *found.warnings, *warnings),
    )


def _launched_singly(found: Untraced, alike: Sequence[UngraphedStep]) -> Untraced:
    """The same, with the step's own pace where the trace holds it kernel by kernel, too (alike).

    That is better than the calibrated launch: it holds the program's own code between launches.
    """
    if not alike:
        return found
    least, most = alike[0].launch_interval_ns
    pace: dict[Level, int] = {"value": alike[0].launch_ns, "low": least, "high": most}
    inputs = (
        replace(
            each,
            value=pace["value"],
            source="trace",
            evidence="trace",
            samples=alike[0].steps,
            low=least,
            high=most,
        )
        if each.name == "single_launch_ns"
        else each
        for each in found.inputs
        if each.name != "code_per_launch_ns"
    )
    at = {level: replace(costs, launch_ns=pace[level]) for level, costs in found.at.items()}
    return replace(found, at=at, inputs=tuple(inputs))


def _cap(trace: Trace, step: TracedStep, idle: pl.DataFrame) -> float:
    """Idle time before the step's own graphs that launches and builds account for, per step."""
    own = trace.ops.filter(pl.col("call_id").is_in(step.call_ids.implode()))["op_id"]
    mine = idle.filter(pl.col("next_op_id").is_in(own.implode()))
    return float((mine["end_ns"] - mine["start_ns"]).sum()) / step.repeats


def _warnings(
    step: TracedStep, advice: Advice, costs: StepCosts, gain_interval_ns: tuple[int, int]
) -> list[TraceWarning]:
    warnings = []
    if advice.gain_ns > 0 >= gain_interval_ns[0]:
        warnings.append(
            TraceWarning(
                "gain_unsure",
                "with inputs at the other end of their intervals the advice gains nothing: time "
                "it before you rely on it, with gaptrace.tune or gaptrace profile --arms",
            )
        )
    if step.has_branches:
        warnings.append(
            TraceWarning(
                "branches",
                "nodes of the graph run side by side, as their times or those of its pieces show, "
                f"and a cut makes all branches wait for each other, {_told(costs)}; gaptrace.split "
                "cuts where few cross",
            )
        )
    host_is_slower = costs.host(len(costs.node_ns)) > costs.device_only_ns
    if host_is_slower and advice.verdict == "chunk" and step.repeats < 3:
        warnings.append(
            TraceWarning("few_steps", f"only {step.repeats} steps were seen: record more of them")
        )
    return warnings


def _told(costs: StepCosts) -> str:
    most_us = float(costs.model.lost_ns.max()) / 1000
    if most_us == 0:
        return "which these predictions leave out"
    return f"which is predicted to cost up to {most_us:,.1f} us at one cut"


def single_launches(
    trace: Trace, launches: pl.DataFrame, steps: Steps, calibration: Calibration | None
) -> tuple[UngraphedStep, ...] | None:
    """Return `ungraphed.ungraphed_steps`; None where the calibration cannot tell."""
    if calibration is None:
        return ()
    try:
        return ungraphed_steps(trace, launches, steps, calibration)
    except NotIdentifiableError:
        return None


def of_ungraphed(
    base: Recommendation, single: tuple[UngraphedStep, ...] | None, steps: Steps
) -> Recommendation:
    """Recommend for a program without graphs, by the steps that take most of its time.

    Args:
        base: what is known already.
        single: `single_launches`.
        steps: `steps.find_steps`; those that begin in the windows.
    """
    first = single[0] if single else None
    pays = first and first.gain_interval_ns[0] > NOISE_FRACTION * first.per_launch_ns
    if base.verdict != "needs_calibration" and not (base.verdict == "do_not_graph" and pays):
        return replace(base, ungraphed=single or ())
    if single is None:
        return replace(base, cause="calibration_incomplete")
    if not single:
        return replace(base, cause="steps" if steps.frame.is_empty() else "few_steps")
    first = single[0]
    arms = {"per_launch": first.per_launch_ns, "one_graph": first.one_graph_ns}
    gains = first.verdict in ("one_graph", "chunk")
    if first.verdict == "chunk" and first.schedule:
        arms["schedule"] = first.best_ns
        # The remainder may come first.
        if is_even(first.schedule) or set(first.schedule[1:]) == {first.chunk}:
            arms["chunk"] = first.best_ns
    return replace(
        base,
        verdict=first.verdict,
        cause=first.cause,
        nodes=first.kernels,
        step=first.unit,
        devices=(first.device_id,) if len({each.device_id for each in single}) > 1 else (),
        chunk=first.chunk,
        plateau=first.plateau,
        schedule=first.schedule,
        predicted_ns=arms,
        gain_ns=first.gain_ns if gains else 0,
        gain_interval_ns=first.gain_interval_ns if gains else None,
        break_even_replays=first.break_even_replays,
        amortised_ns=amortised_ns(first.best_ns, first.build_ns) if gains else {},
        ungraphed=single,
        warnings=(*base.warnings, *slow_host(single)),
    )


def without_advice(base: Recommendation, known: Recommendation) -> Recommendation:
    """Return the predictions alone, for the case that something else than sizes matters.

    Without sensitivity, too: that is about an advice on sizes.
    """
    schedules = known.schedules
    return replace(
        base,
        nodes=known.nodes,
        step=known.step,
        devices=known.devices,
        predicted_ns=known.predicted_ns,
        alternatives=known.alternatives,
        by_size=known.by_size,
        schedules=None if schedules is None else replace(schedules, advised=None),
        break_even_replays=known.break_even_replays,
        ungraphed=known.ungraphed,
        inputs=known.inputs,
        warnings=known.warnings,
    )


def merge_share(trace: Trace, calibration: Calibration, queued_gap_ns: float | None) -> float:
    """Return which share of a recorded gap between queued graphs is left without the recorder."""
    table = calibration.table("recorder_graph_gap_ns", recorder=recorder_of(trace))
    if not table or not queued_gap_ns:
        return 1.0
    added = sum(each.value for each in table) / len(table)
    return max(0.0, queued_gap_ns - added) / queued_gap_ns
