"""Settings and fixtures that tests share."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from gaptrace.record.machine import package_versions

# How long an example takes depends on what else the machine does; that is no property of the code.
settings.register_profile("gaptrace", deadline=None)
settings.load_profile("gaptrace")


@pytest.fixture(autouse=True)
def _no_calibration_of_this_machine(tmp_path_factory, monkeypatch):
    """Commands look for a saved calibration; whoever runs the tests may have one."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path_factory.getbasetemp() / "no-data"))


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch):
    """Reports are as wide as for a file, whatever the shell or pytest-xdist says."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def installed(monkeypatch):
    """Say which packages there are, for who looks for CUPTI."""

    def pretend(**packages: str) -> None:
        none = dict.fromkeys(package_versions())
        found = none | {name.replace("_", "-"): version for name, version in packages.items()}
        monkeypatch.setattr("gaptrace.record.cupti.package_versions", lambda: found)

    return pretend


@pytest.fixture
def nobody() -> Iterator[None]:
    """Root reads every file and writes everywhere: be somebody else for a while."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    yield
    os.seteuid(user)
