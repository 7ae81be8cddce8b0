"""Two traces of one program, side by side: what changed, and whether the steps show it."""

import math
from dataclasses import dataclass, replace

import polars as pl

from gaptrace.analysis import Analysis
from gaptrace.errors import ComparisonError
from gaptrace.spread import difference_error
from gaptrace.steps import run_ahead, step_causes
from gaptrace.timelines import CAUSES
from gaptrace.trace import Meta, TraceWarning

_FIGURES = ("span_ns", "busy_ns", "idle_ns")
_CAUSES = tuple(CAUSES.categories)
#: Names of sequences that a warning lists.
_MOST_NAMES = 3


@dataclass(frozen=True)
class Comparison:
    """What changed from one trace to another.

    Attributes:
        before, after: the analyses.
        totals: device_id: in the trace before; figure: span_ns, busy_ns, idle_ns, and each cause
            that occurs; before_ns, after_ns, change_ns. Of the windows as a whole, so that they
            also change when the program ran for longer.
        ranges: path, device_id, before_count, after_count; before_ns, after_ns, change_ns: span of
            one instance, by the mean; before_idle_ns, after_idle_ns: idle time in it. Ranges that
            both traces hold.
        steps: unit, after_unit, device_id, before_steps, after_steps; figure, before_ns, after_ns,
            change_ns: as in totals, by the medians of steady steps; noise_ns: by how much medians
            of so many steps that spread so much may differ by chance (95 %), if steps do not
            depend on those before them; null below three steps. That runs differ from each other is
            not in it. host_ahead: in one of the traces the host runs ahead in these steps
            (`steps.run_ahead`), so that they are how long it takes to submit them.
        warnings: what else differs between the two, and what limits the figures of each.
    """

    before: Analysis
    after: Analysis
    totals: pl.DataFrame
    ranges: pl.DataFrame
    steps: pl.DataFrame
    warnings: tuple[TraceWarning, ...]


def compare(before: Analysis, after: Analysis) -> Comparison:
    """Compare two analyses of the same kind of recording.

    Devices go by their number, or one to one where each trace has one. Sequences of steps go by
    name, or one to one where each trace has one on the device.

    Raises:
        ComparisonError: the granularities differ, or the devices cannot be paired.
    """
    _refuse_other_kind(before, after)
    pairs = _paired_devices(before, after)
    totals = _changes(_totals(before), _totals(after), pairs, ["device_id"])
    steps = _steps(before, after, pairs)
    return Comparison(
        before,
        after,
        totals,
        _ranges(before, after, pairs),
        steps,
        (
            *_differences(before, after),
            *_other_steps(steps),
            *_left_out(before, after, steps),
            *_own_warnings(before, after),
        ),
    )


def _refuse_other_kind(before: Analysis, after: Analysis) -> None:
    """Granularity matters as soon as one of the two launches graphs."""
    metas = (before.trace.meta, after.trace.meta)
    kinds = [meta.granularity for meta in metas]
    if None not in kinds and kinds[0] != kinds[1]:
        raise ComparisonError(
            f"{metas[0].path} was recorded in {kinds[0]} granularity and {metas[1].path} in "
            f"{kinds[1]} granularity: the one hides idle time inside graphs, the other lengthens "
            "gaps and launches, so their difference would be the recorder's; record both with the "
            "same --granularity"
        )


def _paired_devices(before: Analysis, after: Analysis) -> dict[int, int]:
    """Number of each device before, and of the same one after."""
    old, new = (a.devices["device_id"].to_list() for a in (before, after))
    if len(old) == len(new) == 1:
        return {old[0]: new[0]}
    if old == new:
        return {device_id: device_id for device_id in old}
    listed = " and ".join(", ".join(map(str, ids)) for ids in (old, new))
    raise ComparisonError(
        f"the traces have work on different devices ({listed}): name one with --device"
    )


