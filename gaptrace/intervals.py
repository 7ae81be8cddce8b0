"""Half-open integer spans `[start_ns, end_ns)`: merge, gaps, subtract, intersect.

Pure: nothing here knows what a GPU is. A frame of spans has the columns start_ns and end_ns (Int64,
start_ns <= end_ns) besides any others; `by` names the columns whose values keep spans apart.
Spans that are empty (start_ns == end_ns) cover nothing.
"""

from collections.abc import Sequence

import polars as pl

_SPAN = ["start_ns", "end_ns"]


def merge(spans: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return the union of spans per key: disjoint, not touching, sorted.

    Returns:
        the columns of `by`, start_ns, end_ns.
    """
    # A span opens a new block when it starts after everything before it has ended.
    opens = pl.col("start_ns") > _ended_before(by)
    return (
        _sorted(spans.filter(pl.col("end_ns") > pl.col("start_ns")), by)
        .with_columns(_block=opens.fill_null(True).cum_sum())
        .group_by(*by, "_block", maintain_order=True)
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max())
        .select(*by, *_SPAN)
    )


def disjoint(spans: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return spans cut so that none overlap: where two do, the one that started first stays whole.

    Of spans that start together the longer one stays, so that of nested spans the outermost is
    kept and those inside it vanish. Other columns are kept.
    """
    order = [*by, "start_ns", pl.col("end_ns").neg()]
    return (
        spans.filter(pl.col("end_ns") > pl.col("start_ns"))
        .sort(order, maintain_order=True)
        .with_columns(start_ns=pl.max_horizontal("start_ns", _ended_before(by)))
        .filter(pl.col("end_ns") > pl.col("start_ns"))
    )


def gaps(spans: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return what the union of spans leaves between its first start and its last end, per key.

    Returns:
        the columns of `by`, start_ns, end_ns; every row longer than 0 ns.
    """
    blocks = merge(spans, by)
    previous_end = _over(pl.col("end_ns").shift(1), by)
    return (
        blocks.select(*by, start_ns=previous_end, end_ns="start_ns")
        .filter(pl.col("start_ns").is_not_null())
        .select(*by, *_SPAN)
    )


def subtract(spans: pl.DataFrame, holes: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return the parts of each span that no hole of the same key covers; other columns are kept."""
    if spans.is_empty() or holes.is_empty():
        return spans.filter(pl.col("end_ns") > pl.col("start_ns"))
    keys = spans.select(*by).unique() if by else pl.DataFrame({"_all": [0]})
    lowest, highest = (
        min(spans["start_ns"].min(), holes["start_ns"].min()),  # type: ignore[type-var]
        max(spans["end_ns"].max(), holes["end_ns"].max()),  # type: ignore[type-var]
    )
    # Two empty-handed marks at both ends turn "what is left" into the gaps between blocks.
    marks = pl.concat(
        keys.select(*by, start_ns=pl.lit(start), end_ns=pl.lit(end)).cast(
            {"start_ns": pl.Int64, "end_ns": pl.Int64}
        )
        for start, end in ((lowest - 1, lowest), (highest, highest + 1))  # type: ignore[operator]
    )
    left = gaps(pl.concat([holes.select(*by, *_SPAN), marks]), by)
    return intersect(spans, left, by)


def intersect(spans: pl.DataFrame, others: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return every overlap of a span with one of the others of the same key.

    Args:
        spans: may overlap each other.
        others: disjoint within each key; columns besides `by` and the span are carried over and
            must be named differently from those of `spans`.
        by: key columns, present in both.

    Returns:
        the columns of `spans` and the carried ones of `others`, with start_ns and end_ns cut to the
        overlap; rows in the order of `spans`, then of time. Size is linear in spans + overlaps.
    """
    keys = list(by) or ["_all"]
    if not by:
        spans, others = (frame.with_columns(_all=pl.lit(0)) for frame in (spans, others))
    others = _sorted(others.filter(pl.col("end_ns") > pl.col("start_ns")), keys).with_row_index(
        "_other"
    )
    carried = others.select(pl.exclude(*keys).exclude("_other")).rename(
        {"start_ns": "_other_start", "end_ns": "_other_end"}
    )
    spans = spans.filter(pl.col("end_ns") > pl.col("start_ns")).with_row_index("_span")
    first = _neighbour(spans, others, keys, "start_ns", "end_ns", "forward", "_first")
    last = _neighbour(spans, others, keys, "end_ns", "start_ns", "backward", "_last")
    matched = (
        spans.with_columns(_first=first, _last=last)
        .filter(pl.col("_first") <= pl.col("_last"))
        .with_columns(_other=pl.int_ranges("_first", pl.col("_last") + 1))
        .explode("_other")
    )
    overlaps = pl.concat([matched, carried[matched["_other"]]], how="horizontal").with_columns(
        start_ns=pl.max_horizontal("start_ns", "_other_start"),
        end_ns=pl.min_horizontal("end_ns", "_other_end"),
    )
    helpers = ["_span", "_first", "_last", "_other", "_other_start", "_other_end"]
    return overlaps.drop(*helpers, *([] if by else ["_all"]))


def _neighbour(
    spans: pl.DataFrame,
    others: pl.DataFrame,
    keys: list[str],
    left: str,
    right: str,
    strategy: str,
    name: str,
) -> pl.Series:
    """Per span, the number of the first other that ends after (the last that starts before) it."""
    found = (
        spans.select(*keys, "_span", left)
        .sort(left)
        .join_asof(
            others.select(*keys, "_other", pl.col(right).alias("_at")).sort("_at"),
            left_on=left,
            right_on="_at",
            by=keys,
            strategy=strategy,  # type: ignore[arg-type]
            allow_exact_matches=False,
            check_sortedness=False,
        )
    )
    return found.sort("_span")["_other"].cast(pl.Int64).alias(name)


def _sorted(spans: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    return spans.sort(*by, *_SPAN, maintain_order=True)


def _ended_before(by: Sequence[str]) -> pl.Expr:
    """The latest end among the rows before this one, per key; null for the first."""
    return _over(pl.col("end_ns").cum_max().shift(1), by)


def _over(expression: pl.Expr, by: Sequence[str]) -> pl.Expr:
    return expression.over(by) if by else expression
