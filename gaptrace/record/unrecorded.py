"""Runs a program without any recorder, for times that no recorder has touched."""

import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gaptrace.errors import RecorderError
from gaptrace.record.recording import read_notes


def run_unrecorded(
    command: Sequence[str],
    notes_path: Path,
    *,
    told: Mapping[str, str],
    output: tuple[int, int] = (1, 2),
) -> tuple[int, dict[str, Any]]:
    """Run a command from `recording.launcher` and wait for it.

    Args:
        command: what to run.
        notes_path: where the process puts its notes.
        told: environment variables for `gaptrace.live.run`.
        output: descriptors for the program's output and error output.

    Returns:
        its exit status, 128 + n when signal n ended it; and its notes.

    Raises:
        RecorderError: it cannot be started.
    """
    environment = os.environ | {"GAPTRACE_NOTES": str(notes_path), **told}
    try:
        process = subprocess.Popen(command, stdout=output[0], stderr=output[1], env=environment)
    except OSError as error:
        raise RecorderError(f"cannot start {command[0]}: {error}") from error
    while True:
        # An interrupt from the terminal reaches the program as well, which ends by it.
        with contextlib.suppress(KeyboardInterrupt):
            returncode = process.wait()
            break
    return (returncode if returncode >= 0 else 128 - returncode), read_notes(notes_path)
