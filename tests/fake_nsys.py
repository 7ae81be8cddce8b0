"""A stand-in for nsys, for tests of everything around it where none is installed.

It runs the program as nsys does (output and descriptors inherited, exit status passed on, Ctrl-C
left to the program) and prints the chatter of nsys 2023.4.4. Its "report" is a text file, and its
"export" a copy of the file that $FAKE_NSYS_EXPORT names. What $FAKE_NSYS says goes wrong:

- `importer`: the importer fails; a .qdstrm is left, exit status 0 (as seen)
- `unwritable`: the report cannot be written to the folder, exit status 1 (as seen)
- `option`: it does not know an option, exit status 1
- `silent`: it ends without a report or a word
- `export`: the export fails half way
- `full`: the disk is full, and the export without tables; exit status 0 (as seen)
- `slow`: the export takes a minute
- `agent`: it loses its agent, which stays behind, the first time or with `agents` every time
- `closes`: the program does not get the descriptors that nsys does not know (never seen)
"""
# ruff: noqa: T201 - printing is what it is for

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

VERSION = os.environ.get("FAKE_NSYS_VERSION", "2023.4.4.54")
FAILS = os.environ.get("FAKE_NSYS", "")


def profile(arguments: list[str]) -> int:
    if FAILS == "option":
        print("unrecognised option '--cuda-graph-trace=graph'", file=sys.stderr)
        return 1
    stem = Path(arguments[arguments.index("-o") + 1])
    if FAILS == "agents" or (FAILS == "agent" and not Path(f"{stem}.tried").exists()):
        tried = Path(f"{stem}.tried")
        tried.unlink(missing_ok=True)
        wait = "import pathlib, sys, time; pathlib.Path(sys.argv[2]).touch(); time.sleep(60)"
        session = f"--session-name=profile-{os.getpid()}"
        subprocess.Popen([sys.executable, "-c", wait, session, tried], close_fds=False)
        while not tried.exists():
            time.sleep(0.01)
        print("Connection to Agent lost. This is most likely a bug.\nSee https://...")
        return 1
    program = arguments[arguments.index("-o") + 2 :]
    signal.signal(signal.SIGINT, lambda *_: None)
    print("Generating '/tmp/nsys-report-0a1b.qdstrm'", flush=True)
    status = subprocess.run(program, close_fds=FAILS == "closes", check=False).returncode
    if FAILS == "unwritable":
        print(f"Failed to create '{stem}.nsys-rep': Permission denied.", file=sys.stderr)
        return 1
    if FAILS == "silent":
        return 3
    if FAILS == "importer":
        stem.with_name(f"{stem.name}.qdstrm").write_text("fake recording")
        print("Importer error status: An unknown error occurred.", file=sys.stderr)
        return 0
    print("[1/1] [0%      ] x.nsys-rep\r[1/1] [=====100%] x.nsys-rep", end="")
    report = f"fake report {' '.join(arguments)}"
    stem.with_name(f"{stem.name}.nsys-rep").write_text(report, errors="surrogateescape")
    print(f"\nGenerated:\n    {stem}.nsys-rep")
    return status if status >= 0 else 128 - status


def export(arguments: list[str]) -> int:
    target = Path(arguments[1].removeprefix("--output="))
    if not Path(arguments[-1]).read_bytes().startswith(b"fake report"):
        print("Exportation error: Cannot read from stream.", file=sys.stderr)
        return 1
    for percentage in (1, 50):
        print(f"\rProcessing 90 events: [{percentage}%    ]", end="", file=sys.stderr, flush=True)
    if FAILS in ("export", "slow"):
        target.write_text("half an export")
        time.sleep(60 if FAILS == "slow" else 0)
        print("\nExportation error: No space left on device.", file=sys.stderr)
        return 1
    if FAILS == "full":
        with closing(sqlite3.connect(target)) as made:
            made.execute("CREATE TABLE META (name)")
        print("\ndatabase or disk is full.", file=sys.stderr)
        return 0
    shutil.copyfile(os.environ["FAKE_NSYS_EXPORT"], target)
    print("\rProcessing 90 events: [====100%]", file=sys.stderr)
    return 0


def main() -> int:
    command, *arguments = sys.argv[1:]
    if command == "--version":
        print(f"NVIDIA Nsight Systems version {VERSION}-234433681190v0")
        return 0
    return {"profile": profile, "export": export}[command](arguments)


if __name__ == "__main__":
    sys.exit(main())
