"""Finds the best way to run one step on this machine, by trying: model first, then the clock."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gaptrace.cost import NotIdentifiableError, amortised_ns
from gaptrace.errors import GpuError
from gaptrace.fit import Fit, fit
from gaptrace.live.measure import StepBench, is_recorded
from gaptrace.recommendation import NOISE_FRACTION, Parameter, Recommendation
from gaptrace.schedules import growing_with_reserve, plateau, uniform
from gaptrace.timings import ArmTiming, Kind, Measurement, gain
from gaptrace.trace import TraceWarning

#: The size that made people ask (ggml-org/llama.cpp#11867), tried for comparison.
_REFERENCE = 512
#: Rounds of the parts; the arms get as many as the caller asks for.
_PART_ROUNDS = 5


def tune(
    step: Callable[[], Any] | Any, *, state: Any = (), stream: Any = None, rounds: int = 9
) -> Recommendation:
    """Recommend how to run a step that is captured once and replayed, from untraced times.

    The launch cost of parts of the step's own graph and a few chunk sizes are measured, the chunk
    model is fitted to them (`gaptrace.fit`), and what it holds to be best is timed in turn with one
    graph: the best uniform size, the round number near it, the growing schedule, and chunks of 512.
    What the clock says decides, not the model.

    Args:
        step: as for `gaptrace.measure`.
        state: likewise.
        stream: likewise.
        rounds: how often each arm has its turn.

    Returns:
        a recommendation whose evidence is `timed`: verdict one_graph, chunk, do_not_graph, or
        no_difference_shown; measured_ns and predicted_ns by arm; gain_ns against the arm that it is
        compared with: one graph for chunk, the step per launch for one_graph.

    Raises:
        GpuError: the step cannot be captured or cut, or a recorder is attached.
        ResultError: an arm computes something else than the step per launch.
    """
    if is_recorded():
        raise GpuError(
            "a recorder is attached, whose cost per node is just what chunks would hide: tune "
            "without one, in a notebook before the first %%gaptrace"
        )
    with StepBench(step, state=state, stream=stream) as bench:
        arms: tuple[Kind, ...] = ("per_launch", "graph", "chunks")
        if not callable(step):
            arms = arms[1:]
        first = bench.time(arms, (), (), rounds=rounds)
        graph, chunks = first.of("graph")[0], first.of("chunks")
        try:
            found = fit(bench.launch_costs(_PART_ROUNDS), graph, chunks) if chunks else None
        except NotIdentifiableError as error:
            found, first = None, replace(first, warnings=(*first.warnings, str(error)))
        sizes, schedules = _candidates(found, graph, chunks)
        last = bench.time(("graph", "chunks"), sizes, schedules, rounds=rounds) if sizes else first
    return recommendation(first, last, found)


def _candidates(
    found: Fit | None, graph: ArmTiming, chunks: tuple[ArmTiming, ...]
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Sizes and schedules worth timing: what the model holds for best, and the fastest yet."""
    nodes = graph.arm.schedule[0]
    fastest = min(chunks, key=lambda timing: timing.step_ns, default=None)
    sizes = [] if fastest is None or fastest.arm.chunk is None else [fastest.arm.chunk]
    schedules: tuple[tuple[int, ...], ...] = ()
    if found is not None:
        best = plateau(uniform(found.model))
        sizes += [best.recommended, best.best]
        growing = growing_with_reserve(found.model)
        if len(set(growing[:-1])) > 1:
            schedules = (growing,)
    if nodes > _REFERENCE:
        sizes.append(_REFERENCE)
    return tuple(dict.fromkeys(size for size in sizes if size < nodes)), schedules


