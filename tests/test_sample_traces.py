"""Making sample traces: what stays, what must not, and the samples in the repository."""

import importlib.util
import json
from pathlib import Path

import pytest
from contents import rows_of
from exports import (
    api,
    export,
    global_id,
    graph_exec_made,
    graph_made,
    graph_trace,
    kernel,
    named,
    node_made,
    profiler_overhead,
    push,
)
from real_traces import SAMPLES

FOLDER = Path(__file__).parent.parent / "sample_traces"

spec = importlib.util.spec_from_file_location("make", FOLDER / "make.py")
assert spec and spec.loader
make = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make)


def sample(source: Path, *window: str) -> Path:
    """Make source into `sample.sqlite` beside it."""
    fixed = ["--about", "A test.", "--command", "nsys profile python demo.py"]
    make.main([str(source), "sample", *window, *fixed, "--out", str(source.parent)])
    return source.with_name("sample.sqlite")


def a_recording(path: Path) -> Path:
    return export(
        path,
        api=[
            api("cudaLaunchKernel_v7000", 10, 20, correlation=1),
            api("cudaLaunchKernel_v7000", 30, 40, correlation=2),
            api("cudaMalloc_v3020", 150, 160, correlation=3),
            api("cuInit", 1, 5, correlation=4),
            api("cudaLaunchKernel_v7000", 12, 22, correlation=2, pid=200),
        ],
        kernels=[
            kernel(50, 60, correlation=1, name="before"),
            kernel(120, 140, correlation=2, name="inside"),
            kernel(190, 210, correlation=5, name="across"),
            kernel(300, 310, correlation=6, name="after"),
        ],
        profiler_overhead=[profiler_overhead("flush", 90, 110), profiler_overhead("old", 1, 2)],
        nvtx=[
            push("main", 5, 400, domain="mine"),
            push("step", 100, 200, domain="mine"),
            push("warm", 40, 70, domain="yours"),
        ],
        processes=[{"globalPid": global_id(1), "pid": 1, "name": "/home/alice/bin/python"}],
        thread_names=[{"nameId": "alice-worker", "globalTid": global_id(100, 100)}],
        environment=[
            {"globalVid": 1, "devStateName": "alice-laptop", "name": name, "value": value}
            for name, value in [("CpuCores", "16"), ("Hostname", "alice-laptop")]
        ],
        capture=[named("ENV", "USER=alice"), named("PROCESS_0:CUDA_SKIP_SOME_API_CALLS", "true")],
        meta=[named("EXPORT_PARAM_INPUT_FILE", "/home/alice/run.nsys-rep")],
        session_start=[{"utcEpochNs": 1}],
    )


def test_work_of_the_window_keeps_its_times_and_its_calls(tmp_path):
    made = sample(a_recording(tmp_path / "full.sqlite"), "--from", "100", "--to", "200")
    named_rows = "SELECT start, end, value FROM {} JOIN StringIds ON id = {} ORDER BY start"
    kernels = rows_of(made, named_rows.format("CUPTI_ACTIVITY_KIND_KERNEL", "shortName"))
    assert kernels == [(120, 140, "inside"), (190, 210, "across")]
    calls = rows_of(made, named_rows.format("CUPTI_ACTIVITY_KIND_RUNTIME", "nameId"))
    # The call of another process with the same correlation id is not the kernel's.
    assert calls == [(30, 40, "cudaLaunchKernel_v7000"), (150, 160, "cudaMalloc_v3020")]
    assert rows_of(made, named_rows.format("PROFILER_OVERHEAD", "nameId")) == [(90, 110, "flush")]


def test_ranges_that_stick_out_are_left_out_and_domains_keep_their_names(tmp_path):
    made = sample(a_recording(tmp_path / "full.sqlite"), "--range", "step")
    rows = rows_of(made, "SELECT eventType, text, start, end FROM NVTX_EVENTS ORDER BY text")
    assert rows == [(75, "mine", 0, None), (59, "step", 100, 200), (75, "yours", 0, None)]


def test_nothing_of_the_person_or_the_machine_is_left(tmp_path):
    made = sample(a_recording(tmp_path / "full.sqlite"), "--from", "100", "--to", "200")
    assert b"alice" not in made.read_bytes()
    assert b"alice" not in made.with_suffix(".json").read_bytes()
    tables = {name for (name,) in rows_of(made, "SELECT name FROM sqlite_master")}
    assert not tables & {"PROCESSES", "ThreadNames", "TARGET_INFO_SESSION_START_TIME"}
    assert rows_of(made, "SELECT name, value FROM TARGET_INFO_SYSTEM_ENV") == [("CpuCores", "16")]
    assert rows_of(made, "SELECT name, value FROM META_DATA_CAPTURE") == [
        ("PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE", "Graph"),
        ("PROCESS_0:CUDA_SKIP_SOME_API_CALLS", "true"),
    ]
    meta = dict(rows_of(made, "SELECT name, value FROM META_DATA_EXPORT"))
    assert "EXPORT_PARAM_INPUT_FILE" not in meta
    assert meta["EXPORT_SCHEMA_VERSION"] == "3.20.3"
    assert meta["DERIVED_WINDOW_NS"] == "100-200"


