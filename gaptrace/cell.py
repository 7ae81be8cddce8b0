"""`%%gaptrace` in a notebook: records one cell with CUPTI, and shows where its GPU stood idle.

    %load_ext gaptrace

    %%gaptrace trace
    for _ in range(100):
        step()

The cell runs in the process of the notebook, with all that is in it already. So the recording holds
what the cell does, and not how what it uses came to be: of graphs that were captured in an earlier
cell it knows that they ran, not how they were made. NVTX ranges are recorded if the extension was
loaded before anything used NVTX.

Graphs are recorded node by node. As wholes would cost less, but CUPTI 13.0 ended the process (by a
segmentation fault, driver 580) when a graph was launched so that was older than the recording.
"""

import ast
import functools
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import CodeType
from typing import Any

from gaptrace.errors import GaptraceError, NotRecordedError, RecorderError
from gaptrace.live.cells import begin, end, prepare
from gaptrace.live.cupti import CuptiRecorder
from gaptrace.notebook import OpenTrace, open
from gaptrace.record.cupti import find_cupti
from gaptrace.record.cupti_file import convert
from gaptrace.record.machine import Driver, probe_driver, versions
from gaptrace.record.run_folder import add_cell, create_run_folder, write_versions


def load_ipython_extension(shell: Any) -> None:
    """Give a shell of IPython the cell magic `%%gaptrace`; called by `%load_ext gaptrace`."""
    from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

    prepare()  # where it cannot, the magic says so

    def gaptrace(line: str, cell: str) -> OpenTrace:
        """Record this cell with CUPTI and show where its GPU stood idle, and why.

        The trace is the result of the cell, and stays in a folder under gaptrace-runs. An exception
        of the cell passes on; what was recorded until then is shown and kept.
        """
        __tracebackhide__ = True
        options = parse_argstring(magic, line)
        return profile_cell(shell, cell, line=line, **vars(options))

    magic: Any = gaptrace
    for decorate in (
        argument(
            "--name",
            default="cell",
            help="What the folder in gaptrace-runs is called, before the time.  [default: cell]",
        ),
        argument("variable", nargs="?", help="Bind the trace to this name as well."),
        magic_arguments("%gaptrace"),  # which puts a % before it
    ):
        magic = decorate(magic)
    shell.register_magic_function(magic, "cell", "gaptrace")


def profile_cell(
    shell: Any, source: str, *, variable: str | None, name: str, line: str
) -> OpenTrace:
    """Run a cell under the recorder and return its trace.

    Args:
        shell: of IPython.
        source: of the cell.
        variable: to bind the trace to, in the notebook.
        name: of the run folder, before the time.
        line: the rest of the magic's own line, for the record.

    Raises:
        UsageError: the cell was not run, since it could not be recorded, or it did no CUDA work.
    """
    __tracebackhide__ = True
    from IPython.core.error import UsageError

    if variable is not None and not variable.isidentifier():
        raise UsageError(f"the cell was not run: {variable} cannot be the name of a variable")
    code = _compiled(shell, source)
    try:
        recording = _begin(name, line, source)
    except GaptraceError as error:
        raise UsageError(f"the cell was not run: {error}") from None
    try:
        _run(shell, code)
    except BaseException as error:
        _keep(shell, recording, variable, error)
        raise
    try:
        return _end(shell, recording, variable)
    except GaptraceError as error:
        raise UsageError(str(error)) from None


@dataclass(frozen=True)
class _Recording:
    spool: Path
    driver: Driver
    recorder: CuptiRecorder


#: The driver does not change while a kernel lives, and asking it takes a process.
_driver = functools.cache(probe_driver)


def _begin(name: str, line: str, source: str) -> _Recording:
    driver = _driver()
    found = find_cupti(driver)
    folder = create_run_folder(None, name, datetime.now())
    write_versions(folder, versions("cupti", found.version, driver))
    add_cell(folder, line, source)
    spool = folder / "node.cupti"
    return _Recording(spool, driver, begin(str(spool)))


def _end(shell: Any, recording: _Recording, variable: str | None) -> OpenTrace:
    end(recording.recorder)
    spool = recording.spool
    exported = convert(spool, spool.with_suffix(".sqlite"), recording.driver, ended=True)
    spool.unlink()  # the export holds all of it
    try:
        trace = open(exported)
    except NotRecordedError as error:
        raise RecorderError(f"the cell left no CUDA work to analyse: {error}") from error
    if variable is not None:
        shell.push({variable: trace})
    return trace


def _keep(shell: Any, recording: _Recording, variable: str | None, error: BaseException) -> None:
    """Show what a cell did that failed; its own error is what counts."""
    from IPython.display import display

    try:
        display(_end(shell, recording, variable))
    except Exception as lost:
        error.add_note(f"gaptrace: {lost}")


def _compiled(shell: Any, source: str) -> tuple[CodeType, CodeType | None]:
    """Return the code of a cell, and that of its last line where this has a value to show."""
    code = shell.transform_cell(source)
    name = shell.compile.cache(code, shell.execution_count, raw_code=source)
    body = shell.transform_ast(shell.compile.ast_parse(code, filename=name)).body
    is_shown = not source.rstrip().endswith(";")  # as everywhere in IPython
    last = body.pop() if is_shown and body and isinstance(body[-1], ast.Expr) else None
    return (
        shell.compile(ast.Module(body, []), name, "exec"),
        shell.compile(ast.Expression(last.value), name, "eval") if last else None,
    )


def _run(shell: Any, code: tuple[CodeType, CodeType | None]) -> None:
    __tracebackhide__ = "__ipython_bottom__"  # tracebacks begin with the cell, as usual
    from IPython.display import display

    body, last = code
    exec(body, shell.user_ns)
    value = eval(last, shell.user_ns) if last is not None else None
    if value is not None:
        display(value)
