"""Times the steps of a program by the host's clock."""

import statistics
import time

from gaptrace.live.host_pace import HostPace

#: Steps before those that count; how many are tried for each; how long a better host is waited for.
WARM_UP, TRIED, PATIENCE_NS = 6, 5, 30_000_000_000


def add_option(parser):
    parser.add_argument(
        "--full-pace",
        action="store_true",
        help="time only steps that the host runs at full pace from begin to end",
    )


def print_median_step(run, steps, *, full_pace):
    """Run steps, each until the device is done, and print what one takes."""

    def timed_us():
        begin = time.perf_counter_ns()
        run()
        return (time.perf_counter_ns() - begin) / 1e3

    for _ in range(WARM_UP):
        run()
    times = undisturbed(timed_us, steps) if full_pace else [timed_us() for _ in range(steps)]
    print(f"median step {statistics.median(times):.1f} us")


def undisturbed(timed_us, steps):
    pace, times = HostPace(patience_ns=PATIENCE_NS), []
    for _ in range(TRIED * steps):
        us = pace.undisturbed(timed_us)
        if pace.was_full:
            times.append(us)
        if len(times) == steps:
            return times
    raise SystemExit(f"only {len(times)} of {steps} steps at full pace")
