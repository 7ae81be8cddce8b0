"""Steps: what a program repeats, and what each repeat costs the device.

Three witnesses, in this order of trust: NVTX ranges, which say what they are; the sequence of graph
execs; the sequence of kernel names. The first one that tells is believed. Where nothing repeats
over most of the device's work there are no steps, and the reason is given.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import polars as pl

from gaptrace import intervals
from gaptrace.quantiles import quantiles
from gaptrace.repeats import Repeats, device_work, repeating_ranges
from gaptrace.sequences import repeating_graphs, repeating_kernels
from gaptrace.trace import Trace

Source = Literal["nvtx", "graph_exec", "kernels"]

STEPS = pl.Schema(
    {
        # One step on one device per row, in order of key, device and time.
        "key": pl.Int64,  # number of the sequence; within one of a device, steps do not overlap
        "unit": pl.String,  # what repeats in it: path of the range, graphs, kernels
        "device_id": pl.Int64,
        "process_id": pl.Int64,
        "thread_id": pl.Int64,  # of push/pop ranges, else null
        "stream_id": pl.Int64,  # on which graphs or kernels repeat; null for ranges
        "step": pl.Int64,  # from 0 on within key and device
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "is_first": pl.Boolean,
        "is_warm_up": pl.Boolean,  # see `find_steps`
    }
)
_STEPS_OF = ["key", "device_id"]
_STEP = [*_STEPS_OF, "step"]
_LENGTH = pl.col("end_ns") - pl.col("start_ns")

#: A modified z-score, 0.6745 (x - median) / MAD, above this is far out: Iglewicz and Hoaglin 1993,
#: "How to Detect and Handle Outliers".
FAR_SCORE = 3.5
_MAD_PER_SIGMA = 0.6745
#: Where more than half of the values are equal the MAD is 0. Then the mean deviation stands in: for
#: a normal distribution it is sqrt(2 / pi) sigma.
_MEAN_DEVIATION_PER_SIGMA = 0.7979
#: Spans of one kernel sequence can agree within nanoseconds. What is far out by its score must also
#: be longer by this share to matter to anybody. Own choice.
FAR_FRACTION = 0.1
#: A host runs ahead if at the end of a step the device has work for this share of one. Own choice.
_BEHIND = 0.1


@dataclass(frozen=True)
class Steps:
    """The steps of a trace.

    The window of a step is, for an NVTX range, the range itself on the host, as in
    `ranges.range_summary`. For graphs and kernels it runs from the step's first op to the first op
    of the next step; the last step, and one before a stretch that is no step, ends with its last
    op. The windows of one key do not overlap on a device; those of two threads or processes may.
    `outside_steps` states what no step covers: where a host runs ahead, the device work of the last
    ranges is there.

    Attributes:
        source: the witness that told; null when none did.
        unit: what repeats: name of the range, graphs, or kernels; null without a source.
        reason: why the witnesses of higher trust (without a source: all of them) did not tell.
        work_fraction: share of the device time of kernels and graphs that the steps hold: launched
            inside, for ranges; started inside, for the others. Null without a source.
        frame: rows of `STEPS`.
    """

    source: Source | None
    unit: str | None
    reason: str
    work_fraction: float | None
    frame: pl.DataFrame


def find_steps(trace: Trace, windows: pl.DataFrame, executions: pl.DataFrame) -> Steps:
    """Find what repeats, by the most trusted witness that tells.

    See `repeats.repeating_ranges`, `sequences.repeating_graphs` and `sequences.repeating_kernels`
    for what each of them takes for a step, `periods.find_repetition` for how a sequence is
    searched, and `periods.bounds` for how much a step may differ from the others. A sequence cannot
    tell whether it is an iteration, a layer of one, or several. Nor does it tell where in it a step
    begins: that is taken to be where the stream waits longest, by the median.

    Warm-up steps are the leading ones of a sequence whose span is far above those of its later
    half, which stands for the steady state; far as in `FAR_SCORE` and `FAR_FRACTION`.

    Args:
        trace: the trace.
        windows: `ranges.range_windows` of it.
        executions: `graphs.graph_executions` of it.
    """
    work = device_work(trace)
    witnesses: list[tuple[Source, Callable[[], Repeats | str]]] = [
        ("nvtx", lambda: repeating_ranges(windows, work)),
        ("graph_exec", lambda: repeating_graphs(trace, executions, work)),
        ("kernels", lambda: repeating_kernels(trace, executions, work)),
    ]
    reasons: list[str] = []
    for source, look in witnesses:
        found = look()
        if isinstance(found, Repeats):
            frame = _numbered(found.rows)
            return Steps(source, found.unit, "; ".join(reasons), found.work_fraction, frame)
        reasons.append(found)
    return Steps(None, None, "; ".join(reasons), None, pl.DataFrame(schema=STEPS))


def _numbered(rows: pl.DataFrame) -> pl.DataFrame:
    """Number the steps of each sequence and set the first and the warm-up apart."""
    step, half = pl.col("step"), pl.len() // 2
    is_far = _is_far(_LENGTH, step >= half) & (step < half)
    return (
        rows.sort(*_STEPS_OF, "start_ns", maintain_order=True)
        .with_columns(step=pl.int_range(pl.len(), dtype=pl.Int64).over(_STEPS_OF))
        .with_columns(
            is_first=step == 0, is_warm_up=is_far.cast(pl.Int8).cum_min().over(_STEPS_OF) == 1
        )
        .select(pl.col(name).cast(dtype) for name, dtype in STEPS.items())
    )


def _is_far(value: pl.Expr, is_typical: pl.Expr) -> pl.Expr:
    """Whether a value is far above the typical ones of its group; to be used with `over`."""
    median = value.filter(is_typical).median()
    deviation = (value - median).filter(is_typical).abs()
    sigma = (
        pl.when(deviation.median() > 0)
        .then(deviation.median() / _MAD_PER_SIGMA)
        .otherwise(deviation.mean() / _MEAN_DEVIATION_PER_SIGMA)
    )
    excess = value - median
    return (excess > FAR_SCORE * sigma) & (excess > FAR_FRACTION * median)


def step_causes(steps: Steps, pieces: pl.DataFrame) -> pl.DataFrame:
    """Split the idle time of each step by cause.

    Args:
        steps: `find_steps`.
        pieces: `gaps.idle_pieces`, of device gaps and of edge gaps.

    Returns:
        key, device_id, step, cause, idle_ns; sums equal idle_ns of `step_summary` exactly.
    """
    own = pieces.select("device_id", "start_ns", "end_ns", "cause")
    return (
        intervals.intersect(steps.frame, own, ["device_id"])
        .group_by(*_STEP, "cause", maintain_order=True)
        .agg(idle_ns=_LENGTH.sum())
        .sort(*_STEP, "idle_ns", descending=[False, False, False, True], maintain_order=True)
    )


def step_summary(steps: Steps, pieces: pl.DataFrame) -> pl.DataFrame:
    """Say what each step cost its device, and which steps stand out, by what.

    A step is an outlier when its span is far above those of the steady steps (neither first nor
    warm-up) of its sequence; far as in `FAR_SCORE` and `FAR_FRACTION`.

    Args:
        steps: `find_steps`.
        pieces: as for `step_causes`.

    Returns:
        the columns of `STEPS`; span_ns, busy_ns, idle_ns; is_outlier; and for outliers, else null:
        excess_ns, busy_excess_ns: span and busy time above the median of the steady steps;
        grown_cause, grown_ns: the cause whose idle time is most above its median, and by how much;
        null when no cause has grown.
    """
    causes = step_causes(steps, pieces)
    idle = causes.group_by(_STEP).agg(pl.col("idle_ns").sum())
    is_far = _is_far(pl.col("span_ns"), pl.col("is_steady")).over(_STEPS_OF)
    costs = (
        steps.frame.join(idle, on=_STEP, how="left", maintain_order="left")
        .with_columns(
            pl.col("idle_ns").fill_null(0),
            span_ns=_LENGTH,
            is_steady=~(pl.col("is_first") | pl.col("is_warm_up")),
        )
        .with_columns(busy_ns=pl.col("span_ns") - pl.col("idle_ns"))
        .with_columns(is_outlier=is_far.fill_null(False) & pl.col("is_steady"))
    )
    above = {"excess_ns": _above("span_ns"), "busy_excess_ns": _above("busy_ns")}
    return (
        costs.with_columns(
            pl.when("is_outlier").then(value).alias(name) for name, value in above.items()
        )
        .join(_growth(costs, causes), on=_STEP, how="left", maintain_order="left")
        .drop("is_steady")
    )


def _above(column: str, over: tuple[str, ...] = tuple(_STEPS_OF)) -> pl.Expr:
    """How far a value lies above the median of the steady steps of its group, in whole ns."""
    median = pl.col(column).filter(pl.col("is_steady")).median()
    return (pl.col(column) - median).over(over).round().cast(pl.Int64)


def _growth(costs: pl.DataFrame, causes: pl.DataFrame) -> pl.DataFrame:
    """Per outlier, the cause whose idle time has grown most against the steady steps."""
    occurring = causes.select(*_STEPS_OF, "cause").unique(maintain_order=True)
    return (
        costs.select(*_STEP, "is_steady", "is_outlier")
        .join(occurring, on=_STEPS_OF, maintain_order="left_right")
        .join(causes, on=[*_STEP, "cause"], how="left", maintain_order="left")
        # A cause that a step does not have counts there, with 0 ns.
        .with_columns(pl.col("idle_ns").fill_null(0))
        .with_columns(grown_ns=_above("idle_ns", (*_STEPS_OF, "cause")))
        .filter(pl.col("is_outlier") & (pl.col("grown_ns") > 0))
        .sort("grown_ns", descending=True, maintain_order=True)
        .unique(_STEP, keep="first", maintain_order=True)
        .select(*_STEP, "grown_ns", grown_cause="cause")
    )


def unit_summary(summary: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Sum up each sequence of steps, with its first and warm-up steps set apart.

    Args:
        summary: `step_summary`.
        launches: `launches.launches`.

    Returns:
        key, unit, device_id, process_id, thread_id, stream_id; steps: how many; warm_up_steps,
        outlier_steps: of them; first_span_ns: of the first step, null where a window leaves it out;
        span_ns, busy_ns, idle_ns: structs as `quantiles` makes them, of the steady steps (neither
        first nor warm-up); behind_ns: for how long after the end of such a step the device worked
        on what the process had launched until then, the median: what it did in a step is then not
        the step's own work. Null where steps are not ranges, but windows of the device.
    """
    is_steady = ~(pl.col("is_first") | pl.col("is_warm_up"))
    own = ["key", "unit", "device_id", "process_id", "thread_id", "stream_id"]
    return (
        _with_behind(summary, launches)
        .group_by(own, maintain_order=True)
        .agg(
            steps=pl.len().cast(pl.Int64),
            warm_up_steps=pl.col("is_warm_up").sum().cast(pl.Int64),
            outlier_steps=pl.col("is_outlier").sum().cast(pl.Int64),
            first_span_ns=pl.col("span_ns").filter("is_first").first(),
            **{
                name: quantiles(pl.col(name).filter(is_steady))
                for name in ("span_ns", "busy_ns", "idle_ns")
            },
            behind_ns=pl.col("behind_ns").filter(is_steady).median().cast(pl.Int64),
        )
    )


