"""From a trace to a recommendation about CUDA graphs and chunk sizes, with its evidence.

A recorder lengthens every graph launch in proportion to the graph's nodes, which is the very cost
that chunks would hide: measured on an H200 (driver 580, CUDA 13.0), by about 0.2 us per node in
graph granularity and 1.2 us in node granularity, where the launch without a recorder took 4 to
10 us in all. A trace alone therefore only bounds launch costs: from above by what it shows, from
below by a launch whose cost does not grow with the graph. Where both bounds lead to the same
advice it is given; else the verdict is `needs_calibration`.
"""

from collections.abc import Iterable
from dataclasses import replace

import polars as pl

from gaptrace.calibrated import (
    known_from,
    merge_share,
    of_ungraphed,
    predicted,
    single_launches,
    without_advice,
)
from gaptrace.calibration import Calibration, Figure
from gaptrace.cost import ChunkModel, HostCost
from gaptrace.graph_step import GraphStep, largest_step
from gaptrace.graph_use import GraphUse
from gaptrace.graphs import graph_nodes
from gaptrace.host_pace import slow_host
from gaptrace.rebuilds import PER_LAUNCH
from gaptrace.recommendation import NOISE_FRACTION, Parameter, Recommendation, Regime
from gaptrace.schedules import plateau, uniform
from gaptrace.steps import Steps
from gaptrace.trace import Trace, TraceWarning
from gaptrace.traced_step import TracedStep, traced_step
from gaptrace.untraced import recorder_of

#: How much a recorder stretches the gap between queued graphs: 2.1 to 2.5 us and 5.4 us against
#: 1.16 us without, on an H200 (driver 580, CUDA 13.0). On other machines a rough guide.
_GAP_STRETCH = {"graph": 2.2, "node": 4.7}
#: Idle time that the size of graphs can change: launching them and building them.
_SIZE_MATTERS = (pl.col("cause") == "launch_call") | pl.col("topic").str.starts_with("graph_build")
#: Ways to use graphs that cost more than any chunk size could save, and what goes when they go.
_AVOIDABLE = (
    "value_loop",
    "eager_bursts",
    "eager_bursts:rebuilt",
    "graph_build:instantiated_alike",
    "graph_build:alternating_shapes",
    "graph_build:more_shapes_than_kept",
    "graph_build:node_by_node",
)
#: Nodes from which on the memory of an exec is worth a look. A judgement, for want of a figure per
#: node: JBjoernskov/Twin4Build#134 has 8 GiB in one exec of 360 unrolled steps.
_MANY_NODES = 10_000

_NO_STEPS = TraceWarning(
    "no_steps",
    "no step repeats in this trace, so a calibration alone does not tell either: mark the step "
    "with gaptrace.step, too",
)


