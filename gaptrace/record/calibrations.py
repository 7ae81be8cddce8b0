"""Where calibrations are kept: one file for each machine, in the user's own data folder.

`$XDG_DATA_HOME/gaptrace/calibrations` (`~/.local/share/gaptrace/calibrations` where that is not
set), one file for each GPU, driver, CUDA, system and processor.
"""

import hashlib
import json
import os
import platform
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path

from gaptrace.calibration import Calibration, Machine
from gaptrace.drafts import check_folder, replace_file
from gaptrace.errors import CalibrationError
from gaptrace.record.calibration_json import from_object, to_object
from gaptrace.record.machine import Driver


def this_machine(driver: Driver, *, cpuinfo: Path = Path("/proc/cpuinfo")) -> Machine:
    """Return what a calibration made here holds for.

    Args:
        driver: what the driver says; its first GPU is the one that counts.
        cpuinfo: where Linux describes the processor.
    """
    return Machine(
        gpu=driver.gpus[0] if driver.gpus else None,
        driver=driver.version,
        cuda=driver.cuda_version,
        os=platform.platform(),
        cpu=_cpu(cpuinfo),
    )


def usual_place(machine: Machine, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the file for a machine, whether it exists or not."""
    words = " ".join(filter(None, (machine.gpu, machine.driver and f"driver {machine.driver}")))
    name = re.sub(r"[^A-Za-z0-9.]+", "-", words).strip("-") or "unknown"
    digest = hashlib.sha256(json.dumps(astuple(machine)).encode()).hexdigest()[:8]
    return folder(environment) / f"{name}-{digest}.json"


def folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return where calibrations are kept, whether it exists or not."""
    base = environment.get("XDG_DATA_HOME") or "~/.local/share"
    # Not of the Path, which raises where the user has no home.
    return Path(os.path.expanduser(base)) / "gaptrace" / "calibrations"  # noqa: PTH111


def save(calibration: Calibration, path: Path) -> None:
    """Write a calibration; folders are made, an older file is replaced as a whole.

    Raises:
        CalibrationError: it cannot be written there.
    """
    text = json.dumps(to_object(calibration), indent=1) + "\n"
    with _writing(path):
        replace_file(path, text)


def check_place(path: Path) -> None:
    """Make the folder of a calibration, before measuring takes a minute.

    Raises:
        CalibrationError: it cannot be made, or the file is there and no calibration.
        GaptraceError: nothing can be written in it.
    """
    with _writing(path):
        check_folder(path.parent)
        is_in_the_way = path.is_file() and path.stat().st_size > 0
    if is_in_the_way:
        try:
            load(path)
        except CalibrationError as error:
            raise CalibrationError(
                f"{path} is there and no calibration of this version: name another file with "
                "--output, or move it away"
            ) from error


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    if path.parts[0] == "~":
        raise CalibrationError(
            "this user has no home folder to keep a calibration in: set XDG_DATA_HOME, or name a "
            "file with --output"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise CalibrationError(
            f"cannot write {path}: {error.strerror}; name another file with --output"
        ) from error


def load(path: Path) -> Calibration:
    """Read a calibration.

    Raises:
        CalibrationError: there is none.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CalibrationError(
            f"there is no calibration {path}; make one with gaptrace calibrate"
        ) from error
    except OSError as error:
        raise CalibrationError(
            f"cannot read {path}: {error.strerror}; name a file from gaptrace calibrate"
        ) from error
    except (ValueError, RecursionError) as error:  # no JSON, maybe no text
        raise CalibrationError(
            f"{path} is not a calibration; make one with gaptrace calibrate"
        ) from error
    return from_object(content, name=str(path))


def _cpu(cpuinfo: Path) -> str | None:
    """Return the processor's name as the first one listed has it; ARM lists none."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(errors="replace"), re.M)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or None
