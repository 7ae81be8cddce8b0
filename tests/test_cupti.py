"""The CUPTI recorder without a GPU: buffers, the run, the choice of recorder, the messages."""

import ctypes
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import spools
from hypothesis import given
from hypothesis import strategies as st
from recorders import RUNNER, install_fake_nsys

from gaptrace.cli import main
from gaptrace.errors import RecorderError
from gaptrace.live.cupti_buffers import BufferPool, Families, run_length
from gaptrace.record.cupti import find_cupti, mismatch
from gaptrace.record.cupti_spool import read_spool
from gaptrace.record.machine import Driver
from gaptrace.spool import frame, frames

HERE = Path(__file__).parent
H200 = Driver("580.159.03", "13.0", ("NVIDIA H200",), None)
OLD = Driver("570.1", "12.8", ("NVIDIA H200",), None)
NO_DRIVER = Driver(None, None, (), "libcuda.so.1, the NVIDIA driver's library, is not installed")


# The spool


@given(st.lists(st.tuples(st.sampled_from([b"H", b"R", b"T"]), st.binary(max_size=9))), st.data())
def test_frames_come_back_whole_but_for_the_last(given_frames, data):
    whole = b"".join(frame(tag, content) for tag, content in given_frames)
    length = data.draw(st.integers(0, len(whole)))
    found = [(tag, bytes(part), ok) for tag, part, ok in frames(memoryview(whole[:length]))]
    complete = [(tag, content) for tag, content, is_whole in found if is_whole]
    assert complete == given_frames[: len(complete)]
    assert sum(not is_whole for _, _, is_whole in found) <= 1
    if length == len(whole):
        assert complete == given_frames


# Runs of records in a buffer


def slow_run_length(words: list[int], step: int, family: int, families: list[int]) -> int:
    count = 1
    while (count + 1) * step <= len(words):
        kind = words[count * step]
        if kind >= len(families) or families[kind] != family:
            break
        count += 1
    return count


@given(st.data())
def test_run_length_against_a_walk(data):
    families = [0, 1, 1, 3]
    step = data.draw(st.integers(1, 3))
    kinds = data.draw(st.lists(st.sampled_from([1, 2, 1, 2, 3, 2**31]), min_size=1, max_size=400))
    if data.draw(st.booleans()):
        kinds = [1] * len(kinds) + kinds
    else:
        kinds[0] = 1
    words = [word for kind in kinds for word in [kind, *[9] * (step - 1)]]
    found = run_length(np.array(words, np.uint32), step, 1, np.array(families))
    assert found == slow_run_length(words, step, 1, families)


class Walker:
    """libcupti, as far as it walks a buffer: records of these sizes by kind."""

    def __init__(self, sizes: dict[int, int]) -> None:
        self.sizes = sizes
        self.asked = 0

    def cuptiActivityGetNextRecord(self, buffer, valid, record):
        self.asked += 1
        at = record._obj.value
        size = self.sizes.get(ctypes.c_uint32.from_address(at).value)
        if size is None:
            return 21
        if at + size >= buffer + valid:
            return 12
        record._obj.value = at + size
        return 0

    def cuptiActivityGetNumDroppedRecords(self, context, stream, dropped):
        return 0


def spooled(tmp_path, walker: Walker, *buffers: bytes):
    """Hand over buffers as CUPTI does and return the spool that they make."""
    written = [spools.header()]
    pool = BufferPool(walker, Families(spools.layouts()))
    pool.pass_to(written.append, lambda: None)
    for content in buffers:
        address, size, most = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
        pool._requested(ctypes.pointer(address), ctypes.pointer(size), ctypes.pointer(most))
        assert size.value == 4 << 20
        ctypes.memmove(address.value, content, len(content))
        pool._completed(None, 0, address.value, size.value, len(content))
    return read_spool(spools.write_spool(tmp_path / "x.cupti", *written, spools.END))


SIZES = {10: 216, 5: 40, 4: 40, 38: 56, 1: 96}


def kernel(start: int, name: int = 0, longer: int = 0) -> bytes:
    return spools.record("kernel", start=start, end=start + 1, name=name, longer=longer)


