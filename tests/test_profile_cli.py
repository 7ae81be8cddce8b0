"""`gaptrace profile`, whole: with a stand-in for nsys, and with the real one."""

import json
import os
import pty
import re
import resource
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from recorders import RUNNER, install_fake_nsys, real_nsys

from gaptrace.cli import main
from gaptrace.record.machine import probe_driver

SAMPLE = Path(__file__).parent.parent / "sample_traces" / "demo_graph.sqlite"
NODE_SAMPLE = SAMPLE.with_name("demo_node.sqlite")


@pytest.fixture
def fake(tmp_path, monkeypatch) -> Path:
    """Use the stand-in; return an empty working directory."""
    path = install_fake_nsys(tmp_path / "nsight" / "target-linux-x64")
    monkeypatch.setenv("GAPTRACE_NSYS", str(path))
    monkeypatch.setenv("FAKE_NSYS_EXPORT", str(SAMPLE))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "stand_ins"))  # nvtx that records
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


@pytest.fixture
def no_cuda(fake, monkeypatch, tmp_path) -> Path:
    """As `fake`, but what was recorded holds no CUDA work."""
    from exports import export, push

    path = export(tmp_path / "nvtx_only.sqlite", nvtx=[push("step", 1, 2)])
    monkeypatch.setenv("FAKE_NSYS_EXPORT", str(path))
    return fake


def write(name: str, program: str) -> str:
    Path(name).write_text(program)
    return name


def run_folder() -> Path:
    (folder,) = Path("gaptrace-runs").iterdir()
    return folder


# The main job


def test_a_script_is_recorded_and_reported(fake, capfd):
    script = write("work.py", "import sys; print('from the script', sys.argv[1:])")
    assert main(["profile", script, "a b", "--json", "-m", "--", "x"]) == 0
    out, err = capfd.readouterr()
    first, rest = out.split("\n", 1)
    assert first == "from the script ['a b', '--json', '-m', '--', 'x']"
    assert rest.startswith("gaptrace ")
    assert "NVIDIA H200" in rest
    assert "Generating" not in out + err
    folder = run_folder()
    assert re.fullmatch(r"work-\d{8}-\d{6}", folder.name)
    assert err == (
        f"gaptrace: recording with nsys 2023.4.4.54 into {folder}\n"
        f"gaptrace: everything is in {folder}\n"
    )


def test_the_run_folder_holds_everything(fake, capfd):
    assert main(["profile", write("work.py", "pass"), "--x"]) == 0
    folder = run_folder()
    assert sorted(path.name for path in folder.iterdir()) == [
        "analysis.json",
        "commands.txt",
        "graph.nsys-rep",
        "graph.nsys.log",
        "graph.script.json",
        "graph.sqlite",
        "report.html",
        "report.txt",
        "versions.json",
    ]
    report = (folder / "report.txt").read_text()
    assert "\x1b" not in report
    assert max(map(len, report.splitlines())) <= 100
    assert json.loads((folder / "analysis.json").read_text())["schema"] == "gaptrace.analysis/1"
    assert "<title>gaptrace: graph.sqlite</title>" in (folder / "report.html").read_text()
    versions = json.loads((folder / "versions.json").read_text())
    assert versions["nsys"] == "2023.4.4.54"
    assert versions["packages"]["polars"] is not None
    nsys = os.environ["GAPTRACE_NSYS"]
    stem = folder.resolve() / "graph"
    assert (folder / "commands.txt").read_text() == (
        f"{nsys} profile -t cuda,nvtx -s none --cpuctxsw=none --cuda-graph-trace=graph "
        f"-o {stem} {sys.executable} {RUNNER} work.py --x\n"
        f"{nsys} export --type=sqlite --output={stem}.sqlite {stem}.nsys-rep\n"
    )


