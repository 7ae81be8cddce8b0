"""`profile --arms` and `verify` around a program, as far as no GPU is needed."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec

import pytest

from gaptrace.cli import main
from gaptrace.live import plans
from gaptrace.live.notes import RunNotes
from gaptrace.record.machine import probe_driver
from gaptrace.render.arms import arms_text
from gaptrace.render.replays import replays_text
from gaptrace.timings import Arm, ArmTiming, Measurement

PROGRAM = """
import gaptrace

calls = 0


@gaptrace.step(name="token")
def token():
    global calls
    calls += 1


for _ in range(5):
    token()
print("calls", calls)
"""
NO_GPU = pytest.mark.skipif(
    bool(probe_driver().gpus) or find_spec("cuda") is not None, reason="a GPU could be there"
)


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "gaptrace", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"COLUMNS": "110"},
    )


@NO_GPU
def test_a_step_that_cannot_be_replayed_is_said_in_one_line_and_the_program_runs_on(program):
    found = run("verify", program)
    assert (found.returncode, found.stdout) == (1, "calls 5\n")
    assert found.stderr.startswith("gaptrace: error: step token: this needs the package cuda-bind")
    assert found.stderr.count("\n") == 1


@NO_GPU
def test_verify_keeps_the_programs_output_off_the_json(program):
    found = run("verify", "--json", program)
    assert found.returncode == 1
    (step,) = json.loads(found.stdout)["steps"].values()
    assert step["error"].startswith("step token: this needs the package cuda-bindings")
    assert "calls 5\n" in found.stderr


def test_verify_of_a_program_without_steps(tmp_path):
    script = tmp_path / "plain.py"
    script.write_text("print('done')")
    found = run("verify", script)
    assert (found.returncode, found.stdout) == (1, "done\n")
    assert "no step was replayed" in found.stderr


def test_verify_passes_on_the_status_of_a_program_that_fails(tmp_path):
    script = tmp_path / "fails.py"
    script.write_text("raise SystemExit(7)")
    found = run("verify", script)
    assert found.returncode == 7
    assert "ended with status 7" in found.stderr


def test_a_coroutine_step_cannot_be_captured(tmp_path):
    script = tmp_path / "waits.py"
    script.write_text(
        "import asyncio, gaptrace\n"
        "@gaptrace.step\n"
        "async def token(): print('ran')\n"
        "asyncio.run(token())\n"
    )
    found = run("verify", script)
    assert (found.returncode, found.stdout) == (1, "ran\n")
    assert "step step is a coroutine" in found.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--arms", "graph,loops"], "'loops' is none of per_launch, graph, chunks"),
        (["--arms", "graph", "--chunks", "ten"], "whole numbers with commas"),
        (["--arms", "graph", "--chunks", "0"], "at least one node"),
        (["--chunks", "10"], "--chunks says how to cut the graphs of --arms"),
    ],
)
def test_wrong_arms_are_usage_errors(arguments, said, program, capsys):
    assert main(["profile", *arguments, program]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def timing(kind, schedule, *rounds, **own):
    steps = tuple((ns,) * 3 for ns in rounds)
    return ArmTiming(Arm(kind, schedule), steps, steps, tuple(rounds), **own)


MEASURED = Measurement(
    (
        timing("per_launch", (), 4000_000, 4004_000, 3996_000, difference=0.0),
        timing(
            "graph", (600,), 500_000, 501_000, 499_000, instantiate_ns=3_000_000, difference=0.0
        ),
        timing(
            "chunks",
            (300, 300),
            500_500,
            501_500,
            499_400,
            instantiate_ns=3_100_000,
            difference=1e-6,
        ),
    ),
    nodes=600,
    capture_ns=16_000_000,
    steps=6,
    gpu="NVIDIA H200",
    driver="580.1",
    cuda="13.0",
    warnings=("chunk:300: a cut goes across branches",),
)

EXPECTED = """
Arms of token, timed without a recorder
  NVIDIA H200, driver 580.1, CUDA 13.0; 3 rounds of 6 steps each way
  arm          graphs      step         ±    queued    device       gain         ±   results
  ───────────────────────────────────────────────────────────────────────────────────────────────
  per_launch        -   4.00 ms   26.8 us   4.00 ms   4.00 ms          -         -   the same
  graph:600         1    500 us   6.69 us    500 us    500 us   +3.50 ms   20.1 us   the same
  chunk:300         2    500 us   6.69 us    500 us    500 us   +3.50 ms   19.4 us   within 1e-06

  medians of the rounds. Step: one at a time, until the host knows that the device is done; queued:
  one after the other without a wait; device: between two events; gain: per step, against
  per_launch.
  graph:600 is the fastest.
  capturing takes 16.0 ms, instantiating and uploading one graph 3.00 ms: earned back after 6 steps.
  warning: chunk:300: a cut goes across branches
"""


def test_the_table_of_arms():
    assert arms_text([("token", MEASURED)], width=100, color=False) == EXPECTED


def test_times_under_a_recorder_are_not_to_choose_by():
    text = arms_text([("token", replace(MEASURED, is_recorded=True))], width=100, color=False)
    assert "Arms of token, timed UNDER A RECORDER" in text
    assert "without a recorder" not in text


def test_what_replays_found_as_text():
    problem = {
        "kind": "other_result",
        "call": 8,
        "when": "inputs as they were",
        "message": "array 0 of the results differs by up to 1 from the step run per launch",
        "parameters": ["node 3 add, parameter 0: the address 0x7f10 when captured (freed since)"],
    }
    steps = {
        "good": {"nodes": 3, "calls": 21, "problems": []},
        "bad": {"nodes": 1000, "calls": 6, "problems": [problem]},
    }
    assert replays_text(steps, width=100, color=False) == (
        "step good: 3 CUDA nodes, replayed beside 21 calls: all computed the same\n"
        "step bad: 1,000 CUDA nodes, replayed beside 6 calls: a graph would NOT compute the same\n"
        "  call 8, inputs as they were: array 0 of the results differs by up to 1 from the step run"
        " per\n  launch\n"
        "    node 3 add, parameter 0: the address 0x7f10 when captured (freed since)\n"
    )


def test_an_error_of_the_measurement_is_noted_and_the_program_goes_on(monkeypatch):
    def broken(step, **settings):
        step()
        raise RuntimeError("out of memory\nin the pool")

    notes = RunNotes(None, [])
    monkeypatch.setattr("gaptrace.live.measure.measure", broken)
    monkeypatch.setattr(plans, "_plan", plans._Plan(notes, {}, False))
    calls = []
    step = plans.planned(lambda x: calls.append(x) or len(calls), "token")

    assert [step(1) for _ in range(6)] == [1, 2, 3, 5, 6, 7]
    assert notes.arms == {"token": {"error": "step token: RuntimeError: out of memory in the pool"}}