def test_creation_is_kept_of_the_graphs_that_ran(tmp_path):
    graphs = export(
        tmp_path / "graphs.sqlite",
        graph_events=[
            graph_made(1, 1),
            graph_exec_made(2, 1, graph_exec=2),
            graph_made(3, 4),
            graph_exec_made(4, 4, graph_exec=5),
        ],
        graph_traces=[graph_trace(100, 110, graph=4, graph_exec=5)],
    )
    made = sample(graphs, "--from", "50", "--to", "200")
    assert rows_of(made, "SELECT graphId, graphExecId FROM CUDA_GRAPH_EVENTS") == [
        (4, None),
        (4, 5),
    ]


@pytest.mark.parametrize("schema", ["3.7.2", "3.20.3"])
def test_creation_is_kept_of_the_nodes_that_ran_and_of_their_originals(tmp_path, schema):
    captured, ran, other = 1 << 32, 2 << 32, 7 << 32
    nodes = export(
        tmp_path / "nodes.sqlite",
        schema,
        node_events=[
            node_made(1, captured),
            node_made(2, ran, original=captured),
            node_made(2, ran + 1),
            node_made(3, other),
        ],
        kernels=[kernel(100, 110, node=ran)],
    )
    made = sample(nodes, "--from", "50", "--to", "200")
    table = "CUDA_GRAPH_EVENTS" if schema == "3.7.2" else "CUDA_GRAPH_NODE_EVENTS"
    kept = rows_of(made, f"SELECT graphNodeId FROM {table}")
    assert kept == [(captured,), (ran,), (ran + 1,)]


def test_the_provenance_says_what_is_there_and_what_is_not(tmp_path):
    made = sample(a_recording(tmp_path / "full.sqlite"), "--from", "100", "--to", "200")
    origin = json.loads(made.with_suffix(".json").read_text())
    assert origin["gpu"] == ["NVIDIA H200"]
    assert origin["granularity"] == "graph"
    assert origin["window_ns"] == [100, 200]
    assert origin["command"] == "nsys profile python demo.py"
    assert origin["rows_kept"]["CUPTI_ACTIVITY_KIND_KERNEL"] == 2
    assert origin["rows_dropped"]["CUPTI_ACTIVITY_KIND_KERNEL"] == 2
    gone = ["PROCESSES", "TARGET_INFO_SESSION_START_TIME", "ThreadNames"]
    assert origin["tables_dropped"] == gone


def test_the_source_is_not_changed_and_nothing_else_appears(tmp_path):
    full = a_recording(tmp_path / "full.sqlite")
    before = full.read_bytes()
    sample(full, "--from", "100", "--to", "200")
    assert full.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {
        "full.sqlite",
        "sample.sqlite",
        "sample.json",
    }


def test_it_does_not_write_over_its_source(tmp_path):
    full = a_recording(tmp_path / "sample.sqlite")
    before = full.read_bytes()
    with pytest.raises(SystemExit, match="is the source itself"):
        sample(full, "--from", "100", "--to", "200")
    assert full.read_bytes() == before


def test_a_window_without_work_makes_no_file(tmp_path):
    full = a_recording(tmp_path / "full.sqlite")
    with pytest.raises(SystemExit, match="no device work between 500 and 600 ns"):
        sample(full, "--from", "500", "--to", "600")
    assert [path.name for path in tmp_path.iterdir()] == ["full.sqlite"]


def test_an_unknown_range_names_those_that_exist(tmp_path):
    full = a_recording(tmp_path / "full.sqlite")
    with pytest.raises(
        SystemExit, match="no NVTX range is named stp; there are: main, warm, main/step"
    ):
        sample(full, "--range", "stp")


@pytest.mark.parametrize(
    "text", ["/home/alice/run.py", "alice@host", "10.0.0.7", "USER=alice", "on alice-laptop.lan"]
)
def test_a_name_that_looks_personal_stops_it(tmp_path, text):
    full = export(tmp_path / "full.sqlite", kernels=[kernel(100, 110, name=f"load {text}")])
    with pytest.raises(SystemExit, match="look personal, nothing written"):
        sample(full, "--from", "50", "--to", "200")
    assert [path.name for path in tmp_path.iterdir()] == ["full.sqlite"]


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_bundled_samples_are_small_impersonal_and_explained(path):
    assert path.stat().st_size < 1_500_000
    origin = path.with_suffix(".json").read_text()
    make.check(path, origin)
    assert json.loads(origin)["licence"] == "MIT"
    assert f"| {path.name} |" in (FOLDER / "README.md").read_text()
    assert rows_of(path, "PRAGMA freelist_count") == [(0,)]


def test_there_are_bundled_samples():
    assert len(SAMPLES) >= 2
