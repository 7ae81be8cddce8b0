"""On a GPU: arms of real steps, wrong ones found out, replays beside a program, the examples."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from gaptrace.errors import GpuError, ResultError, ScheduleError
from gaptrace.record.machine import probe_driver
from gaptrace.timings import gain

DRIVER = probe_driver()
EXAMPLES = Path(__file__).parent.parent / "examples"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not DRIVER.gpus, reason=f"no GPU: {DRIVER.problem or 'CUDA sees none'}"),
]


@pytest.fixture
def cupy():
    if find_spec("cupy") is None:
        pytest.skip("needs cupy")
    import cupy

    return cupy


@pytest.fixture
def torch():
    if find_spec("torch") is None:
        pytest.skip("needs torch")
    import torch

    return torch


def chain(x, nodes):
    """So many dependent kernels in place, by operators that CuPy and PyTorch share."""
    for number in range(nodes):
        if number % 2:
            x += 0.125
        else:
            x *= 0.75
    return x


def check(measured, nodes):
    assert measured.nodes == nodes
    assert [t.arm.name for t in measured.timings] == [
        "per_launch",
        f"graph:{nodes}",
        "chunk:20",
        "chunk:7",
    ]
    assert [t.difference for t in measured.timings] == [0.0] * 4
    for timing in measured.timings:
        assert len(timing.alone_ns) == len(timing.device_ns) == len(timing.back_to_back_ns) == 3
        assert timing.step_ns > 0
        assert timing.step_device_ns > 0
    single, graph = measured.timings[:2]
    assert gain(single, graph).gain_ns > 0, measured
    assert measured.capture_ns > 0
    assert graph.instantiate_ns > 0
    assert measured.break_even_replays >= 1
    assert measured.gpu in DRIVER.gpus


def test_arms_of_a_cupy_step(cupy):
    import gaptrace

    x = cupy.arange(1000, dtype=cupy.float32)
    before = x.copy()
    measured = gaptrace.measure(lambda: chain(x, 50), state=x, chunks=(20, 7), rounds=3)
    check(measured, 50)
    assert (x == before).all()  # the state is put back


def test_arms_of_a_torch_step(torch):
    import gaptrace

    x = torch.arange(1000, dtype=torch.float32, device="cuda")
    before = x.clone()
    measured = gaptrace.measure(lambda: chain(x, 50), state=[x], chunks=(20, 7), rounds=3)
    check(measured, 50)
    assert torch.equal(x, before)


@pytest.mark.parametrize("chunks", [(), (20,)])
def test_no_arm_is_left_to_time(cupy, chunks):
    import gaptrace

    x = cupy.arange(1000, dtype=cupy.float32)
    with pytest.raises(ScheduleError, match="no chunk is smaller than the graph of 12 nodes"):
        gaptrace.measure(lambda: chain(x, 12), state=x, arms=("chunks",), chunks=chunks)


def test_a_step_that_makes_new_arrays(cupy):
    import gaptrace

    x = cupy.arange(1000, dtype=cupy.float32)

    def step():
        y = x
        for _ in range(10):
            y = y * cupy.float32(0.5) + x
        return {"result": (y, x.sum())}

    measured = gaptrace.measure(step, chunks=(5,), rounds=3)
    assert {t.difference for t in measured.timings} == {0.0}


def test_a_step_on_a_stream_of_its_own(cupy):
    import gaptrace

    stream = cupy.cuda.Stream(non_blocking=True)
    x = cupy.zeros(1000, dtype=cupy.float32)
    cupy.cuda.Device().synchronize()

    def step():
        with stream:
            return chain(x, 30)

    assert gaptrace.measure(step, state=x, stream=stream, rounds=3).nodes == 30
    with pytest.raises(GpuError, match="stream"):
        gaptrace.measure(step, state=x, rounds=3)


def test_schedules_are_arms(cupy):
    import gaptrace

    x = cupy.zeros(1000, dtype=cupy.float32)
    measured = gaptrace.measure(
        lambda: chain(x, 13), arms=("chunks",), schedules=((1, 3, 9), (13,)), state=x, rounds=3
    )
    assert [t.arm.name for t in measured.timings] == ["schedule:1+3+9", "chunk:13"]
    with pytest.raises(ValueError, match="13"):
        gaptrace.measure(lambda: chain(x, 13), schedules=((1, 3),), state=x, rounds=3)


def test_a_step_with_a_counter_on_the_host_is_an_error_with_the_arms_name(cupy):
    """The graph has kept the value of its capture, and adds it for ever."""
    import gaptrace

    x = cupy.zeros(1000, dtype=cupy.float32)
    calls = []

    def step():
        calls.append(1)
        x.__iadd__(cupy.float32(min(len(calls), 5)))

    with pytest.raises(ResultError, match=r"graph:1 computes something else"):
        gaptrace.measure(step, state=x, rounds=3)


def test_a_step_whose_state_was_not_named(cupy):
    import gaptrace

    x = cupy.zeros(1000, dtype=cupy.float32)

    def step():
        x.__iadd__(cupy.float32(1))
        return x * 1

    with pytest.raises(ResultError, match="name all arrays that it changes with state="):
        gaptrace.measure(step, rounds=3)


def test_a_step_that_returns_nothing_and_names_nothing_is_timed_with_a_warning(cupy):
    import gaptrace

    x = cupy.zeros(1000, dtype=cupy.float32)

    def step():
        x.__imul__(cupy.float32(1))

    measured = gaptrace.measure(step, rounds=3)
    assert measured.timings[0].difference is None
    assert any("nothing was compared" in warning for warning in measured.warnings)


def test_a_step_that_reads_a_value_cannot_be_captured(cupy, torch):
    import gaptrace

    x = torch.ones(10, device="cuda")
    with pytest.raises(GpuError):
        gaptrace.measure(lambda: x.sum().item(), rounds=3)
    # And the GPU works on.
    assert float((x * 2).sum()) == 20


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


@pytest.mark.parametrize(
    ("example", "lines", "last"),
    [
        ("gain_by_size.py", 7, "4,000,000"),
        ("break_even.py", 4, ""),
        ("pointer_swap.py", 6, "copy to a fixed buffer"),
        ("shape_buckets.py", 4, "buckets of 32"),
    ],
)
def test_examples(example, lines, last, cupy):
    found = run(EXAMPLES / example)
    assert (found.returncode, found.stderr) == (0, ""), found.stdout
    assert len(found.stdout.splitlines()) >= lines
    assert last in found.stdout.splitlines()[-1]


STEP = """
import cupy
import gaptrace

