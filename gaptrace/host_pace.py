"""How fast the host ran a program while it was recorded, of the pace that it was calibrated at."""

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from gaptrace.calibration import Calibration
from gaptrace.cost import Floats
from gaptrace.machine_costs import Level
from gaptrace.recommendation import UngraphedStep
from gaptrace.trace import Trace, TraceWarning

#: Where launch calls alone tell: how much longer they take in a program that does something else
#: between them than calibrated ones, that follow each other at once; and the power of their
#: slowdown by which the time from one launch to the next slows down. Both fitted to 79 recordings
#: of six programs on H200 hosts that others slowed down by up to 2.3 at launch calls. The step per
#: launch without a recorder is then off by 6.4 % in the median, by more than 10 % in 20, by 16 % at
#: most, from that of processes on a host at the calibrated pace (`benchmarks/real_programs.py`);
#: without this by 25 % in the median, by 153 % at most.
_CALL_IN_PROGRAM = 1.1
_CODE_SLOWS_BY = 1.2
#: The loop of `live.pace_marks` over the calibrated one, at the same pace: a tenth of its passes,
#: and all of the dearer kind. Measured in CPython 3.8 to 3.13, after other work: 0.104 to 0.105.
_MARKED_LOOP = 0.105
#: A mark tells of the host for so long: the shortest time for which others slowed a CPU down.
_MARK_HOLDS_NS = 100_000_000
#: A host below this pace is told of. Own choice, the other way round of what counts as full where
#: it is measured (`live.host_pace.FULL`).
_SLOW = 0.8


def with_paces(trace: Trace, found: pl.DataFrame) -> pl.DataFrame:
    """Add loop_ns: how long the loop of `live.pace_marks` took just before a step's launches.

    Args:
        trace: the trace.
        found: one row per step, with process_id and first_ns, the time of its first launch.

    Returns:
        the same, in order of first_ns; loop_ns is null where there is no mark in
        `_MARK_HOLDS_NS` before.
    """
    marks = trace.nvtx.filter(
        pl.col("kind") == "mark", pl.col("domain") == "gaptrace", pl.col("name") == "host pace"
    ).select("process_id", at_ns="start_ns", loop_ns="payload")
    return found.sort("first_ns").join_asof(
        marks,
        left_on="first_ns",
        right_on="at_ns",
        by="process_id",
        tolerance=_MARK_HOLDS_NS,
        check_sortedness=False,
    )


def host_pace(
    calibration: Calibration, api_ns: ArrayLike, loop_ns: ArrayLike, level: Level
) -> Floats:
    """Return by what to multiply host times of steps that ran slower than calibrated ones.

    Where the recording holds the pace of the host, it is the geometric mean of two slowdowns: of
    the marked loop, that needs the processor alone, and of launch calls, that also need the memory
    which others may be using. In 20 recordings of six programs (H200, a host slower by up to 2.3)
    the step per launch without a recorder is then off by 5.1 % in the median and 8.8 % at most; by
    the loop alone 6.1 and 23 %, by the calls alone 5.5 and 14 %. In 45 earlier recordings, with
    short calls of the driver in place of the loop, it is 7.3 and 13 %. A program's launches may
    also be dearer, or cheaper, on any host: the ends are those with them and without.

    Without marks launch calls tell. Recorders take their time before and after what they record of
    a call: calls that followed each other at once were recorded at 4.1 to 4.2 us and took 4.2 us
    without a recorder (H200, Nsight Systems 2025.3, host at full pace). So a call that is recorded
    as longer than one of a program is by the calibration (`_CALL_IN_PROGRAM`) tells that the host
    was slow just then. A program's own code slows down more than its calls (`_CODE_SLOWS_BY`).

    Args:
        calibration: of the machine.
        api_ns: the median launch call of each step, as recorded; NaN where there is none.
        loop_ns: the loop of `live.pace_marks` before each step; NaN where there is none.
        level: which end.

    Returns:
        a factor for each, at most 1.
    """
    by_calls = _speed_by_calls(calibration, _timed(api_ns))
    loop = calibration.figure("host_loop_ns")
    speed = (_CALL_IN_PROGRAM * by_calls) ** _CODE_SLOWS_BY
    speed = np.where(np.isnan(by_calls) | (level == "high"), 1.0, speed)
    if loop is not None:
        by_loop = _MARKED_LOOP * getattr(loop, level) / _timed(loop_ns)
        by_both = np.sqrt(by_loop * np.where(np.isnan(by_calls), by_loop, by_calls))
        if level != "value":
            by_both = (np.fmin if level == "low" else np.fmax)(by_both, by_loop)
        speed = np.where(np.isnan(by_loop), speed, by_both)
    return np.fmin(1.0, speed)


def _speed_by_calls(calibration: Calibration, calls_ns: Floats) -> Floats:
    """A calibrated launch call over each; NaN where they tell nothing."""
    without = calibration.figure("launch_queued_api_ns")
    if without is None or without.value <= 0:
        return np.full_like(calls_ns, np.nan)
    speed: Floats = without.value / calls_ns
    return speed


def _timed(ns: ArrayLike) -> Floats:
    """Times; NaN where there is none."""
    times = np.asarray(ns, float)
    return np.where(times > 0, times, np.nan)


def slow_host(ungraphed: Sequence[UngraphedStep]) -> list[TraceWarning]:
    """Warn where launches one by one were recorded on a slow host, and are corrected for that."""
    slow = [each for each in ungraphed if each.host_pace < _SLOW]
    if not slow:
        return []
    first = slow[0]
    return [
        TraceWarning(
            "slow_host",
            f"the host ran at {100 * first.host_pace:.0f} % of its calibrated pace while "
            f"{first.unit} was recorded, as if others used it; launches one by one are predicted "
            "at full pace",
        )
    ]