def test_a_buffer_of_mixed_records(tmp_path):
    name = ctypes.create_string_buffer(b"scale")
    content = [
        kernel(10, ctypes.addressof(name)),
        spools.record("api", start=1, end=2, correlation_id=1),
        spools.record("api", kind=4, start=3, end=4, correlation_id=2),
        kernel(20, ctypes.addressof(name)),
        kernel(30),
        spools.record("synchronization", start=5, end=6),
    ]
    spool = spooled(tmp_path, Walker(SIZES), b"".join(content))
    assert (spool.columns["kernel"]["start"] - spools.BEGIN).tolist() == [10, 20, 30]
    assert spool.columns["kernel"]["name"].tolist() == [0, 0, -1]
    assert spool.texts == ["scale"]
    assert spool.columns["api"]["kind"].tolist() == [5, 4]
    assert spool.columns["synchronization"]["end"].tolist() == [6 + spools.BEGIN]
    assert (spool.unread_bytes, spool.is_cut) == (0, False)


def test_lengths_are_learned_from_the_library(tmp_path):
    longer = [kernel(10, longer=24), kernel(20, longer=24)]
    walker = Walker(SIZES | {10: 240})
    spool = spooled(tmp_path, walker, b"".join(longer), b"".join(longer * 1_000), longer[0])
    assert len(spool.columns["kernel"]["start"]) == 2_003
    assert walker.asked == 1


def test_a_record_alone_in_its_buffer(tmp_path):
    spool = spooled(tmp_path, Walker(SIZES), kernel(10), kernel(20))
    assert (spool.columns["kernel"]["start"] - spools.BEGIN).tolist() == [10, 20]


def test_kinds_that_nobody_asked_for_are_passed_over(tmp_path):
    other = (50).to_bytes(4, "little") + bytes(60)
    content = kernel(10) + other + other + kernel(20)
    spool = spooled(tmp_path, Walker(SIZES | {50: 64}), content)
    assert (spool.columns["kernel"]["start"] - spools.BEGIN).tolist() == [10, 20]
    assert spool.unread_bytes == 0


@pytest.mark.parametrize("kind", [0, 99, 2**31])
def test_a_record_that_cannot_be_read_ends_its_buffer(tmp_path, kind):
    content = kernel(10) + kind.to_bytes(4, "little") + bytes(60) + kernel(20)
    spool = spooled(tmp_path, Walker(SIZES), content, kernel(30))
    assert (spool.columns["kernel"]["start"] - spools.BEGIN).tolist() == [10, 30]
    assert spool.unread_bytes == 64 + 216


def test_texts_are_read_anew_for_each_buffer(tmp_path):
    name = ctypes.create_string_buffer(b"first", 16)
    written = [spools.header()]
    pool = BufferPool(Walker(SIZES), Families(spools.layouts()))
    pool.pass_to(written.append, lambda: None)
    for start in (10, 20):
        content = kernel(start, ctypes.addressof(name))
        address = pool._free[-1]
        ctypes.memmove(address, content, len(content))
        pool._completed(None, 0, address, 4 << 20, len(content))
        name.value = b"second"
    spool = read_spool(spools.write_spool(tmp_path / "x.cupti", *written))
    assert [spool.texts[number] for number in spool.columns["kernel"]["name"]] == [
        "first",
        "second",
    ]


def test_the_layouts_of_the_tests_are_those_of_cupti_python():
    cupti = pytest.importorskip("cupti.cupti", reason="needs cupti-python")
    from gaptrace.live.cupti_layouts import layouts

    plain = json.loads(json.dumps(layouts(cupti)))
    assert plain == json.loads(json.dumps(spools.layouts()))


# Versions


@pytest.mark.parametrize(
    ("version", "library", "driver", "says"),
    [
        ("13.0.1", "13.0.85", H200, None),
        ("13.0.1", None, H200, None),
        ("13.4.0", None, Driver(None, "13.5", (), None), None),
        (
            *("13.4.0", "13.0.85", H200),
            "cupti-python 13.4.0 is not for the driver's CUDA 13.0; "
            "pip install 'cupti-python~=13.0,<13.1' 'nvidia-cuda-cupti<13.1'",
        ),
        (
            *("13.0.1", "13.5.25", H200),
            "nvidia-cuda-cupti 13.5.25 is not for the driver's CUDA 13.0; "
            "pip install 'cupti-python~=13.0,<13.1' 'nvidia-cuda-cupti<13.1'",
        ),
        (
            *("13.0.1", None, OLD),
            "cupti-python 13.0.1 is not for the driver's CUDA 12.8; there is none for CUDA 12.8: "
            "update the driver to one for CUDA 13, or install Nsight Systems and use "
            "--recorder nsys",
        ),
    ],
)
def test_mismatch(version, library, driver, says):
    assert mismatch(version, library, driver) == says


