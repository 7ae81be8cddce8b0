"""`gaptrace doctor`: what is there, what is missing, and what to do about it."""

import json
import platform
import shutil
from pathlib import Path

import pytest
from recorders import install_fake_nsys, program_that_lacks_a_library, real_nsys

from gaptrace import doctor
from gaptrace.cli import main
from gaptrace.doctor import Check, examine
from gaptrace.record.machine import Driver, package_versions, probe_driver

H200 = Driver("580.159.03", "13.0", ("NVIDIA H200", "NVIDIA H200"), None)
NO_DRIVER = Driver(None, None, (), "libcuda.so.1, the NVIDIA driver's library, is not installed")
NO_PACKAGES = dict.fromkeys(package_versions())


@pytest.fixture
def machine(monkeypatch):
    """Set what the driver and the package metadata say: no machine here has it all."""

    def pretend(driver: Driver, **packages: str) -> None:
        monkeypatch.setattr(doctor, "probe_driver", lambda: driver)
        found = NO_PACKAGES | {name.replace("_", "-"): value for name, value in packages.items()}
        monkeypatch.setattr(doctor, "package_versions", lambda: found)

    return pretend


@pytest.fixture
def fake(tmp_path, monkeypatch) -> Path:
    """Install the stand-in for nsys with an importer whose libraries are there."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "stand_ins"))  # nvtx that records
    importer = tmp_path / "host-linux-x64" / "QdstrmImporter"
    importer.parent.mkdir()
    shutil.copy("/bin/true", importer)
    return install_fake_nsys(tmp_path / "target-linux-x64")


def named(checks: tuple[Check, ...], name: str) -> Check:
    (found,) = [check for check in checks if check.name == name]
    return found


NOTHING = {"PATH": "", "GAPTRACE_NSYS": ""}


def test_a_bare_machine(machine, monkeypatch):
    machine(NO_DRIVER)
    monkeypatch.setattr("gaptrace.record.nsys._USUAL_PLACES", ())
    checks = examine(NOTHING)
    missing = [check for check in checks if check.state == "missing"]
    assert {check.name for check in missing} == {
        *("nsys", "nvtx", "NVIDIA driver", "CuPy", "cuda-bindings", "CUPTI", "PyTorch"),
        *("polars", "plotly", "recorders"),
    }
    assert all(check.advice for check in missing)
    assert [check.name for check in checks if check.state == "problem"] == []
    assert named(checks, "CuPy").advice.endswith(": pip install 'gaptrace[cuda13]'")
    assert "apt install nsight-systems-cli" in named(checks, "nsys").advice


def test_a_whole_machine(machine, fake):
    machine(
        H200,
        nvtx="0.2.17",
        polars="1.30",
        cupy="14.2.0",
        cuda_bindings="13.3.0",
        cupti_python="13.0.1",
        torch="2.11.0",
        plotly="6.1",
    )
    checks = examine({"GAPTRACE_NSYS": str(fake)})
    assert [(check.name, check.state) for check in checks if check.state != "ok"] == []
    assert named(checks, "nsys").detail == f"2023.4.4.54, {fake}"
    assert named(checks, "nvtx").detail == "0.2.17, recorded by nsys 2023.4.4.54"
    assert named(checks, "NVIDIA driver").detail == "580.159.03, runs CUDA up to 13.0"
    assert named(checks, "GPUs").detail == "2: NVIDIA H200, NVIDIA H200"
    assert named(checks, "Python").detail.startswith(f"{platform.python_version()} on Linux")
    assert [check.advice for check in checks] == [None] * len(checks)


def test_a_driver_of_cuda_12_gets_the_packages_of_cuda_12(machine):
    machine(Driver("535.1", "12.2", ("T4",), None))
    assert named(examine(NOTHING), "CuPy").advice.endswith("'gaptrace[cuda12]'")


@pytest.mark.parametrize(
    ("cupti", "cuda", "state"),
    [
        ("13.0.1", "13.0", "ok"),
        ("13.0.1", "13.1", "ok"),
        ("13.2.0", "13.0", "problem"),
        ("12.9.0", "13.0", "problem"),
        ("13.0.1", None, "ok"),
    ],
)
def test_cupti_and_the_driver(machine, cupti, cuda, state):
    machine(Driver("1", cuda, ("T4",), None), cupti_python=cupti)
    check = named(examine(NOTHING), "CUPTI")
    assert check.state == state
    assert (check.advice is None) == (state == "ok")
    if state == "problem":
        assert check.advice == "pip install 'cupti-python~=13.0,<13.1' 'nvidia-cuda-cupti<13.1'"


@pytest.mark.parametrize(
    ("driver", "cupti", "nsys", "state", "detail"),
    [
        (H200, "13.0.1", True, "ok", "nsys (used unless --recorder says else), CUPTI"),
        (H200, "13.0.1", False, "ok", "CUPTI (used unless --recorder says else)"),
        (H200, "13.2.0", True, "ok", "nsys (used unless --recorder says else)"),
        (NO_DRIVER, "13.0.1", False, "missing", "none that works here"),
        (Driver("1", "13.0", (), None), "13.0.1", False, "missing", "none that works here"),
    ],
)
def test_which_recorders_can_be_used(
    machine, fake, monkeypatch, driver, cupti, nsys, state, detail
):
    monkeypatch.setattr("gaptrace.record.nsys._USUAL_PLACES", ())
    machine(driver, cupti_python=cupti)
    check = named(examine({"GAPTRACE_NSYS": str(fake)} if nsys else NOTHING), "recorders")
    assert (check.state, check.detail) == (state, detail)
    assert (check.advice is None) == (state == "ok")


def test_the_library_of_cupti_and_the_driver(machine):
    machine(H200, cupti_python="13.0.1", nvidia_cuda_cupti="13.5.25")
    check = named(examine(NOTHING), "CUPTI")
    assert check.state == "problem"
    assert check.detail == "nvidia-cuda-cupti 13.5.25 is not for the driver's CUDA 13.0"


def test_a_driver_that_does_not_start(machine):
    machine(Driver("580.1", "13.0", (), "cuInit failed with CUDA_ERROR_NO_DEVICE"))
    check = named(examine(NOTHING), "NVIDIA driver")
    assert (check.state, check.detail) == ("problem", "cuInit failed with CUDA_ERROR_NO_DEVICE")


def test_hidden_gpus(machine):
    machine(Driver("580.1", "13.0", (), None))
    check = named(examine(NOTHING), "GPUs")
    assert check.state == "problem"
    assert "CUDA_VISIBLE_DEVICES" in check.advice


def test_a_wrongly_named_nsys_is_a_problem(machine):
    machine(H200)
    check = named(examine({"GAPTRACE_NSYS": "/nowhere"}), "nsys")
    assert check.state == "problem"
    assert "GAPTRACE_NSYS=/nowhere does not run as nsys" in check.advice


def test_an_importer_that_lacks_a_library(machine, fake, tmp_path, monkeypatch):
    machine(H200, nvtx="0.2.17")
    program_that_lacks_a_library(tmp_path / "host-linux-x64" / "QdstrmImporter")
    monkeypatch.setenv("FAKE_NSYS", "importer")
    checks = examine({"GAPTRACE_NSYS": str(fake)})
    assert named(checks, "nsys importer").detail == "lacks libq.so.6"
    trial = named(checks, "trial recording")
    assert trial.state == "problem"
    assert "libq.so.6 missing" in trial.advice
    assert named(checks, "nvtx").detail == "0.2.17, not tried"


def test_an_nsys_without_an_importer(machine, fake, tmp_path):
    machine(H200)
    shutil.rmtree(tmp_path / "host-linux-x64")
    checks = examine({"GAPTRACE_NSYS": str(fake)})
    assert named(checks, "nsys importer").state == "missing"
    assert named(checks, "trial recording").state == "ok"


def test_an_nvtx_whose_ranges_are_not_recorded(machine, fake, monkeypatch):
    machine(H200, nvtx="0.2.12")
    monkeypatch.setenv("NVTX_STAND_IN", "dummy")
    check = named(examine({"GAPTRACE_NSYS": str(fake)}), "nvtx")
    assert check.state == "problem"
    assert check.detail == "0.2.12: nsys 2023.4.4.54 records none of its ranges"
    assert "pip install -U nvtx" in check.advice


# The command


def test_the_table(machine, fake, capsys, monkeypatch):
    machine(H200, nvtx="0.2.17", polars="1.30")
    monkeypatch.setenv("GAPTRACE_NSYS", str(fake))
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["doctor"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "\x1b" not in out
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "ok       polars           1.30" in lines
    at = lines.index("missing  CuPy             not installed")
    assert lines[at + 1].strip() == "runs examples/demo.py and measures graphs without a"


def test_the_json(machine, fake, capsys, monkeypatch):
    machine(H200, polars="1.30")
    monkeypatch.setenv("GAPTRACE_NSYS", str(fake))
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "gaptrace.doctor/1"
    assert {"name": "polars", "state": "ok", "detail": "1.30", "advice": None} in found["checks"]


def test_this_machine(capsys):
    """Nothing pretended: whatever is here, doctor says so and does not fail."""
    assert main(["doctor", "--json"]) == 0
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert checks["polars"]["state"] == "ok"
    assert checks["NVIDIA driver"]["state"] == (
        "ok"
        if probe_driver().problem is None
        else ("missing" if probe_driver().version is None else "problem")
    )


@pytest.mark.nsys
def test_the_real_nsys_is_tried(monkeypatch):
    nsys = real_nsys()
    checks = examine({"GAPTRACE_NSYS": str(nsys.path)})
    assert named(checks, "nsys").detail == f"{nsys.version}, {nsys.path}"
    assert named(checks, "trial recording").state == "ok"
    assert f"recorded by nsys {nsys.version}" in named(checks, "nvtx").detail
