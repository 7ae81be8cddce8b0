"""The table of benchmarks/RESULTS.md from what recommend.py wrote.

    python benchmarks/recommend_table.py results.jsonl

For each regime and kind of node the median over all its settings, the worst in brackets.
"""

import argparse
import itertools
import statistics
import sys
from pathlib import Path

from recommend import CLOCKS, REGIMES, figures, hides, hides_after_first, records_of

HEAD = (
    *("regime", "node", "chosen over best", "one graph over best", "growing over best"),
    *("prediction error", "noise"),
)


def columns(record):
    found = figures(record)
    over = (found["over"][name] for name in ("chosen", "one", "growing"))
    return (*over, found["error"], found["noise"])


def rows(records):
    for regime, node in itertools.product(REGIMES, CLOCKS):
        alike = [each for each in records if (each["regime"], each["node"]) == (regime, node)]
        if alike:
            yield (regime, node, *map(cell, zip(*map(columns, alike), strict=True)))


def cell(values):
    return f"{percent(statistics.median(values))} ({percent(max(values))})"


def percent(fraction):
    return f"{100 * fraction:.{0 if abs(fraction) >= 0.0995 else 1}f} %".replace("-0.0", "0.0")


def counts(records):
    """In how many settings each target was met."""
    over = [figures(each)["over"]["chosen"] for each in records]
    errors = [figures(each)["error"] for each in records]
    growing = [figures(each)["growing"] for each in records if hides(each)]
    later = [figures(each)["after_first"] for each in records if hides_after_first(each)]
    return (
        f"Of {len(over)} settings the chosen size is {within_of_best(over)}; the median prediction "
        f"error is {percent(statistics.median(errors))}. {of_quiet_steps(records)}"
        "Growing schedules take the device's time and up to 1 % in "
        f"{within(growing, 0.01)} of {len(growing)} where the model says so; that after a first "
        f"chunk of one node and up to 1 % in {within(later, 0.01)} of {len(later)} where it says "
        f"so, {percent(max(later, default=0.0))} at most."
    )


def within_of_best(over):
    return (
        f"within 1 % of the best in {within(over, 0.01)}, within 3 % in {within(over, 0.03)}, "
        f"{percent(max(over))} over it at most"
    )


def of_quiet_steps(records):
    """The same by the first quartile of the steps, where they were kept.

    Others on the host make steps longer, never shorter, so that the quicker ones spread less.
    """
    over = [
        figures(each | {"measured_ns": first_quartiles(each["runs_ns"])})["over"]["chosen"]
        for each in records
        if "runs_ns" in each
    ]
    if not over:
        return ""
    return f"By the first quartile of their steps, not the median, it is {within_of_best(over)}. "


def first_quartiles(runs):
    return {name: statistics.quantiles(times, n=4)[0] for name, times in runs.items()}


def within(values, most):
    return sum(value <= most for value in values)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    records = records_of(parser.parse_args(argv).results)
    for row in (HEAD, ("-",) * len(HEAD), *rows(records)):
        print(f"| {' | '.join(row)} |")
    print(counts(records))
    return 0


if __name__ == "__main__":
    sys.exit(main())
