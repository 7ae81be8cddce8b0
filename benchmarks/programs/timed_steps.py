"""Times the steps of a program by the host's clock."""

import statistics
import time

from gaptrace.live.host_pace import FULL, HostPace

#: Steps before those that count; how many are tried for each; how long a better host is waited for.
WARM_UP, TRIED, PATIENCE_NS = 6, 5, 30_000_000_000
#: At the calibrated pace are steps between loops that take at most so many times as long.
CLOSE = 1.1


def add_option(parser):
    parser.add_argument(
        "--full-pace",
        type=float,
        metavar="NS",
        help="time only steps that the host runs at full pace: between loops of about so many ns "
        "(`host_loop_ns` of a calibration)",
    )


def print_median_step(run, steps, *, full_pace):
    """Run steps, each until the device is done, and print what one takes."""

    def timed_us():
        begin = time.perf_counter_ns()
        run()
        return (time.perf_counter_ns() - begin) / 1e3

    for _ in range(WARM_UP):
        run()
    if full_pace is None:
        times = [timed_us() for _ in range(steps)]
    else:
        times = undisturbed(timed_us, steps, full_pace)
    print(f"median step {statistics.median(times):.1f} us")


def undisturbed(timed_us, steps, loop_ns):
    pace, times = HostPace(CLOSE / FULL * loop_ns, PATIENCE_NS), []
    for _ in range(TRIED * steps):
        us = pace.undisturbed(timed_us)
        if pace.was_full:
            times.append(us)
        if len(times) == steps:
            return times
    raise SystemExit(f"only {len(times)} of {steps} steps at full pace")
