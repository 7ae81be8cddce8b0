"""Runs a program for a recorder.

    python .../gaptrace/live/run.py SCRIPT [ARGS]
    python .../gaptrace/live/run.py -m MODULE [ARGS]
    python .../gaptrace/live/run.py -- COMMAND [ARGS]

A script or module runs as `python SCRIPT` or `python -m MODULE` would run it, except that the
CUDA graphs of CuPy and PyTorch are named by NVTX ranges when the program imports these libraries.
Any other command replaces this process. `gaptrace profile` sets environment variables, which are
gone before the program starts:

- `GAPTRACE_STDIO`: two descriptors, as `3,4`: the output and the error output meant for the
  program, while descriptors 1 and 2 go to the log of the recorder.
- `GAPTRACE_NOTES`: the file for `RunNotes`, what only this process can know about the run.
- `GAPTRACE_VERIFY`: anything, to have its steps replayed beside it (`gaptrace.live.shadow`).
- `GAPTRACE_ARMS`: how to measure the program's steps, as `gaptrace.live.measure` takes it, in JSON.
- `GAPTRACE_CUPTI`: granularity and spool, as `graph:/tmp/x.cupti`, where this process shall record
  itself; if it cannot, the program is not run.
"""

import sys

# The folder of this file, whose modules have names of others.
if __name__ == "__main__" and not sys.flags.safe_path:
    sys.path.pop(0)

import io
import os
import signal
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec
from types import CodeType, ModuleType, TracebackType

_AT_START = frozenset(sys.modules)

try:
    import gaptrace  # noqa: F401 - whether it can be
except ImportError:  # a checkout that is not installed
    sys.path.append(__file__.removesuffix("/gaptrace/live/run.py"))

from gaptrace.errors import GpuError  # noqa: E402
from gaptrace.live.notes import RunNotes  # noqa: E402
from gaptrace.live.plans import plan_steps  # noqa: E402
from gaptrace.live.watch import watch_imports  # noqa: E402


def main() -> None:
    """Run what the command line names."""
    # The recorder runs with these blocked (`gaptrace.record.recording`); the program must not.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGHUP})
    arguments = sys.argv[1:]
    notes = RunNotes(os.environ.pop("GAPTRACE_NOTES", None), arguments)
    notes.output_in_log = not _restore_output(os.environ.pop("GAPTRACE_STDIO", None))
    arms, replays = (os.environ.pop(f"GAPTRACE_{name}", None) for name in ("ARMS", "VERIFY"))
    plan_steps(notes, arms=arms, replays=replays)
    if arguments[:1] == ["--"]:
        notes.write()
        _replace_process(arguments[1:])
    _record_itself(os.environ.pop("GAPTRACE_CUPTI", None), notes)
    watch_imports(notes)
    notes.write()
    _hide_own_frames()
    if arguments[:1] == ["-m"]:
        _put_first(os.getcwd())  # noqa: PTH109
        sys.argv = ["-m", *arguments[2:]]  # what Python shows to the package's __init__
        code, module = _load_module(arguments[1])
        sys.argv = [module.__file__ or arguments[1], *arguments[2:]]
    else:
        _put_first(os.path.dirname(os.path.realpath(arguments[0])))  # noqa: PTH120
        code, module = _load_script(arguments[0])
        sys.argv = arguments
    _run(code, module, notes)


def _record_itself(asked: str | None, notes: RunNotes) -> None:
    if asked is None:
        return
    from gaptrace.live.cupti import start

    granularity, _, spool = asked.partition(":")
    try:
        start(granularity, spool)
        notes.is_recording_itself = True
    except GpuError as error:
        notes.cupti["problem"] = str(error)
        notes.write()
        sys.exit(1)


def _run(code: CodeType, module: ModuleType, notes: RunNotes) -> None:
    sys.modules["__main__"] = module
    try:
        exec(code, vars(module))
    except KeyboardInterrupt as error:
        notes.ended_by(error)
        sys.excepthook(type(error), error, error.__traceback__)
        # Python would now end itself by SIGINT, and the recorder would lose what it has buffered.
        sys.exit(130)
    except BaseException as error:
        notes.ended_by(error)
        raise
    notes.ended_by(None)


def _load_script(path: str) -> tuple[CodeType, ModuleType]:
    full = os.path.join(os.getcwd(), path)  # noqa: PTH109, PTH118
    try:
        with io.open_code(full) as file:
            source = file.read()
    except OSError as error:
        reason = f"[Errno {error.errno}] {error.strerror}"
        sys.stderr.write(f"{sys.executable}: can't open file {full!r}: {reason}\n")
        sys.exit(2)
    code = compile(source, full, "exec", dont_inherit=True)
    return code, _main_module(full, None, SourceFileLoader("__main__", full))


def _load_module(name: str) -> tuple[CodeType, ModuleType]:
    spec = find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = find_spec(f"{name}.__main__")
    code = getattr(spec.loader, "get_code", lambda _: None)(spec.name) if spec else None
    if spec is None or code is None:
        sys.exit(f"{sys.executable}: No module named {name}")
    return code, _main_module(spec.origin, spec, spec.loader)


def _main_module(file: str | None, spec: ModuleSpec | None, loader: object) -> ModuleType:
    """Return an empty `__main__` with the attributes that the interpreter would give it."""
    module = ModuleType("__main__")
    names = vars(module)
    names.update(
        __builtins__=sys.modules["builtins"],
        __file__=file,
        __cached__=spec.cached if spec else None,
        __loader__=loader,
        __package__=spec.parent if spec else None,
        __spec__=spec,
    )
    if "__annotations__" in vars(sys.modules["__main__"]):
        names["__annotations__"] = {}
    return module


def _replace_process(command: list[str]) -> None:
    # Python ignores these, and so would the command: a pipeline in it might never end.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"gaptrace: cannot run {command[0]}: {error.strerror}")


def _put_first(directory: str) -> None:
    """Put the program's directory first on the path, as the interpreter would.

    Modules in it win over those of the same name that were imported here.
    """
    if sys.flags.safe_path:
        return
    sys.path.insert(0, directory)
    imported = {name.partition(".")[0] for name in set(sys.modules) - _AT_START}
    shadowed = {
        name
        for name in imported.difference(sys.builtin_module_names, {"gaptrace"})
        if getattr(PathFinder.find_spec(name, [directory]), "loader", None) is not None
    }
    for name in set(sys.modules) - _AT_START:
        if name.partition(".")[0] in shadowed:
            del sys.modules[name]


def _restore_output(descriptors: str | None) -> bool:
    """Give the program the output that gaptrace was started with; say whether that went well."""
    if descriptors is None:
        return True
    try:
        for standard, given in enumerate(map(int, descriptors.split(",")), start=1):
            os.dup2(given, standard)
            os.close(given)
    except OSError:
        return False  # a recorder that closes what it does not know
    if sys.stdout.isatty() and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    return True


def _hide_own_frames() -> None:
    """Start the traceback of an error that ends the program where the program starts."""
    show = sys.excepthook

    def show_program(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        while traceback is not None and traceback.tb_frame.f_code.co_filename in own:
            traceback = traceback.tb_next
        show(kind, error.with_traceback(traceback), traceback)

    own = {__file__, "<frozen runpy>"}
    sys.excepthook = show_program


if __name__ == "__main__":
    main()
