"""On a GPU: programs that record themselves with CUPTI, beside what they did, and beside nsys."""

import json
import os
import signal
import statistics
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from recorders import real_nsys

from gaptrace.errors import RecorderError
from gaptrace.read import read
from gaptrace.record.cupti import find_cupti
from gaptrace.record.machine import package_versions, probe_driver
from gaptrace.trace import Trace

DRIVER = probe_driver()
DEMO = Path(__file__).parent.parent / "examples" / "demo.py"
STEPS = 5
CHUNKS = {75: [75], 25: [25, 25, 25], 10: [10, 10, 10, 10, 10, 10, 10, 5]}
SINGLE, NODES, REPLAYS = 50, 10, 20

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not DRIVER.gpus, reason=f"no GPU: {DRIVER.problem or 'CUDA sees none'}"),
]


def needs(*modules: str) -> None:
    for module in modules:
        if find_spec(module) is None:
            pytest.skip(f"needs {module}")


@pytest.fixture(autouse=True, scope="module")
def cupti() -> None:
    try:
        find_cupti(DRIVER)
    except RecorderError as error:
        pytest.skip(f"needs CUPTI: {error}")


def profile(
    folder: Path, *arguments: str, recorder: str = "cupti"
) -> subprocess.CompletedProcess[str]:
    more = {"GAPTRACE_NSYS": str(real_nsys().path)} if recorder == "nsys" else {}
    return subprocess.run(
        [
            *(sys.executable, "-m", "gaptrace", "profile", "--recorder", recorder),
            *("-o", folder, *arguments),
        ],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | more,
    )


def said(found: subprocess.CompletedProcess[str]) -> str:
    """All that helps to see why: versions and output."""
    versions = {name: version for name, version in package_versions().items() if version}
    return f"{DRIVER}\n{versions}\nstatus {found.returncode}\n{found.stdout}\n{found.stderr}"


