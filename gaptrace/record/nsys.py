"""Finds an installed Nsight Systems, and what it needs to turn a recording into a report."""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gaptrace.errors import RecorderError

#: Where installers put nsys: NVIDIA's packages, CUDA toolkits, Debian, and Nsight Compute's copy.
_USUAL_PLACES = (
    "opt/nvidia/nsight-systems*/*/bin/nsys",
    "opt/nvidia/nsight-systems*/*/target-linux-*/nsys",
    "usr/local/cuda*/bin/nsys",
    "usr/lib/nsight-systems/*/nsys",
    "usr/lib/*/nsight-systems/*/nsys",
    "opt/nvidia/nsight-compute/*/host/target-linux-*/nsys",
)
_VERSION = re.compile(r"version (\d+(?:\.\d+)+)")

#: The Debian and Ubuntu packages of libraries that the importer was seen to miss in containers.
_PACKAGES = {
    "libbz2.so.1.0": "libbz2-1.0",
    "libdw.so.1": "libdw1",
    "libelf.so.1": "libelf1",
    "liblzma.so.5": "liblzma5",
    "libpfm.so.4": "libpfm4",
    "libssh.so.4": "libssh-4",
    "libz.so.1": "zlib1g",
}


@dataclass(frozen=True)
class Nsys:
    """An nsys executable that answered.

    Attributes:
        path: as it was found; maybe a link or a wrapper.
        version: what it calls itself, as `2025.3.1.90`.
    """

    path: Path
    version: str

    @property
    def number(self) -> tuple[int, ...]:
        """The version as numbers, to compare."""
        return tuple(map(int, self.version.split(".")))


def find_nsys(environment: Mapping[str, str] = os.environ, *, root: Path = Path("/")) -> Nsys:
    """Find nsys: the one that `GAPTRACE_NSYS` names, else the newest in PATH and the usual places.

    The copy inside Nsight Compute comes last: as installed it lacks the importer.

    Args:
        environment: where GAPTRACE_NSYS and PATH are read.
        root: the folder that the usual places lie under.

    Raises:
        RecorderError: there is none, or what GAPTRACE_NSYS names is not one.
    """
    named = environment.get("GAPTRACE_NSYS")
    if named:
        nsys = _ask(Path(named))
        if nsys is None:
            raise RecorderError(
                f"GAPTRACE_NSYS={named} does not run as nsys; set it to the path of the nsys "
                "executable, or unset it to use the newest that is installed"
            )
        return nsys
    found = [nsys for path in _candidates(environment, root) if (nsys := _ask(path)) is not None]
    if not found:
        raise RecorderError(
            "no nsys (NVIDIA Nsight Systems) in PATH, /opt/nvidia, /usr/local/cuda*/bin or "
            "/usr/lib/nsight-systems; install it (apt install nsight-systems-cli, from NVIDIA's "
            "CUDA repository), or set GAPTRACE_NSYS to the path of nsys"
        )
    return max(found, key=lambda nsys: (_can_import(nsys), nsys.number))


def find_importer(nsys: Nsys) -> Path | None:
    """Return the program that turns a recording (.qdstrm) into a report, beside nsys."""
    here = nsys.path.resolve().parent
    return next(iter(sorted(here.parent.glob("host-linux-*/QdstrmImporter"))), None)


def missing_libraries(program: Path) -> tuple[str, ...]:
    """Return the shared libraries that the program needs and the system does not have."""
    try:
        listing = subprocess.run(
            ["ldd", str(program)], capture_output=True, text=True, check=False
        ).stdout
    except FileNotFoundError:
        return ()
    names = (line.split()[0] for line in listing.splitlines() if line.endswith("not found"))
    return tuple(dict.fromkeys(names))


def packages_of(libraries: tuple[str, ...]) -> tuple[str, ...]:
    """Return the Debian and Ubuntu packages that bring these libraries, as far as known."""
    return tuple(_PACKAGES[name] for name in libraries if name in _PACKAGES)


def _can_import(nsys: Nsys) -> bool:
    return "nsight-compute" not in str(nsys.path.resolve()) or find_importer(nsys) is not None


def _candidates(environment: Mapping[str, str], root: Path) -> Iterator[Path]:
    seen = set()
    places = [Path(folder) / "nsys" for folder in environment.get("PATH", "").split(os.pathsep)]
    for pattern in _USUAL_PLACES:
        places += sorted(root.glob(pattern))
    for path in places:
        real = path.resolve()
        # Not of the Path, which raises where a folder must not be entered.
        if os.path.isfile(path) and os.access(path, os.X_OK) and real not in seen:  # noqa: PTH113
            seen.add(real)
            yield path


def _ask(path: Path) -> Nsys | None:
    """Ask for the version; toolkits leave wrappers behind whose nsys is gone."""
    try:
        answer = subprocess.run(
            [str(path), "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = _VERSION.search(answer.stdout)
    if answer.returncode != 0 or version is None:
        return None
    return Nsys(path, version[1])
