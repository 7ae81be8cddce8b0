"""The table of benchmarks/RESULTS.md from what recommend.py wrote.

    python benchmarks/recommend_table.py results.jsonl

For each regime and kind of node the median over all its settings, the worst in brackets.
"""

import argparse
import itertools
import json
import statistics
import sys
from pathlib import Path

from recommend import CLOCKS, REGIMES, hides

HEAD = (
    *("regime", "node", "chosen over best", "one graph over best", "growing over best"),
    *("prediction error", "noise"),
)


def figures(record):
    """The columns of one setting, as fractions."""
    measured, predicted = record["measured_ns"], record["predicted_ns"]
    uniforms = {name: ns for name, ns in measured.items() if name not in ("growing", "again")}
    best = min(uniforms.values())
    return {
        "chosen over best": measured["chosen"] / best - 1,
        "one graph over best": measured["one"] / best - 1,
        "growing over best": measured["growing"] / best - 1,
        "prediction error": statistics.median(
            abs(predicted[name] / ns - 1) for name, ns in uniforms.items()
        ),
        "noise": abs(measured["again"] / measured["chosen"] - 1),
    }


def rows(records):
    for regime, node in itertools.product(REGIMES, CLOCKS):
        columns = [
            figures(each) for each in records if (each["regime"], each["node"]) == (regime, node)
        ]
        if columns:
            yield (regime, node, *(cell([each[name] for each in columns]) for name in HEAD[2:]))


def cell(values):
    return f"{percent(statistics.median(values))} ({percent(max(values))})"


def percent(fraction):
    return f"{100 * fraction:.{0 if abs(fraction) >= 0.0995 else 1}f} %".replace("-0.0", "0.0")


def counts(records):
    """In how many settings each target was met."""
    over = [figures(record)["chosen over best"] for record in records]
    errors = [figures(record)["prediction error"] for record in records]
    hidden = [each for each in records if hides(each)]
    growing = [each["measured_ns"]["growing"] / each["device_ns"] - 1 for each in hidden]
    return (
        f"Of {len(over)} settings the chosen size is within 1 % of the best in "
        f"{within(over, 0.01)}, within 3 % in {within(over, 0.03)}; the median prediction error is "
        f"{percent(statistics.median(errors))}. Where all but 1 % is predicted to hide, growing "
        f"schedules take the device's time and up to 1 % in {within(growing, 0.01)}, up to 2 % in "
        f"{within(growing, 0.02)} of {len(growing)}."
    )


def within(values, most):
    return sum(value <= most for value in values)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    lines = parser.parse_args(argv).results.read_text(encoding="utf-8").splitlines()
    records = [json.loads(each) for each in lines]
    for row in (HEAD, ("-",) * len(HEAD), *rows(records)):
        print(f"| {' | '.join(row)} |")
    print(counts(records))
    return 0


if __name__ == "__main__":
    sys.exit(main())