x = cupy.zeros(1000, dtype=cupy.float32)


@gaptrace.step(name="token")
def token(x):
    for number in range(24):
        x += cupy.float32(1)
    return x


for _ in range(6):
    token(x)
print("sum", float(x[0]))
"""


def test_profile_times_the_arms_of_steps_and_then_records_them(tmp_path, cupy):
    pytest.importorskip("recorders")
    from recorders import real_nsys

    script = tmp_path / "script.py"
    script.write_text(STEP)
    folder = tmp_path / "run"
    found = run(
        *("-m", "gaptrace", "profile", "--arms", "per_launch,graph,chunks", "--chunks", "8"),
        *("-o", folder, script),
        GAPTRACE_NSYS=str(real_nsys().path),
    )
    assert found.returncode == 0, found.stdout + found.stderr
    # The program computes what it would have without being measured.
    assert found.stdout.count("sum 144.0") == 2
    assert "Arms of token, timed without a recorder" in found.stdout
    arms = json.loads((folder / "arms.json").read_text())["token"]
    assert [t["arm"]["schedule"] for t in arms["timings"]] == [[], [24], [8, 8, 8]]
    analysis = json.loads((folder / "analysis.json").read_text())
    paths = {row["path"]: row["count"] for row in analysis["ranges"]}
    for name in ("per_launch", "graph:24", "chunk:8"):
        assert [count for path, count in paths.items() if path.endswith(f"{name}/step")] == [10]


def test_verify_names_the_parameter_that_a_graph_has_kept(cupy):
    found = run("-m", "gaptrace", "verify", "--json", EXAMPLES / "stale_graph.py")
    assert found.returncode == 3, found.stdout + found.stderr
    step = json.loads(found.stdout)["steps"]["decode"]
    problem = step["problems"][0]
    assert (problem["kind"], problem["call"]) == ("other_result", 8), problem
    named = " ".join(problem["parameters"])
    assert "append, parameter 0: the address" in named
    assert "attend, parameter 0: the address" in named
    assert "parameter 1" not in named

    text = run("-m", "gaptrace", "verify", EXAMPLES / "stale_graph.py")
    assert text.returncode == 3
    assert "a graph would NOT compute the same" in text.stdout


def test_verify_passes_what_stays_in_place(cupy):
    found = run("-m", "gaptrace", "verify", EXAMPLES / "stale_graph.py", "--fixed")
    assert found.returncode == 0, found.stdout + found.stderr
    assert "replayed beside 21 calls: all computed the same" in found.stdout
    plain = run(EXAMPLES / "stale_graph.py", "--fixed")
    # The program's own results are those of a run that nobody watches.
    assert plain.stdout.splitlines()[0] in found.stdout


HOST_COUNTER = """
import cupy
import gaptrace

