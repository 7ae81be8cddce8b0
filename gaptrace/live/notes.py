"""What only the profiled process can know about its run, handed back through a file."""

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any


class RunNotes:
    """Notes of one run, written when it starts and again when it ends.

    The file holds one JSON object: `pid`; `arguments`; `python`; `nvtx` {`version`, `state`};
    `graphs` {library: what was done about its graphs}; `output_in_log`, whether the program's
    output went to the log of the recorder; `arms` {step: its measurement, as `timings.as_object`
    writes it, or `error`}; `verify` {step: what its replays did, as `live.shadow` notes it, or
    `error`}; `cupti`, {`problem`: why CUPTI cannot record} where it cannot but was asked to;
    `status`, the exit status, null until the end and for a process that does not come to its end.
    """

    def __init__(self, path: str | None, arguments: list[str]) -> None:
        self._path = Path(path) if path else None
        self._pid = os.getpid()
        self.nvtx: dict[str, str | None] = {"version": None, "state": None}
        self.graphs: dict[str, str] = {}
        self.output_in_log = False
        self.arms: dict[str, dict[str, Any]] = {}
        self.verify: dict[str, dict[str, Any]] = {}
        self.cupti: dict[str, str] = {}
        self.is_recording_itself = False
        self.status: int | None = None
        self._arguments = arguments

    def ended_by(self, error: BaseException | None) -> None:
        """Note the exit status that follows from the error that ended the program, if any."""
        match error:
            case None | SystemExit(code=None):
                self.status = 0
            case SystemExit(code=int(code)):
                self.status = code & 0xFF
            case KeyboardInterrupt():
                self.status = 130
            case _:
                self.status = 1
        self.write()

    def write(self) -> None:
        """Write the file; a forked child leaves it to its parent."""
        if self._path is None or os.getpid() != self._pid:
            return
        content = {
            "pid": self._pid,
            "arguments": self._arguments,
            "python": sys.version.split()[0],
            "nvtx": self.nvtx,
            "graphs": self.graphs,
            "output_in_log": self.output_in_log,
            "arms": self.arms,
            "verify": self.verify,
            "cupti": self.cupti,
            "status": self.status,
        }
        # The program may have moved or filled the disk; that is no reason to fail it.
        with contextlib.suppress(OSError):
            # Whoever reads meanwhile must find the old notes or the new ones, never half of them.
            draft = self._path.with_name(f".{self._path.name}.{self._pid}")
            draft.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
            draft.replace(self._path)
