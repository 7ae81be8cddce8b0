"""Names of files beside each other."""

import pytest

from gaptrace.render.file_names import told_apart


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["a.sqlite"], ["a.sqlite"]),
        (["x/a.sqlite", "y/b.sqlite"], ["a.sqlite", "b.sqlite"]),
        (["runs/1/graph.sqlite", "runs/2/graph.sqlite"], ["1/graph.sqlite", "2/graph.sqlite"]),
        (["graph.sqlite", "2/graph.sqlite"], ["graph.sqlite", "2/graph.sqlite"]),
        (["a.sqlite", "a.sqlite"], ["a.sqlite", "a.sqlite"]),
        (["/1/r/g", "/2/r/g", "/2/r/h"], ["1/r/g", "2/r/g", "2/r/h"]),
    ],
)
def test_names_are_as_short_as_tells_them_apart(paths, names):
    assert told_apart(paths) == names
