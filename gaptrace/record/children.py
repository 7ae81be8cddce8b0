"""What every recorder does with the program it runs: pass on signals, read its notes."""

import contextlib
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any


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
        """Interrupt the program, if the terminal has not."""
        self.interrupted = True
        pid = read_notes(self._notes_path).get("pid")
        if pid is None:
            self.terminate()  # the program has not begun
        else:
            _interrupt(pid)

    def on_terminate(self, number: int, frame: FrameType | None) -> None:
        """End the recorder, which ends the program."""
        self.terminate()


def _interrupt(pid: int) -> None:
    """Interrupt a program, unless the terminal has: nsys gives it a session of its own."""
    with contextlib.suppress(ProcessLookupError):
        if os.getpgid(pid) != os.getpgrp():
            os.kill(pid, signal.SIGINT)


@contextmanager
def signals_passed_on(notes_path: Path) -> Iterator[Signals]:
    """Handle SIGINT and SIGTERM while the block runs, in the main thread.

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
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def read_notes(path: Path) -> dict[str, Any]:
    """Return what `gaptrace.live.notes.RunNotes` wrote; empty if it has not."""
    try:
        notes = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return notes if isinstance(notes, dict) else {}
