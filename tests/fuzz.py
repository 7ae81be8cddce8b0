"""Broken exports by the thousand: each is analysed or refused in one line, and never touched.

Each goes to `analyze`, and to `recommend` or `redact`, whose copy must be whole or not there.

    python tests/fuzz.py --count 10000 --seed 1

prints how many cases ended how, then every case that failed; `--show SEED` writes one case into
the current folder. Cases run in child processes, so that a crash or a hang names its case.
"""

import argparse
import io
import json
import math
import os
import random
import select
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import click
from fuzz_breaks import BREAKS as ROW_AND_TABLE_BREAKS
from fuzz_files import DISTURBANCES, FILE_BREAKS
from fuzz_sources import SOURCES

from gaptrace.cli import main

ROOT = Path(__file__).parent.parent
BREAKS = ROW_AND_TABLE_BREAKS | FILE_BREAKS
#: Of a case in the long run; no sound case takes a hundredth of it.
WATCHDOG_SECONDS = 60
BATCH = 250
#: For predictions, where a trace is broken but the machine is known.
CALIBRATED = ("--calibration", str(ROOT / "sample_traces/h200_calibration.json"))


class Broken(AssertionError):
    """What a case did that no input may cause."""


def make(folder: Path, seed: int, only: str | None = None) -> tuple[Path, list[str], random.Random]:
    """Write case `seed`; return its file, what it was made of, and the generator for the rest.

    It is broken in one to three ways, or in the one that `only` names, if that is one.
    """
    rng = random.Random(seed)
    path = folder / "t.sqlite"
    source = rng.choice(sorted(SOURCES))
    path.write_bytes(SOURCES[source]())
    story = [source]
    chosen = (
        [only] if only in BREAKS else rng.choices(sorted(BREAKS), k=rng.choice([1, 1, 1, 2, 3]))
    )
    for name in chosen:
        done = BREAKS[name](rng, path)
        story.append(f"{name}({done})")
    return path, story, rng


def outcome(folder: Path, seed: int, only: str | None = None) -> str:
    """Give case `seed`, made in an empty folder, to the commands; return how they ended.

    Raises:
        Broken: one ended in another way than with a sound answer or one clear line.
    """
    path, story, rng = make(folder, seed, only)
    try:
        if only in DISTURBANCES or (only is None and rng.random() < 0.05):
            name = only or rng.choice(sorted(DISTURBANCES))
            story.append(name)
            with _disturbed(rng, path, name):
                return f"{name}: {_answers(rng, path, changing=True)}"
        before = _contents(folder)
        ended = _answers(rng, path)
        if _contents(folder) != before:
            raise Broken("the file or its folder changed")
        return ended
    except Broken as error:
        raise Broken(f"seed {seed}: {' + '.join(story)}: {error}") from error


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@contextmanager
def _disturbed(rng: random.Random, path: Path, name: str) -> Iterator[None]:
    """Write to the file from another thread as long as the block runs."""
    stop = threading.Event()
    writer = threading.Thread(target=DISTURBANCES[name], args=(rng, path, stop))
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()


def _answers(rng: random.Random, path: Path, changing: bool = False) -> str:
    """Analyse a file, and do one thing more with it; return how both ended."""
    analysed = answer("analyze", path, *rng.choice([(), ("--json",)]))
    if rng.random() < 0.5:
        more = answer("recommend", path, *rng.choice([(), ("--json",), CALIBRATED, CALIBRATED]))
    else:
        window = rng.choice([(), (), ("--from", "15us", "--to", "45us"), ("--range", "step")])
        more = copied(path, *window, changing=changing)
    return ", then ".join(dict.fromkeys([analysed, more]))


