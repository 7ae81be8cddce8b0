"""The steps of a program in a row, few enough to be drawn: what each, or each bunch, took."""

import polars as pl

from gaptrace.steps import Steps, step_causes

_KEY = ["key", "device_id"]
_IS_STEADY = ~(pl.col("is_first") | pl.col("is_warm_up"))


def step_strip(summary: pl.DataFrame, *, most: int = 500) -> pl.DataFrame:
    """Bunch the steps of each sequence so that at most about `most` rows are left of it.

    Args:
        summary: `steps.step_summary`.
        most: rows.

    Returns:
        key, device_id, unit; first_step, last_step: of the bunch, a single step where there are not
        more than `most`; shortest_ns, median_ns, longest_ns: of the spans in it; busy_ns: median.
    """
    per_bunch = (pl.len().cast(pl.Int64) + most - 1) // most
    return (
        summary.with_columns(_bunch=(pl.col("step") // per_bunch).over(_KEY))
        .group_by(*_KEY, "unit", "_bunch", maintain_order=True)
        .agg(
            first_step=pl.col("step").min(),
            last_step=pl.col("step").max(),
            shortest_ns=pl.col("span_ns").min(),
            median_ns=pl.col("span_ns").median().round().cast(pl.Int64),
            longest_ns=pl.col("span_ns").max(),
            busy_ns=pl.col("busy_ns").median().round().cast(pl.Int64),
        )
        .drop("_bunch")
    )


def notable_steps(summary: pl.DataFrame, *, most: int = 200) -> pl.DataFrame:
    """Return the steps that are apart from the others: first, warm-up, and outliers.

    Args:
        summary: `steps.step_summary`.
        most: rows of each sequence; outliers that exceed the median most come first.

    Returns:
        key, device_id, unit, step, span_ns, excess_ns, grown_cause, grown_ns; what: first, warm-up
        or outlier.
    """
    what = (
        pl.when("is_first")
        .then(pl.lit("first"))
        .when("is_warm_up")
        .then(pl.lit("warm-up"))
        .when("is_outlier")
        .then(pl.lit("outlier"))
    )
    columns = ["step", "span_ns", "excess_ns", "grown_cause", "grown_ns", "what"]
    return (
        summary.with_columns(what=what)
        .filter(pl.col("what").is_not_null())
        .sort("excess_ns", descending=True, nulls_last=False, maintain_order=True)
        .group_by(*_KEY, "unit", maintain_order=True)
        .head(most)
        .select(*_KEY, "unit", *columns)
        .sort(*_KEY, "step")
    )


def typical_steps(summary: pl.DataFrame) -> pl.DataFrame:
    """Return one steady step of each sequence, of median span.

    Args:
        summary: `steps.step_summary`.

    Returns:
        its columns; sequences that take most time in all come first.
    """
    steady = summary.filter(_IS_STEADY)
    # A median that occurs: of an even number the lower of the two in the middle.
    at = (pl.len() - 1) // 2
    total = pl.col("span_ns").sum().over(_KEY)
    return (
        steady.with_columns(_total=total)
        .sort("span_ns", maintain_order=True)
        .group_by(_KEY, maintain_order=True)
        .agg(pl.exclude(_KEY).get(at))
        .sort("_total", *_KEY, descending=[True, False, False])
        .select(summary.columns)
    )


def steady_causes(steps: Steps, summary: pl.DataFrame, idle: pl.DataFrame) -> pl.DataFrame:
    """Say what an average steady step of each sequence waits for.

    Args:
        steps: `steps.find_steps`.
        summary: `steps.step_summary` of them.
        idle: pieces, as for `steps.step_causes`.

    Returns:
        key, device_id, unit, span_ns, cause, idle_ns: means over the steps after the first and the
        warm-up; busy time is the cause null. In order of key.
    """
    steady = summary.filter(_IS_STEADY)
    means = steady.group_by(*_KEY, "unit", maintain_order=True).agg(
        pl.col("busy_ns", "span_ns").mean(), steps=pl.len()
    )
    waited = (
        step_causes(steps, idle)
        .join(steady.select(*_KEY, "step"), on=[*_KEY, "step"], how="semi")
        .group_by(*_KEY, "cause")
        .agg(pl.col("idle_ns").sum())
        .join(means, on=_KEY)
        .with_columns(idle_ns=pl.col("idle_ns") / pl.col("steps"))
    )
    columns = [*_KEY, "unit", "span_ns", pl.col("cause").cast(pl.String), "idle_ns"]
    busy = means.with_columns(cause=pl.lit(None, pl.String), idle_ns="busy_ns")
    return pl.concat([busy.select(columns), waited.select(columns)]).sort(*_KEY, "cause")
