"""Runs a program under `nsys profile` and returns what it left, whatever the program's fate.

The program keeps the terminal: nsys writes its own chatter to a log, and the descriptors that
gaptrace was started with are handed through nsys to `gaptrace.live.run`, which puts them back.
"""

import contextlib
import fcntl
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from gaptrace.errors import RecorderError
from gaptrace.record.children import read_notes, signals_passed_on
from gaptrace.record.nsys import Nsys, find_importer, missing_libraries, packages_of

Granularity = Literal["graph", "node"]

#: The lowest number for the descriptors handed through nsys. High, so that files which nsys opens
#: in the program before it starts cannot take the numbers, should a version of nsys close them.
_FIRST_DESCRIPTOR = 200

#: What nsys says when it loses the process that it records with, before the program begins. Seen
#: once in some 400 runs of 2023.4.4 on a busy machine; the next run went well.
_AGENT_LOST = "Connection to Agent lost"


@dataclass(frozen=True)
class Recording:
    """What one run under a recorder left.

    Attributes:
        report: the `.nsys-rep` file, or the spool of the CUPTI recorder.
        log: what nsys itself printed; None under CUPTI, which prints nothing.
        status: exit status of the program; 128 + n when signal n ended it, 130 after Ctrl-C.
        notes: what `gaptrace.live.notes.RunNotes` wrote, empty if the program never started.
    """

    report: Path
    log: Path | None
    status: int
    notes: dict[str, Any]


def launcher(target: Sequence[str], *, form: Literal["script", "module", "command"]) -> list[str]:
    """Return the command that runs the target inside `gaptrace.live.run`.

    Args:
        target: a script, a module or a command, and its arguments.
        form: which of the three.
    """
    prefix = {"script": [], "module": ["-m"], "command": ["--"]}[form]
    # By its path: with -m, modules in the working directory would come before Python's own.
    return [sys.executable, str(files("gaptrace.live") / "run.py"), *prefix, *target]


def nsys_command(
    command: Sequence[str], stem: Path, *, granularity: Granularity, nsys: Nsys
) -> list[str]:
    """Return the command that records another one: CUDA and NVTX, and nothing else.

    Args:
        command: from `launcher`.
        stem: path of the report without its suffix.
        granularity: whether CUDA graphs are recorded as wholes or node by node.
        nsys: the recorder.
    """
    return [
        *(str(nsys.path), "profile"),
        *("-t", "cuda,nvtx", "-s", "none", "--cpuctxsw=none"),
        f"--cuda-graph-trace={granularity}",
        *("-o", str(stem).replace("%", "%%")),  # %p and others stand for something
        *command,
    ]


def record(
    command: Sequence[str],
    stem: Path,
    *,
    nsys: Nsys,
    output: tuple[int, int] = (1, 2),
    told: Mapping[str, str] = MappingProxyType({}),
) -> Recording:
    """Run a command from `nsys_command` and wait for its report.

    Ctrl-C reaches the program but not nsys, which would stop at once and lose the device work that
    is still in its buffers (seen with 2025.3: all of a short run); so it ends as the program does,
    and what was recorded is kept. A SIGTERM is passed on to nsys, which ends the program. Where
    nsys recorded and its importer failed (seen once with 2023.4, on a busy machine and with nothing
    wrong), the importer is run again.

    Args:
        command: what to run.
        stem: as given to `nsys_command`; its folder exists and holds no file of that name.
        nsys: the recorder.
        output: descriptors for the program's output and error output.
        told: more environment variables for `gaptrace.live.run`.

    Raises:
        RecorderError: no report came out; the message says why.
    """
    log = stem.with_name(f"{stem.name}.nsys.log")
    notes_path = stem.with_name(f"{stem.name}.script.json")
    returncode, interrupted = _run(command, log, notes_path, output, told)
    if _AGENT_LOST in log.read_text(errors="replace") and not (notes_path.exists() or interrupted):
        # The program has not begun, so that it can be run.
        returncode, interrupted = _run(command, log, notes_path, output, told)
    notes = read_notes(notes_path)
    report = stem.with_name(f"{stem.name}.nsys-rep")
    is_late = not report.is_file() and _import(stem, log, nsys)
    if not report.is_file():
        raise RecorderError(_why_no_report(stem, log, nsys, returncode, interrupted=interrupted))
    status = returncode if returncode >= 0 else 128 - returncode
    if notes.get("status") is not None:
        status = notes["status"] if interrupted or is_late else status
    elif interrupted and "pid" not in notes:
        status = 130  # it had not begun
    return Recording(report, log, status, notes)