def recommend(
    trace: Trace,
    executions: pl.DataFrame,
    launches: pl.DataFrame,
    gaps: pl.DataFrame,
    idle: pl.DataFrame,
    windows: pl.DataFrame,
    use: GraphUse,
    steps: Steps,
    calibration: Calibration | None = None,
) -> Recommendation:
    """Recommend from the trace, and from a calibration of its machine where there is one.

    Args:
        trace: the trace.
        executions: `graphs.graph_executions` inside the windows.
        launches: `launches.launches` inside the windows.
        gaps: gaps inside the windows.
        idle: pieces of them, as `topics.with_topics` returns them.
        windows: device_id, start_ns, end_ns.
        use: `graph_use.graph_use`.
        steps: `steps.find_steps`; those that begin in the windows.
        calibration: what launches cost on that machine without a recorder, and with it.
    """
    span_ns = int((windows["end_ns"] - windows["start_ns"]).sum())
    found = single_launches(trace, launches, steps, calibration)
    single = found or ()
    if executions.is_empty():
        base = _without_graphs(idle, span_ns)
        if calibration is None:
            is_asked = base.cause == "graph_launch_cost" and steps.frame.is_empty()
            return replace(base, warnings=(_NO_STEPS,)) if is_asked else base
        return of_ungraphed(known_from(base, trace, calibration), found, steps)
    waiting = _idle_before_graphs(trace, gaps, idle)
    step = largest_step(trace, executions)
    cap_ns = _sum(waiting, _SIZE_MATTERS)
    regime = _regime(use.rebuilds)
    unit, devices = _whose(trace, step.call_ids, steps)
    base = Recommendation(
        "needs_calibration",
        regime=regime,
        nodes=step.nodes,
        step=unit,
        devices=devices,
        gain_cap_ns=cap_ns,
        ungraphed=single,
        inputs=_inputs(step, executions, f"{trace.meta.granularity}-granularity trace"),
        warnings=(*_memory_warning(trace, executions), *slow_host(single)),
    )
    known = None
    if calibration is None:
        base = replace(base, warnings=(_recorder_warning(trace), *base.warnings))
    else:
        base = known_from(base, trace, calibration)
        waiting = _without_usual_gaps(
            waiting, calibration.figure("node_gap_ns", recorder=recorder_of(trace))
        )
        traced = traced_step(trace, executions, steps)
        if traced is not None:
            sized = _that_sizes_change(waiting, gaps, is_cut=len(traced.sizes) > 1)
            unit, devices = _whose(trace, traced.call_ids, steps)
            of_step = replace(base, step=unit, devices=devices)
            if regime == "replay" or steps.source == "nvtx" or _repeats(traced, executions):
                known = predicted(
                    of_step, trace, traced, calibration, regime, sized, windows, single
                )
                base = without_advice(base, known)
            else:
                known = replace(base, nodes=None, cause="steps")
            cap_ns = _sum(sized, pl.lit(True))
    spared = 1 / _GAP_STRETCH.get(trace.meta.granularity or "", 1.0)
    if calibration is not None:
        spared = merge_share(trace, calibration, step.queued_gap_ns)
    decided = _decided(base, known, step, idle, waiting, span_ns, spared)
    if decided.verdict == "merge" and decided is not known:
        return decided
    return replace(decided, gain_cap_ns=cap_ns)


def _repeats(traced: TracedStep, executions: pl.DataFrame) -> bool:
    """Whether it is a step: graphs built anew, all in one row, are the whole run."""
    return traced.repeats > 1 or len(traced.sizes) == 1 or len(traced.sizes) < executions.height


def _decided(
    base: Recommendation,
    known: Recommendation | None,
    step: GraphStep,
    idle: pl.DataFrame,
    waiting: pl.DataFrame,
    span_ns: int,
    spared: float,
) -> Recommendation:
    """Say what the idle time before graphs is about: their sizes, their number, something else.

    Args:
        base: what is known already.
        known: what a calibration tells about sizes; None without.
        step: for want of one.
        idle: all idle time.
        waiting: that before graphs.
        span_ns: length of the windows.
        spared: the share of gaps between queued graphs that is left without the recorder.
    """
    cap_ns = base.gain_cap_ns or 0
    habit, habit_ns = _largest(idle.filter(pl.col("topic").is_in(_AVOIDABLE)))
    if habit_ns >= max(cap_ns / 2, NOISE_FRACTION * span_ns):
        return replace(base, verdict="not_a_chunk_problem", cause=habit)
    cause, cause_ns = _largest(waiting.filter(~_SIZE_MATTERS))
    if cap_ns >= max(cause_ns, NOISE_FRACTION * span_ns):
        return known or _weigh(step, base)
    cuts_ns = _sum(waiting, pl.col("detail") == "between_graphs")
    untraced_ns = cuts_ns * spared
    if cause.startswith("device_queued") and untraced_ns >= NOISE_FRACTION * span_ns:
        if known is not None and known.cause == "steps":
            return known
        if known is not None and known.verdict in ("one_graph", "merge", "chunk") and known.gain_ns:
            return known
        # Other chains have pauses, too, which are not in this step.
        gap_ns = (step.graphs - 1) * (step.queued_gap_ns or 0.0) * spared
        gain_ns = round(min(gap_ns, untraced_ns / step.chains))
        if gain_ns > 0:
            return replace(base, verdict="merge", gain_ns=gain_ns, gain_cap_ns=cuts_ns)
        # The usual step is one graph already, and the pauses are between steps.
        return replace(base, verdict="no_difference_shown")
    # Pauses between graphs that would not be worth merging without the recorder's share come here.
    if cause_ns < NOISE_FRACTION * span_ns or cause == "device_queued:between_graphs":
        return replace(base, verdict="no_difference_shown")
    return replace(base, verdict="not_a_chunk_problem", cause=cause)


