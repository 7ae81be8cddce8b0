"""Ranges, the runner, and the names of graphs: what happens inside the profiled process."""

import asyncio
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from recorders import RUNNER

import gaptrace
from gaptrace.live import pace_marks, ranges

STAND_INS = Path(__file__).parent / "stand_ins"


# Ranges


@pytest.fixture
def calls(monkeypatch) -> list[str]:
    """Have ranges recorded, and return what the recorder sees."""
    spec = importlib.util.spec_from_file_location("nvtx_stand_in", STAND_INS / "nvtx.py")
    nvtx = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(nvtx)
    domain = nvtx.Domain("gaptrace")
    monkeypatch.setattr(ranges, "recording_domain", lambda: domain)
    return domain.calls


@pytest.fixture
def nothing_records(monkeypatch) -> None:
    monkeypatch.setattr(ranges, "recording_domain", lambda: None)


def test_range_around_a_block(calls):
    with gaptrace.range("prefill"):
        calls.append("work")
    assert calls == ["push prefill", "work", "pop"]


def test_ranges_nest(calls):
    with gaptrace.range("step"), gaptrace.range("inner"):
        calls.append("work")
    assert calls == ["push step", "push inner", "work", "pop", "pop"]


def test_a_range_can_be_entered_again_within_itself(calls):
    again = gaptrace.range("again")
    with again, again:
        pass
    with again:
        pass
    assert calls == ["push again", "push again", "pop", "pop", "push again", "pop"]


def test_an_exception_closes_the_range_and_passes(calls):
    with pytest.raises(ZeroDivisionError), gaptrace.range("prefill"):
        _ = 1 / 0
    assert calls == ["push prefill", "pop"]


@pytest.mark.parametrize(
    ("payload", "shown"),
    [(7, "7"), (0, "0"), (2.5, "2.5"), (True, "1"), (2**63, "9.223372036854776e+18")],
)
def test_payload(calls, payload, shown):
    with gaptrace.range("step", payload=payload):
        pass
    assert calls == [f"push step {shown}", "pop"]


@pytest.mark.parametrize("form", ["block", "function", "coroutine"])
def test_ranges_mark_the_pace_of_the_host_now_and_then(calls, monkeypatch, form):
    domain = ranges.recording_domain()
    monkeypatch.setattr(pace_marks, "_due_ns", 0)
    monkeypatch.setattr(pace_marks, "_EVERY_NS", 3_600_000_000_000)

    @gaptrace.range("a function")
    def function():
        pass

    @gaptrace.range("a coroutine")
    async def coroutine():
        pass

    def enter():
        if form == "function":
            function()
        elif form == "coroutine":
            asyncio.run(coroutine())
        else:
            with gaptrace.range("a block"):
                pass

    enter()
    enter()
    (mark,) = domain.marks  # the second came too soon
    monkeypatch.setattr(pace_marks, "_due_ns", time.perf_counter_ns() - 1)
    enter()

    assert len(domain.marks) == 2
    assert re.fullmatch(r"host pace [1-9]\d{2,8}", mark)
    assert len(calls) == 6


def test_payload_that_is_no_number(calls):
    with pytest.raises(TypeError):
        gaptrace.range("step", payload=[1])


def test_decorator_keeps_name_arguments_and_result(calls):
    @gaptrace.range("load")
    def load(a, *, b=0):
        """Say what it does."""
        return a + b

    assert load(1, b=2) == 3
    assert load.__name__ == "load"
    assert load.__doc__ == "Say what it does."
    assert calls == ["push load", "pop"]


def test_decorator_closes_the_range_when_the_function_raises(calls):
    @gaptrace.range("load")
    def load():
        raise KeyError("x")

    with pytest.raises(KeyError):
        load()
    assert calls == ["push load", "pop"]


def test_decorated_recursion(calls):
    @gaptrace.range("down")
    def down(n):
        return n if n == 0 else down(n - 1)

    down(1)
    assert calls == ["push down", "push down", "pop", "pop"]


def test_decorated_method(calls):
    class Model:
        @gaptrace.range("forward")
        def forward(self, x):
            return x

    assert Model().forward(4) == 4
    assert calls == ["push forward", "pop"]


def test_step_counts_its_calls(calls):
    @gaptrace.step
    def decode():
        return "token"

    assert [decode(), decode()] == ["token", "token"]
    assert calls == ["push step 0", "pop", "push step 1", "pop"]