def _differences(before: Analysis, after: Analysis) -> list[TraceWarning]:
    def names(analysis: Analysis) -> str:
        return ", ".join(dict.fromkeys(name or "unknown" for name in analysis.devices["name"]))

    old, new = before.trace.meta, after.trace.meta
    facts: dict[str, tuple[str | None, str | None]] = {
        "GPU": (names(before), names(after)),
        "driver": (old.driver, new.driver),
        "recorder": (_recorder(old), _recorder(new)),
        "CPU": (old.cpu, new.cpu),
    }
    return [
        TraceWarning(
            "other_" + fact.lower(), f"the {fact} differs, and is part of any change: {a}, then {b}"
        )
        for fact, (a, b) in facts.items()
        if a is not None and b is not None and a != b
    ]


def _other_steps(steps: pl.DataFrame) -> list[TraceWarning]:
    """Steps of different names stand side by side where each trace has but one kind."""
    pairs = steps.filter(pl.col("unit") != pl.col("after_unit")).select("unit", "after_unit")
    return [
        TraceWarning(
            "other_steps",
            f"the steps compared have different names, {before}, then {after}: that they do the "
            "same is taken for granted; mark them with gaptrace.step to be sure",
        )
        for before, after in pairs.unique(maintain_order=True).rows()
    ]


def _left_out(before: Analysis, after: Analysis, steps: pl.DataFrame) -> list[TraceWarning]:
    """Sequences of steps that stand beside those compared, and are not."""
    compared = {*steps["unit"], *steps["after_unit"]}
    units = [*before.step_units["unit"], *after.step_units["unit"]]
    names = [name for name in dict.fromkeys(units) if name not in compared]
    if steps.is_empty() or not names:
        return []
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return [
        TraceWarning(
            "steps_left_out",
            f"steps not compared: {', '.join(names[:_MOST_NAMES])}{more}; they are in one of the "
            "traces only, or of several threads or processes, where which became which is not "
            "known",
        )
    ]


def _own_warnings(before: Analysis, after: Analysis) -> list[TraceWarning]:
    return [
        replace(each, message=f"{which}: {each.message}")
        for which, analysis in (("before", before), ("after", after))
        for each in analysis.warnings
    ]


def _recorder(meta: Meta) -> str | None:
    return meta.product_version and f"{meta.format} {meta.product_version}"


def _totals(analysis: Analysis) -> pl.DataFrame:
    """device_id, figure, ns."""
    figures = analysis.devices.unpivot(_FIGURES, index="device_id", variable_name="figure")
    causes = analysis.causes.group_by("device_id", figure=pl.col("cause").cast(pl.String)).agg(
        value=pl.col("idle_ns").sum()
    )
    return pl.concat([figures, causes]).rename({"value": "ns"})


def _changes(
    old: pl.DataFrame, new: pl.DataFrame, pairs: dict[int, int], by: list[str]
) -> pl.DataFrame:
    """Join figures of both traces; a cause that does not occur in one of them took 0 ns there."""
    renumbered = {after: before for before, after in pairs.items()}
    new = new.with_columns(pl.col("device_id").replace_strict(renumbered, return_dtype=pl.Int64))
    order = pl.Enum([*_FIGURES, *_CAUSES])
    return (
        old.rename({"ns": "before_ns"})
        .join(new.rename({"ns": "after_ns"}), on=[*by, "figure"], how="full", coalesce=True)
        .with_columns(pl.col("before_ns", "after_ns").fill_null(0), pl.col("figure").cast(order))
        .with_columns(change_ns=pl.col("after_ns") - pl.col("before_ns"))
        .sort(*by, "figure")
        .with_columns(pl.col("figure").cast(pl.String))
    )