def test_the_recorded_commands_work_by_hand(fake, capfd):
    assert main(["profile", "-o", "out", write("work.py", "print('again')")]) == 0
    capfd.readouterr()
    for name in ("graph.nsys-rep", "graph.sqlite"):
        Path("out", name).unlink()
    found = subprocess.run(
        ["sh", "-e", "out/commands.txt"], capture_output=True, text=True, check=True
    )
    assert "again\n" in found.stdout
    assert Path("out", "graph.sqlite").exists()


def test_json_has_stdout_to_itself(fake, capfd):
    assert main(["profile", "--json", write("work.py", "print('from the script')")]) == 0
    out, err = capfd.readouterr()
    assert json.loads(out) == json.loads((run_folder() / "analysis.json").read_text())
    assert "from the script\n" in err


def test_a_module(fake, capfd):
    write("work.py", "import sys; print(__name__, sys.argv[1:])")
    assert main(["profile", "-m", "work", "--granularity", "node"]) == 0
    assert capfd.readouterr().out.startswith("__main__ ['--granularity', 'node']\n")
    assert run_folder().name.startswith("work-")


def test_any_command(fake, capfd):
    assert main(["profile", "-o", "out", "--", "sh", "-c", 'echo "$1"; exit 0', "sh", "a b"]) == 0
    assert capfd.readouterr().out.startswith("a b\ngaptrace ")


def test_both_granularities_stay_apart(fake, capfd):
    script = write("work.py", "print('ran')")
    assert main(["profile", "--granularity", "both", "-o", "out", script]) == 0
    out, _ = capfd.readouterr()
    assert out.count("ran\n") == 2
    for granularity in ("graph", "node"):
        place = Path("out", granularity)
        assert (place / f"{granularity}.nsys-rep").exists()
        assert (place / "report.txt").exists()
        assert (place / "analysis.json").exists()
    commands = Path("out", "commands.txt").read_text()
    assert commands.count("--cuda-graph-trace=graph") == 1
    assert commands.count("--cuda-graph-trace=node") == 1
    assert not Path("out", "report.txt").exists()


def test_both_granularities_as_json(fake, capfd):
    assert main(["profile", "--json", "--granularity", "both", write("work.py", "pass")]) == 0
    found = json.loads(capfd.readouterr().out)
    assert sorted(found) == ["graph", "node"]
    assert found["node"]["schema"] == "gaptrace.analysis/1"


def test_a_file_on_stdin_begins_anew_in_the_second_run_and_a_pipe_is_said_to_be_gone(fake):
    script = write("work.py", "import sys; print('read', sys.stdin.read().split())")
    command = f"{sys.executable} -m gaptrace profile --granularity both {script}"
    for given, second, warns in (
        (f"{command} < data", ["a", "b"], False),
        (f"cat data | (sleep 1; {command})", [], True),
    ):
        Path("data").write_text("a b")
        found = subprocess.run(["sh", "-c", given], capture_output=True, text=True, check=True)
        read = [line for line in found.stdout.splitlines() if line.startswith("read")]
        assert read == ["read ['a', 'b']", f"read {second}"]
        assert ("only the first of the runs can have it" in found.stderr) == warns


def test_node_granularity(fake, capfd, monkeypatch):
    monkeypatch.setenv("FAKE_NSYS_EXPORT", str(NODE_SAMPLE))
    assert main(["profile", "--granularity=node", "--json", write("work.py", "pass")]) == 0
    assert json.loads(capfd.readouterr().out)["trace"]["granularity"] == "node"
    assert (run_folder() / "node.nsys-rep").exists()


# Programs that fail


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("import sys; sys.exit(7)", 7),
        ("1 / 0", 1),
        ("import os; os.kill(os.getpid(), 6)", 134),
    ],
)
def test_a_program_that_fails_is_reported_and_its_status_passes(fake, capfd, program, status):
    assert main(["profile", write("work.py", program)]) == status
    out, err = capfd.readouterr()
    assert out.startswith("gaptrace ")
    assert f"gaptrace: work.py ended with status {status}\n" in err
    assert ("ZeroDivisionError" in err) == (status == 1)
    assert "gaptrace/live/run.py" not in err