def test_step_with_a_name_of_its_own(calls):
    @gaptrace.step(name="decode")
    def decode():
        pass

    @gaptrace.step(name="train")
    def train():
        pass

    decode(), train(), decode()
    assert calls == ["push decode 0", "pop", "push train 0", "pop", "push decode 1", "pop"]


def test_a_name_of_a_step_is_no_function(calls):
    with pytest.raises(TypeError, match=r"write @gaptrace.step\(name='decode'\)"):
        gaptrace.step("decode")


def test_a_step_that_raises_is_closed_and_counted(calls):
    @gaptrace.step
    def step():
        raise KeyError("x")

    for _ in "ab":
        with pytest.raises(KeyError):
            step()
    assert calls == ["push step 0", "pop", "push step 1", "pop"]


def test_coroutines_of_one_thread_overlap_without_nesting(calls):
    @gaptrace.step(name="request")
    async def request(first, then):
        first.set()
        await then.wait()
        return "answer"

    async def serve():
        a, b = asyncio.Event(), asyncio.Event()
        return await asyncio.gather(request(a, b), request(b, a))

    assert asyncio.run(serve()) == ["answer", "answer"]
    assert calls == ["start request 0", "start request 1", "end request 1", "end request 0"] or (
        calls == ["start request 0", "start request 1", "end request 0", "end request 1"]
    )


def test_a_coroutine_that_raises_closes_its_range(calls):
    @gaptrace.range("request")
    async def request():
        raise KeyError("x")

    with pytest.raises(KeyError):
        asyncio.run(request())
    assert calls == ["start request", "end request"]


def test_generators_are_refused_whether_or_not_something_records(calls, monkeypatch):
    def rows():
        yield 1

    async def async_rows():
        yield 1

    for domain in (ranges.recording_domain(), None):
        monkeypatch.setattr(ranges, "recording_domain", lambda domain=domain: domain)
        for function in (rows, async_rows):
            for decorate in (gaptrace.range("rows"), gaptrace.step):
                with pytest.raises(TypeError, match="is a generator"):
                    decorate(function)
    assert calls == []


@pytest.mark.usefixtures("nothing_records")
def test_without_a_recorder_functions_stay_as_they_are():
    def work():
        return 5

    assert gaptrace.range("x", payload=1)(work) is work
    assert gaptrace.step(work) is work
    assert gaptrace.step(name="x")(work) is work


@pytest.mark.usefixtures("nothing_records")
def test_without_a_recorder_blocks_run_and_raise():
    with pytest.raises(ZeroDivisionError), gaptrace.range("x"):
        _ = 1 / 0


def test_nothing_records_in_this_process():
    """The real nvtx, without a recorder: its stand-in domain is not taken for a domain."""
    ranges.recording_domain.cache_clear()
    assert ranges.recording_domain() is None


@pytest.mark.parametrize("kind", ["dummy", "old", "disabled"])
def test_domains_that_cannot_record_are_not_used(kind):
    code = "import gaptrace\nwith gaptrace.range('x'): print(gaptrace.step(len) is len)"
    assert run_python("-c", code, NVTX_STAND_IN=kind).stdout == "True\n"


def test_without_nvtx_ranges_are_free():
    code = "import sys; sys.modules['nvtx'] = None\nimport gaptrace\n" + (
        "with gaptrace.range('x'): print(gaptrace.step(len) is len)"
    )
    assert run_python("-c", code).stdout == "True\n"


# The runner


