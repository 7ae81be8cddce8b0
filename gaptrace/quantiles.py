"""One way to sum up many durations: how many, and what the typical and the worst are."""

import polars as pl

#: Fields of the struct that `quantiles` makes.
FIELDS = ("count", "p50", "p90", "p99", "max")


def quantiles(values: pl.Expr) -> pl.Expr:
    """Return a struct of count, p50, p90, p99, max; the last four are null when nothing is there.

    Quantiles are values that occurred (nearest rank), so that integers stay integers.
    """
    present = values.drop_nulls()
    return pl.struct(
        present.len().cast(pl.Int64).alias("count"),
        *(
            present.quantile(share, interpolation="nearest").cast(pl.Int64).alias(name)
            for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
        ),
        present.max().cast(pl.Int64).alias("max"),
    )
