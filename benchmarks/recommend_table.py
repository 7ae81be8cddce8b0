"""The table of benchmarks/RESULTS.md from what recommend.py wrote.

    python benchmarks/recommend_table.py results.jsonl

For each regime and kind of node the median over all its settings, the worst in brackets.
"""

import argparse
import itertools
import statistics
import sys
from pathlib import Path

from recommend import (
    CLOCKS,
    REGIMES,
    figures,
    hides,
    hides_after_first,
    over_best_of_other_half,
    records_of,
)

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
        f"of {len(over)} settings the chosen size is within 1 % of the best in "
        f"{within(over, 0.01)}, within 3 % in {within(over, 0.03)}, {percent(max(over))} over it "
        f"at most; the median prediction error is {percent(statistics.median(errors))}. Growing "
        f"schedules take the device's time and up to 1 % in {within(growing, 0.01)} of "
        f"{len(growing)} where the model says so, {percent(max(growing, default=0.0))} over it at "
        f"most; that after a first chunk of one node and up to 1 % in {within(later, 0.01)} of "
        f"{len(later)} where it says so, {percent(max(later, default=0.0))} at most."
    )


def quiet(record):
    """A record by the first quartile of its steps.

    Others on the host make steps longer, never shorter, so that the quicker ones spread less.
    """
    runs = record["runs_ns"]
    return record | {
        "measured_ns": {name: statistics.quantiles(ns, n=4)[0] for name, ns in runs.items()}
    }


def within(values, most):
    return sum(value <= most for value in values)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    records = records_of(parser.parse_args(argv).results)
    for row in (HEAD, ("-",) * len(HEAD), *rows(records)):
        print(f"| {' | '.join(row)} |")
    print(f"By the median of the steps, {counts(records)}")
    if all("runs_ns" in each for each in records):
        print(f"By their first quartile, {counts(list(map(quiet, records)))}")
        over = max(over_best_of_other_half(each["runs_ns"]) for each in records)
        print(f"Where half of the steps say which size is best: {percent(over)} over it at most.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
