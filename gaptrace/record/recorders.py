"""Which recorder a program is recorded with."""

import os
from typing import Literal

from gaptrace.errors import RecorderError
from gaptrace.record.cupti import Cupti, find_cupti
from gaptrace.record.machine import Driver
from gaptrace.record.nsys import Nsys, find_nsys

_COMMAND = "CUPTI records Python scripts and modules (-m), not other commands"


def choose(
    asked: Literal["nsys", "cupti"] | None,
    form: Literal["script", "module", "command"],
    driver: Driver,
) -> Nsys | Cupti:
    """Return the recorder to use: the one asked for, else nsys, else CUPTI.

    Args:
        asked: by the user, if so.
        form: of the target; CUPTI records only what runs in an interpreter that gaptrace starts.
        driver: of this machine.

    Raises:
        RecorderError: the one that was asked for cannot be used, or none can.
    """
    if asked == "cupti":
        if form == "command":
            raise RecorderError(f"{_COMMAND}: use --recorder nsys")
        return find_cupti(driver)
    try:
        return find_nsys()
    except RecorderError as no_nsys:
        # Who names an nsys wants that one.
        if asked == "nsys" or os.environ.get("GAPTRACE_NSYS"):
            raise
        if form == "command":
            raise RecorderError(f"{no_nsys}; without it, {_COMMAND}") from None
        try:
            return find_cupti(driver)
        except RecorderError as no_cupti:
            raise RecorderError(f"{no_nsys}; without it, {no_cupti}") from None
