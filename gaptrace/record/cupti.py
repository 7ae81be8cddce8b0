"""Runs a Python program that records itself with CUPTI (`gaptrace.live.cupti`).

There is no recorder beside the program: it keeps terminal, process group and output. What it leaves
is a spool, which `gaptrace.record.cupti_file` turns into an export.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from gaptrace.errors import RecorderError
from gaptrace.record.children import run_program
from gaptrace.record.machine import Driver, package_versions
from gaptrace.record.recording import Granularity, Recording

#: Where the profiled process learns what to record and where to write it.
VARIABLE = "GAPTRACE_CUPTI"


@dataclass(frozen=True)
class Cupti:
    """A CUPTI that should work here.

    Attributes:
        version: of cupti-python, as `13.0.1`.
    """

    version: str


def find_cupti(driver: Driver) -> Cupti:
    """Return the CUPTI that Python programs can record themselves with.

    Args:
        driver: of this machine.

    Raises:
        RecorderError: there is no cupti-python or no GPU, or it is for another driver.
    """
    if driver.problem is not None:
        raise RecorderError(
            f"CUPTI cannot record, since CUDA cannot start on this machine: {driver.problem}; "
            "run gaptrace doctor"
        )
    packages = package_versions()
    version = packages["cupti-python"]
    if version is None:
        wanted = _wanted(driver)
        raise RecorderError(
            "no CUPTI: the package cupti-python is not installed; "
            + (f"install it: pip install {wanted}" if wanted else _too_old(driver))
        )
    problem = mismatch(version, packages["nvidia-cuda-cupti"], driver)
    if problem is not None:
        raise RecorderError(f"CUPTI cannot record here: {problem}")
    return Cupti(version)


def mismatch(version: str, library: str | None, driver: Driver) -> str | None:
    """Say why cupti-python and its library do not fit the driver, and what would; None if they do.

    Both have the version of the CUDA that they are made for. A driver runs those of its own major
    version that are not newer than itself: 13.0 works on driver 580 (CUDA 13.0), 13.4 does not.

    Args:
        version: of cupti-python.
        library: of nvidia-cuda-cupti; None where it is not a package.
        driver: of this machine.
    """
    if driver.cuda_version is None:
        return None
    theirs = _release(driver.cuda_version)
    named = (("cupti-python", version), ("nvidia-cuda-cupti", library))
    unfit = [
        f"{name} {number}"
        for name, number in named
        if number is not None and not _fits(_release(number), theirs)
    ]
    if not unfit:
        return None
    wanted = _wanted(driver)
    remedy = f"pip install {wanted}" if wanted else _too_old(driver)
    return f"{' and '.join(unfit)} is not for the driver's CUDA {driver.cuda_version}; {remedy}"


def record_with_cupti(
    command: Sequence[str],
    stem: Path,
    *,
    granularity: Granularity,
    output: tuple[int, int] = (1, 2),
    told: Mapping[str, str] = MappingProxyType({}),
) -> Recording:
    """Run a command from `gaptrace.record.recording.launcher` and wait for its end.

    Ctrl-C reaches the program from the terminal; it ends as it does, and what was recorded is kept.

    Args:
        command: what to run: a script or a module.
        stem: path of the spool without its suffix; its folder exists and holds none of that name.
        granularity: whether CUDA graphs are recorded as wholes or node by node.
        output: descriptors for the program's output and error output.
        told: more environment variables for `gaptrace.live.run`.

    Raises:
        RecorderError: nothing was recorded; the message says why.
    """
    spool = _spool(stem)
    notes_path = stem.with_name(f"{stem.name}.script.json")
    task = {VARIABLE: cupti_task(stem, granularity)}
    status, notes = run_program(command, notes_path, {**told, **task}, output)
    problem = notes.get("cupti", {}).get("problem")
    if problem is not None:
        raise RecorderError(f"{problem}; run gaptrace doctor, or record with --recorder nsys")
    if not spool.is_file():
        raise RecorderError(
            f"the program ended with status {status} before the CUPTI recorder had started"
        )
    return Recording(spool, None, status, notes)


def cupti_task(stem: Path, granularity: Granularity) -> str:
    """Return the value of `VARIABLE` for a recording; see `record_with_cupti`."""
    return f"{granularity}:{_spool(stem)}"


def _spool(stem: Path) -> Path:
    return stem.with_name(f"{stem.name}.cupti")


def _fits(ours: tuple[int, int], theirs: tuple[int, int]) -> bool:
    return ours[0] == theirs[0] and ours <= theirs


def _wanted(driver: Driver) -> str | None:
    """Return what pip should install for a driver; None where there is nothing."""
    if driver.cuda_version is None:
        return "'gaptrace[cupti]'"
    major, minor = _release(driver.cuda_version)
    # The first cupti-python is 13.0.
    if major < 13:
        return None
    return f"'cupti-python~={major}.0,<{major}.{minor + 1}' 'nvidia-cuda-cupti<{major}.{minor + 1}'"


def _too_old(driver: Driver) -> str:
    return (
        f"there is none for CUDA {driver.cuda_version}: update the driver to one for CUDA 13, or "
        "install Nsight Systems and use --recorder nsys"
    )


def _release(version: str) -> tuple[int, int]:
    numbers = re.findall(r"\d+", version)
    return int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 0