def run_ahead(units: pl.DataFrame) -> pl.DataFrame:
    """Return those rows of `unit_summary` in whose steps the host runs ahead of the device."""
    return units.filter(pl.col("behind_ns") > _BEHIND * pl.col("span_ns").struct.field("p50"))


def _with_behind(summary: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Add behind_ns: from the end of each step to that of all that had been launched until then."""
    of = ["process_id", "device_id"]
    done = launches.sort("call_start_ns", maintain_order=True).select(
        *of, "call_start_ns", _done=pl.col("end_ns").cum_max().over(of)
    )
    return (
        summary.with_row_index("_row")
        .sort("end_ns", maintain_order=True)
        .join_asof(
            done,
            left_on="end_ns",
            right_on="call_start_ns",
            by=of,
            allow_exact_matches=False,  # what begins as the step ends is the next one's
            check_sortedness=False,
        )
        .sort("_row")
        .with_columns(
            behind_ns=pl.when(pl.col("stream_id").is_null()).then(
                (pl.col("_done") - pl.col("end_ns")).clip(lower_bound=0)
            )
        )
        .drop("_row", "_done", "call_start_ns")
    )


def outside_steps(steps: Steps, windows: pl.DataFrame, pieces: pl.DataFrame) -> pl.DataFrame:
    """Say what of the windows no step covers, so that nothing seems to be missing.

    Together with the union of the steps, cut to the windows, it makes up the windows exactly.

    Args:
        steps: `find_steps`.
        windows: device_id, start_ns, end_ns; disjoint.
        pieces: as for `step_causes`.

    Returns:
        device_id, span_ns, busy_ns, idle_ns: one row per device of the windows.
    """
    covered = intervals.merge(steps.frame, ["device_id"])
    left = intervals.subtract(windows.select(covered.columns), covered, ["device_id"])
    idle = intervals.intersect(left, pieces.select(covered.columns), ["device_id"])
    sums = [frame.group_by("device_id").agg(ns=_LENGTH.sum()) for frame in (left, idle)]
    return (
        windows.select(pl.col("device_id").unique().sort())
        .join(sums[0].rename({"ns": "span_ns"}), on="device_id", how="left", maintain_order="left")
        .join(sums[1].rename({"ns": "idle_ns"}), on="device_id", how="left", maintain_order="left")
        .with_columns(pl.col("span_ns", "idle_ns").fill_null(0))
        .select(
            "device_id", "span_ns", busy_ns=pl.col("span_ns") - pl.col("idle_ns"), idle_ns="idle_ns"
        )
    )
