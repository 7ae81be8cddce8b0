"""Rows of a frame by a key, found without reading the whole column.

Pure: nothing here knows what a GPU is.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

Array = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Lookup:
    """The keys of a column in order.

    Attributes:
        keys: ascending; without nulls.
        rows: the row of each; of equal keys ascending.
    """

    keys: Array
    rows: Array


def lookup(column: pl.Series) -> Lookup:
    """Put the keys of a column of Int64 in order."""
    rows = np.flatnonzero(column.is_not_null().to_numpy())
    keys = column.drop_nulls().to_numpy()
    if (keys[1:] >= keys[:-1]).all():
        return Lookup(keys, rows)
    order = np.argsort(keys, kind="stable")
    return Lookup(keys[order], rows[order])


def first_rows(found: Lookup, wanted: pl.Series) -> pl.Series:
    """Return the first row of each key that is wanted; null where there is none."""
    if not len(found.keys):
        return pl.Series("row", [None] * len(wanted), pl.Int64)
    keys = wanted.fill_null(0).to_numpy()
    at = np.minimum(np.searchsorted(found.keys, keys), len(found.keys) - 1)
    return (
        pl.DataFrame({"row": found.rows[at], "is_found": found.keys[at] == keys, "key": wanted})
        .select(row=pl.when(pl.col("is_found") & pl.col("key").is_not_null()).then("row"))
        .to_series()
    )


def every_row(found: Lookup, wanted: pl.Series) -> Array:
    """Return all rows whose key is wanted, ascending."""
    keys = wanted.drop_nulls().unique().to_numpy()
    first, last = (np.searchsorted(found.keys, keys, side=side) for side in ("left", "right"))
    counts = last - first
    # A row of each key's own numbers: 0 1 2, 0 1, ...; added to where the key begins.
    own = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(found.rows[np.repeat(first, counts) + own])