def _run(
    command: Sequence[str],
    log: Path,
    notes_path: Path,
    output: tuple[int, int],
    told: Mapping[str, str],
) -> tuple[int, bool]:
    given: list[int] = []
    try:
        given.extend(fcntl.fcntl(each, fcntl.F_DUPFD, _FIRST_DESCRIPTOR) for each in output)
        environment = os.environ | {
            "GAPTRACE_STDIO": ",".join(map(str, given)),
            "GAPTRACE_NOTES": str(notes_path),
            **told,
        }
        with log.open("wb") as chatter, signals_passed_on(notes_path) as signals:
            # nsys inherits a mask under which neither comes, and would end without a report;
            # `gaptrace.live.run` lifts it for the program.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
            try:
                process = subprocess.Popen(
                    command, stdout=chatter, stderr=chatter, pass_fds=given, env=environment
                )
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            signals.terminate = process.terminate
            returncode = process.wait()
            if _AGENT_LOST in log.read_text(errors="replace"):
                _end_agent(process.pid)
            return returncode, signals.interrupted
    except OSError as error:
        raise RecorderError(f"cannot start {command[0]}: {error}") from error
    finally:
        for descriptor in given:
            os.close(descriptor)


def _end_agent(nsys_pid: int) -> None:
    """End the process that nsys left behind, which would hold the program's output open."""
    for pid in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - processes come and go
        with contextlib.suppress(OSError):
            arguments = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
            if f"--session-name=profile-{nsys_pid}" in arguments:
                os.kill(int(pid), signal.SIGTERM)


def _import(stem: Path, log: Path, nsys: Nsys) -> bool:
    """Make the report of a recording that nsys has left without one, and say whether it is there.

    The recording is kept where that fails, and else goes, as under nsys.
    """
    recorded = stem.with_name(f"{stem.name}.qdstrm")
    report = stem.with_name(f"{stem.name}.nsys-rep")
    importer = find_importer(nsys)
    if not recorded.exists() or importer is None or missing_libraries(importer):
        return False
    with log.open("ab") as chatter:
        try:
            subprocess.run(
                [str(importer), "--input-file", str(recorded), "--output-file", str(report)],
                stdin=subprocess.DEVNULL,
                stdout=chatter,
                stderr=chatter,
                check=False,
            )
        except OSError as error:  # not executable, say
            chatter.write(f"{error}\n".encode())
    if report.is_file():
        recorded.unlink()
    return report.is_file()


def _why_no_report(stem: Path, log: Path, nsys: Nsys, returncode: int, *, interrupted: bool) -> str:
    said = log.read_text(encoding="utf-8", errors="replace")
    if stem.with_name(f"{stem.name}.qdstrm").exists():
        return _why_no_import(stem, log, nsys)
    if _AGENT_LOST in said:
        return f"nsys {nsys.version} lost its own agent twice; try again (what it said is in {log})"
    if interrupted:
        return (
            f"interrupted before nsys had saved its report; press Ctrl-C once and wait (see {log})"
        )
    if "Permission denied" in said or "Failed to create" in said:
        return (
            f"nsys could not write {stem}.nsys-rep: {_last_line(said)}; "
            "choose a writable folder with --output"
        )
    return (
        f"nsys {nsys.version} left no report and ended with status {returncode}: "
        f"{_last_line(said) or 'it said nothing'}; all it said is in {log}"
    )


def _why_no_import(stem: Path, log: Path, nsys: Nsys) -> str:
    head = f"nsys {nsys.version} recorded, but its importer failed and left only {stem}.qdstrm"
    importer = find_importer(nsys)
    if importer is None:
        return (
            f"{head}: there is no host-linux-*/QdstrmImporter beside {nsys.path}; install the "
            "whole of Nsight Systems, or set GAPTRACE_NSYS to one that is whole"
        )
    missing = missing_libraries(importer)
    if not missing:
        return f"{head}, twice; what it said is in {log}, and {importer} can be run on that file"
    packages = packages_of(missing)
    remedy = (
        f"on Debian or Ubuntu: apt install {' '.join(packages)}"
        if packages
        else f"install the packages that bring them, or put them into {importer.parent}"
    )
    names = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
    return f"{head}: {names} missing; {remedy}"


def _last_line(said: str) -> str:
    """Return the last line that nsys printed, leaving out progress bars."""
    lines = [line.strip() for line in re.split(r"[\r\n]", said)]
    return next((line for line in reversed(lines) if line and not line.startswith("[1/")), "")
