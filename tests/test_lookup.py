"""Rows by key, against a look at every row."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from gaptrace.lookup import every_row, first_rows, lookup

keys = st.lists(st.none() | st.integers(-3, 6), max_size=12)


@given(keys, keys)
def test_rows_are_those_that_a_look_at_every_row_finds(column, wanted):
    found = lookup(pl.Series(column, dtype=pl.Int64))
    asked = pl.Series(wanted, dtype=pl.Int64)

    assert first_rows(found, asked).to_list() == [
        column.index(key) if key is not None and key in column else None for key in wanted
    ]
    assert every_row(found, asked).tolist() == [
        row for row, key in enumerate(column) if key is not None and key in wanted
    ]