def copied(path: Path, *window: str, changing: bool = False) -> str:
    """Redact a file; return how that ended, after a look at what it left.

    Args:
        path: the file.
        window: options for a part of it.
        changing: it is written to meanwhile, so that a copy may well have other figures.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.sqlite"
        try:
            ended = answer("redact", path, "-o", str(copy), *window)
        except Broken as error:
            start = f"gaptrace: error: {copy}: not written, since "
            if not (start in str(error) and (changing or "the window alone" in str(error))):
                raise
            ended = "not written"
        left = sorted(entry.name for entry in Path(folder).iterdir())
        if left != ["copy.sqlite"] * (ended == "done"):
            raise Broken(f"redact: {ended}, and it left {left}")
        return ended


def answer(command: str, path: Path, *options: str) -> str:
    """Run a command on a file; return `done`, or the start of the error.

    Raises:
        Broken: it ended neither with an answer nor with one line about the file.
    """
    out, err = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("error")
            status = main([command, str(path), *options])
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a panic of polars is no Exception
        raise Broken(f"{command}: {''.join(traceback.format_exception(error)[-4:])}") from error
    out_text, err_text = out.getvalue(), err.getvalue()
    if status == 0:
        if err_text or not out_text:
            raise Broken(f"{command}: status 0, {len(out_text)} characters, stderr {err_text!r}")
        if "--json" in options:
            _check_json(command, out_text)
        return "done"
    start = f"gaptrace: error: {path}: "
    if status != 1 or out_text or not err_text.startswith(start):
        raise Broken(f"{command}: status {status}, stdout {out_text!r}, stderr {err_text}")
    if len(err_text.splitlines()) != 1 or not err_text.endswith("\n"):
        raise Broken(f"{command}: not one line: {err_text!r}")
    words = err_text.removeprefix(start).replace(";", " ").split()
    return " ".join(word for word in words if word.islower())[:24]


def _check_json(command: str, text: str) -> None:
    def no_constant(name: str) -> float:
        raise Broken(f"{name} is no JSON")

    found = json.loads(text, parse_constant=no_constant)
    _check_numbers(found)
    if command == "analyze":
        _check_sums(found)


def _check_sums(found: dict[str, Any]) -> None:
    for row in found["devices"]:
        if row["busy_ns"] + row["idle_ns"] != row["span_ns"]:
            raise Broken(f"busy and idle are not the span: {row}")
        if sum(piece["idle_ns"] for piece in row["cause_details"]) != row["idle_ns"]:
            raise Broken(f"details are not the idle time: {row}")
    for row in found["devices"] + found["ranges"]:
        if min(row["span_ns"], row["busy_ns"], row["idle_ns"], *row["causes"].values()) < 0:
            raise Broken(f"less than nothing: {row}")
        if sum(row["causes"].values()) != row["idle_ns"]:
            raise Broken(f"causes are not the idle time: {row}")


def _check_numbers(value: object) -> None:
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            _check_numbers(part)
    elif isinstance(value, float) and not math.isfinite(value):
        raise Broken(f"{value} is no figure")


def _work(first: int, count: int) -> None:
    """Run cases one after another; say before each which, and after it how it ended."""
    for seed in range(first, first + count):
        click.echo(json.dumps(["begun", seed, ""]))
        with tempfile.TemporaryDirectory() as folder:
            try:
                line = ["ended", seed, outcome(Path(folder), seed)]
            except Broken as error:
                line = ["broken", seed, str(error)]
        click.echo(json.dumps(line))


def cases(first: int, count: int) -> Iterator[tuple[bool, str]]:
    """Run cases in child processes; give per case whether it failed, and how it ended."""
    seed, end = first, first + count
    while seed < end:
        size = min(BATCH, end - seed)
        command = [sys.executable, __file__, "--worker", "--seed", str(seed), "--count", str(size)]
        # Unbuffered: a line that waits in a buffer would look like a hang to select.
        with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as child:
            assert child.stdout is not None
            last = seed + size
            while seed < last:
                ready, _, _ = select.select([child.stdout], [], [], WATCHDOG_SECONDS)
                line = child.stdout.readline() if ready else b""
                if not line:
                    child.kill()
                    how = f"crashed with status {child.wait()}" if ready else "hangs"
                    yield True, f"seed {seed}: {how}"
                    seed += 1
                    break
                kind, _, text = json.loads(line)
                if kind != "begun":
                    yield kind == "broken", text
                    seed += 1


def _run(first: int, count: int) -> int:
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    ended: Counter[str] = Counter()
    failures = []
    for failed, text in track(
        cases(first, count), "fuzzing", count, console=console, disable=not sys.stderr.isatty()
    ):
        ended["FAILED" if failed else text] += 1
        if failed:
            failures.append(text)
            click.echo(text, err=True)
    for text, number in ended.most_common():
        click.echo(f"{number:7,} {text}")
    return 1 if failures else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Analyse broken exports.")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, help="write this case into the current folder")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    asked = _arguments()
    if asked.show is not None:
        click.echo("\n".join(make(Path.cwd(), asked.show)[1]))
    elif asked.worker:
        _work(asked.seed, asked.count)
    else:
        os.environ.setdefault("POLARS_MAX_THREADS", "1")
        sys.exit(_run(asked.seed, asked.count))