def run_python(*arguments: str, cwd: Path | None = None, stdin: str = "", **environment: str):
    """Run this Python with the stand-ins first on its path."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(STAND_INS)} | environment,
    )


PROGRAMS = {
    "arguments": "import sys; print(sys.argv)",
    "main": "print(__name__, __file__, __package__, __spec__ and __spec__.name, __doc__)",
    "names": "print(sorted(globals()))",
    "main module": "import sys; print(sys.modules['__main__'].__dict__ is globals())",
    "path": "import sys; print(sys.path[0], len(sys.path))",
    "neighbour": "import neighbour; print(neighbour.__file__)",
    "shadowing": "import calendar, json; print(calendar.__file__, json.__file__)",
    "environment": "import os; print([k for k in os.environ if k.startswith('GAPTRACE')])",
    "stdin": "print(input())",
    "future": "from __future__ import annotations\ndef f(x: no): pass\nprint(f.__annotations__)",
    "encoding": "# -*- coding: latin-1 -*-\nprint(len('\xe9'))",
    "exit": "import sys; sys.exit(3)",
    "exit with text": "import sys; sys.exit('went wrong')",
    "exit without": "raise SystemExit",
    "exit big": "raise SystemExit(257)",
    "error": "def f():\n    raise ValueError('wrong')\nf()",
    "chained error": "try: 1 / 0\nexcept ZeroDivisionError as e: raise KeyError(1) from e",
    "syntax error": "x = (",
    "atexit": "import atexit; x = 'kept'; atexit.register(lambda: print(x, __name__))",
    "thread": "import threading; threading.Thread(target=lambda: print(__name__)).start()",
    "signal": "import os; os.kill(os.getpid(), 9)",
    "interrupt": "import os; os.kill(os.getpid(), 2)",
    "abrupt": "import os; os._exit(4)",
    "hook": "import sys; sys.excepthook = lambda *e: print('mine', e[0]); 1 / 0",
    "pickle": "import pickle\nclass C: pass\nprint(type(pickle.loads(pickle.dumps(C()))) is C)",
    "spawn": (
        "import multiprocessing as m\ndef f(x): return x + 1\nif __name__ == '__main__':\n"
        "    with m.get_context('spawn').Pool(1) as pool: print(pool.map(f, [1]))"
    ),
}


@pytest.fixture
def program_folder(tmp_path) -> Path:
    (tmp_path / "neighbour.py").touch()
    (tmp_path / "calendar.py").touch()  # shadows the library's
    (tmp_path / "json").mkdir()  # does not: no package
    return tmp_path


@pytest.mark.parametrize("form", ["script", "module", "script elsewhere"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_run_as_python_runs_them(program_folder, name, form):
    (program_folder / "program.py").write_text(PROGRAMS[name], encoding="latin-1")
    cwd = program_folder
    target = {"script": ["program.py"], "module": ["-m", "program"]}.get(form)
    if target is None:
        cwd = program_folder / "elsewhere"
        cwd.mkdir()
        target = ["../program.py"]
    target += ["one", "--two", "three four"]
    alone = run_python(*target, cwd=cwd, stdin="line\n")
    under = run_python(RUNNER, *target, cwd=cwd, stdin="line\n")
    # Python ends itself by the signal; under a recorder that would lose what it has buffered.
    assert under.returncode == (130 if alone.returncode == -2 else alone.returncode)
    assert under.stdout == alone.stdout
    # Python shows its own runpy in the traceback of a module; here it starts in the module.
    assert under.stderr == without_runpy(alone.stderr)


def without_runpy(traceback: str) -> str:
    return "".join(
        line for line in traceback.splitlines(keepends=True) if '"<frozen runpy>"' not in line
    )


def test_a_script_behind_a_link_finds_its_own_folder(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "neighbour.py").touch()
    (tmp_path / "real" / "program.py").write_text("import neighbour, sys; print(sys.argv)")
    (tmp_path / "link.py").symlink_to("real/program.py")
    found = run_python(RUNNER, "link.py", cwd=tmp_path)
    assert (found.stdout, found.stderr) == ("['link.py']\n", "")


@pytest.mark.parametrize("target", [["nowhere.py"], ["-m", "nowhere"]])
def test_a_missing_program_is_reported_as_by_python(tmp_path, target):
    alone = run_python(*target, cwd=tmp_path)
    under = run_python(RUNNER, *target, cwd=tmp_path)
    assert (under.returncode, under.stderr) == (alone.returncode, alone.stderr)


def test_a_gaptrace_that_is_not_installed_runs_programs(tmp_path):
    (tmp_path / "program.py").write_text("import sys; print(sys.argv)")
    found = run_python("-S", RUNNER, "program.py", cwd=tmp_path)
    assert (found.stdout, found.stderr) == ("['program.py']\n", "")


def test_packages_run_their_main(tmp_path):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").touch()
    (tmp_path / "pack" / "__main__.py").write_text("print(__package__, __name__)")
    assert run_python(RUNNER, "-m", "pack", cwd=tmp_path).stdout == ("pack __main__\n")


def test_any_command_replaces_the_runner(tmp_path):
    command = ["sh", "-c", 'echo "$@"; exit 6', "sh", "a b", "*"]
    found = run_python(RUNNER, "--", *command, cwd=tmp_path)
    assert (found.returncode, found.stdout) == (6, "a b *\n")


def test_a_command_that_cannot_run(tmp_path):
    found = run_python(RUNNER, "--", "./nowhere", cwd=tmp_path)
    assert found.returncode == 1
    assert found.stderr == "gaptrace: cannot run ./nowhere: No such file or directory\n"


def test_output_goes_where_the_descriptors_say(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import sys; print('out'); print('err', file=sys.stderr)")
    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
        given = (out.fileno(), err.fileno())
        found = subprocess.run(
            [sys.executable, RUNNER, str(program)],
            pass_fds=given,
            env=os.environ | {"GAPTRACE_STDIO": "{},{}".format(*given)},
            capture_output=True,
            check=True,
        )
    assert (tmp_path / "out").read_text() == "out\n"
    assert (tmp_path / "err").read_text() == "err\n"
    assert (found.stdout, found.stderr) == (b"", b"")


def test_closed_descriptors_leave_the_output_where_it_is(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("print('out')")
    notes = tmp_path / "notes.json"
    environment = {"GAPTRACE_STDIO": "63,64", "GAPTRACE_NOTES": str(notes)}
    found = run_python(RUNNER, str(program), **environment)
    assert (found.returncode, found.stdout, found.stderr) == (0, "out\n", "")
    assert json.loads(notes.read_text())["output_in_log"] is True


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("pass", 0),
        ("import sys; sys.exit(3)", 3),
        ("import sys; sys.exit('text')", 1),
        ("1 / 0", 1),
        ("raise KeyboardInterrupt", 130),
        ("import os; os._exit(4)", None),
        ("raise SystemExit(257)", 1),
        ("import os, sys\nif os.fork() == 0: sys.exit(9)\nos.wait(); os._exit(4)", None),
    ],
)
def test_notes_hold_the_exit_status(tmp_path, program, status):
    assert notes_of(tmp_path, program)["status"] == status


def notes_of(folder: Path, program: str, **environment: str) -> dict:
    """Run a program and return its notes."""
    (folder / "program.py").write_text(program)
    notes = folder / "notes.json"
    run_python(
        RUNNER,
        str(folder / "program.py"),
        "one",
        cwd=folder,
        GAPTRACE_NOTES=str(notes),
        **environment,
    )
    return json.loads(notes.read_text())


def test_notes_say_what_ran(tmp_path):
    pid = tmp_path / "pid"
    program = f"import os, pathlib; pathlib.Path({str(pid)!r}).write_text(str(os.getpid()))"
    notes = notes_of(tmp_path, program)
    assert notes["arguments"] == [str(tmp_path / "program.py"), "one"]
    assert notes["python"] == sys.version.split()[0]
    assert notes["nvtx"]["state"] == "recorded"
    assert notes["graphs"] == {}
    assert notes["output_in_log"] is False
    assert notes["pid"] == int(pid.read_text())


def test_modules_of_the_working_directory_do_not_disturb_the_measuring(tmp_path):
    (tmp_path / "inspect.py").write_text("raise ImportError('not the one of the library')")
    assert notes_of(tmp_path, "pass")["nvtx"]["state"] == "recorded"


def test_notes_say_that_nothing_records(tmp_path):
    notes = notes_of(tmp_path, "import cupy, torch", NVTX_STAND_IN="dummy")
    assert notes["nvtx"]["state"] == "silent"
    left = "left alone: nothing records NVTX ranges"
    assert notes["graphs"] == {"cupy": left, "torch": left}


def test_a_notes_file_that_cannot_be_written_fails_nothing(tmp_path):
    (tmp_path / "program.py").write_text("print('ran')")
    found = run_python(
        RUNNER,
        str(tmp_path / "program.py"),
        GAPTRACE_NOTES=str(tmp_path / "nowhere" / "notes.json"),
    )
    assert (found.returncode, found.stdout, found.stderr) == (0, "ran\n", "")


# Names of graphs


def ranges_of(folder: Path, program: str, **environment: str) -> tuple[list[str], str]:
    """Run a program that uses the stand-ins; return what was recorded and what it printed."""
    (folder / "program.py").write_text(program)
    log = folder / "nvtx.log"
    found = run_python(RUNNER, str(folder / "program.py"), NVTX_LOG=str(log), **environment)
    assert found.stderr == ""
    return log.read_text().splitlines() if log.exists() else [], found.stdout


CUPY = """
import cupy
stream = cupy.cuda.Stream()
for _ in range(2):
    stream.begin_capture()
    graph = stream.end_capture()
    graph.launch(stream=5)
