"""What every recorder does with the program it runs: pass on signals, read its notes."""

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from gaptrace.errors import RecorderError


class Signals:
    """Passes on the signals that come while the program runs, and notes interrupts.

    Attributes:
        interrupted: an interrupt came.
        terminate: what ends the recorder, or the program itself.
    """

    def __init__(self, notes_path: Path) -> None:
        self.interrupted = False
        self.terminate: Callable[[], None] = lambda: None
        self._notes_path = notes_path

    def on_interrupt(self, number: int, frame: FrameType | None) -> None:
        """Interrupt the program, if nobody else has."""
        again, self.interrupted = self.interrupted, True
        pid = read_notes(self._notes_path).get("pid")
        if pid is None:
            self.terminate()  # the program has not begun
        else:
            _interrupt(pid, again=again)

    def on_terminate(self, number: int, frame: FrameType | None) -> None:
        """End the recorder, which ends the program."""
        self.terminate()


def _interrupt(pid: int, *, again: bool) -> None:
    """Interrupt a program, unless it has been.

    nsys gives it a session of its own, so that it is not. In this process group it is by Ctrl-C in
    the terminal, and by who interrupts the group. Who interrupts this process alone cannot be told
    from that at first: two interrupts could end a program that is putting its things in order.
    """
    with contextlib.suppress(ProcessLookupError):
        if os.getpgid(pid) != os.getpgrp() or (again and not _is_in_foreground()):
            os.kill(pid, signal.SIGINT)


def _is_in_foreground() -> bool:
    """Whether Ctrl-C in the terminal reaches this process, and all others of its group."""
    try:
        with open("/dev/tty", "rb", buffering=0) as terminal:  # noqa: PTH123 - as short as can be
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:  # there is none
        return False


@contextmanager
def signals_passed_on(notes_path: Path) -> Iterator[Signals]:
    """Handle SIGINT, SIGTERM and SIGHUP while the block runs, in the main thread.

    A terminal that is closed sends the last, which ends the recorder as SIGTERM does; under nohup
    it stays ignored.

    Args:
        notes_path: where the program notes its process id.
    """
    signals = Signals(notes_path)
    if threading.current_thread() is not threading.main_thread():
        yield signals  # only the main thread may set handlers
        return
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signals.on_interrupt),
        signal.SIGTERM: signal.signal(signal.SIGTERM, signals.on_terminate),
    }
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signals.on_terminate)
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_program(
    command: Sequence[str], notes_path: Path, told: Mapping[str, str], output: tuple[int, int]
) -> tuple[int, dict[str, Any]]:
    """Run a command from `gaptrace.record.recording.launcher` and wait for its end.

    Ctrl-C reaches the program from the terminal, and it ends as it does.

    Args:
        command: what to run.
        notes_path: where the process puts its notes.
        told: more environment variables for `gaptrace.live.run`.
        output: descriptors for the program's output and error output.

    Returns:
        exit status of the program, 128 + n when signal n ended it; its notes.

    Raises:
        RecorderError: it cannot be started.
    """
    environment = os.environ | {"GAPTRACE_NOTES": str(notes_path), **told}
    try:
        with signals_passed_on(notes_path) as signals:
            # Until the program is there to take it; `gaptrace.live.run` lifts it.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                process = subprocess.Popen(
                    command, stdout=output[0], stderr=output[1], env=environment
                )
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            signals.terminate = process.terminate
            returncode = process.wait()
    except OSError as error:
        raise RecorderError(f"cannot start {command[0]}: {error}") from error
    return (returncode if returncode >= 0 else 128 - returncode), read_notes(notes_path)


def read_notes(path: Path) -> dict[str, Any]:
    """Return what `gaptrace.live.notes.RunNotes` wrote; empty if it has not."""
    try:
        notes = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return notes if isinstance(notes, dict) else {}