def test_no_cupti_python(installed):
    installed()
    with pytest.raises(RecorderError, match="cupti-python is not installed; install it: pip inst"):
        find_cupti(H200)
    with pytest.raises(RecorderError, match=r"there is none for CUDA 12\.8: update the driver"):
        find_cupti(OLD)


def test_no_gpu(installed):
    installed(cupti_python="13.0.1")
    with pytest.raises(RecorderError, match=r"CUDA cannot start on this machine: libcuda\.so\.1"):
        find_cupti(NO_DRIVER)


# The choice


@pytest.fixture
def here(tmp_path, monkeypatch, installed) -> Path:
    """A working directory on a machine with an H200, the stand-in for CUPTI, and no nsys."""
    installed(cupti_python="13.0.1", nvidia_cuda_cupti="13.0.85")
    monkeypatch.setattr("gaptrace.record.machine.probe_driver", lambda: H200)
    monkeypatch.setattr("gaptrace.record.nsys._USUAL_PLACES", ())
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("GAPTRACE_NSYS", raising=False)
    folders = [HERE / "stand_ins", HERE, HERE.parent]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, folders)))
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


PROGRAM = """
import sys
from cupti import cupti
cupti.launch("_Z5scalePfi", 3)
print("from the program", sys.argv[1:])
"""


def write(program: str) -> str:
    Path("work.py").write_text(program)
    return "work.py"


def test_without_nsys_cupti_records(here, capfd):
    assert main(["profile", "-o", "out", write(PROGRAM), "--x"]) == 0
    out, err = capfd.readouterr()
    first, rest = out.split("\n", 1)
    assert first == "from the program ['--x']"
    assert "CUPTI 13.0 (schema 3.20.3)" in rest
    assert err == (
        "gaptrace: recording with CUPTI, cupti-python 13.0.1 into out\n"
        "gaptrace: everything is in out\n"
    )
    assert sorted(path.name for path in Path("out").iterdir()) == [
        "analysis.json",
        "commands.txt",
        "graph.script.json",
        "graph.sqlite",
        "report.html",
        "report.txt",
        "versions.json",
    ]
    analysis = json.loads(Path("out", "analysis.json").read_text())
    assert analysis["trace"]["format"] == "gaptrace-cupti"
    assert analysis["devices"][0]["op_count"] == 3
    (warning,) = analysis["warnings"]
    assert warning["message"] == ("CUPTI did not record CUDA_EVENT: CUPTI_ERROR_NOT_SUPPORTED.")
    versions = json.loads(Path("out", "versions.json").read_text())
    assert versions["cupti"] == "13.0.1"
    assert "nsys" not in versions
    assert Path("out", "commands.txt").read_text() == (
        f"GAPTRACE_CUPTI=graph:{here}/out/graph.cupti {sys.executable} {RUNNER} work.py --x\n"
    )


def test_with_nsys_nsys_records(here, tmp_path, monkeypatch, capfd):
    install_fake_nsys(tmp_path / "bin")
    sample = HERE.parent / "sample_traces" / "demo_graph.sqlite"
    monkeypatch.setenv("FAKE_NSYS_EXPORT", str(sample))
    assert main(["profile", "-o", "out", write("print('ran')")]) == 0
    assert "recording with nsys 2023.4.4.54 into out" in capfd.readouterr().err


def test_cupti_although_there_is_nsys(here, tmp_path, capfd):
    install_fake_nsys(tmp_path / "bin")
    assert main(["profile", "--recorder", "cupti", "-o", "out", write(PROGRAM)]) == 0
    assert "recording with CUPTI" in capfd.readouterr().err


def test_nsys_that_is_not_there(here, capfd):
    assert main(["profile", "--recorder", "nsys", write(PROGRAM)]) == 1
    err = capfd.readouterr().err
    assert err.startswith("gaptrace: error: no nsys (NVIDIA Nsight Systems) in PATH")
    assert "cupti" not in err
    assert not Path("gaptrace-runs").exists()


