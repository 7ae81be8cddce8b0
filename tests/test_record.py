"""Finding nsys, recording with it, and exporting once: with a stand-in, and with the real one."""

import json
import os
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest
from recorders import (
    RUNNER,
    install_fake_nsys,
    program_that_lacks_a_library,
    real_nsys,
    write_nsys,
)

from gaptrace.errors import RecorderError, TraceFormatError
from gaptrace.record import export as export_module
from gaptrace.record.export import export
from gaptrace.record.machine import probe_driver
from gaptrace.record.nsys import Nsys, find_importer, find_nsys, missing_libraries, packages_of
from gaptrace.record.recording import launcher, nsys_command, record
from gaptrace.record.run_folder import add_command, create_run_folder

SAMPLE = Path(__file__).parent.parent / "sample_traces" / "demo_graph.sqlite"


# Finding nsys


def test_the_named_one_wins_over_a_newer_one(tmp_path):
    named = write_nsys(tmp_path / "mine" / "nsys", "2022.1.1")
    write_nsys(tmp_path / "bin" / "nsys", "2026.1.1")
    environment = {"GAPTRACE_NSYS": str(named), "PATH": str(tmp_path / "bin")}
    assert find_nsys(environment, root=tmp_path) == Nsys(named, "2022.1.1")


@pytest.mark.parametrize("kind", ["missing", "not executable", "another program"])
def test_a_wrong_name_is_an_error_even_if_another_nsys_is_there(tmp_path, kind):
    named = tmp_path / "mine"
    if kind != "missing":
        named.write_text("#!/bin/sh\necho hello\n")
        named.chmod(0o755 if kind == "another program" else 0o644)
    write_nsys(tmp_path / "bin" / "nsys", "2026.1.1")
    with pytest.raises(RecorderError, match=rf"^GAPTRACE_NSYS={named} does not run as nsys; "):
        find_nsys({"GAPTRACE_NSYS": str(named), "PATH": str(tmp_path / "bin")}, root=tmp_path)


@pytest.mark.parametrize(
    "place",
    [
        "opt/nvidia/nsight-systems/2025.3.1/bin/nsys",
        "opt/nvidia/nsight-systems/2025.3.1/target-linux-x64/nsys",
        "opt/nvidia/nsight-systems-cli/2025.3.1/target-linux-x64/nsys",
        "usr/local/cuda-13.0/bin/nsys",
        "usr/lib/nsight-systems/target-linux-x64/nsys",
        "usr/lib/x86_64-linux-gnu/nsight-systems/target-linux-x64/nsys",
    ],
)
def test_the_newest_wins_wherever_it_is(tmp_path, place):
    newest = write_nsys(tmp_path / place, "2025.10.1")
    write_nsys(tmp_path / "bin" / "nsys", "2025.9.1")
    write_nsys(tmp_path / "usr/local/cuda-12.0/bin/nsys", "2022.4.2")
    found = find_nsys({"PATH": str(tmp_path / "bin")}, root=tmp_path)
    assert found == Nsys(newest, "2025.10.1")


def test_the_newest_in_path_wins_too(tmp_path):
    write_nsys(tmp_path / "usr/local/cuda-12.0/bin/nsys", "2022.4.2")
    write_nsys(tmp_path / "a" / "nsys", "2021.1")
    newest = write_nsys(tmp_path / "b" / "nsys", "2023.4.4.54")
    path = f"{tmp_path / 'a'}:{tmp_path / 'b'}:{tmp_path / 'missing'}"
    assert find_nsys({"PATH": path}, root=tmp_path) == Nsys(newest, "2023.4.4.54")


def test_a_wrapper_without_its_nsys_is_passed_over(tmp_path):
    wrapper = write_nsys(tmp_path / "usr/local/cuda-13.0/bin/nsys", "2025.3.1")
    wrapper.write_text("#!/bin/sh\necho 'no nsys of version 2025.3.1'\nexit 1\n")
    older = write_nsys(tmp_path / "bin" / "nsys", "2023.1.1")
    assert find_nsys({"PATH": str(tmp_path / "bin")}, root=tmp_path).path == older


