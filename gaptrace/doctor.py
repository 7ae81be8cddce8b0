"""What this machine has for gaptrace, and what each missing piece would add.

Nothing is guessed that can be tried: nsys records a small program, and whether NVTX ranges reach it
is measured in that program. CUDA is asked in another process; packages are not imported.
"""

import os
import platform
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gaptrace import __version__
from gaptrace.errors import RecorderError
from gaptrace.record.cupti import mismatch
from gaptrace.record.machine import Driver, package_versions, probe_driver
from gaptrace.record.nsys import (
    Nsys,
    find_importer,
    find_nsys,
    missing_libraries,
    packages_of,
)
from gaptrace.record.recording import Recording, launcher, nsys_command, record

State = Literal["ok", "missing", "problem"]


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: what.
        state: `ok`; `missing`: not there, and nothing needs it to be; `problem`: there, but it does
            not do its work.
        detail: what was found.
        advice: what it would add and the command that adds it; None where all is well.
    """

    name: str
    state: State
    detail: str
    advice: str | None = None


def examine(environment: Mapping[str, str] = os.environ) -> tuple[Check, ...]:
    """Look at everything; takes a few seconds where there is an nsys to try.

    Args:
        environment: where GAPTRACE_NSYS and PATH are read.
    """
    driver = probe_driver()
    packages = package_versions()
    return (
        Check("gaptrace", "ok", __version__),
        Check("Python", "ok", f"{platform.python_version()} on {platform.platform()}"),
        *(nsys := _recorder(environment, packages["nvtx"])),
        *_driver(driver),
        cupti := _cupti(packages["cupti-python"], packages["nvidia-cuda-cupti"], driver),
        _recorders(nsys, cupti, driver),
        _cupy(packages["cupy"], driver),
        _package(
            packages["cuda-bindings"],
            "cuda-bindings",
            f"cuts captured graphs into chunks: pip install 'gaptrace[{_cuda_extra(driver)}]'",
        ),
        _package(
            packages["torch"],
            "PyTorch",
            "its graphs are named in the trace when a program uses it: pip install torch",
        ),
        _package(packages["polars"], "polars", "reads traces: pip install polars"),
        _package(packages["plotly"], "plotly", "draws figures: pip install 'gaptrace[notebook]'"),
    )


def _recorder(environment: Mapping[str, str], nvtx: str | None) -> list[Check]:
    try:
        nsys = find_nsys(environment)
    except RecorderError as error:
        return [
            Check(
                "nsys",
                "problem" if environment.get("GAPTRACE_NSYS") else "missing",
                "no Nsight Systems",
                f"records programs and reads .nsys-rep files: {error}",
            ),
            _nvtx(nvtx, None, None),
        ]
    checks = [Check("nsys", "ok", f"{nsys.version}, {nsys.path}"), _importer(nsys)]
    try:
        trial = _try(nsys)
    except RecorderError as error:
        return [
            *checks,
            Check("trial recording", "problem", "no report came out", str(error)),
            _nvtx(nvtx, nsys, None),
        ]
    checks.append(Check("trial recording", "ok", "a small program was recorded and imported"))
    return [*checks, _nvtx(nvtx, nsys, trial.notes.get("nvtx", {}).get("state"))]


def _try(nsys: Nsys) -> Recording:
    """Record the program that asks whether NVTX records, with its output thrown away."""
    with (
        tempfile.TemporaryDirectory(prefix="gaptrace-") as folder,
        Path(os.devnull).open("w") as sink,
    ):
        stem = Path(folder) / "trial"
        command = nsys_command(
            launcher(["gaptrace.live.probe"], form="module"), stem, granularity="graph", nsys=nsys
        )
        return record(command, stem, nsys=nsys, output=(sink.fileno(), sink.fileno()))


def _importer(nsys: Nsys) -> Check:
    importer = find_importer(nsys)
    if importer is None:
        return Check(
            "nsys importer",
            "problem" if "nsight-compute" in str(nsys.path.resolve()) else "missing",
            "no QdstrmImporter beside nsys",
            "turns a recording into a report: install the whole of Nsight Systems",
        )
    missing = missing_libraries(importer)
    if not missing:
        return Check("nsys importer", "ok", "all its libraries are there")
    packages = " ".join(packages_of(missing))
    return Check(
        "nsys importer",
        "problem",
        f"lacks {', '.join(missing)}",
        f"without it a recording cannot be read: apt install {packages}"
        if packages
        else f"without it a recording cannot be read: put the libraries into {importer.parent}",
    )


def _nvtx(version: str | None, nsys: Nsys | None, state: str | None) -> Check:
    adds = "marks ranges and steps in the trace"
    if version is None:
        return Check("nvtx", "missing", "not installed", f"{adds}: pip install nvtx")
    if nsys is None or state is None:
        return Check("nvtx", "ok", f"{version}, not tried")
    if state == "silent":
        return Check(
            "nvtx",
            "problem",
            f"{version}: nsys {nsys.version} records none of its ranges",
            f"{adds}: pip install -U nvtx, or use a newer nsys",
        )
    if state == "recorded":
        return Check("nvtx", "ok", f"{version}, recorded by nsys {nsys.version}")
    return Check(
        "nvtx",
        "ok",
        f"{version}, recorded by nsys {nsys.version} under gaptrace profile only",
        f"nsys {nsys.version} is too old for the payload extension of this nvtx: outside gaptrace "
        "profile it records no range of Python code; use a newer nsys, or nvtx 0.2.11",
    )


def _driver(driver: Driver) -> list[Check]:
    if driver.problem is not None:
        return [
            Check(
                "NVIDIA driver",
                "missing" if driver.version is None else "problem",
                driver.problem,
                "runs CUDA programs; without it gaptrace still reads traces made elsewhere",
            )
        ]
    number = f"{driver.version or 'version unknown'}, runs CUDA up to {driver.cuda_version}"
    gpus = Check("GPUs", "ok", f"{len(driver.gpus)}: {', '.join(driver.gpus)}")
    if not driver.gpus:
        gpus = Check("GPUs", "problem", "CUDA sees none", "check CUDA_VISIBLE_DEVICES")
    return [Check("NVIDIA driver", "ok", number), gpus]


def _cupy(version: str | None, driver: Driver) -> Check:
    adds = "runs examples/demo.py and measures graphs without a recorder"
    return _package(version, "CuPy", f"{adds}: pip install 'gaptrace[{_cuda_extra(driver)}]'")


def _cupti(version: str | None, library: str | None, driver: Driver) -> Check:
    if version is None:
        return Check(
            "CUPTI",
            "missing",
            "not installed",
            "records without nsys: pip install 'gaptrace[cupti]'",
        )
    problem = mismatch(version, library, driver)
    if problem is not None:
        detail, _, advice = problem.partition("; ")
        return Check("CUPTI", "problem", detail, advice)
    fits = ", matches the driver" if driver.cuda_version is not None else ", not tried"
    return Check("CUPTI", "ok", f"cupti-python {version}{fits}")


def _recorders(nsys: list[Check], cupti: Check, driver: Driver) -> Check:
    """Say which recorders `gaptrace profile` can use here."""
    usable = []
    if not {check.state for check in nsys if check.name != "nvtx"} - {"ok"}:
        usable.append("nsys")
    if cupti.state == "ok" and driver.problem is None and driver.gpus:
        usable.append("CUPTI")
    if usable:
        others = "".join(f", {name}" for name in usable[1:])
        return Check("recorders", "ok", f"{usable[0]} (used unless --recorder says else){others}")
    return Check(
        "recorders",
        "missing",
        "none that works here",
        "record programs for gaptrace profile: see nsys and CUPTI",
    )


def _package(version: str | None, name: str, adds: str) -> Check:
    if version is None:
        return Check(name, "missing", "not installed", adds)
    return Check(name, "ok", version)


def _cuda_extra(driver: Driver) -> str:
    """Return the extra for this driver; the newest where there is none."""
    return "cuda12" if (driver.cuda_version or "").startswith("12.") else "cuda13"