def test_neither(here, installed, capfd):
    installed()
    assert main(["profile", write(PROGRAM)]) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert "apt install nsight-systems-cli" in line
    assert line.endswith(
        "without it, no CUPTI: the package cupti-python is not installed; install it: "
        "pip install 'cupti-python~=13.0,<13.1' 'nvidia-cuda-cupti<13.1'"
    )
    assert not Path("gaptrace-runs").exists()


def test_an_nsys_that_was_named_is_not_replaced(here, monkeypatch, capfd):
    monkeypatch.setenv("GAPTRACE_NSYS", "/nowhere/nsys")
    assert main(["profile", write(PROGRAM)]) == 1
    assert "GAPTRACE_NSYS=/nowhere/nsys does not run as nsys" in capfd.readouterr().err


@pytest.mark.parametrize("options", [(), ("--recorder", "cupti")])
def test_other_commands_need_nsys(here, options, capfd):
    assert main(["profile", *options, "--", sys.executable, "-V"]) == 1
    assert "CUPTI records Python scripts and modules (-m), not other" in capfd.readouterr().err


def test_both_granularities(here, capfd):
    assert main(["profile", "--granularity", "both", "-o", "out", write(PROGRAM)]) == 0
    assert capfd.readouterr().out.count("from the program") == 2
    for granularity in ("graph", "node"):
        analysis = json.loads(Path("out", granularity, "analysis.json").read_text())
        assert analysis["trace"]["granularity"] == granularity


# How programs end


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("", 0),
        ("sys.exit(7)", 7),
        ("raise ValueError('no')", 1),
        ("import threading; threading.Thread(target=later).start()", 0),
        ("import atexit; atexit.register(later)", 0),
    ],
)
def test_nothing_is_lost(here, ending, status, capfd):
    later = "def later():\n    cupti.launch('late')\n"
    program = f"{PROGRAM}\n{later}\n{ending}\n"
    assert main(["profile", "-o", "out", write(program)]) == status
    analysis = json.loads(Path("out", "analysis.json").read_text())
    assert analysis["devices"][0]["op_count"] == (4 if "later" in ending else 3)
    assert not [w for w in analysis["warnings"] if "breaks off" in w["message"]]


def test_files_of_the_program_hold_what_the_program_wrote(here, capfd):
    program = f"""{PROGRAM}
import os
os.closerange(3, 190)
with open("results.csv", "w") as file:
    cupti.launch("while it is open", 2)
    file.write("a,b")
"""
    assert main(["profile", "-o", "out", write(program)]) == 0
    assert Path("results.csv").read_text() == "a,b"
    analysis = json.loads(Path("out", "analysis.json").read_text())
    assert analysis["devices"][0]["op_count"] == 5


