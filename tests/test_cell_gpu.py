"""On a GPU: cells of a notebook that are recorded with CUPTI, in a process that used CUDA before.

Needs IPython, and neither Jupyter nor a kernel.
"""

import json
from importlib.util import find_spec
from pathlib import Path

import polars as pl
import pytest
from cells import run_cells, run_folders

from gaptrace.analysis import analyze
from gaptrace.errors import RecorderError
from gaptrace.read import read
from gaptrace.record.cupti import find_cupti
from gaptrace.record.machine import package_versions, probe_driver
from gaptrace.trace import Trace

DRIVER = probe_driver()
OLDER = "made before the recording began"
NODES, REPLAYS = 10, 7

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not DRIVER.gpus, reason=f"no GPU: {DRIVER.problem or 'CUDA sees none'}"),
]


@pytest.fixture(autouse=True, scope="module")
def _what_it_needs() -> None:
    for module in ("IPython", "cupy"):
        if find_spec(module) is None:
            pytest.skip(f"needs {module}")
    try:
        find_cupti(DRIVER)
    except RecorderError as error:
        pytest.skip(f"needs CUPTI: {error}")


LOAD = "%load_ext gaptrace"
#: CUDA is in use, the kernel is loaded, and has run, before any cell is recorded.
PREPARE = """
import cupy
import gaptrace

code = 'extern "C" __global__ void gaptrace_probe(float* x) { x[threadIdx.x] += 1; }'
kernel = cupy.RawKernel(code, "gaptrace_probe")
x = cupy.zeros(32, cupy.float32)
stream = cupy.cuda.Stream(non_blocking=True)

def launch(times):
    with stream:
        for _ in range(times):
            kernel((1,), (32,), (x,))

def capture():
    with stream:
        stream.begin_capture()
        launch(10)
        return stream.end_capture()

launch(3)
stream.synchronize()
"""


def traces(folder: Path, *cells: str, errors: tuple[str | None, ...] = ()) -> dict[str, Trace]:
    """Run cells after the preparation; return the traces by `--name`, and what was printed."""
    results, said = run_cells(folder, [LOAD, PREPARE, *cells])
    found = [each["error"] for each in results]
    versions = {name: version for name, version in package_versions().items() if version}
    expected = [None, None, *(errors or (None,) * len(cells))]
    assert found == expected, f"{DRIVER}\n{versions}\n{results}\n{said}"
    names = {path.name.rsplit("-", 2)[0] for path in (folder / "gaptrace-runs").iterdir()}
    return {name: trace_of(folder, name) for name in names}


def trace_of(folder: Path, name: str) -> Trace:
    (run,) = run_folders(folder, name)
    (export,) = run.glob("*.sqlite")
    return read(export)


def probes(trace: Trace) -> pl.DataFrame:
    return trace.ops.filter(pl.col("name").cast(pl.String) == "gaptrace_probe")


def diagnostics(trace: Trace) -> list[str]:
    return [w.message for w in trace.warnings if w.code == "recorder_diagnostic"]


def test_two_cells_hold_what_each_of_them_launched(tmp_path):
    found = traces(
        tmp_path,
        "%%gaptrace --name first\nlaunch(60)",  # without a wait at the end
        "launch(5)\nstream.synchronize()",
        "%%gaptrace --name second\nlaunch(36)\nstream.synchronize()",
    )
    for name, count in (("first", 60), ("second", 36)):
        trace = found[name]
        ops = probes(trace)
        assert ops.height == count, (name, trace.ops["name"].value_counts(), trace.warnings)
        assert ops["call_id"].null_count() == 0, (name, ops)
        assert diagnostics(trace) == [], (name, trace.warnings)
        assert trace.ops["start_ns"].min() >= 0
        assert trace.ops["end_ns"].max() < trace.meta.duration_ns
        calls = trace.api.filter(pl.col("name").cast(pl.String) == "cuLaunchKernel")
        assert calls.height == count, (name, trace.api["name"].value_counts())
        (device,) = analyze(trace).devices.to_dicts()
        assert device["op_count"] == count
        assert device["name"] == DRIVER.gpus[0]


def test_work_of_the_cell_before_is_not_in_it(tmp_path):
    found = traces(tmp_path, "launch(3000)", "%%gaptrace --name late\nlaunch(24)")
    ops = probes(found["late"])
    assert ops.height == 24, found["late"].ops["name"].value_counts()
    assert ops["call_id"].null_count() == 0


def test_a_cell_that_raises_keeps_what_it_recorded(tmp_path):
    results, said = run_cells(
        tmp_path,
        [
            *(LOAD, PREPARE),
            "%%gaptrace trace --name failed\nlaunch(24)\nraise ValueError('on purpose')",
            "int(trace.analysis.devices['op_count'][0])",
            "%%gaptrace --name after\nlaunch(12)",
        ],
    )
    assert [each["error"] for each in results] == [None, None, "ValueError", None, None], said
    assert results[2]["message"] == "on purpose"
    assert results[3]["value"] == "24", said
    assert probes(trace_of(tmp_path, "after")).height == 12


