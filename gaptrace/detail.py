"""Level of detail: what is left of millions of spans on a screen of so many pixels, exactly.

Pure: nothing here knows what a GPU is. A window is cut into bins, one for a pixel or a few. Spans
at least a bin long stay as they are; shorter ones become one row for each bin in which they lie,
with the exact nanoseconds that they cover there. So the number of rows is bounded by the bins, and
no nanosecond is sampled, lost or counted twice. Frames of spans are as in `gaptrace.intervals`.
"""

from collections.abc import Sequence

import polars as pl

from gaptrace import intervals

_LENGTH = pl.col("end_ns") - pl.col("start_ns")


def bin_edges(start_ns: int, end_ns: int, bins: int) -> pl.Series:
    """Return the edges of equal bins, as equal as whole nanoseconds can be.

    Returns:
        one more edge than there are bins; as many bins as nanoseconds where that is fewer.
    """
    count = max(1, min(bins, end_ns - start_ns))
    number = pl.int_range(count + 1, dtype=pl.Int64, eager=True)
    # Each factor apart stays far below 2**63: a session's nanoseconds times a screen's pixels.
    return (start_ns + number * (end_ns - start_ns) // count).alias("edge_ns")


def covered(blocks: pl.DataFrame, edges: pl.Series) -> pl.Series:
    """Return the nanoseconds of each bin that spans cover.

    Args:
        blocks: start_ns, end_ns; disjoint and sorted, as `intervals.merge` returns them.
        edges: `bin_edges`.
    """
    if blocks.is_empty():
        return pl.zeros(len(edges) - 1, pl.Int64, eager=True).alias("covered_ns")
    starts, ends = blocks["start_ns"], blocks["end_ns"]
    before = pl.concat([pl.Series([0]), (ends - starts).cum_sum()])
    begun = pl.Series(starts.search_sorted(edges, side="left"))
    # Of the spans begun before an edge only the last can reach beyond it.
    last_end = ends.gather((begun.cast(pl.Int64) - 1).clip(0))
    beyond = pl.select(
        pl.when(begun > 0).then((last_end - edges).clip(0)).otherwise(0).alias("beyond")
    )["beyond"]
    until = before.gather(begun) - beyond
    return until.diff().slice(1).alias("covered_ns")


def by_bin(
    spans: pl.DataFrame,
    start_ns: int,
    end_ns: int,
    bins: int,
    by: Sequence[str],
    *,
    are_disjoint: bool = False,
) -> pl.DataFrame:
    """Return the nanoseconds that the union of each key's spans covers in each bin.

    Args:
        spans: the columns of `by`, start_ns, end_ns.
        start_ns: begin of the window.
        end_ns: its end.
        bins: how many.
        by: key columns.
        are_disjoint: whether the spans of a key are disjoint and sorted already, which saves time.

    Returns:
        the columns of `by`, bin, start_ns, end_ns: of the bin, covered_ns; only where that is more
        than 0. Sorted by key and bin.
    """
    edges = bin_edges(start_ns, end_ns, bins)
    inside = spans.filter((pl.col("end_ns") > start_ns) & (pl.col("start_ns") < end_ns))
    frame = pl.DataFrame({"start_ns": edges[:-1], "end_ns": edges[1:]}).with_row_index("bin")
    blocks = inside if are_disjoint else intervals.merge(inside, by)
    parts = [
        frame.with_columns(
            *(pl.lit(value, inside.schema[name]).alias(name) for name, value in key.items()),
            covered_ns=covered(part, edges),
        ).filter(pl.col("covered_ns") > 0)
        for key, part in _keyed(blocks, by)
    ]
    columns = [*by, pl.col("bin").cast(pl.Int64), "start_ns", "end_ns", "covered_ns"]
    if not parts:
        empty = frame.clear().with_columns(
            *(pl.lit(None, inside.schema[name]).alias(name) for name in by),
            covered_ns=pl.lit(None, pl.Int64),
        )
        return empty.select(columns)
    return pl.concat(parts).select(columns)


def visible(
    spans: pl.DataFrame,
    start_ns: int,
    end_ns: int,
    bins: int,
    by: Sequence[str],
    *,
    main: str | None = None,
) -> pl.DataFrame:
    """Return what can be seen of spans in a window.

    Args:
        spans: the columns of `by`, start_ns, end_ns, and any others.
        start_ns: begin of the window.
        end_ns: its end.
        bins: how many.
        by: the lane in which a span is drawn.
        main: a column of which a bin of short spans gets the value that holds most of their time.

    Returns:
        the columns of spans that are at least a bin long and reach into the window, uncut, with
        span_count 1 and covered_ns null; and for shorter ones a row per lane and bin: start_ns,
        end_ns: of the bin; covered_ns: of it, by the union of short spans; span_count: how many
        begin there, and the other columns but `main` null. At most `bins` + 1 of the former (the
        longest) in a lane, and `bins` of the latter.
    """
    edges = bin_edges(start_ns, end_ns, bins)
    count = len(edges) - 1
    width_ns = max(1, (end_ns - start_ns) // count)
    inside = spans.filter((pl.col("end_ns") >= start_ns) & (pl.col("start_ns") < end_ns))
    long = inside.filter(width_ns <= _LENGTH)
    if long.height > bins:
        rank = _LENGTH.rank("ordinal", descending=True).over(list(by))
        long = long.filter(rank <= bins + 1)
    short = inside.filter(width_ns > _LENGTH)
    begun = pl.Series(edges.search_sorted(short["start_ns"], side="right")).cast(pl.Int64) - 1
    counts = _counted(short.with_columns(bin=begun.clip(0, count - 1)), [*by, "bin"], main)
    binned = counts.join(
        by_bin(short, start_ns, end_ns, bins, by).select(*by, "bin", "covered_ns"),
        on=[*by, "bin"],
        how="full",
        coalesce=True,
        nulls_equal=True,
    ).with_columns(pl.col("span_count", "covered_ns").fill_null(0))
    shown = binned.with_columns(
        start_ns=edges.gather(binned["bin"]), end_ns=edges.gather(binned["bin"] + 1)
    ).drop("bin")
    one = long.with_columns(span_count=pl.lit(1, pl.Int64), covered_ns=pl.lit(None, pl.Int64))
    return pl.concat([one, shown], how="diagonal").sort(
        *by, "start_ns", "end_ns", maintain_order=True
    )


def _counted(short: pl.DataFrame, key: list[str], main: str | None) -> pl.DataFrame:
    """Count the spans of each key; `main`: its value that holds most of their time."""
    number = pl.len().cast(pl.Int64).alias("span_count")
    if main is None:
        return short.group_by(key).agg(number)
    parts = short.group_by(*key, main).agg(number, _ns=_LENGTH.sum())
    return (
        parts.sort("_ns", main, descending=[True, False])
        .group_by(key, maintain_order=True)
        .agg(pl.col("span_count").sum(), pl.col(main).first())
    )


def _keyed(blocks: pl.DataFrame, by: Sequence[str]) -> list[tuple[dict[str, object], pl.DataFrame]]:
    if not by:
        return [({}, blocks)] if blocks.height else []
    return [
        (dict(zip(by, key, strict=True)), part)
        for key, part in blocks.partition_by(*by, as_dict=True, maintain_order=True).items()
    ]


def length_bins(lengths_ns: pl.Expr, per_decade: int = 5) -> pl.Expr:
    """Return the number of the logarithmic bin of each length: `bin_length` gives its bounds.

    Lengths of less than 1 ns do not occur.
    """
    # The logarithm of 1000 comes out as 2.9999999999999996: exact powers belong to the upper bin.
    return (lengths_ns.log10() * per_decade + 1e-9).floor().cast(pl.Int64)


def bin_length(number: int, per_decade: int = 5) -> float:
    """Return the lower bound in ns of a bin of `length_bins`."""
    return float(10 ** (number / per_decade))