def test_the_copy_in_nsight_compute_comes_last_unless_it_has_its_importer(tmp_path):
    host = tmp_path / "opt/nvidia/nsight-compute/2025.3.1/host"
    copy = write_nsys(host / "target-linux-x64" / "nsys", "2025.3.1")
    assert find_nsys({}, root=tmp_path).path == copy
    older = write_nsys(tmp_path / "bin" / "nsys", "2022.4.2")
    assert find_nsys({"PATH": str(tmp_path / "bin")}, root=tmp_path).path == older
    importer = host / "host-linux-x64" / "QdstrmImporter"
    importer.parent.mkdir()
    importer.touch()
    assert find_nsys({"PATH": str(tmp_path / "bin")}, root=tmp_path).path == copy


def test_a_path_that_cannot_be_looked_at_is_passed_over(tmp_path):
    path = write_nsys(tmp_path / "nsys", "2025.3.1")
    places = f"/{'x' * 300}:{tmp_path}"
    assert find_nsys({"PATH": places}, root=tmp_path).path == path


def test_the_driver_is_heard_through_what_else_python_prints(tmp_path, monkeypatch):
    expected = probe_driver()
    (tmp_path / "sitecustomize.py").write_text("print('hello', end='')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert probe_driver() == expected


def test_no_nsys_says_how_to_get_one(tmp_path):
    with pytest.raises(RecorderError, match=r"^no nsys .*apt install.*GAPTRACE_NSYS") as error:
        find_nsys({"PATH": str(tmp_path)}, root=tmp_path)
    assert "\n" not in str(error.value)


def test_the_importer_is_beside_the_real_nsys_behind_a_link(tmp_path):
    real = write_nsys(tmp_path / "nsight" / "target-linux-x64" / "nsys", "2025.3.1")
    importer = tmp_path / "nsight" / "host-linux-x64" / "QdstrmImporter"
    importer.parent.mkdir()
    importer.touch()
    (tmp_path / "nsys").symlink_to(real)
    assert find_importer(Nsys(tmp_path / "nsys", "2025.3.1")) == importer


def test_missing_libraries(tmp_path):
    assert missing_libraries(program_that_lacks_a_library(tmp_path / "x")) == ("libq.so.6",)
    assert missing_libraries(Path("/bin/true")) == ()


def test_packages_of_missing_libraries():
    assert packages_of(("libdw.so.1", "libq.so.6", "libelf.so.1")) == ("libdw1", "libelf1")


# Recording


@pytest.fixture
def fake(tmp_path, monkeypatch) -> Nsys:
    """The stand-in, in the layout of a whole installation."""
    path = install_fake_nsys(tmp_path / "nsight" / "target-linux-x64")
    monkeypatch.setenv("GAPTRACE_NSYS", str(path))
    monkeypatch.setenv("FAKE_NSYS_EXPORT", str(SAMPLE))
    return find_nsys()


def record_program(folder: Path, program: str, nsys: Nsys, *arguments: str, **options):
    """Record a script of one text, as graph granularity does."""
    script = folder / "program.py"
    script.write_text(program)
    command = nsys_command(
        launcher([str(script), *arguments], form="script"),
        folder / "graph",
        granularity="graph",
        nsys=nsys,
    )
    return record(command, folder / "graph", nsys=nsys, **options)


def test_the_command_is_the_documented_one(tmp_path):
    command = nsys_command(
        launcher(["my script.py", "-x"], form="script"),
        tmp_path / "node",
        granularity="node",
        nsys=Nsys(Path("/opt/nsys"), "2025.3.1"),
    )
    assert shlex.join(command) == (
        "/opt/nsys profile -t cuda,nvtx -s none --cpuctxsw=none --cuda-graph-trace=node "
        f"-o {tmp_path}/node {sys.executable} {RUNNER} 'my script.py' -x"
    )


@pytest.mark.parametrize(
    ("form", "expected"),
    [("script", ["x", "-y"]), ("module", ["-m", "x", "-y"]), ("command", ["--", "x", "-y"])],
)
def test_launcher(form, expected):
    assert launcher(["x", "-y"], form=form)[1:] == [RUNNER, *expected]


def test_a_recording_keeps_output_and_chatter_apart(fake, tmp_path, capfd):
    recording = record_program(tmp_path, "print('hello')", fake)
    assert capfd.readouterr() == ("hello\n", "")
    assert recording.status == 0
    assert recording.report == tmp_path / "graph.nsys-rep"
    assert "Generated:" in recording.log.read_text()
    assert "hello" not in recording.log.read_text()
    assert recording.notes["status"] == 0


def test_output_can_go_elsewhere(fake, tmp_path, capfd):
    record_program(tmp_path, "print('hello')", fake, output=(2, 2))
    assert capfd.readouterr() == ("", "hello\n")


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("import sys; sys.exit(7)", 7),
        ("1 / 0", 1),
        ("import os; os.kill(os.getpid(), 11)", 139),
        ("import os; os._exit(5)", 5),
    ],
)
def test_the_status_of_the_program_is_kept(fake, tmp_path, program, status):
    assert record_program(tmp_path, program, fake).status == status


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("unwritable", "nsys could not write .*/graph.nsys-rep: Failed to create .*--output"),
        ("option", "nsys 2023.4.4.54 left no report and ended with status 1: unrecognised option"),
        ("silent", "left no report and ended with status 3: .*graph.nsys.log"),
        ("importer", "there is no host-linux-./QdstrmImporter beside"),
    ],
)
def test_why_there_is_no_report(fake, tmp_path, monkeypatch, fault, message):
    monkeypatch.setenv("FAKE_NSYS", fault)
    with pytest.raises(RecorderError, match=message) as error:
        record_program(tmp_path, "pass", fake)
    assert "\n" not in str(error.value)