def test_ranges_of_the_cell_and_of_functions_from_before(tmp_path):
    work = (
        "with gaptrace.range('inside', payload=3):\n"
        "    launch(12)\n"
        "    with nvtx.annotate('plain'):\n"
        "        launch(1)\n"
        "for _ in range(4):\n    once()\n"
    )
    found = traces(
        tmp_path,
        "import nvtx\n@gaptrace.step\ndef once():\n    launch(6)\n",
        f"%%gaptrace --name first\n{work}",
        "once()",  # between them: in neither
        f"%%gaptrace --name second\n{work}",
    )
    for name, payloads in (("first", [0, 1, 2, 3]), ("second", [5, 6, 7, 8])):
        trace = found[name]
        own = trace.nvtx.filter(kind="push_pop").select("domain", "name", "payload", "is_closed")
        assert own.rows() == [
            ("gaptrace", "inside", 3.0, True),
            (None, "plain", None, True),
            *(("gaptrace", "step", float(payload), True) for payload in payloads),
        ], (name, trace.nvtx, trace.warnings)
        seen = dict(analyze(trace).ranges.select("path", "count").rows())
        assert seen["step"] == 4, seen
        assert diagnostics(trace) == [], trace.warnings


def test_graphs_from_before_and_of_the_cell(tmp_path):
    replays = f"with stream:\n    for _ in range({REPLAYS}):\n        graph.launch(stream)\n"
    found = traces(
        tmp_path,
        "graph = capture()",
        f"%%gaptrace --name old\n{replays}",
        f"%%gaptrace --name new\ngraph = capture()\n{replays}",
    )
    old, new = found["old"], found["new"]
    for trace in (old, new):
        assert trace.meta.granularity == "node"
        assert probes(trace).height == NODES * REPLAYS, trace.ops["kind"].value_counts()
        assert probes(trace)["graph_node_id"].n_unique() == NODES
        assert analyze(trace).graphs["nodes"].to_list() == [NODES], trace.graph_events
    assert diagnostics(new) == [], new.warnings
    (message,) = diagnostics(old)
    assert message.startswith("1 CUDA graphs that ran") and OLDER in message


def test_a_cell_without_cuda_work_says_so(tmp_path):
    results, said = run_cells(
        tmp_path, [LOAD, PREPARE, "%%gaptrace\ny = 1", "y", "%%gaptrace --name next\nlaunch(12)"]
    )
    assert results[2]["error"] == "UsageError", said
    assert results[2]["message"].startswith("the cell left no CUDA work to analyse: "), said
    assert results[3]["value"] == "1"
    assert probes(trace_of(tmp_path, "next")).height == 12


def test_cuda_that_is_first_used_in_the_cell(tmp_path):
    results, said = run_cells(tmp_path, [LOAD, f"%%gaptrace --name first\n{PREPARE}\nlaunch(20)"])
    assert [each["error"] for each in results] == [None, None], said
    assert probes(trace_of(tmp_path, "first")).height == 23, said


def test_work_of_torch(tmp_path):
    if find_spec("torch") is None:
        pytest.skip("needs torch")
    found = traces(
        tmp_path,
        "import torch\na = torch.ones(64, device='cuda')\ntorch.cuda.synchronize()",
        "%%gaptrace --name torch\nfor _ in range(48):\n    a = a + 1\n",
    )
    names = found["torch"].ops["name"].cast(pl.String).to_list()
    assert sum("elementwise" in name for name in names) == 48, names


def test_the_live_notebook(tmp_path):
    for module in ("plotly", "cupti"):
        if find_spec(module) is None:
            pytest.skip(f"needs {module}")
    book = Path(__file__).parent.parent / "notebooks" / "5_live.ipynb"
    cells = [
        "".join(cell["source"])
        for cell in json.loads(book.read_text())["cells"]
        if cell["cell_type"] == "code"
    ]
    # Figures are made, and not shown: that takes a front end.
    quiet = "import plotly.io\nplotly.io.renderers.render_on_display = False"
    results, said = run_cells(tmp_path, [quiet, *cells])
    assert [each["error"] for each in results] == [None] * (len(cells) + 1), said
    assert "Here we go." in said
    assert "under a recorder" not in said
    singly, graphed = (read(run / "node.sqlite") for run in run_folders(tmp_path, "cell"))
    for trace in (singly, graphed):
        assert trace.ops.filter(pl.col("kind") == "kernel").height == 75 * 20, said
    assert singly.nvtx.filter(name="step").height == 20, singly.warnings
    assert analyze(graphed).graphs["nodes"].to_list() == [75]


def test_what_a_recording_leaves_behind_in_the_process(tmp_path, capsys):
    """Prints: whether steps can be timed in a process that was recorded is a judgement."""
    measured = (
        "m = gaptrace.measure(lambda: launch_here(300), state=x, arms=('per_launch', 'graph'))\n"
        "{t.arm.name: round(t.step_ns / 1000, 1) for t in m.timings}, m.is_recorded"
    )
    results, said = run_cells(
        tmp_path,
        [
            *(LOAD, PREPARE),
            "def launch_here(times):\n    for _ in range(times): kernel((1,), (32,), (x,))",
            *(measured, measured, "%%gaptrace\nlaunch(60)", measured, measured),
        ],
    )
    assert [each["error"] for each in results] == [None] * 8, said
    with capsys.disabled():
        values = [results[at]["value"] for at in (3, 4, 6, 7)]
        print(f"\nus a step, twice before and twice after a recorded cell: {values}")  # noqa: T201
    assert [results[at]["value"].endswith("True)") for at in (3, 4, 6, 7)] == [False] * 2 + [
        True
    ] * 2