def test_a_recording_that_was_left_can_be_analysed_later(here, capfd, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr("gaptrace.record.cupti_file._write", no_room)
        assert main(["profile", "-o", "out", write(PROGRAM)]) == 1
    spool = Path("out", "graph.cupti").resolve()
    assert f"make room, then gaptrace analyze {spool}" in capfd.readouterr().err
    assert main(["analyze", "out/graph.cupti"]) == 0
    assert "NVIDIA H200, driver 580.159.03" in capfd.readouterr().out
    assert main(["analyze", "out/graph.cupti"]) == 1
    assert "out/graph.sqlite is there already: name that" in capfd.readouterr().err
    # Of two granularities each has a folder in that of the run.
    Path("out", "graph").mkdir()
    spool = spool.rename(Path("out", "graph", "graph.cupti"))
    assert main(["analyze", "out/graph/graph.cupti"]) == 0
    assert "NVIDIA H200, driver 580.159.03" in capfd.readouterr().out
    assert spool.exists()


def no_room(*_, **__):
    raise sqlite3.OperationalError("database or disk is full")


def test_a_crash_keeps_what_was_flushed(here, capfd):
    program = f"{PROGRAM}\nimport os, time\ntime.sleep(2.5)\nos.kill(os.getpid(), 11)\n"
    assert main(["profile", "-o", "out", write(program)]) == 139
    assert "work.py ended with status 139" in capfd.readouterr().err
    analysis = json.loads(Path("out", "analysis.json").read_text())
    assert analysis["devices"][0]["op_count"] == 3
    assert any("The recording breaks off" in w["message"] for w in analysis["warnings"])


def test_a_child_writes_nothing(here, capfd):
    program = f"""{PROGRAM}
import os, warnings
warnings.simplefilter("ignore")  # a fork beside threads
pid = os.fork()
if not pid:
    cupti.launch("in the child", 5)
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
cupti.launch("after the child")
"""
    assert main(["profile", "-o", "out", write(program)]) == 0
    assert "\n3\n" in capfd.readouterr().out
    analysis = json.loads(Path("out", "analysis.json").read_text())
    assert analysis["devices"][0]["op_count"] == 4


def interrupts_the_group(pid):
    os.killpg(pid, signal.SIGINT)


def interrupts_gaptrace_twice(pid):
    for _ in range(2):
        os.kill(pid, signal.SIGINT)
        time.sleep(0.5)


@pytest.mark.parametrize("sender", [interrupts_the_group, interrupts_gaptrace_twice])
def test_ctrl_c(here, sender):
    driver = f"""
import sys
import gaptrace.record.cupti, gaptrace.record.machine
from gaptrace.record.machine import Driver, package_versions
packages = dict.fromkeys(package_versions()) | {{"cupti-python": "13.0.1"}}
gaptrace.record.cupti.package_versions = lambda: packages
gaptrace.record.machine.probe_driver = lambda: Driver("580", "13.0", ("NVIDIA H200",), None)
from gaptrace.cli import main
sys.exit(main(["profile", "--recorder", "cupti", "-o", "out", {write(PROGRAM + WAIT)!r}]))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", driver],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "from the program []\n"
    sender(process.pid)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert out.startswith("gaptrace 0.")
    assert "KeyboardInterrupt" in err
    analysis = json.loads(Path("out", "analysis.json").read_text())
    assert analysis["devices"][0]["op_count"] == 3
    assert not [w for w in analysis["warnings"] if "breaks off" in w["message"]]


WAIT = "sys.stdout.flush()\nimport time\n[time.sleep(0.1) for _ in range(600)]\n"


def test_cupti_that_does_not_start(here, monkeypatch, capfd):
    monkeypatch.setenv("CUPTI_STAND_IN", "refuses")
    assert main(["profile", "-o", "out", write(PROGRAM)]) == 1
    out, err = capfd.readouterr()
    assert out == ""  # the program was not run
    assert re.fullmatch(
        r"gaptrace: error: CUPTI \(cupti-python .*\) cannot start: CUPTI_ERROR_NOT_COMPATIBLE; run "
        r"gaptrace doctor, or record with --recorder nsys",
        err.splitlines()[-1],
    )


def test_lost_records_are_said(here, monkeypatch, capfd):
    monkeypatch.setenv("CUPTI_STAND_IN", "short")
    assert main(["profile", "-o", "out", write(PROGRAM)]) == 0
    assert "CUPTI had no room for 5 records, which are missing" in capfd.readouterr().out


def test_another_subscriber(here, monkeypatch, capfd):
    monkeypatch.setenv("CUPTI_STAND_IN", "busy")
    assert main(["profile", "-o", "out", write(PROGRAM)]) == 0
    assert "CUPTI did not record graphs made: cuptiSubscribe failed with 39" in (
        " ".join(capfd.readouterr().out.split())
    )


def test_the_environment_of_the_program(here, capfd):
    program = PROGRAM + (
        "import os; own = ('GAPTRACE_NOTES', 'GAPTRACE_CUPTI', 'GAPTRACE_STDIO')\n"
        "print('HAS', [k for k in os.environ if k in own], os.environ['NVTX_INJECTION64_PATH'])"
    )
    assert main(["profile", "-o", "out", write(program)]) == 0
    assert "HAS [] libcupti.so\n" in capfd.readouterr().out


def test_long_after(here):
    """The times of the trace count from the begin of the session."""
    before = time.time_ns()
    assert main(["profile", "-o", "out", write(PROGRAM)]) == 0
    first = json.loads(Path("out", "analysis.json").read_text())["devices"][0]["first_ns"]
    assert 0 < first < time.time_ns() - before
