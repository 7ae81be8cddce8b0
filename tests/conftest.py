"""Settings that all tests share."""

from hypothesis import settings

# How long an example takes depends on what else the machine does; that is no property of the code.
settings.register_profile("gaptrace", deadline=None)
settings.load_profile("gaptrace")