def load(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def counts(analysis: dict[str, Any]) -> dict[str, int]:
    return {row["path"]: row["count"] for row in analysis["ranges"] if row["domain"] == "gaptrace"}


def no_losses(trace: Trace) -> None:
    """CUPTI says that it recorded everything that it was asked for."""
    assert [w.message for w in trace.warnings if w.code == "recorder_diagnostic"] == []


# What was launched is what was recorded

WORK = f"""
import sys
import cupy

code = 'extern "C" __global__ void gaptrace_probe(float* x) {{ x[threadIdx.x] += 1; }}'
kernel = cupy.RawKernel(code, "gaptrace_probe")
x = cupy.zeros(32, cupy.float32)
cupy.cuda.Device().synchronize()
stream = cupy.cuda.Stream(non_blocking=True)
with stream:
    for _ in range({SINGLE}):
        kernel((1,), (32,), (x,))
    stream.begin_capture()
    for _ in range({NODES}):
        kernel((1,), (32,), (x,))
    graph = stream.end_capture()
    for _ in range({REPLAYS}):
        graph.launch(stream)
    stream.synchronize()
print("computed", float(x[0]), flush=True)
"""
COMPUTED = f"computed {float(SINGLE + NODES * REPLAYS)}\n"


def recorded(tmp_path: Path, program: str, *options: str, status: int = 0) -> Trace:
    script = tmp_path / "work.py"
    script.write_text(program)
    found = profile(tmp_path / "run", *options, str(script))
    assert found.returncode == status, said(found)
    assert COMPUTED in found.stdout, said(found)
    (export,) = (tmp_path / "run").glob("*.sqlite")
    return read(export)


def probes(trace: Trace) -> pl.DataFrame:
    return trace.ops.filter(pl.col("name").cast(pl.String) == "gaptrace_probe")


def test_kernels_and_graph_executions(tmp_path):
    needs("cupy")
    trace = recorded(tmp_path, WORK)
    no_losses(trace)
    assert trace.meta.format == "gaptrace-cupti"
    assert trace.meta.granularity == "graph"
    assert probes(trace).height == SINGLE, trace.ops["name"].value_counts()
    graphs = trace.ops.filter(pl.col("kind") == "graph")
    assert graphs.height == REPLAYS, trace.ops["kind"].value_counts()
    (graph_exec,) = graphs["graph_exec_id"].unique()
    made = trace.graph_events
    assert graph_exec in made.filter(event="exec")["graph_exec_id"].to_list(), made
    assert load(tmp_path / "run" / "analysis.json")["graphs"][0]["nodes"] == NODES, made


def test_kernels_node_by_node(tmp_path):
    needs("cupy")
    trace = recorded(tmp_path, WORK, "--granularity", "node")
    no_losses(trace)
    assert trace.meta.granularity == "node"
    assert probes(trace).height == SINGLE + NODES * REPLAYS, trace.ops["kind"].value_counts()
    nodes = probes(trace).filter(pl.col("graph_node_id").is_not_null())
    assert nodes.height == NODES * REPLAYS
    assert nodes["graph_node_id"].n_unique() == NODES, nodes["graph_node_id"].unique()
    (graph_exec,) = nodes["graph_exec_id"].unique()
    made = trace.graph_events.filter(event="exec")["graph_exec_id"].to_list()
    assert graph_exec in made, (nodes["graph_node_id"].unique(), trace.graph_events)
    assert nodes["call_id"].n_unique() == REPLAYS


def test_work_is_linked_to_its_calls(tmp_path):
    needs("cupy")
    trace = recorded(tmp_path, WORK)
    linked = trace.ops.filter(~pl.col("is_unified_memory")).join(
        trace.api, on="call_id", how="left", suffix="_call", maintain_order="left"
    )
    nobody = linked.filter(pl.col("start_ns_call").is_null())
    assert nobody.is_empty(), nobody
    kinds = linked.select("kind", pl.col("kind_call")).unique()
    assert ("graph", "graph_launch") in kinds.rows(), kinds
    assert ("kernel", "launch") in kinds.rows(), kinds
    early = linked.filter(pl.col("start_ns") < pl.col("start_ns_call"))
    assert early.is_empty(), early.select("name", "start_ns", "start_ns_call")
    assert linked["end_ns"].max() < trace.meta.duration_ns


def test_one_row_per_call_of_the_main_thread(tmp_path):
    needs("cupy")
    trace = recorded(tmp_path, WORK + "import os; print('pid', os.getpid())")
    launches = trace.api.filter(pl.col("name").cast(pl.String).is_in(["cuLaunchKernel"]))
    # Those of the program, of its capture, and of the fill of x.
    assert SINGLE + NODES <= launches.height <= SINGLE + NODES + 5, trace.api["name"].value_counts()
    pid = load(tmp_path / "run" / "graph.script.json")["pid"]
    assert set(launches["thread_id"].to_list()) == {1 << 48 | pid << 24 | pid}, (
        launches["thread_id"].unique(),
        pid,
    )
    assert (launches["return_code"] == 0).all()
    overlapping = trace.api.sort("start_ns").filter(
        pl.col("start_ns") < pl.col("end_ns").shift(1).over("thread_id")
    )
    assert overlapping.is_empty(), overlapping.select("name", "start_ns", "end_ns")


def test_the_device(tmp_path):
    needs("cupy")
    trace = recorded(tmp_path, WORK)
    assert trace.devices.height == len(DRIVER.gpus)
    name, sm_count, memory, capability = trace.devices.select(pl.exclude("device_id")).row(0)
    assert name == DRIVER.gpus[0]
    assert None not in (sm_count, memory, capability), trace.devices
    assert [w for w in trace.warnings if w.code.startswith("device")] == []


def test_copies_and_waits_for_events(tmp_path):
    needs("cupy")
    program = WORK + (
        "import numpy\n"
        "a, b = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)\n"
        "event = cupy.cuda.Event()\n"
        "with a:\n    kernel((1,), (32,), (x,)); event.record(a)\n"
        "b.wait_event(event)\n"
        "with b:\n    kernel((1,), (32,), (x,))\n"
        "b.synchronize()\n"
        "cupy.asarray(numpy.zeros(1000, numpy.float32))\n"
        "x.get()\n"
    )
    trace = recorded(tmp_path, program)
    names = trace.ops["name"].cast(pl.String).to_list()
    assert {"copy HtoD", "copy DtoH"} <= set(names), names
    up = trace.ops.filter(pl.col("bytes") == 4000)
    # CuPy copies through memory of its own, which is pinned.
    assert up["source_memory"].to_list() == ["pinned"], trace.ops.filter(kind="memcpy")
    waits = trace.event_waits
    assert waits.height == 1, (waits, trace.api["name"].value_counts())
    last = probes(trace).tail(2)
    assert waits["stream_id"].to_list() == [last["stream_id"][1]], (waits, last)
    assert waits["awaited_stream_id"].to_list() == [last["stream_id"][0]], (waits, last)


def test_ranges_of_the_program(tmp_path):
    needs("cupy", "nvtx")
    program = WORK + (
        "import gaptrace, nvtx\n"
        "with gaptrace.range('outer', payload=3), nvtx.annotate('mine', domain='user'):\n"
        "    with nvtx.annotate('plain'):\n"
        "        kernel((1,), (32,), (x,))\n"
        "@gaptrace.step\n"
        "def once():\n    kernel((1,), (32,), (x,))\n"
        "once(); once()\n"
        "nvtx.mark('here', domain='user')\n"
    )
    trace = recorded(tmp_path, program)
    notes = load(tmp_path / "run" / "graph.script.json")
    chosen = trace.nvtx.select("domain", "name", "kind", "payload", "is_closed")
    own = chosen.filter(pl.col("name").is_in(["outer", "mine", "plain", "step", "here"]))
    assert own.rows() == [
        ("gaptrace", "outer", "push_pop", 3.0, True),
        ("user", "mine", "push_pop", None, True),
        (None, "plain", "push_pop", None, True),
        ("gaptrace", "step", "push_pop", 0.0, True),
        ("gaptrace", "step", "push_pop", 1.0, True),
        ("user", "here", "mark", None, True),
    ], (notes["nvtx"], trace.nvtx)
    (loop_ns, *_) = trace.nvtx.filter(domain="gaptrace", name="host pace", kind="mark")["payload"]
    assert 1_000 < loop_ns < 100_000, trace.nvtx
    assert notes["nvtx"]["state"].startswith("recorded"), notes
    launched = set(trace.api.filter(kind="launch")["thread_id"].to_list())
    assert set(trace.nvtx["thread_id"].to_list()) == launched, (trace.nvtx, launched)
    (inside,) = trace.nvtx.filter(name="plain").select("start_ns", "end_ns").rows()
    calls = trace.api.filter(kind="launch").filter(pl.col("start_ns").is_between(*inside))
    assert calls.height == 1, (inside, trace.api.tail(20))


def test_ranges_of_torch(tmp_path):
    needs("cupy", "torch")
    program = WORK + (
        "import torch\n"
        "torch.cuda.nvtx.range_push('pushed')\n"
        "torch.ones(4, device='cuda') + 1\n"
        "torch.cuda.nvtx.range_pop()\n"
        "torch.cuda.synchronize()\n"
    )
    trace = recorded(tmp_path, program)
    assert "pushed" in trace.nvtx["name"].to_list(), trace.nvtx
    names = trace.ops["name"].cast(pl.String).to_list()
    assert any("elementwise_kernel" in name and "<" not in name for name in names), names


def test_graphs_of_cupy_are_named(tmp_path):
    needs("cupy", "nvtx")
    recorded(tmp_path, WORK)
    seen = counts(load(tmp_path / "run" / "analysis.json"))
    assert (seen.get("capture"), seen.get("instantiate"), seen.get("replay")) == (1, 1, REPLAYS), (
        seen,
        load(tmp_path / "run" / "graph.script.json"),
    )


# The demo


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> Path:
    needs("cupy")
    folder = tmp_path_factory.mktemp("demo") / "run"
    arguments = [str(DEMO), "--steps", str(STEPS), "--chunks", "25", "10"]
    found = profile(folder, "--granularity", "both", *arguments)
    assert found.returncode == 0, said(found)
    assert found.stdout.count("all arms computed the same, bit for bit\n") == 2, said(found)
    return folder


@pytest.mark.parametrize("granularity", ["graph", "node"])
def test_the_demo(demo, granularity):
    analysis = load(demo / granularity / "analysis.json")
    assert analysis["trace"]["granularity"] == granularity
    (device,) = analysis["devices"]
    assert sum(device["causes"].values()) == device["idle_ns"]
    sizes = [size for chunks in CHUNKS.values() for size in chunks]
    assert sorted(g["nodes"] or 0 for g in analysis["graphs"]) == sorted(sizes), analysis["graphs"]
    assert {graph["executions"] for graph in analysis["graphs"]} == {STEPS + 1}
    seen = counts(analysis)
    assert seen.get("per_launch/step") == STEPS, seen
    for chunk, chunks in CHUNKS.items():
        assert seen.get(f"graph:{chunk}/step/replay") == STEPS * len(chunks), seen
    first_line = (demo / granularity / "report.txt").read_text().splitlines()[1]
    assert "CUPTI 13." in first_line


# How programs end

BUSY = (
    WORK
    + """
import os, time
if sys.argv[1] == "raise":
    raise ValueError("on purpose")
if sys.argv[1] == "exit":
    sys.exit(7)
if sys.argv[1] == "thread":
    import threading
    def later():
        time.sleep(0.5)
        cupy.cuda.Device(0).use()
        with stream:
            kernel((1,), (32,), (x,))
            stream.synchronize()
    threading.Thread(target=later).start()
if sys.argv[1] == "fork":
    pid = os.fork()
    if not pid:
        sys.exit(3)
    print("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    with stream:
        kernel((1,), (32,), (x,))
        stream.synchronize()
if sys.argv[1] == "crash":
    time.sleep(2.5)
    os.kill(os.getpid(), 11)
if sys.argv[1] == "wait":
    print("ready", flush=True)
    [time.sleep(0.1) for _ in range(600)]
"""
)


@pytest.mark.parametrize(
    ("ending", "status", "kernels"),
    [
        ("raise", 1, SINGLE),
        ("exit", 7, SINGLE),
        ("thread", 0, SINGLE + 1),
        ("fork", 0, SINGLE + 1),
    ],
)
def test_nothing_is_lost(tmp_path, ending, status, kernels):
    needs("cupy")
    script = tmp_path / "work.py"
    script.write_text(BUSY)
    found = profile(tmp_path / "run", str(script), ending)
    assert found.returncode == status, said(found)
    trace = read(tmp_path / "run" / "graph.sqlite")
    assert probes(trace).height == kernels, said(found)
    assert trace.ops.filter(kind="graph").height == REPLAYS
    no_losses(trace)
    if ending == "fork":
        assert "child 3\n" in found.stdout


def test_a_crash_keeps_what_was_flushed(tmp_path):
    needs("cupy")
    script = tmp_path / "work.py"
    script.write_text(BUSY)
    found = profile(tmp_path / "run", str(script), "crash")
    assert found.returncode == 139, said(found)
    trace = read(tmp_path / "run" / "graph.sqlite")
    assert probes(trace).height == SINGLE, said(found)
    assert any("breaks off" in warning.message for warning in trace.warnings), trace.warnings


def test_ctrl_c(tmp_path):
    needs("cupy")
    script = tmp_path / "work.py"
    script.write_text(BUSY)
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "gaptrace", "profile", "--recorder", "cupti"),
            *("-o", tmp_path / "run", script, "wait"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    lines = [process.stdout.readline(), process.stdout.readline()]
    assert lines == [COMPUTED, "ready\n"], (lines, process.stderr and process.stderr.read())
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, (out, err)
    trace = read(tmp_path / "run" / "graph.sqlite")
    assert probes(trace).height == SINGLE, (out, err)
    no_losses(trace)


# More than one buffer


def test_a_million_records(tmp_path):
    needs("cupy")
    many = 300_000
    program = WORK + f"with stream:\n    for _ in range({many}): kernel((1,), (32,), (x,))\n"
    trace = recorded(tmp_path, program + "    stream.synchronize()\n")
    no_losses(trace)
    assert probes(trace).height == SINGLE + many
    assert probes(trace)["call_id"].null_count() == 0


# Beside Nsight Systems


def launch_ns(analysis_or_trace: Trace) -> tuple[float, float]:
    """Median duration of single launches and of graph launches."""
    api = analysis_or_trace.api.filter(pl.col("capture_id").is_null())
    durations = api.with_columns(ns=pl.col("end_ns") - pl.col("start_ns"))
    single, graph = (durations.filter(kind=k)["ns"].median() for k in ("launch", "graph_launch"))
    return single, graph


@pytest.mark.nsys
@pytest.mark.parametrize("granularity", ["graph", "node"])
def test_the_same_program_under_both_recorders(tmp_path, granularity, capsys):
    needs("cupy")
    arguments = [str(DEMO), "--steps", "20", "--chunks", "25", "10"]
    traces: dict[str, list[Trace]] = {"cupti": [], "nsys": []}
    for turn in range(2):  # interleaved, so that a drift of the machine falls on both
        for recorder, found in traces.items():
            folder = tmp_path / f"{recorder}-{turn}"
            ran = profile(folder, "--granularity", granularity, *arguments, recorder=recorder)
            assert ran.returncode == 0, said(ran)
            found.append(read(folder / f"{granularity}.sqlite"))
    figures = {}
    for recorder, found in traces.items():
        busy = [load(tmp_path / f"{recorder}-{turn}" / "analysis.json")["devices"][0]["busy_ns"]
                for turn in range(2)]  # fmt: skip
        launches = [launch_ns(trace) for trace in found]
        figures[recorder] = {
            "ops": [dict(trace.ops["kind"].value_counts().rows()) for trace in found],
            "busy_ms": [round(ns / 1e6, 3) for ns in busy],
            "single_launch_us": [round(single / 1e3, 2) for single, _ in launches],
            "graph_launch_us": [round(graph / 1e3, 2) for _, graph in launches],
        }
    with capsys.disabled():
        print(f"\n{granularity} granularity, {DRIVER.gpus[0]}: {json.dumps(figures, indent=1)}")  # noqa: T201
    assert figures["cupti"]["ops"] == figures["nsys"]["ops"], figures
    ours, theirs = (statistics.mean(figures[r]["busy_ms"]) for r in ("cupti", "nsys"))
    # where graphs are spans the recorders stamp them differently: up to 0.4 us each, of 250 here
    assert abs(ours - theirs) <= 0.02 * theirs, figures
