"""A real Chromium, where one is installed."""

import shutil

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
#: Without these Chromium asks its maker's servers for updates, which has no place in a test.
QUIET = ["--disable-background-networking", "--disable-component-update", "--disable-sync"]


def chromium():
    """Return the path of the browser, or skip the test."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"needs Chromium: none of {', '.join(NAMES)} is installed")
    return found