def recommendation(first: Measurement, last: Measurement, found: Fit | None) -> Recommendation:
    """Turn two measurements of one step into a recommendation.

    Args:
        first: the step per launch (where it is one), one graph, and a set of chunks.
        last: one graph again, in turn with what the model holds for best; may be the first.
        found: the fit; None where it could not be made.
    """
    graph = last.of("graph")[0]
    nodes = graph.arm.schedule[0]
    single = first.of("per_launch")
    best = min(last.of("chunks"), key=lambda timing: timing.step_ns, default=None)
    cut = gain(graph, best) if best is not None else None
    captured = gain(single[0], first.of("graph")[0]) if single else None
    verdict, gain_ns = "one_graph", 0.0
    is_cut = cut is not None and cut.is_shown and cut.gain_ns > NOISE_FRACTION * graph.step_ns
    if is_cut and not (single and best and single[0].step_ns < best.step_ns):
        assert cut is not None
        verdict, gain_ns = "chunk", cut.gain_ns
    elif captured is not None and captured.is_shown and captured.gain_ns > 0:
        gain_ns = captured.gain_ns
    elif captured is not None and captured.is_shown:
        verdict = "do_not_graph"
    elif captured is not None:
        verdict = "no_difference_shown"
    chosen = best if verdict == "chunk" else graph
    assert chosen is not None
    is_graph = verdict in ("chunk", "one_graph")
    good = plateau(uniform(found.model)) if found is not None else None
    # The clock may choose a size that the model holds for worse.
    is_among = good is not None and good.lo <= (chosen.arm.chunk or 0) <= good.hi
    return Recommendation(
        verdict,  # type: ignore[arg-type]
        regime="replay",
        nodes=nodes,
        chunk=chosen.arm.chunk if is_graph else None,
        plateau=(good.lo, good.hi) if good and is_among and is_graph else None,
        schedule=chosen.arm.schedule if is_graph else None,
        predicted_ns=_predicted(found, graph, best),
        measured_ns=_measured(first, last),
        gain_ns=round(gain_ns) if is_graph else None,
        break_even_replays=first.break_even_replays,
        amortised_ns=_amortised(first, chosen) if is_graph else {},
        inputs=_inputs(first, last, found),
        warnings=tuple(
            TraceWarning("timed", text) for text in dict.fromkeys(first.warnings + last.warnings)
        ),
    )


def _amortised(first: Measurement, chosen: ArmTiming) -> dict[int, int]:
    if first.capture_ns is None or chosen.instantiate_ns is None:
        return {}
    return amortised_ns(chosen.step_ns, first.capture_ns + chosen.instantiate_ns)


def _predicted(found: Fit | None, graph: ArmTiming, best: ArmTiming | None) -> dict[str, int]:
    if found is None:
        return {}
    predicted = {
        "one_graph": found.step_ns(graph.arm.schedule),
        "device_only": float(found.model.device_ns[-1]),
    }
    if best is not None:
        predicted["chunk"] = found.step_ns(best.arm.schedule)
    return {arm: round(ns) for arm, ns in predicted.items()}


def _measured(first: Measurement, last: Measurement) -> dict[str, int]:
    """Return the step alone by name of the arm; of the second measurement where both have it."""
    timings = {timing.arm.name: timing for timing in (*first.timings, *last.timings)}
    return {name: round(timing.step_ns) for name, timing in timings.items()}


def _inputs(first: Measurement, last: Measurement, found: Fit | None) -> tuple[Parameter, ...]:
    graph = last.of("graph")[0]
    samples = len(graph.alone_ns) * last.steps
    values: list[tuple[str, float, int]] = [("nodes", float(graph.arm.schedule[0]), 1)]
    if first.capture_ns is not None:
        values.append(("capture_ns", float(first.capture_ns), 1))
    if graph.instantiate_ns is not None:
        values.append(("instantiate_ns", float(graph.instantiate_ns), 1))
    if found is not None:
        values += [
            ("device_ns", float(found.model.device_ns[-1]), samples),
            ("launch_fixed_ns", found.model.host.fixed_ns, samples),
            ("launch_whole_ns", float(found.model.host_ns[-1]), samples),
            ("cut_gap_ns", found.cut_gap_ns, samples),
            ("notice_ns", found.notice_ns, samples),
            ("prediction_error_fraction", found.error_fraction, len(last.timings)),
        ]
    return tuple(Parameter(name, value, "live", "timed", count) for name, value, count in values)
