"""What this machine has: the NVIDIA driver and its GPUs, and the versions of installed packages."""

import json
import platform
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from gaptrace import __version__

#: Package -> the distributions that bring it, the likeliest first.
_DISTRIBUTIONS = {
    "nvtx": ("nvtx",),
    "polars": ("polars",),
    "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x", "cupy"),
    "cuda-bindings": ("cuda-bindings",),
    "cupti-python": ("cupti-python",),
    "nvidia-cuda-cupti": ("nvidia-cuda-cupti", "nvidia-cuda-cupti-cu12"),
    "torch": ("torch",),
    "plotly": ("plotly",),
}


@dataclass(frozen=True)
class Driver:
    """The NVIDIA driver.

    Attributes:
        version: of the kernel module, as `580.159.03`; None if there is none.
        cuda_version: the newest CUDA that it runs, as `13.0`; None if it does not say.
        gpus: names of the GPUs that CUDA sees, in CUDA's order.
        problem: why CUDA cannot start; None if it can.
    """

    version: str | None
    cuda_version: str | None
    gpus: tuple[str, ...]
    problem: str | None


def probe_driver() -> Driver:
    """Ask the driver, in another process."""
    module = Path("/proc/driver/nvidia/version")
    text = module.read_text(encoding="utf-8") if module.exists() else ""
    number = re.search(r"Kernel Module\s+(?:for \S+\s+)?(\d[\d.]*)", text)
    answer = subprocess.run(
        [sys.executable, "-P", "-m", "gaptrace.record.cuda_probe"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        found = {"problem": f"cuInit ended its process with status {answer.returncode}"}
    else:
        # The last line: what else Python starts may print.
        found = json.loads(answer.stdout.splitlines()[-1])
    return Driver(
        version=number[1] if number else None,
        cuda_version=found.get("cuda_version"),
        gpus=tuple(found.get("gpus", ())),
        problem=found.get("problem"),
    )


def package_versions() -> dict[str, str | None]:
    """Return the versions of the packages that gaptrace can use; None for a missing one.

    Read from their metadata: nothing is imported.
    """
    return {name: _version(names) for name, names in _DISTRIBUTIONS.items()}


def processor() -> str | None:
    """Return what the host processor calls itself."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return None
    name = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return name[1].strip() if name else None


def versions(recorder: str, recorder_version: str, driver: Driver) -> dict[str, object]:
    """Return what a result depends on, for the record beside it.

    Args:
        recorder: `nsys` or `cupti`, which names the key of its version.
        recorder_version: its own, or that of cupti-python.
        driver: of this machine.
    """
    return {
        "gaptrace": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        recorder: recorder_version,
        "driver": driver.version,
        "cuda_driver": driver.cuda_version,
        "gpus": list(driver.gpus),
        "packages": package_versions(),
    }


def _version(distributions: tuple[str, ...]) -> str | None:
    for name in distributions:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None
