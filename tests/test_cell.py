"""`%%gaptrace` without a GPU: what it says in a real kernel; cells with a stand-in for CUPTI."""

from pathlib import Path

import pytest
from cells import run_cells, run_folders
from kernels import outputs, printed, run_notebook

from gaptrace.live.measure import is_recorded
from gaptrace.read import read
from gaptrace.record.machine import probe_driver

HERE = Path(__file__).parent
LOAD = "%load_ext gaptrace"

# In a kernel of this machine, which has neither GPU nor cupti-python


def test_without_a_gpu_the_cell_does_not_run_and_one_line_says_why(tmp_path):
    if probe_driver().problem is None:
        pytest.skip("this machine has a GPU")
    cells = [LOAD, "%%gaptrace trace\nran = True", "'ran' in dir(), 'trace' in dir()"]
    (tmp_path / "own").mkdir()
    notebook = run_notebook(cells, tmp_path, tmp_path / "own", allow_errors=True)
    loaded, refused, after = outputs(notebook)
    assert loaded == []
    (line,) = printed(refused, "stderr").splitlines()
    assert line.startswith(
        "UsageError: the cell was not run: CUPTI cannot record, since CUDA cannot start on this "
        "machine: libcuda.so.1"
    )
    assert line.endswith("; run gaptrace doctor")
    assert after[0].data["text/plain"] == "(False, False)"
    assert not (tmp_path / "gaptrace-runs").exists()


# With the stand-in

SET_UP = """
import gaptrace.cell
import gaptrace.record.cupti
from gaptrace.record.machine import Driver

h200 = Driver("580.159.03", "13.0", ("NVIDIA H200",), None)
installed = {"cupti-python": "13.0.1", "nvidia-cuda-cupti": None}
gaptrace.cell._driver = lambda: h200
gaptrace.record.cupti.package_versions = lambda: installed
from cupti import cupti
"""


@pytest.fixture
def run(tmp_path):
    """Run cells with the stand-in for CUPTI, and the real nvtx, which it does not record."""
    (tmp_path / "cupti").symlink_to(HERE / "stand_ins" / "cupti")

    def ran(*cells, before="", **environment):
        return run_cells(tmp_path, [SET_UP + before, LOAD, *cells], **environment)

    return ran


def test_the_trace_is_the_result_and_bound_to_a_name(run, tmp_path):
    results, said = run(
        "%%gaptrace trace --name work\ncupti.launch('_Z5scalePfi', 3)\n6 * 7",
        "trace.analysis.devices['op_count'].item()",
        "_ is not trace and trace._repr_html_()[:5]",
    )
    assert [each["error"] for each in results] == [None] * 5, said
    (folder,) = run_folders(tmp_path, "work")
    assert results[2]["value"] == f"gaptrace.open('{folder}/node.sqlite')"
    assert "\n42\n" in said  # the cell's own last line is shown as well
    assert results[3]["value"] == "3"
    assert results[4]["value"] == "'<div>'"
    assert sorted(path.name for path in folder.iterdir()) == [
        *("commands.txt", "node.sqlite", "versions.json")
    ]
    assert (folder / "commands.txt").read_text() == (
        "%%gaptrace trace --name work\ncupti.launch('_Z5scalePfi', 3)\n6 * 7\n"
    )


def test_a_semicolon_keeps_the_last_line_to_itself(run):
    results, said = run("%%gaptrace\ncupti.launch('_Z5scalePfi', 3)\n6 * 7;\n")
    assert [each["error"] for each in results] == [None] * 3, said
    assert "\n42\n" not in said


def test_each_cell_has_its_own_recording(run, tmp_path):
    results, said = run(
        "%%gaptrace\ncupti.launch('_Z5scalePfi', 3)",
        "cupti.launch('between')",
        "%%gaptrace\ncupti.launch('_Z5scalePfi', 2); cupti.launch('last')",
    )
    assert [each["error"] for each in results] == [None] * 5, said
    first, second = run_folders(tmp_path, "cell")
    assert read(first / "node.sqlite").ops["name"].cast(str).to_list() == ["scale"] * 3
    trace = read(second / "node.sqlite")
    assert trace.meta.granularity == "node"
    # The stand-in records what runs between the two as well. Names are written anew.
    assert trace.ops["name"].cast(str).to_list()[-3:] == ["scale", "scale", "last"]


