"""A few hundred broken exports; `python tests/fuzz.py` runs them by the thousand."""

import fuzz
import pytest
from fuzz_files import DISTURBANCES
from fuzz_sources import SOURCES


@pytest.mark.parametrize("source", SOURCES)
def test_what_is_broken_was_sound(tmp_path, source):
    path = tmp_path / "t.sqlite"
    path.write_bytes(SOURCES[source]())
    assert fuzz.answer("analyze", path, "--json") == "done"
    assert fuzz.answer("recommend", path, "--json") == "done"
    assert fuzz.copied(path) == "done"


@pytest.mark.parametrize("name", [*fuzz.BREAKS, *DISTURBANCES])
def test_broken_exports_are_analysed_or_refused(tmp_path, name):
    for seed in range(3):
        folder = tmp_path / str(seed)
        folder.mkdir()
        assert fuzz.outcome(folder, seed, name)


@pytest.mark.parametrize("seed", range(30))
def test_several_breaks_at_once(tmp_path, seed):
    assert fuzz.outcome(tmp_path, seed)