def _without_usual_gaps(waiting: pl.DataFrame, usual: Figure | None) -> pl.DataFrame:
    """Leave out what every graph of this machine has between its nodes under this recorder.

    Graph granularity does not show it at all, and the advice shall be the same in both.
    """
    if usual is None:
        return waiting
    is_usual = pl.col("end_ns") - pl.col("start_ns") <= usual.high
    return waiting.filter((pl.col("detail") != "in_graph").fill_null(True) | ~is_usual)


def _that_sizes_change(waiting: pl.DataFrame, gaps: pl.DataFrame, *, is_cut: bool) -> pl.DataFrame:
    """Idle time that other sizes change, with the op that ended it; between graphs if there are."""
    which = _SIZE_MATTERS
    if is_cut:
        which = which | (pl.col("detail") == "between_graphs").fill_null(False)
    ends = gaps.filter(pl.col("gap_id").is_not_null()).unique("gap_id", keep="first")
    return waiting.filter(which).join(ends.select("gap_id", "next_op_id"), on="gap_id", how="left")


def _whose(
    trace: Trace, call_ids: Iterable[int], steps: Steps
) -> tuple[str | None, tuple[int, ...]]:
    """The range that holds most of these launches; their devices, if the trace has several."""
    of = ["process_id", "device_id"]
    launched = (
        trace.ops.filter(pl.col("call_id").is_in(list(call_ids)))
        .select(*of, "call_id")
        .unique()
        .join(trace.api.select("call_id", at_ns="start_ns"), on="call_id")
    )
    marks = steps.frame if steps.source == "nvtx" else steps.frame.clear()
    units = (
        launched.sort("at_ns")
        .join_asof(
            marks.sort("start_ns").select(*of, "unit", "start_ns", "end_ns"),
            left_on="at_ns",
            right_on="start_ns",
            by=of,
            check_sortedness=False,
        )
        .filter(pl.col("at_ns") < pl.col("end_ns"))
        .group_by("unit")
        .len()
        .sort("len", "unit", descending=[True, False])
    )
    is_most = units.height > 0 and 2 * units["len"][0] > launched.height
    several = trace.ops["device_id"].n_unique() > 1
    return (
        units["unit"][0] if is_most else None,
        tuple(launched["device_id"].unique().sort().to_list()) if several else (),
    )


def _regime(rebuilds: pl.DataFrame) -> Regime:
    launches, instantiated, updated = (
        int(rebuilds[name].sum()) for name in ("launches", "instantiated", "updated")
    )
    often = PER_LAUNCH * max(launches, 1)
    # Who builds once replays, however few times.
    if instantiated >= max(often, 2):
        return "instantiate"
    return "update" if updated >= often else "replay"


def _weigh(step: GraphStep, base: Recommendation) -> Recommendation:
    """Chunks or one graph: said only if launch costs at both ends of what is possible agree."""
    if step.nodes is None:
        return replace(base, cause="nodes")
    if step.nodes == 1:
        return replace(base, verdict="not_a_chunk_problem", cause="launch_call")
    # Most in favour of chunks: all of the launch grows with the nodes, and a cut costs nothing.
    makespan_ns = uniform(
        ChunkModel(
            host=HostCost.linear(0.0, step.launch_api_ns / step.nodes),
            nodes=step.nodes,
            node_ns=step.device_ns / step.nodes,
            delta_ns=(step.exposed_latency_ns or step.launch_api_ns) - step.launch_api_ns,
        )
    )
    good = plateau(makespan_ns)
    one_ns = float(makespan_ns[-1])
    cap_ns = (base.gain_cap_ns or 0) / step.chains
    gain_ns = min(one_ns - float(makespan_ns.min()), cap_ns)
    if base.regime != "replay" or step.graphs > 1 or gain_ns >= NOISE_FRACTION * one_ns:
        return replace(base, cause="host_cost_by_nodes")
    return replace(
        base,
        verdict="one_graph",
        chunk=step.nodes,
        plateau=(good.lo, step.nodes),
        schedule=(step.nodes,),
        predicted_ns={"one_graph": round(one_ns), "device_only": round(step.device_ns)},
        gain_ns=0,
    )