def test_what_a_failed_cell_did_is_kept(run):
    results, said = run(
        "def work():\n    cupti.launch('_Z5scalePfi', 3)\n    raise ValueError('on purpose')",
        "%%gaptrace trace\nbefore = 1\nwork()\nafter = 2",
        "before, 'after' in dir(), trace.analysis.devices['op_count'].item()",
        "%%gaptrace\nraise KeyError('no work')",
    )
    failed, kept, nothing = results[3:]
    assert (failed["error"], failed["message"], failed["notes"]) == ("ValueError", "on purpose", [])
    assert kept["value"] == "(1, False, 3)"
    # A traceback begins with the cell: nothing of gaptrace between the magic and it.
    shown = said[said.index("ValueError") :]
    assert shown.index("work()") < shown.index("raise ValueError")
    assert "cell.py" not in shown
    assert nothing["error"] == "KeyError"
    (note,) = nothing["notes"]
    assert note.startswith("gaptrace: the cell left no CUDA work to analyse: ")


def test_nvtx_that_was_used_before_is_said_to_be_missing(run):
    results, said = run(
        "%%gaptrace trace\ncupti.launch('_Z5scalePfi')",
        "[w.message for w in trace.analysis.warnings if 'NVTX' in w.message]",
        before="import gaptrace\nwith gaptrace.range('early'):\n    pass",
    )
    assert results[3]["value"] == (
        "['CUPTI did not record NVTX ranges: nothing takes them; if NVTX was used before %load_ext "
        "gaptrace, restart the kernel and load it first.']"
    ), said


@pytest.mark.parametrize(
    ("takes_ranges", "recordings", "expected"),
    [
        ("/usr/lib/libcupti.so.13", [], False),  # %load_ext gaptrace
        ("/usr/lib/libcupti.so.13", ["one"], True),
        ("/opt/nsys/libToolsInjection64.so", [], True),
    ],
)
def test_a_step_is_timed_without_a_recorder_until_one_was_at_work(
    monkeypatch, takes_ranges, recordings, expected
):
    monkeypatch.delenv("CUDA_INJECTION64_PATH", raising=False)
    monkeypatch.setenv("NVTX_INJECTION64_PATH", takes_ranges)
    monkeypatch.setattr("gaptrace.live.measure.recording_domain", lambda: object())
    monkeypatch.setattr("gaptrace.live.cupti._recorders", recordings)
    assert is_recorded() is expected


@pytest.mark.parametrize(
    ("cell", "error", "message"),
    [
        (
            "%%gaptrace --colour red\n1",
            "UsageError",
            "unrecognized arguments: --colour",
        ),
        ("%%gaptrace not-a-name\n1", "UsageError", "not-a-name cannot be the name of a variable"),
        ("%%gaptrace\nprint('ne' 'ver') = 1", "SyntaxError", ""),
        ("%%gaptrace\n1", "UsageError", "the cell left no CUDA work to analyse: "),
    ],
)
def test_what_cannot_be_recorded(run, cell, error, message):
    results, said = run(cell)
    assert results[2]["error"] == error, said
    assert message in results[2]["message"]
    assert "never" not in said.split("--- ")[-1].removeprefix(cell)


def test_cupti_that_refuses_refuses_again_and_leaves_the_cell_alone(run):
    results, said = run("%%gaptrace\nran = 1", "'ran' in dir()", "%%gaptrace\n1",
                        CUPTI_STAND_IN="refuses")  # fmt: skip
    for at in (2, 4):
        assert results[at]["error"] == "UsageError", said
        assert "the cell was not run: CUPTI (cupti-python" in results[at]["message"]
        assert "CUPTI_ERROR_NOT_COMPATIBLE" in results[at]["message"]
    assert results[3]["value"] == "False"