def test_after_a_failure_there_is_no_second_recording(fake, capfd):
    script = write("work.py", "import sys; print('ran'); sys.exit(7)")
    assert main(["profile", "--granularity", "both", "-o", "out", script]) == 7
    assert capfd.readouterr().out.count("ran\n") == 1
    assert not Path("out", "node").exists()


def test_a_program_that_fails_before_it_uses_cuda_keeps_its_status(no_cuda, capfd):
    assert main(["profile", write("work.py", "import sys; sys.exit(7)")]) == 7
    out, err = capfd.readouterr()
    assert out == ""
    assert "gaptrace: error: work.py left no CUDA work to analyse" in err


def test_a_program_that_fails_so_early_leaves_no_json(no_cuda, capfd):
    assert main(["profile", "--json", write("work.py", "import sys; sys.exit(7)")]) == 7
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("fault", ["importer", "unwritable", "silent"])
def test_a_recorder_that_fails_does_not_hide_the_status(fake, capfd, monkeypatch, fault):
    monkeypatch.setenv("FAKE_NSYS", fault)
    assert main(["profile", "-o", "out", write("work.py", "import sys; sys.exit(7)")]) == 7
    first, *_, last, place = capfd.readouterr().err.splitlines()
    assert "recording with nsys" in first
    assert last == "gaptrace: work.py ended with status 7"
    assert place == "gaptrace: everything is in out"


def test_a_report_that_cannot_be_kept_is_shown_and_does_not_hide_the_status(fake):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_500_000, 2_500_000))

    command = [sys.executable, "-m", "gaptrace", "profile", "-o"]
    for program, status in (("import sys; sys.exit(7)", 7), ("pass", 1)):
        found = subprocess.run(
            [*command, f"out{status}", write("work.py", program)],
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=limit,
        )
        assert (found.returncode, "Traceback" in found.stderr) == (status, False)
        page = Path(f"out{status}", "report.html").resolve()
        assert f"gaptrace: error: cannot write {page}: File too large; what was" in found.stderr
        assert "Recommendation" in found.stdout
        assert not page.exists()
        assert Path(f"out{status}", "graph.sqlite").exists()


def test_who_reads_only_the_first_line_still_gets_both_recordings_and_the_status(fake):
    script = write("work.py", "import sys; sys.exit(int(sys.argv[1]))")
    command = f"{sys.executable} -m gaptrace profile --granularity both"
    for status, kept in ((0, ["graph", "node"]), (7, ["graph"])):
        piped = f"{command} -o out{status} {script} {status} | head -1; exit ${{PIPESTATUS[0]}}"
        found = subprocess.run(["bash", "-c", piped], capture_output=True, text=True, check=False)
        assert found.returncode == status
        assert found.stdout.startswith("gaptrace ")
        assert f"everything is in out{status}" in found.stderr
        assert sorted(path.name for path in Path(f"out{status}").iterdir() if path.is_dir()) == kept


def test_modules_in_the_working_directory_are_not_taken_for_pythons(fake):
    Path("src").mkdir()
    for name in ("signal", "types", "typing", "enum", "functools", "gaptrace", "errors", "notes"):
        write(f"{name}.py", "raise SystemExit('the wrong one')")
    script = write("src/work.py", "print('ran')")
    command = [sys.executable, "-P", "-m", "gaptrace", "profile", "-o", "out", script]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout.splitlines()[0]) == (0, "ran")


def test_an_argument_that_is_no_text_is_passed_on_and_written_down(fake, capfd):
    script = write("work.py", "import os, sys; print(os.fsencode(sys.argv[1]))")
    assert main(["profile", "-o", "out", script, os.fsdecode(b"a\xff")]) == 0
    assert capfd.readouterr().out.startswith("b'a\\xff'\n")
    assert b"work.py 'a\xff'\n" in Path("out", "commands.txt").read_bytes()