def _ranges(before: Analysis, after: Analysis, pairs: dict[int, int]) -> pl.DataFrame:
    key = ["path", "domain", "device_id"]

    def each(analysis: Analysis, name: str) -> pl.DataFrame:
        instances = analysis.range_instances.group_by(key).agg(
            (pl.col("span_ns").sum() // pl.len()).alias(f"{name}_ns"),
            (pl.col("idle_ns").sum() // pl.len()).alias(f"{name}_idle_ns"),
        )
        return analysis.ranges.select(*key, pl.col("count").alias(f"{name}_count")).join(
            instances, on=key, how="left", nulls_equal=True, maintain_order="left"
        )

    renumbered = {new: old for old, new in pairs.items()}
    new = each(after, "after").with_columns(
        pl.col("device_id").replace_strict(renumbered, return_dtype=pl.Int64)
    )
    return (
        each(before, "before")
        .join(new, on=key, how="inner", nulls_equal=True, maintain_order="left")
        .with_columns(change_ns=pl.col("after_ns") - pl.col("before_ns"))
        .drop("domain")
    )


_STEPS = pl.Schema(
    {
        "unit": pl.String,
        "after_unit": pl.String,
        "device_id": pl.Int64,
        "before_steps": pl.Int64,
        "after_steps": pl.Int64,
        "figure": pl.String,
        "before_ns": pl.Int64,
        "after_ns": pl.Int64,
        "change_ns": pl.Int64,
        "noise_ns": pl.Int64,
        "host_ahead": pl.Boolean,
    }
)


def _steps(before: Analysis, after: Analysis, pairs: dict[int, int]) -> pl.DataFrame:
    rows = []
    for device_id, new_id in pairs.items():
        old, new = _steady(before, device_id), _steady(after, new_id)
        for unit, after_unit in _paired_units(old, new):
            a, b = (
                frame.filter(pl.col("unit") == name)
                for frame, name in ((old, unit), (new, after_unit))
            )
            if a["key"].n_unique() > 1 or b["key"].n_unique() > 1:
                continue  # of several threads or processes: which became which is not known
            own = {
                "unit": unit,
                "after_unit": after_unit,
                "device_id": device_id,
                "host_ahead": _is_ahead(before, a["key"], device_id)
                or _is_ahead(after, b["key"], new_id),
            }
            counts = {"before_steps": a.height, "after_steps": b.height}
            rows += [own | counts | change for change in _step_changes(a, b)]
    return pl.DataFrame(rows, schema=_STEPS)


def _is_ahead(analysis: Analysis, key: pl.Series, device_id: int) -> bool:
    ahead = run_ahead(analysis.step_units).filter(pl.col("device_id") == device_id)
    return not set(key).isdisjoint(ahead["key"])


def _steady(analysis: Analysis, device_id: int) -> pl.DataFrame:
    """Steady steps of a device: unit, span_ns, busy_ns, idle_ns, and a column for each cause."""
    key = ["key", "device_id", "step"]
    is_steady = ~(pl.col("is_first") | pl.col("is_warm_up"))
    causes = step_causes(analysis.steps, analysis.pieces).with_columns(
        pl.col("cause").cast(pl.String)
    )
    return (
        analysis.step_summary.filter(is_steady & (pl.col("device_id") == device_id))
        .select(*key, "unit", *_FIGURES)
        .join(
            causes.pivot("cause", index=key, values="idle_ns"),
            on=key,
            how="left",
            maintain_order="left",
        )
        .with_columns(pl.exclude("unit").fill_null(0))
    )


def _paired_units(old: pl.DataFrame, new: pl.DataFrame) -> list[tuple[str, str]]:
    olds, news = (frame["unit"].unique(maintain_order=True).to_list() for frame in (old, new))
    if len(olds) == len(news) == 1:
        return [(olds[0], news[0])]
    return [(unit, unit) for unit in olds if unit in news]


def _step_changes(old: pl.DataFrame, new: pl.DataFrame) -> list[dict[str, str | int | None]]:
    changes: list[dict[str, str | int | None]] = []
    for figure in (*_FIGURES, *_CAUSES):
        if figure not in old.columns and figure not in new.columns:
            continue
        a, b = (
            frame[figure]
            if figure in frame.columns
            else pl.zeros(frame.height, pl.Int64, eager=True)
            for frame in (old, new)
        )
        before_ns, after_ns = _median(a), _median(b)
        changes.append(
            {
                "figure": figure,
                "before_ns": before_ns,
                "after_ns": after_ns,
                "change_ns": after_ns - before_ns,
                "noise_ns": _noise(a, b),
            }
        )
    return changes


def _median(values: pl.Series) -> int:
    return round(values.median())  # type: ignore[arg-type]


def _noise(a: pl.Series, b: pl.Series) -> int | None:
    error = difference_error(a.to_list(), b.to_list())
    return None if error is None else math.ceil(error)