print(graph.launch(stream), graph.upload(3), graph.graphExec == stream.ptr)
print(isinstance(graph, cupy.cuda.Graph))
"""


def test_cupy_graphs_are_named_and_numbered(tmp_path):
    seen, _ = ranges_of(tmp_path, CUPY)
    assert seen == [
        *("start capture 1", "end capture 1", "push instantiate 1", "pop", "push replay 1", "pop"),
        *("start capture 2", "end capture 2", "push instantiate 2", "pop", "push replay 2", "pop"),
        *("push replay 2", "pop"),
    ]


def test_named_cupy_graphs_behave_as_before(tmp_path):
    _, named = ranges_of(tmp_path, CUPY.replace("launch(stream)", "launch(4)"))
    alone = run_python(str(tmp_path / "program.py"))
    assert named == alone.stdout
    assert named == "('launched on', 4) ('uploaded to', 3) True\nTrue\n"


def test_captures_on_two_streams_keep_apart(tmp_path):
    seen, _ = ranges_of(
        tmp_path,
        "import cupy; a, b = cupy.cuda.Stream(), cupy.cuda.Stream()\n"
        "a.begin_capture(); b.begin_capture(); f = a.end_capture(); g = b.end_capture()\n"
        "g.launch(); f.launch()",
    )
    assert seen[:3] == ["start capture 1", "start capture 2", "end capture 1"]
    assert seen[-4:] == ["push replay 2", "pop", "push replay 1", "pop"]


def test_a_capture_that_does_not_begin_leaves_no_range_open(tmp_path):
    seen, printed = ranges_of(
        tmp_path,
        "import cupy; s = cupy.cuda.Stream()\n"
        "try: s.begin_capture('wrong')\nexcept ValueError as error: print(error)\n"
        "s.end_capture().launch()",
    )
    assert printed == "no such mode\n"
    # The end without a begin that was seen makes a graph of its own.
    assert seen == [
        *("start capture 1", "end capture 1"),
        *("push instantiate 2", "pop", "push replay 2", "pop"),
    ]


TORCH = """
import torch
graph = torch.cuda.CUDAGraph({keep})
graph.capture_begin(capture_error_mode="relaxed")
graph.capture_end()
graph.replay()
graph.replay()
print(graph.done)
"""


@pytest.mark.parametrize("version", ["old", "new"])
def test_torch_graphs_are_named_and_numbered(tmp_path, version):
    seen, printed = ranges_of(tmp_path, TORCH.format(keep=""), TORCH_STAND_IN=version)
    assert seen == [
        *("start capture 1", "end capture 1", "push instantiate 1", "pop"),
        *("push replay 1", "pop", "push replay 1", "pop"),
    ]
    assert printed == "['begin relaxed', 'end', 'instantiate', 'replay', 'replay']\n"


@pytest.mark.parametrize("keep", ["True", "keep_graph=True"])
def test_an_old_torch_graph_that_is_kept_is_instantiated_later(tmp_path, keep):
    program = TORCH.format(keep=keep).replace("\ngraph.replay()", "\ngraph.instantiate()", 1)
    seen, printed = ranges_of(tmp_path, program, TORCH_STAND_IN="old")
    assert seen == [
        *("start capture 1", "end capture 1", "push instantiate 1", "pop"),
        *("push replay 1", "pop"),
    ]
    assert printed == "['begin relaxed', 'end', 'instantiate', 'replay']\n"


def test_a_new_torch_graph_that_is_kept_is_instantiated_in_its_first_replay(tmp_path):
    seen, _ = ranges_of(tmp_path, TORCH.format(keep="True"), TORCH_STAND_IN="new")
    assert seen == [
        *("start capture 1", "end capture 1"),
        *("push replay 1", "push instantiate 1", "pop", "pop", "push replay 1", "pop"),
    ]


def test_a_torch_graph_keeps_its_number_when_it_is_captured_again(tmp_path):
    seen, _ = ranges_of(
        tmp_path,
        "import torch; a, b = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()\n"
        "for graph in (a, b, a): graph.capture_begin(); graph.capture_end()",
    )
    assert [line for line in seen if line.startswith("start")] == [
        "start capture 1",
        "start capture 2",
        "start capture 1",
    ]


def test_a_torch_capture_that_ends_twice_closes_its_range_once(tmp_path):
    seen, _ = ranges_of(
        tmp_path,
        "import torch; graph = torch.cuda.CUDAGraph()\n"
        "graph.capture_begin(); graph.capture_end_pre(); graph.capture_end_pre()",
    )
    assert seen == ["start capture 1", "end capture 1"]


def test_a_library_in_an_archive_is_watched_alone(tmp_path):
    shutil.copytree(STAND_INS / "torch", tmp_path / "packed" / "torch")
    (tmp_path / "packed" / "torch" / "cuda" / "later.py").touch()
    archive = shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path / "packed")
    program = f"import sys; sys.path.insert(0, {archive!r})\nimport torch, torch.cuda.later"
    assert notes_of(tmp_path, program)["graphs"] == {"torch": "named"}


def test_libraries_of_another_shape_are_left_alone(tmp_path):
    (tmp_path / "cupy" / "cuda").mkdir(parents=True)
    (tmp_path / "cupy" / "__init__.py").write_text("import cupy.cuda.stream")
    (tmp_path / "cupy" / "cuda" / "__init__.py").touch()
    (tmp_path / "cupy" / "cuda" / "stream.py").write_text("class _BaseStream:\n    ptr = 1\n")
    notes = notes_of(tmp_path, "import cupy; print('ran')")
    assert notes["status"] == 0
    assert notes["graphs"]["cupy"] == (
        "left alone: cupy.cuda.stream._BaseStream has no begin_capture, end_capture"
    )


def test_finders_of_the_old_kind_are_passed_over(tmp_path):
    shutil.copytree(STAND_INS / "cupy", tmp_path / "cupy")
    program = (
        "import sys\n"
        "class Old:\n"
        "    def find_module(self, name, path=None): return None\n"
        "sys.meta_path.insert(0, Old())\n"
        "import cupy.cuda.stream\n"
        "print('ran')\n"
    )
    assert notes_of(tmp_path, program)["status"] == 0


def test_a_command_has_the_signals_that_it_has_alone(tmp_path):
    command = ["sh", "-c", "grep SigIgn /proc/self/status"]
    alone = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "SigIgn" in alone
    assert run_python(RUNNER, "--", *command, cwd=tmp_path).stdout == alone


def test_a_package_sees_the_arguments_that_python_shows_it(tmp_path):
    (tmp_path / "tool").mkdir()
    (tmp_path / "tool" / "__init__.py").write_text("import sys; print(sys.argv)")
    (tmp_path / "tool" / "__main__.py").write_text("import sys; print(sys.argv[1:])")
    alone = run_python("-m", "tool", "5", cwd=tmp_path).stdout
    assert alone == "['-m', '5']\n['5']\n"
    assert run_python(RUNNER, "-m", "tool", "5", cwd=tmp_path).stdout == alone


def test_a_program_that_uses_neither_imports_neither(tmp_path):
    _, printed = ranges_of(
        tmp_path, "import sys; print([m for m in ('nvtx', 'cupy', 'torch') if m in sys.modules])"
    )
    assert printed == "[]\n"


def test_public_names_are_what_they_are_called_after_all_was_fetched():
    """A module of the same name as a function would take its place once it is imported."""
    import gaptrace

    for name in gaptrace.__all__:
        getattr(gaptrace, name)
    modules = [
        name for name in gaptrace.__all__ if type(getattr(gaptrace, name)).__name__ == "module"
    ]
    assert modules == []


def test_nvtxs_default_domain_gets_a_name_for_a_recorder_that_needs_one(tmp_path):
    """In a process of its own: it changes the module for good."""
    program = (
        "import nvtx\n"
        "from gaptrace.live.watch import name_default_domain\n"
        "import nvtx.nvtx as inner\n"
        "asked = []\n"
        "inner._get_domain_cached = lambda name: asked.append(name) or inner.dummy_domain\n"
        "name_default_domain(nvtx)\n"
        "with nvtx.annotate('a'), nvtx.annotate('b', domain='mine'): pass\n"
        "nvtx.get_domain()\n"
        "assert asked[:2] == ['NVTX', 'mine'] and asked[-1] == 'NVTX', asked\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (0, "")