def test_too_few_descriptors(fake):
    found = subprocess.run(
        [sys.executable, "-m", "gaptrace", "profile", "-o", "out", write("work.py", "pass")],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (150, 150)),
    )
    assert found.returncode == 1
    assert found.stderr.splitlines()[-1].startswith("gaptrace: error: cannot start ")


def test_an_export_that_fails_does_not_hide_the_status(fake, capfd, monkeypatch):
    monkeypatch.setenv("FAKE_NSYS", "export")
    assert main(["profile", "-o", "out", write("work.py", "import sys; sys.exit(7)")]) == 7
    assert "gaptrace: error: " in capfd.readouterr().err
    assert main(["profile", "-o", "other", write("work.py", "pass")]) == 1
    assert "No space left on device" in capfd.readouterr().err


def test_a_program_that_never_used_cuda(no_cuda, capfd):
    assert main(["profile", write("work.py", "print('ran')")]) == 1
    out, err = capfd.readouterr()
    assert out == "ran\n"
    error = err.splitlines()[-1]
    assert error.startswith("gaptrace: error: work.py left no CUDA work to analyse")
    if probe_driver().problem is not None:
        assert "since CUDA cannot start on this machine" in error
    else:
        assert "no CUDA activity was recorded" in error


def test_ctrl_c_keeps_what_was_recorded(fake):
    script = write(
        "work.py",
        "import time\ntry:\n    print('ready', flush=True)\n"
        "    [time.sleep(0.1) for _ in range(600)]\n"
        "except KeyboardInterrupt:\n    print('cleaning up', flush=True)\n    raise\n",
    )
    out, err, status = interrupt([sys.executable, "-m", "gaptrace", "profile", script])
    assert status == 130
    assert out.startswith("cleaning up\ngaptrace ")
    assert "KeyboardInterrupt" in err
    assert (run_folder() / "report.txt").exists()


def interrupt(command: list[str]) -> tuple[str, str, int]:
    """Run a command, press Ctrl-C when it says `ready`, and return the rest and its status.

    Programs to be interrupted sleep in many short naps: an interrupt that comes just before Python
    enters a sleep is seen only when that ends.
    """
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return out, err, process.returncode


def test_a_program_that_takes_ctrl_c_well_keeps_its_status(fake):
    script = write(
        "work.py",
        "import time, sys\ntry:\n    print('ready', flush=True)\n"
        "    [time.sleep(0.1) for _ in range(600)]\n"
        "except KeyboardInterrupt:\n    sys.exit(5)\n",
    )
    _, _, status = interrupt([sys.executable, "-m", "gaptrace", "profile", script])
    assert status == 5