def test_an_importer_that_lacks_a_library_is_named_with_it(fake, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_NSYS", "importer")
    program_that_lacks_a_library(tmp_path / "nsight" / "host-linux-x64" / "QdstrmImporter")
    with pytest.raises(RecorderError, match=r"left only .*graph.qdstrm: libq.so.6 missing; "):
        record_program(tmp_path, "pass", fake)


def test_an_importer_that_fails_twice_is_named_and_what_it_said_is_kept(
    fake, tmp_path, monkeypatch
):
    monkeypatch.setenv("FAKE_NSYS", "importer")
    importer = tmp_path / "nsight" / "host-linux-x64" / "QdstrmImporter"
    importer.parent.mkdir()
    shutil.copy("/bin/echo", importer)
    log = tmp_path / "graph.nsys.log"
    expected = rf"left only .*graph.qdstrm, twice; .* is in {log}, and {importer} can be run on"
    with pytest.raises(RecorderError, match=expected):
        record_program(tmp_path, "pass", fake)
    assert "Importer error status" in log.read_text()
    assert f"--input-file {tmp_path}/graph.qdstrm" in log.read_text()
    assert (tmp_path / "graph.qdstrm").exists()


def test_an_importer_that_cannot_be_run_is_told_in_one_line(fake, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_NSYS", "importer")
    importer = tmp_path / "nsight" / "host-linux-x64" / "QdstrmImporter"
    importer.parent.mkdir()
    importer.touch(mode=0o644)
    with pytest.raises(RecorderError, match=r"left only .*graph.qdstrm, twice; "):
        record_program(tmp_path, "pass", fake)
    assert f"Permission denied: '{importer}'" in (tmp_path / "graph.nsys.log").read_text()


def test_the_status_is_kept_where_nsys_lost_it_with_its_importer(fake, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_NSYS", "importer")
    importer = tmp_path / "nsight" / "host-linux-x64" / "QdstrmImporter"
    importer.parent.mkdir()
    importer.write_text('#!/bin/sh\ncp "$2" "$4"\n')
    importer.chmod(0o755)
    recording = record_program(tmp_path, "import sys; sys.exit(7)", fake)
    assert recording.status == 7
    assert recording.report.read_text() == "fake recording"
    assert not (tmp_path / "graph.qdstrm").exists()


def test_a_lost_agent_is_ended_and_the_recording_tried_again(fake, tmp_path):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path\n"
        "from test_record import find_nsys, record_program\n"
        "record_program(Path(sys.argv[2]), 'print(1)', find_nsys())"
    )
    # The agent that stays behind holds the output open: nobody would see its end.
    found = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
        env=os.environ | {"FAKE_NSYS": "agent"},
    )
    assert (found.stdout, found.stderr) == ("1\n", "")
    assert (tmp_path / "graph.tried").exists()


def test_an_agent_that_is_lost_every_time(fake, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_NSYS", "agents")
    with pytest.raises(RecorderError, match="lost its own agent twice"):
        record_program(tmp_path, "pass", fake)


def test_an_nsys_that_went_away(tmp_path):
    gone = Nsys(tmp_path / "gone", "2025.1")
    with pytest.raises(RecorderError, match=rf"^cannot start {tmp_path}/gone: "):
        record_program(tmp_path, "pass", gone)


def test_handlers_are_as_before_after_a_recording(fake, tmp_path):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    record_program(tmp_path, "pass", fake)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


# Exporting


@pytest.fixture
def report(tmp_path) -> Path:
    path = tmp_path / "run.nsys-rep"
    path.write_text("fake report 1")
    old = time.time() - 100
    os.utime(path, (old, old))
    return path


def rows(path: Path) -> list[tuple[str, int]]:
    """Return what an export says; the stand-in's exports are copies of the sample."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT name, rootpage FROM sqlite_schema").fetchall()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_file())


def test_the_export_lies_beside_the_report(fake, report):
    made = export(report)
    assert made == report.with_name("run.sqlite")
    assert rows(made) == rows(SAMPLE)
    assert names(report.parent) == ["run.nsys-rep", "run.sqlite"]
    assert report.read_text() == "fake report 1"


def test_an_export_is_made_once(fake, report, monkeypatch):
    made = export(report)
    before = made.stat().st_mtime_ns, made.stat().st_ino
    monkeypatch.setenv("FAKE_NSYS", "export")
    assert export(report) == made
    assert (made.stat().st_mtime_ns, made.stat().st_ino) == before


def test_an_export_serves_without_any_nsys(fake, report, monkeypatch):
    made = export(report)
    monkeypatch.setenv("GAPTRACE_NSYS", "/nowhere/nsys")
    assert export(report) == made


def test_without_nsys_and_export_the_lack_of_nsys_is_reported(report, monkeypatch):
    report.with_suffix(".sqlite").write_bytes(SAMPLE.read_bytes())
    monkeypatch.setenv("GAPTRACE_NSYS", "/nowhere/nsys")
    with pytest.raises(RecorderError, match=r"^GAPTRACE_NSYS"):
        export(report)


@pytest.mark.parametrize("content", [b"", b"anything", None])
def test_a_file_of_the_users_is_neither_used_nor_changed(fake, report, content):
    own = report.with_suffix(".sqlite")
    content = SAMPLE.read_bytes() if content is None else content
    own.write_bytes(content)
    made = export(report)
    assert made == report.with_name("run.gaptrace.sqlite")
    assert own.read_bytes() == content
    assert export(report) == made


def test_another_report_of_the_same_name_gets_another_export(fake, report):
    first = export(report)
    kept = first.read_bytes()
    report.write_text("fake report 2")
    second = export(report)
    assert second == report.with_name("run.gaptrace.sqlite")
    report.write_text("fake report 3")
    assert export(report) == report.with_name("run.gaptrace-2.sqlite")
    assert first.read_bytes() == kept


def test_a_newer_exporter_exports_again_and_an_older_one_does_not(fake, report, monkeypatch):
    first = export(report)
    monkeypatch.setenv("FAKE_NSYS_VERSION", "2023.3.9")
    assert export(report) == first
    monkeypatch.setenv("FAKE_NSYS_VERSION", "2023.4.10.1")
    second = export(report)
    assert second == report.with_name("run.gaptrace.sqlite")
    assert export(report) == second


def test_an_export_older_than_the_report_does_not_serve(fake, report):
    first = export(report)
    now = time.time() + 100
    os.utime(report, (now, now))
    assert export(report) != first


def test_a_folder_that_cannot_be_written_leaves_the_export_in_the_cache(
    fake, report, tmp_path, monkeypatch
):
    # Refused through os.access, since root may write anywhere.
    folder = report.parent
    can = os.access
    monkeypatch.setattr(
        export_module.os,
        "access",
        lambda path, mode: can(path, mode) and (Path(path) != folder or mode != os.W_OK),
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = names(folder)
    made = export(report)
    assert made.parent == tmp_path / "cache" / "gaptrace"
    assert made.name.startswith("run.")
    assert names(folder) == before
    assert export(report) == made
    report.write_text("fake report 2")
    assert export(report) not in (made, report.with_suffix(".sqlite"))


def test_progress_rises_to_the_end(fake, report):
    told: list[int] = []
    export(report, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 100


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "Cannot read from stream"),
        (b"something else", "Cannot read from stream"),
        (None, r"cannot be read \(No such file or directory\); check the path"),
        ("folder", "Is a directory"),
    ],
)
def test_what_is_no_report(fake, tmp_path, content, message):
    path = tmp_path / "x.nsys-rep"
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(TraceFormatError, match=rf"^{path}: .*{message}"):
        export(path)
    assert names(tmp_path) == ([path.name] if path.is_file() else [])


def test_a_failed_export_leaves_nothing(fake, report, monkeypatch):
    monkeypatch.setenv("FAKE_NSYS", "export")
    with pytest.raises(TraceFormatError, match="No space left on device"):
        export(report)
    assert names(report.parent) == ["run.nsys-rep"]


def test_an_export_that_holds_nothing_is_not_kept(fake, report, monkeypatch):
    monkeypatch.setenv("FAKE_NSYS", "full")
    with pytest.raises(
        RecorderError, match="without tables, and said: database or disk is full; make room"
    ):
        export(report)
    assert names(report.parent) == ["run.nsys-rep"]


def test_an_interrupted_export_leaves_nothing(fake, report, monkeypatch):
    monkeypatch.setenv("FAKE_NSYS", "slow")

    def interrupt(percentage: int) -> None:
        if percentage == 50:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(report, progress=interrupt)
    assert names(report.parent) == ["run.nsys-rep"]


# The run folder

NOON = datetime(2026, 1, 31, 12, 0, 5)


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("dir/train.py", "train-20260131-120005"),
        ("pkg.module", "pkg.module-20260131-120005"),
        ("/usr/bin/my tool", "my_tool-20260131-120005"),
    ],
)
def test_a_run_folder_is_named_after_program_and_time(tmp_path, monkeypatch, program, name):
    monkeypatch.chdir(tmp_path)
    folder = create_run_folder(None, program, NOON)
    assert folder == tmp_path / "gaptrace-runs" / name
    assert create_run_folder(None, program, NOON).name == f"{name}-2"
    assert create_run_folder(None, program, NOON).name == f"{name}-3"


def test_processes_that_begin_at_once_get_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    now = datetime(2026, 1, 1)
    with ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            made = list(pool.map(lambda _: create_run_folder(None, "x.py", now), range(8)))
            assert len(set(made)) == 8


def test_runs_that_lead_nowhere_are_an_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("gaptrace-runs").symlink_to("nowhere")
    with pytest.raises(RecorderError, match="cannot write to the run folder gaptrace-runs: "):
        create_run_folder(None, "x.py", datetime(2026, 1, 1))


def test_a_named_run_folder_must_be_empty(tmp_path):
    assert create_run_folder(tmp_path / "a" / "b", "x.py", NOON) == tmp_path / "a" / "b"
    with pytest.raises(RecorderError, match=r"is not empty.*--output"):
        create_run_folder(tmp_path / "a", "x.py", NOON)


@pytest.mark.parametrize("place", ["/proc/run", "file/run"])
def test_a_run_folder_that_cannot_be_made(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    with pytest.raises(RecorderError, match=f"^cannot write to the run folder {place}: .*--output"):
        create_run_folder(Path(place), "x.py", NOON)


def test_commands_are_quoted_for_a_shell(tmp_path):
    add_command(tmp_path, ["nsys", "a b", "$HOME"])
    add_command(tmp_path, ["x"])
    assert (tmp_path / "commands.txt").read_text() == "nsys 'a b' '$HOME'\nx\n"


# The real nsys, which records NVTX and exports without a GPU

RANGES = """
import gaptrace, nvtx

@gaptrace.step(name="decode")
def decode():
    pass

with gaptrace.range("outer", payload=42):
    with gaptrace.range("inner"):
        decode()
        decode()
with nvtx.annotate("mine"):
    pass
"""


def nvtx_rows(path: Path) -> list[tuple]:
    query = """
        SELECT coalesce(text, (SELECT value FROM StringIds WHERE id = textId)), int64Value
        FROM NVTX_EVENTS WHERE eventType IN (59, 60) ORDER BY start
    """
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


@pytest.mark.nsys
def test_ranges_reach_the_real_nsys(tmp_path, capfd):
    nsys = real_nsys()
    recording = record_program(tmp_path, RANGES + "print('done')", nsys)
    assert capfd.readouterr() == ("done\n", "")
    assert recording.status == 0
    assert recording.notes["nvtx"]["state"].startswith("recorded")
    made = export(recording.report, nsys=nsys)
    assert made == tmp_path / "graph.sqlite"
    assert nvtx_rows(made) == [
        ("outer", 42),
        ("inner", None),
        ("decode", 0),
        ("decode", 1),
        ("mine", None),
    ]
    assert export(recording.report, nsys=nsys) == made
    with closing(sqlite3.connect(made)) as connection:
        marks = connection.execute("SELECT int64Value FROM NVTX_EVENTS WHERE eventType = 34")
        assert all(100 < loop_ns < 1e9 for (loop_ns,) in marks.fetchall() or [(0,)])


@pytest.mark.nsys
def test_graphs_of_the_stand_ins_reach_the_real_nsys(tmp_path, monkeypatch):
    for name in ("cupy", "torch"):
        shutil.copytree(Path(__file__).parent / "stand_ins" / name, tmp_path / name)
    nsys = real_nsys()
    program = "import cupy; s = cupy.cuda.Stream(); s.begin_capture(); s.end_capture().launch()\n"
    program += "import torch; g = torch.cuda.CUDAGraph(); g.capture_begin(); g.capture_end()\n"
    recording = record_program(tmp_path, program, nsys)
    assert recording.notes["graphs"] == {"cupy": "named", "torch": "named"}
    assert nvtx_rows(export(recording.report, nsys=nsys)) == [
        ("capture", 1),
        ("instantiate", 1),
        ("replay", 1),
        ("capture", 2),
        ("instantiate", 2),
    ]


@pytest.mark.nsys
@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("import sys; print(sys.stdin.read(), end=''); sys.exit(7)", 7),
        ("import os; os.kill(os.getpid(), 11)", 139),
    ],
)
def test_the_real_nsys_passes_input_and_status(tmp_path, program, status):
    nsys = real_nsys()
    script = tmp_path / "program.py"
    script.write_text(program)
    code = (
        "import sys; from pathlib import Path; from gaptrace.record.nsys import find_nsys\n"
        "from gaptrace.record.recording import *\n"
        f"stem = Path({str(tmp_path / 'graph')!r}); nsys = find_nsys()\n"
        f"run = launcher([{str(script)!r}], form='script')\n"
        "command = nsys_command(run, stem, granularity='graph', nsys=nsys)\n"
        "sys.exit(record(command, stem, nsys=nsys).status)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        input="some input",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"GAPTRACE_NSYS": str(nsys.path)},
    )
    assert found.returncode == status
    assert found.stdout == ("some input" if status == 7 else "")
    assert found.stderr == ""


@pytest.mark.nsys
def test_a_real_importer_that_lacks_a_library(tmp_path):
    nsys = real_nsys()
    importer = find_importer(nsys)
    if importer is None or missing_libraries(importer):
        pytest.skip("needs an nsys with a working importer to break")
    broken = break_importer(nsys, importer, tmp_path / "broken")
    missing = missing_libraries(broken)
    assert len(missing) == 1
    copy = Nsys(tmp_path / "broken" / nsys.path.resolve().parent.name / "nsys", nsys.version)
    with pytest.raises(RecorderError, match=rf"graph.qdstrm: {missing[0]} missing; "):
        record_program(tmp_path, "pass", copy)


@pytest.mark.nsys
@pytest.mark.parametrize("status", [0, 7])
def test_a_real_importer_that_fails_once_is_run_again(tmp_path, status):
    nsys = real_nsys()
    importer = find_importer(nsys)
    if importer is None or missing_libraries(importer):
        pytest.skip("needs an nsys with a working importer to hinder")
    folder = tmp_path / "hindered"
    hindered = linked(nsys, importer, folder)
    hindered.unlink()
    hindered.write_text(
        f"#!/bin/sh\n[ -e {folder}/tried ] || {{ touch {folder}/tried; exit 1; }}\n"
        f'exec {importer} "$@"\n'
    )
    hindered.chmod(0o755)
    copy = Nsys(folder / nsys.path.resolve().parent.name / "nsys", nsys.version)
    program = f"import nvtx, sys; nvtx.push_range('a'); nvtx.pop_range(); sys.exit({status})"
    recording = record_program(tmp_path, program, copy)
    assert (folder / "tried").exists()
    assert recording.status == status
    assert ("a", None) in nvtx_rows(export(recording.report, nsys=copy))
    assert not (tmp_path / "graph.qdstrm").exists()


def break_importer(nsys: Nsys, importer: Path, folder: Path) -> Path:
    """Link an installation, with nsys and its importer as copies and one library left out."""
    needed = subprocess.run(["ldd", str(importer)], capture_output=True, text=True, check=True)
    own = [line.split()[0] for line in needed.stdout.splitlines() if str(importer.parent) in line]
    broken = linked(nsys, importer, folder)
    next(broken.parent / name for name in own if name.startswith("libboost_")).unlink()
    return broken


def linked(nsys: Nsys, importer: Path, folder: Path) -> Path:
    """Link an installation, with nsys and its importer as copies, and return the latter."""
    for part in (nsys.path.resolve().parent, importer.parent):
        (folder / part.name).mkdir(parents=True)
        for path in part.iterdir():
            if path.name in ("nsys", "QdstrmImporter"):
                shutil.copy(path, folder / part.name)
            else:
                (folder / part.name / path.name).symlink_to(path)
    return folder / importer.parent.name / "QdstrmImporter"


@pytest.mark.nsys
def test_the_real_exporter_refuses_what_is_no_report(tmp_path):
    nsys = real_nsys()
    path = tmp_path / "x.nsys-rep"
    path.write_bytes(b"hello\n")
    with pytest.raises(TraceFormatError, match=rf"^{path}: nsys {nsys.version} cannot export it: "):
        export(path, nsys=nsys)
    assert names(tmp_path) == ["x.nsys-rep"]


def test_notes_file_is_json(fake, tmp_path):
    recording = record_program(tmp_path, "pass", fake)
    assert json.loads((tmp_path / "graph.script.json").read_text()) == recording.notes


@pytest.mark.nsys
def test_a_program_without_ranges_is_not_called_silent(tmp_path):
    state = record_program(tmp_path, "pass", real_nsys()).notes["nvtx"]["state"]
    assert state in ("recorded", "unused")