def _without_graphs(idle: pl.DataFrame, span_ns: int) -> Recommendation:
    launch_ns = _sum(idle, pl.col("cause") == "launch_call")
    base = Recommendation("needs_calibration", gain_cap_ns=launch_ns)
    topic, topic_ns = _largest(idle.filter(pl.col("cause") != "launch_call"))
    if max(launch_ns, topic_ns) < NOISE_FRACTION * span_ns:
        return replace(base, verdict="do_not_graph", gain_ns=0)
    if launch_ns >= topic_ns or topic.startswith(("no_graphs", "host_code", "device_queued")):
        # In a graph the code between launches vanishes with the launches; how much is left depends
        # on what a graph launch costs here, which a trace without graphs cannot tell.
        return replace(base, cause="graph_launch_cost")
    return replace(base, verdict="not_a_chunk_problem", cause=topic)


def _idle_before_graphs(trace: Trace, gaps: pl.DataFrame, idle: pl.DataFrame) -> pl.DataFrame:
    """Pieces of the gaps that end with an op of a graph."""
    in_graphs = trace.ops.filter(pl.col("graph_exec_id").is_not_null())["op_id"]
    ending = gaps.filter(pl.col("next_op_id").is_in(in_graphs.implode()))["gap_id"]
    return idle.filter(pl.col("gap_id").is_in(ending.implode()))


def _largest(idle: pl.DataFrame) -> tuple[str, int]:
    """Return a topic of some idle time, and nanoseconds: of the cause or habit that holds most.

    Most topics are parts of a cause: it is weighed as a whole, and named by its largest topic.
    """
    by_topic = (
        idle.with_columns(
            family=pl.when(pl.col("topic") == "no_graphs")
            .then(pl.col("cause").cast(pl.String))
            .otherwise(pl.col("topic").str.split(":").list.first())
        )
        .group_by("family", "topic")
        .agg(ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
        .with_columns(family_ns=pl.col("ns").sum().over("family"))
        .sort("family_ns", "ns", "topic", descending=[True, True, False])
    )
    return by_topic.select("topic", "family_ns").row(0) if by_topic.height else ("host_code", 0)


def _sum(idle: pl.DataFrame, which: pl.Expr) -> int:
    chosen = idle.filter(which)
    return int((chosen["end_ns"] - chosen["start_ns"]).sum())


def _inputs(step: GraphStep, executions: pl.DataFrame, evidence: str) -> tuple[Parameter, ...]:
    queued = executions.filter(pl.col("gap_kind") == "queued").height
    values = (
        ("nodes", step.nodes, step.chains),
        ("graphs_per_step", step.graphs, step.chains),
        ("device_ns", step.device_ns, step.chains),
        ("launch_api_ns", step.launch_api_ns, step.chains),
        ("exposed_latency_ns", step.exposed_latency_ns, step.chains),
        ("queued_gap_ns", step.queued_gap_ns, queued),
    )
    return tuple(
        Parameter(name, float(value), "trace", evidence, samples)
        for name, value, samples in values
        if value is not None
    )


def _memory_warning(trace: Trace, executions: pl.DataFrame) -> tuple[TraceWarning, ...]:
    ran = executions.select("process_id", "graph_exec_id")
    nodes = graph_nodes(trace).join(ran, on=ran.columns, how="semi")["nodes"]
    largest = int(nodes.max() or 0)  # type: ignore[arg-type]
    if largest < _MANY_NODES:
        return ()
    return (
        TraceWarning(
            "exec_memory",
            f"a graph has {largest:,} nodes; its exec holds memory for each of them, which no "
            "trace shows: compare free memory before and after instantiating, and where the same "
            "nodes come again and again inside the graph, launch an exec of them repeatedly",
        ),
    )


def _recorder_warning(trace: Trace) -> TraceWarning:
    if trace.meta.granularity == "node":
        return TraceWarning(
            "recorder_cost",
            "recorded in node granularity: launch costs and gaps between graphs are several times "
            "too large here, and branches of a graph may run one after the other; take them from a "
            "graph-granularity or, better, an unrecorded run",
        )
    return TraceWarning(
        "recorder_cost",
        "recording lengthens graph launches and gaps between graphs; what chunks seem to gain in "
        "a trace can be the recorder's own cost",
    )
