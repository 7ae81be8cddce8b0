"""Settings that all tests share."""

import pytest
from hypothesis import settings

# How long an example takes depends on what else the machine does; that is no property of the code.
settings.register_profile("gaptrace", deadline=None)
settings.load_profile("gaptrace")


@pytest.fixture(autouse=True)
def _no_calibration_of_this_machine(tmp_path_factory, monkeypatch):
    """Commands look for a saved calibration; whoever runs the tests may have one."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path_factory.getbasetemp() / "no-data"))
