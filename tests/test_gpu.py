"""On a GPU: the demo profiled with the real nsys, graphs named, doctor."""

import json
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from recorders import real_nsys

from gaptrace.record.machine import probe_driver

DRIVER = probe_driver()
DEMO = Path(__file__).parent.parent / "examples" / "demo.py"
STEPS = 5
CHUNKS = {75: [75], 25: [25, 25, 25], 10: [10, 10, 10, 10, 10, 10, 10, 5]}

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not DRIVER.gpus, reason=f"no GPU: {DRIVER.problem or 'CUDA sees none'}"),
]


def needs(module: str) -> None:
    if find_spec(module) is None:
        pytest.skip(f"needs {module}")


def profile(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run gaptrace profile with the real nsys into a folder."""
    return subprocess.run(
        [sys.executable, "-m", "gaptrace", "profile", "-o", str(folder), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"GAPTRACE_NSYS": str(real_nsys().path)},
    )


def load(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def counts(analysis: dict[str, Any]) -> dict[str, int]:
    """Return how often each range of the domain gaptrace occurs, by path."""
    return {row["path"]: row["count"] for row in analysis["ranges"] if row["domain"] == "gaptrace"}


# The demo


def test_the_demo_alone():
    needs("cupy")
    found = subprocess.run(
        [sys.executable, str(DEMO), "--steps", "3", "--n", "1000", "--chunks", "25", "7"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stderr) == (0, "")
    lines = found.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == [
        "per_launch",
        "graph:75",
        "graph:25",
        "graph:7",
    ]
    assert lines[-1] == "all arms computed the same, bit for bit"


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> Path:
    """Profile the demo in both granularities, once for all tests of it."""
    needs("cupy")
    folder = tmp_path_factory.mktemp("demo") / "run"
    arguments = [str(DEMO), "--steps", str(STEPS), "--chunks", "25", "10"]
    found = profile(folder, "--granularity", "both", *arguments)
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout.count("all arms computed the same, bit for bit\n") == 2
    assert found.stdout.count("gaptrace 0.") == 2
    assert "gaptrace: warning" not in found.stderr
    return folder


@pytest.mark.nsys
@pytest.mark.parametrize("granularity", ["graph", "node"])
def test_the_demo_profiled(demo, granularity):
    analysis = load(demo / granularity / "analysis.json")
    assert analysis["trace"]["granularity"] == granularity
    (device,) = analysis["devices"]
    assert device["name"] == DRIVER.gpus[0]
    assert sum(device["causes"].values()) == device["idle_ns"]
    report = (demo / granularity / "report.txt").read_text()
    assert "per_launch" in report
    assert DRIVER.gpus[0] in report


@pytest.mark.nsys
@pytest.mark.parametrize("granularity", ["graph", "node"])
def test_every_graph_launch_of_the_demo_was_executed(demo, granularity):
    graphs = load(demo / granularity / "analysis.json")["graphs"]
    sizes = [size for chunks in CHUNKS.values() for size in chunks]
    # Every arm runs its step once more than is timed.
    assert sorted(graph["nodes"] for graph in graphs) == sorted(sizes)
    assert {graph["executions"] for graph in graphs} == {STEPS + 1}


@pytest.mark.nsys
@pytest.mark.parametrize("granularity", ["graph", "node"])
def test_the_ranges_of_the_demo(demo, granularity):
    seen = counts(load(demo / granularity / "analysis.json"))
    assert seen["per_launch"] == 1
    assert seen["per_launch/step"] == STEPS
    for chunk, sizes in CHUNKS.items():
        assert seen[f"capture:{chunk}"] == 1
        assert seen[f"capture:{chunk}/instantiate"] == len(sizes)
        assert seen[f"graph:{chunk}/step"] == STEPS
        assert seen[f"graph:{chunk}/step/replay"] == STEPS * len(sizes)
    every = sum(len(sizes) for sizes in CHUNKS.values())
    assert seen["capture"] == every
    assert seen["replay"] == every  # those of the steps that are not timed


@pytest.mark.nsys
def test_the_notes_of_the_demo(demo):
    notes = load(demo / "graph" / "graph.script.json")
    assert notes["status"] == 0
    assert notes["graphs"]["cupy"] == "named"
    assert notes["nvtx"]["state"].startswith("recorded")
    assert load(demo / "versions.json")["gpus"] == list(DRIVER.gpus)


# Graphs of PyTorch

TORCH = """
import torch

x = torch.arange(64, dtype=torch.float32, device="cuda")
y = torch.zeros_like(x)
kept = {keep}
graph = torch.cuda.CUDAGraph(keep_graph=True) if kept else torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y.copy_(x * 2 + 1)
if kept:
    graph.instantiate()
for _ in range(3):
    graph.replay()
torch.cuda.synchronize()
assert torch.equal(y.cpu(), torch.arange(64, dtype=torch.float32) * 2 + 1)
print("computed", isinstance(graph, torch.cuda.CUDAGraph))
"""


@pytest.mark.nsys
@pytest.mark.parametrize("keep", [False, True])
def test_graphs_of_torch_are_named(tmp_path, keep):
    needs("torch")
    script = tmp_path / "work.py"
    script.write_text(TORCH.format(keep=keep))
    found = profile(tmp_path / "run", str(script))
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout.startswith("computed True\n")
    notes = load(tmp_path / "run" / "graph.script.json")
    assert notes["graphs"]["torch"] == "named"
    seen = counts(load(tmp_path / "run" / "analysis.json"))
    assert (seen["capture"], seen["instantiate"], seen["replay"]) == (1, 1, 3)


# Programs that do not come to their end

BUSY = """
import os, sys, time
import cupy

x = cupy.arange(1000)
for _ in range(100):
    x += 1
cupy.cuda.Device().synchronize()
print("ready", flush=True)
if sys.argv[1] == "crash":
    os.kill(os.getpid(), 11)
[time.sleep(0.1) for _ in range(600)]
"""


@pytest.mark.nsys
def test_what_a_crashed_program_did_is_reported(tmp_path):
    needs("cupy")
    script = tmp_path / "work.py"
    script.write_text(BUSY)
    found = profile(tmp_path / "run", str(script), "crash")
    assert found.returncode == 139
    assert "ended with status 139" in found.stderr
    # CUPTI's buffers die with the process, so that the recording may hold no device work.
    assert "gaptrace 0." in found.stdout or "left no CUDA work to analyse" in found.stderr


@pytest.mark.nsys
def test_ctrl_c_keeps_the_cuda_work_until_then(tmp_path):
    needs("cupy")
    script = tmp_path / "work.py"
    script.write_text(BUSY)
    process = subprocess.Popen(
        [sys.executable, "-m", "gaptrace", "profile", "-o", tmp_path / "run", script, "wait"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"GAPTRACE_NSYS": str(real_nsys().path)},
    )
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert out.startswith("gaptrace 0.")
    assert load(tmp_path / "run" / "analysis.json")["devices"][0]["op_count"] >= 100


# Doctor


@pytest.mark.nsys
def test_doctor_sees_the_gpu():
    found = subprocess.run(
        [sys.executable, "-m", "gaptrace", "doctor", "--json"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"GAPTRACE_NSYS": str(real_nsys().path)},
    )
    checks = {check["name"]: check for check in json.loads(found.stdout)["checks"]}
    assert checks["NVIDIA driver"]["state"] == "ok"
    assert checks["NVIDIA driver"]["detail"].endswith(f"runs CUDA up to {DRIVER.cuda_version}")
    assert DRIVER.version is not None
    assert checks["GPUs"]["detail"] == f"{len(DRIVER.gpus)}: {', '.join(DRIVER.gpus)}"
    assert checks["trial recording"]["state"] == "ok"
    assert "recorded by nsys" in checks["nvtx"]["detail"]
