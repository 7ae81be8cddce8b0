"""Runs the probes of a calibration in processes of their own, with and without a recorder.

Processes of their own because figures differ more from process to process than inside one, which
belongs in the spread, and because a recorder records a whole process.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gaptrace.calibration import Figure
from gaptrace.errors import GpuError, RecorderError
from gaptrace.record.cupti import Cupti, record_with_cupti
from gaptrace.record.nsys import Nsys
from gaptrace.record.recording import Granularity, Recording, launcher, nsys_command, record
from gaptrace.samples import Plan, Sample, figures_of

_PROBES = "gaptrace.live.calibrate"
#: Processes and rounds in each: as many as half a minute holds.
PROCESSES, _ROUNDS = 5, 4
_NODES = tuple(2**power for power in range(14))  # 1 to 8192
_BRANCHES = (1, 4)
#: Under a recorder, which takes its time for every node. One process: what it adds to graphs
#: is large against what processes differ by, and there are up to four ways to record.
_RECORDED_ROUNDS = 4
_RECORDED_NODES = (1, 8, 64, 512, 2048)
#: A process that is not done by then hangs: it takes some five seconds.
_PATIENCE_S = 300
#: The status of a program that Ctrl-C ended.
_INTERRUPTED = 130


def measure(progress: Callable[[int], None]) -> tuple[Figure, ...]:
    """Measure everything without a recorder.

    Args:
        progress: is told how many of `PROCESSES` are done.

    Raises:
        GpuError: there is no GPU, it is in use, or it refused.
    """
    found: list[list[Sample]] = []
    for number in range(PROCESSES):
        guard, loop_ns = number == 0, _fastest_loop_ns(found)
        plan = Plan(_NODES, _BRANCHES, _ROUNDS, number, depths=True, guard=guard, loop_ns=loop_ns)
        found.append(_plain(plan))
        progress(number + 1)
    return figures_of(found)


def _fastest_loop_ns(processes: Sequence[Sequence[Sample]]) -> float | None:
    samples = (sample for process in processes for sample in process)
    return min(
        (ns for sample in samples if sample.name == "host_loop_ns" for ns in sample.values),
        default=None,
    )


def recorder_name(recorder: Nsys | Cupti, granularity: Granularity) -> str:
    """Return what figures under a recorder say of it: `nsys-graph`, `cupti-node`."""
    return f"{'nsys' if isinstance(recorder, Nsys) else 'cupti'}-{granularity}"


def measure_recorded(
    granularity: Granularity, recorder: Nsys | Cupti, *, call_ns: float, loop_ns: float
) -> tuple[Figure, ...]:
    """Measure a part of it under a recorder; the recording itself is thrown away.

    Args:
        granularity: in which CUDA graphs are recorded.
        recorder: Nsight Systems, or CUPTI in the process that measures.
        call_ns: the figure `binding_call_ns` without a recorder.
        loop_ns: the least of `host_loop_ns`.

    Returns:
        Figures of the recorder that `recorder_name` names.

    Raises:
        GpuError: the GPU refused.
        RecorderError: the recorder failed.
        KeyboardInterrupt: one came before the probes were done.
    """
    name = recorder_name(recorder, granularity)
    # Single launches differ by half between processes, so that they get a second one.
    plan = Plan(
        _RECORDED_NODES, _BRANCHES, _RECORDED_ROUNDS, seed=0, call_ns=call_ns, loop_ns=loop_ns
    )
    plans = plan, replace(plan, nodes=(), branches=(), seed=1)
    found = [_recorded(plan, granularity, recorder) for plan in plans]
    return figures_of(found, recorder=name)


def _recorded(plan: Plan, granularity: Granularity, recorder: Nsys | Cupti) -> list[Sample]:
    """Measure in one process under a recorder."""
    name = recorder_name(recorder, granularity)
    with tempfile.TemporaryDirectory(prefix="gaptrace-calibrate-") as folder:
        file = Path(folder) / "samples.json"
        run = launcher([_PROBES, json.dumps(asdict(plan)), str(file)], form="module")
        recording = _record(run, Path(folder) / granularity, granularity, recorder)
        if not file.exists():
            if recording.status == _INTERRUPTED:
                raise KeyboardInterrupt
            raise RecorderError(
                f"under {name} {recorder.version} the probes ended with status {recording.status}; "
                "gaptrace doctor says whether it records at all"
            )
        return _samples(file)


def _record(
    run: list[str], stem: Path, granularity: Granularity, recorder: Nsys | Cupti
) -> Recording:
    output = (2, 2)
    if isinstance(recorder, Cupti):
        return record_with_cupti(run, stem, granularity=granularity, output=output)
    command = nsys_command(run, stem, granularity=granularity, nsys=recorder)
    return record(command, stem, nsys=recorder, output=output)


def _plain(plan: Plan) -> list[Sample]:
    with tempfile.TemporaryDirectory(prefix="gaptrace-calibrate-") as folder:
        file = Path(folder) / "samples.json"
        command = [sys.executable, "-P", "-m", _PROBES, json.dumps(asdict(plan)), str(file)]
        try:
            ended = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_PATIENCE_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise GpuError(
                f"the probes hung for {_PATIENCE_S} s; see whether other programs still run on "
                "this GPU (nvidia-smi)"
            ) from error
        if not file.exists():
            said = _last_line(ended.stderr) or "nothing"
            raise GpuError(f"the probes ended with status {ended.returncode} and said: {said}")
        return _samples(file)


def _samples(file: Path) -> list[Sample]:
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if "error" in content:
        raise GpuError(content["error"])
    return [
        Sample(each["name"], each["nodes"], each["branches"], tuple(each["values"]))
        for each in content["samples"]
    ]


def _last_line(said: str) -> str:
    lines: Sequence[str] = said.strip().splitlines()
    return lines[-1] if lines else ""
