"""Broken exports by the thousand: each is analysed or refused in one line, and never touched.

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

import click
from fuzz_breaks import BREAKS as ROW_AND_TABLE_BREAKS
from fuzz_files import DISTURBANCES, FILE_BREAKS
from fuzz_sources import SOURCES

from gaptrace.cli import main

BREAKS = ROW_AND_TABLE_BREAKS | FILE_BREAKS
#: Of a case in the long run; no sound case takes a hundredth of it.
WATCHDOG_SECONDS = 60
BATCH = 250


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
    """Analyse case `seed`, made in an empty folder; return how it ended.

    Raises:
        Broken: it ended in another way than with a sound answer or one clear line.
    """
    path, story, rng = make(folder, seed, only)
    try:
        if only in DISTURBANCES or (only is None and rng.random() < 0.05):
            name = only or rng.choice(sorted(DISTURBANCES))
            story.append(name)
            with _disturbed(rng, path, name):
                return f"{name}: {answers(path)}"
        before = _contents(folder)
        ended = answers(path)
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


def answers(path: Path) -> str:
    """Analyse a file, as text and as JSON; return how both ended."""
    text, as_json = _answer(path), _answer(path, "--json")
    return text if text == as_json else f"{text}, then {as_json}"


def _answer(path: Path, *options: str) -> str:
    """Return `analysed`, or the start of the error."""
    out, err = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("error")
            status = main(["analyze", str(path), *options])
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a panic of polars is no Exception
        raise Broken("".join(traceback.format_exception(error)[-4:])) from error
    out_text, err_text = out.getvalue(), err.getvalue()
    if status == 0:
        if err_text or not out_text:
            raise Broken(f"status 0 with stderr {err_text!r} and {len(out_text)} characters")
        if options:
            _check_sums(out_text)
        return "analysed"
    start = f"gaptrace: error: {path}: "
    if status != 1 or out_text or not err_text.startswith(start):
        raise Broken(f"status {status}, stdout {out_text!r}, stderr {err_text!r}")
    if len(err_text.splitlines()) != 1 or not err_text.endswith("\n"):
        raise Broken(f"not one line: {err_text!r}")
    words = err_text.removeprefix(start).replace(";", " ").split()
    return " ".join(word for word in words if word.islower())[:24]


def _check_sums(text: str) -> None:
    def no_constant(name: str) -> float:
        raise Broken(f"{name} is no JSON")

    answer = json.loads(text, parse_constant=no_constant)
    for row in answer["devices"]:
        if row["busy_ns"] + row["idle_ns"] != row["span_ns"]:
            raise Broken(f"busy and idle are not the span: {row}")
        if sum(piece["idle_ns"] for piece in row["cause_details"]) != row["idle_ns"]:
            raise Broken(f"details are not the idle time: {row}")
    for row in answer["devices"] + answer["ranges"]:
        if min(row["span_ns"], row["busy_ns"], row["idle_ns"], *row["causes"].values()) < 0:
            raise Broken(f"less than nothing: {row}")
        if sum(row["causes"].values()) != row["idle_ns"]:
            raise Broken(f"causes are not the idle time: {row}")
    _check_numbers(answer)


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
