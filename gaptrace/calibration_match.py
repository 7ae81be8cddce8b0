"""Whether a calibration holds for the machine that a trace was recorded on."""

from collections.abc import Iterable

from gaptrace.calibration import Calibration
from gaptrace.trace import Trace

#: What must be alike for launch costs to be taken over; the other fields only matter less.
MUST_MATCH = ("gpu", "driver", "cuda")


def differences(calibration: Calibration, trace: Trace) -> dict[str, tuple[str, str]]:
    """Return what differs, of what both know: field -> in the calibration, in the trace.

    Of the operating systems only the family is compared: recorders name the distribution, the
    calibration the kernel.
    """
    own, meta = calibration.machine, trace.meta
    found: dict[str, tuple[str, str]] = {}
    names = [name for name in trace.devices["name"].unique().sort().to_list() if name]
    if own.gpu and names and own.gpu not in names:
        found["gpu"] = own.gpu, " + ".join(names)
    pairs = (("driver", own.driver, meta.driver), ("cuda", own.cuda, meta.cuda))
    for field, here, there in (*pairs, ("cpu", own.cpu, meta.cpu)):
        if here and there and here != there:
            found[field] = here, there
    if own.os and meta.os and _family(own.os) != _family(meta.os):
        found["os"] = own.os, meta.os
    return found


def best_match(calibrations: Iterable[Calibration], trace: Trace) -> Calibration | None:
    """Return the newest calibration of the trace's GPU, driver and CUDA, its CPU preferred.

    None where the trace does not name GPU and driver, or no calibration is of them.
    """
    if trace.meta.driver is None or not trace.devices["name"].drop_nulls().len():
        return None
    fitting = [
        (len(found), each)
        for each in calibrations
        for found in [differences(each, trace)]
        if each.machine.gpu and each.machine.driver and not found.keys() & set(MUST_MATCH)
    ]
    newest = sorted(fitting, key=lambda pair: pair[1].date, reverse=True)
    return min(newest, key=lambda pair: pair[0])[1] if newest else None


def _family(system: str) -> str:
    return "windows" if "windows" in system.lower() else "other"