x = cupy.zeros(1000, dtype=cupy.float32)
seen = 0


@gaptrace.step
def add(x):
    x += cupy.float32(seen)


for _ in range(8):
    seen += 1
    add(x)
"""


def test_verify_names_a_host_value_that_a_graph_has_kept(tmp_path, cupy):
    script = tmp_path / "counter.py"
    script.write_text(HOST_COUNTER)
    found = run("-m", "gaptrace", "verify", "--json", script)
    assert found.returncode == 3, found.stdout + found.stderr
    problem = json.loads(found.stdout)["steps"]["step"]["problems"][0]
    assert problem["call"] == 4
    assert any("a value of the host" in named for named in problem["parameters"]), problem


MOVING = """
import torch
import gaptrace

w = torch.randn(64, 64, device="cuda")


@gaptrace.step
def forward(x):
    return (x @ w).relu() @ w


x = torch.randn(8, 64, device="cuda")
for number in range(10):
    forward(torch.randn(8, 64, device="cuda") if MOVES else x)
"""


@pytest.mark.parametrize(("moves", "status"), [(False, 0), (True, 3)])
def test_verify_of_torch_inputs_that_move(moves, status, tmp_path, torch):
    script = tmp_path / "moving.py"
    script.write_text(MOVING.replace("MOVES", str(moves)))
    found = run("-m", "gaptrace", "verify", "--json", script)
    assert found.returncode == status, found.stdout + found.stderr
    problems = json.loads(found.stdout)["steps"]["step"]["problems"]
    assert bool(problems) == moves
    if moves:
        assert any("the address" in named for named in problems[0]["parameters"]), problems


def test_tuning_says_what_the_clock_says(cupy):
    import gaptrace

    x = cupy.zeros(4096, dtype=cupy.float32)
    found = gaptrace.tune(lambda: chain(x, 300), state=x, rounds=5)
    measured = found.measured_ns
    assert measured["per_launch"] > measured["graph:300"] > 0, found
    # Built once and replayed, a straight line of small kernels is best as one graph, or about so;
    # five rounds beside other programs may show no difference to launches.
    assert found.verdict in ("one_graph", "chunk", "no_difference_shown"), found
    assert found.regime == "replay"
    assert {item.evidence for item in found.inputs} == {"timed"}
    fastest = min(ns for name, ns in measured.items() if name != "per_launch")
    chosen = measured[f"chunk:{found.chunk}" if found.verdict == "chunk" else "graph:300"]
    assert chosen <= 1.02 * fastest, found
    assert abs(found.predicted_ns["one_graph"] / measured["graph:300"] - 1) < 0.1, found


KEPT_INSIDE = """
import cupy
import gaptrace

total = cupy.zeros(1000, dtype=cupy.float32)


@gaptrace.step
def add(x):
    total.__iadd__(x)
    return total


x = cupy.ones(1000, dtype=cupy.float32)
for number in range(10):
    add(x)
print("total", float(total[0]))
"""


def test_verify_of_results_that_the_program_keeps_where_they_are(tmp_path, cupy):
    script = tmp_path / "kept.py"
    script.write_text(KEPT_INSIDE)
    found = run("-m", "gaptrace", "verify", script)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "replayed beside 7 calls: all computed the same" in found.stdout
    assert "total 10.0" in found.stdout