# gaptrace's own failures


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.py"], "there is no script nowhere.py"),
        (["."], "there is no script ."),
        (["x" * 300], f"there is no script {'x' * 300}"),
        ([], "Missing argument"),
        (["--granularity", "kernel", "x.py"], "kernel"),
        (["--unknown", "x.py"], "No such option"),
        (["--", "no-such-command"], "there is no command no-such-command that can be run"),
        (["-m", "--", "ls"], "use one of them"),
        (["--arms", "graph", "--", "ls"], "steps of a Python script"),
        (["--arms", "graph", "--chunks", "8", __file__], "name both"),
    ],
)
def test_usage_errors(fake, capfd, arguments, message):
    assert main(["profile", *arguments]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert message in err
    assert list(fake.iterdir()) == []


def test_no_nsys(fake, capfd, monkeypatch):
    monkeypatch.setenv("GAPTRACE_NSYS", "/nowhere/nsys")
    assert main(["profile", write("work.py", "print('ran')")]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("gaptrace: error: GAPTRACE_NSYS=/nowhere/nsys does not run as nsys; ")
    assert not Path("gaptrace-runs").exists()


def test_an_output_folder_in_use(fake, capfd):
    script = write("work.py", "print('ran')")
    assert main(["profile", "-o", ".", script]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("gaptrace: error: . is not empty")
    assert Path(script).read_text() == "print('ran')"


def test_an_output_folder_that_cannot_be_made(fake, capfd):
    assert main(["profile", "-o", "/proc/run", write("work.py", "print('ran')")]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("gaptrace: error: cannot write to the run folder /proc/run: ")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("importer", "recorded, but its importer failed"),
        ("unwritable", "nsys could not write"),
        ("option", "unrecognised option"),
        ("silent", "left no report"),
    ],
)
def test_a_recorder_that_fails(fake, capfd, monkeypatch, fault, message):
    monkeypatch.setenv("FAKE_NSYS", fault)
    assert main(["profile", write("work.py", "pass")]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert message in err.splitlines()[-1]


def test_output_that_nsys_keeps_is_pointed_out(fake, capfd, monkeypatch):
    monkeypatch.setenv("FAKE_NSYS", "closes")
    assert main(["profile", "-o", "out", write("work.py", "print('ran')")]) == 0
    out, err = capfd.readouterr()
    assert out.startswith("gaptrace ")
    assert "gaptrace: warning: nsys 2023.4.4.54 kept the program's output; it is in" in err
    assert "ran\n" in Path("out", "graph.nsys.log").read_text()


def test_ranges_that_are_not_recorded_are_missed(fake, capfd, monkeypatch):
    monkeypatch.setenv("NVTX_STAND_IN", "dummy")
    assert main(["profile", write("work.py", "pass")]) == 0
    assert re.search(
        r"gaptrace: warning: nvtx [\d.]+ and nsys 2023.4.4.54 do not work together",
        capfd.readouterr().err,
    )


# On a terminal


def on_terminal(command: list[str], typed: str = "", **environment: str) -> tuple[str, int]:
    """Run a command on a terminal of its own and return what the terminal showed."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "100"} | environment,
        start_new_session=True,
    )
    os.close(theirs)
    os.write(ours, typed.encode())
    shown = b""
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:
        pass  # Linux says EIO when the last holder of the other side is gone
    os.close(ours)
    return shown.decode(), process.wait(timeout=60)


TERMINAL = """
import sys
print(sys.stdin.isatty(), sys.stdout.isatty(), sys.stderr.isatty(), sys.stdout.line_buffering)
print("typed", input())
"""


def test_the_program_keeps_the_terminal(fake):
    command = [sys.executable, "-m", "gaptrace", "profile", write("work.py", TERMINAL)]
    shown, status = on_terminal(command, typed="hello\n")
    assert status == 0
    assert "True True True True\r\n" in shown
    assert "typed hello\r\n" in shown
    assert "Generat" not in shown
    assert "exporting" in shown
    assert "\x1b[1m" in shown  # the report is coloured


def test_no_color_is_heeded(fake):
    command = [sys.executable, "-m", "gaptrace", "profile", write("work.py", "pass")]
    shown, _ = on_terminal(command, NO_COLOR="1")
    assert "\x1b[1m" not in shown.partition("NVIDIA H200")[2]


# The real nsys, on programs without CUDA


@pytest.fixture
def real(tmp_path, monkeypatch) -> Path:
    """Use the real nsys in an empty working directory."""
    monkeypatch.setenv("GAPTRACE_NSYS", str(real_nsys().path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


NVTX_ONLY = """
import sys
import gaptrace
print(sys.stdin.read(), sys.argv[1:])
with gaptrace.range("outer", payload=1):
    pass
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.nsys
@pytest.mark.parametrize("status", [0, 7])
def test_a_program_without_cuda_under_the_real_nsys(real, status):
    script = write("work.py", NVTX_ONLY)
    found = subprocess.run(
        [sys.executable, "-m", "gaptrace", "profile", "-o", "out", script, str(status)],
        input="typed",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert found.returncode == (status or 1)
    assert found.stdout == f"typed ['{status}']\n"
    assert "gaptrace: error: work.py left no CUDA work to analyse" in found.stderr
    assert "Traceback" not in found.stderr
    with closing(sqlite3.connect("out/graph.sqlite")) as connection:
        values = connection.execute("SELECT int64Value FROM NVTX_EVENTS WHERE eventType = 59")
        assert values.fetchall() == [(1,)]
    commands = Path("out", "commands.txt").read_text()
    assert "-t cuda,nvtx" in commands
    assert Path("out", "graph.nsys-rep").stat().st_size > 0


@pytest.mark.nsys
def test_any_command_under_the_real_nsys(real, capfd):
    assert main(["profile", "--", "sh", "-c", "echo out; echo err >&2; exit 9"]) == 9
    out, err = capfd.readouterr()
    assert out == "out\n"
    assert "err\n" in err


@pytest.mark.nsys
@pytest.mark.parametrize(("on_interrupt", "status"), [("raise", 130), ("sys.exit(5)", 5)])
def test_ctrl_c_under_the_real_nsys(real, on_interrupt, status):
    script = write(
        "work.py",
        "import signal, sys, time, gaptrace\nwith gaptrace.range('before'): pass\n"
        "try:\n    print('ready', flush=True)\n    [time.sleep(0.1) for _ in range(600)]\n"
        "except KeyboardInterrupt:\n    signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "    time.sleep(2)\n    print('cleaned up')\n"
        f"    {on_interrupt}\n",
    )
    command = [sys.executable, "-m", "gaptrace", "profile", "-o", "out", script]
    out, err, found = interrupt(command)
    assert found == status
    assert out == "cleaned up\n"
    assert "left no CUDA work" in err
    with closing(sqlite3.connect("out/graph.sqlite")) as connection:
        query = "SELECT count(*) FROM NVTX_EVENTS WHERE eventType = 59"
        assert connection.execute(query).fetchone() == (1,)


@pytest.mark.nsys
@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("trap 'exit 9' INT; echo ready; sleep 20 & wait", 9),
        ("trap '' INT; echo ready; sleep 1; exit 6", 6),
        ("echo ready; exec sleep 20", 130),
    ],
)
def test_a_command_keeps_its_status_after_ctrl_c_under_the_real_nsys(real, program, status):
    command = ["profile", "-o", "out%p", "--", "sh", "-c", program]
    _, err, found = interrupt([sys.executable, "-m", "gaptrace", *command])
    assert (found, "Traceback" in err) == (status, False)
    assert Path("out%p", "graph.sqlite").exists()


def begun(script: str) -> subprocess.Popen[str]:
    """Profile a script in a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "gaptrace", "profile", "-o", "out", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.nsys
def test_a_terminal_that_is_closed_ends_the_program_and_keeps_what_was_recorded(real):
    script = write(
        "work.py",
        "import os, time\nprint(os.getpid(), flush=True)\n[time.sleep(0.1) for _ in range(600)]\n",
    )
    process = begun(script)
    pid = int(process.stdout.readline())
    os.killpg(process.pid, signal.SIGHUP)
    process.communicate(timeout=60)
    assert process.returncode == 143
    assert Path("out", "graph.sqlite").exists()
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.nsys
def test_a_termination_reaches_the_program_and_keeps_what_was_recorded(real):
    script = write(
        "work.py",
        "import time\nprint('ready', flush=True)\n[time.sleep(0.1) for _ in range(600)]\n",
    )
    process = begun(script)
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "gaptrace: work.py ended with status 143" in err
    assert Path("out", "graph.sqlite").exists()


@pytest.mark.nsys
def test_the_program_keeps_the_terminal_under_the_real_nsys(real):
    command = [sys.executable, "-m", "gaptrace", "profile", write("work.py", TERMINAL)]
    shown, status = on_terminal(command, typed="hello\n")
    assert status == 1
    assert "True True True True\r\n" in shown
    assert "typed hello\r\n" in shown
    assert "Generat" not in shown
    assert "exporting" in shown
