"""Calibration: its probes on a stand-in device, whether the GPU is idle, files, the command."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fake_gpu import DEPTH, FakeGpu
from recorders import install_fake_nsys

from gaptrace.calibration import Calibration, Figure, Machine
from gaptrace.cli import main
from gaptrace.errors import CalibrationError, GpuError, RecorderError
from gaptrace.live import bench as bench_module
from gaptrace.live import calibrate, host_pace, idle, probes
from gaptrace.live.bench import Bench
from gaptrace.live.chains import Chains
from gaptrace.record import calibrations, machine, probing
from gaptrace.record.calibrations import check_place, load, save, this_machine, usual_place
from gaptrace.record.cupti import Cupti, record_with_cupti
from gaptrace.record.cupti_spool import read_spool
from gaptrace.record.machine import Driver
from gaptrace.record.nsys import Nsys
from gaptrace.samples import Plan, Sample

HERE = Path(__file__).parent
H200 = Driver("580.159.03", "13.0", ("NVIDIA H200", "NVIDIA H200"), None)
NO_DRIVER = Driver(None, None, (), "libcuda.so.1, the NVIDIA driver's library, is not installed")

#: Longer than any machine holds a test up.
PATIENT_NS = 10**10

# Probes, on a device that is a thread


@pytest.fixture
def fake(monkeypatch) -> Iterator[FakeGpu]:
    driver = FakeGpu()
    monkeypatch.setattr(bench_module, "driver", lambda: driver)
    monkeypatch.setattr(bench_module, "compile_kernels", lambda capability: b"")
    # The device itself slows this host down.
    monkeypatch.setattr(host_pace, "PATIENCE_NS", 0)
    monkeypatch.setattr(host_pace, "TRIES", 1)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)  # host and device of the stand-in share one interpreter
    yield driver
    sys.setswitchinterval(interval)


GRAPH_FIGURES = {
    *("capture_ns", "instantiate_ns", "upload_api_ns", "upload_ns", "exec_update_ns"),
    *("destroy_exec_ns", "destroy_graph_ns"),
    *("graph_first_launch_api_ns", "graph_first_launch_latency_ns"),
    *("graph_launch_api_ns", "graph_launch_latency_ns"),
    *("graph_updated_launch_api_ns", "graph_updated_launch_latency_ns"),
}


@pytest.mark.parametrize(("nodes", "branches"), [(1, 1), (2, 1), (3, 1), (8, 4), (13, 4)])
def test_what_happens_to_a_graph(fake, nodes, branches):
    with Bench() as bench:
        chains = Chains(bench, branches)
        figures = probes.graph_costs(bench, chains, nodes, branches)
        assert fake.captured == [nodes, nodes]
        assert set(fake.live.values()) == {"context", "module", "stream", "page", "event"}
    assert set(figures) == {(name, nodes, branches) for name in GRAPH_FIGURES}
    assert fake.live == {}


def test_two_other_streams_have_been_used_before_anything_is_timed(fake):
    with Bench() as bench:
        # The seventh copy on a second stream changes how long graphs take, and not on the first.
        assert [copies >= 7 for copies in fake.copied.values()] == [True, True]
        assert bench.stream not in fake.copied


def test_a_launch_begins_after_its_call_began(fake):
    with Bench() as bench:
        launches = [
            bench.timed_launch(bench.launching(bench.answer(marks=True), bench.stream))
            for _ in range(3)
        ]
    assert all(each.latency_ns is not None and each.latency_ns > 0 for each in launches)


def test_a_device_that_is_not_asked_in_time_gives_no_latency(fake, monkeypatch):
    monkeypatch.setattr(bench_module, "_ANSWER_NS", 0)
    with Bench() as bench:
        launch = bench.timed_launch(bench.launching(bench.answer(marks=True), bench.stream))
    assert launch.latency_ns is None


def test_work_behind_a_latch_waits_for_the_host(fake):
    with Bench() as bench:
        event = bench.new_event(timed=True)
        with bench.latched(patience_ns=PATIENT_NS) as held:
            fake.cuEventRecord(event, bench.stream)
            assert held()
            assert event not in fake._times
        assert event in fake._times


def test_a_latch_runs_out(fake):
    with Bench() as bench, bench.latched(patience_ns=0) as held:
        fake.cuStreamSynchronize(bench.stream)
        assert not held()


def test_device_time_is_unknown_if_the_work_needs_the_device(fake, monkeypatch):
    with Bench() as bench:
        hold = bench.latched
        monkeypatch.setattr(bench, "latched", lambda: hold(PATIENT_NS))
        assert bench.device_ns(lambda: bench.launch(bench.spin(0), bench.stream)) is not None
        monkeypatch.setattr(bench, "latched", lambda: hold(1_000_000))
        assert bench.device_ns(bench.wait) is None


def test_an_error_frees_the_device(fake):
    fake.refuses.add("cuGraphExecUpdate")
    with pytest.raises(GpuError, match="updating: the driver answered 910"), Bench() as bench:
        probes.graph_costs(bench, Chains(bench, 1), 4, 1)
    assert set(fake.live.values()) == {"exec", "graph"}  # gone with the process
    with pytest.raises(ZeroDivisionError), Bench() as bench, bench.latched():
        _ = 1 / 0
    assert set(fake.live.values()) == {"exec", "graph"}


def test_depth_of_the_queue(fake, monkeypatch):
    monkeypatch.setattr(probes, "_DEPTH_LATCH_NS", 500_000_000)  # a busy machine is slow to fill
    monkeypatch.setattr(probes, "MOST_LAUNCHES", 2 * DEPTH)
    monkeypatch.setattr(probes, "MOST_GRAPHS", DEPTH // 2)
    with Bench() as bench:
        found = probes.queue_depths(bench)
    assert found == {
        ("launch_queue_depth", None, 1): DEPTH,
        ("graph_queue_depth", None, 1): DEPTH // 2,  # as many as were tried: none blocked
    }
    assert fake.live == {}


def test_a_clock_that_stands_still_tells_nothing(fake, monkeypatch):
    monkeypatch.setattr(probes, "_GRAPH_NODES", (2,))
    with Bench() as bench, probes.queued(bench) as queues:
        monkeypatch.setattr(queues, "_device_ns", lambda work: 5.0)
        assert queues.round() == {}


def test_everything_measured(fake, monkeypatch):
    for name, value in (("_GRAPH_NODES", (2,)), ("_GRAPHS", 3), ("_MANY", 40), ("_CLOCKS", 10)):
        monkeypatch.setattr(probes, name, value)
    monkeypatch.setattr(probes, "_LONG_CLOCKS", 10_000)
    plan = Plan((1, 2, 8), (1, 4), rounds=2, seed=0)
    samples = {(each.name, each.nodes, each.branches): each for each in calibrate.measure(plan)}
    graphs = [(1, 1), (2, 1), (8, 1), (8, 4)]
    assert set(samples) >= {(name, *graph) for name in GRAPH_FIGURES for graph in graphs}
    assert ("launch_api_ns", None, 1) in samples
    assert ("binding_call_ns", None, 1) in samples
    assert ("launch_queue_depth", None, 1) not in samples
    loops = samples.pop(("host_loop_ns", None, 1))
    assert all(len(each.values) <= 2 for each in samples.values())
    # Two rounds of: calls, single launches, queues, and four graphs.
    assert len(loops.values) == 14
    assert fake.live == {}


def test_what_a_call_costs_is_measured_or_given(fake):
    with Bench(call_ns=123.0) as bench:
        assert bench.call_ns == 123.0
        bench.measure_calls()
        assert bench.call_ns == 123.0
    with Bench() as bench:
        assert bench.call_ns > 0


# Is the GPU idle?


class FakeNvml:
    """Looks at a GPU that is busy as given, look by look."""

    def __init__(self, percents: list[int], pids: list[int], status: int = 0) -> None:
        self._percents, self._pids, self._status = iter(percents), pids, status
        self.shut = False

    def nvmlInit_v2(self) -> int:
        return self._status

    def nvmlDeviceGetHandleByPciBusId_v2(self, bus_id, device) -> int:
        assert bus_id == b"0000:01:00.0"
        return 0

    def nvmlDeviceGetUtilizationRates(self, device, found) -> int:
        found._obj.gpu = next(self._percents)
        return 0

    def nvmlDeviceGetComputeRunningProcesses_v3(self, device, count, found) -> int:
        for place, pid in enumerate(self._pids):
            found[place].pid = pid
        count._obj.value = len(self._pids)
        return 0

    def nvmlShutdown(self) -> int:
        self.shut = True
        return 0


@pytest.fixture
def nvml(monkeypatch):
    monkeypatch.setattr(idle.time, "sleep", lambda seconds: None)

    def installed(library: FakeNvml) -> FakeNvml:
        monkeypatch.setattr(idle.ctypes, "CDLL", lambda name: library)
        return library

    return installed


def test_an_idle_gpu(nvml):
    # Held open by somebody, and busy until just now.
    library = nvml(FakeNvml([100, 100, 100, 100, 0, 0, 4, 0], [1]))
    assert idle.refuse_busy(b"0000:01:00.0")
    assert library.shut


def test_a_busy_gpu_is_refused_by_the_name_of_who_uses_it(nvml):
    (own,) = {int(Path("/proc/self").readlink().name)}
    name = Path("/proc/self/comm").read_text().strip()
    nvml(FakeNvml([0, 0, 0, 0, 40, 50, 60, 50], [own, 2**31]))
    with pytest.raises(GpuError) as caught:
        idle.refuse_busy(b"0000:01:00.0")
    assert str(caught.value) == (
        f"the GPU is in use (50 % of the time by process {own} ({name}), {2**31}) and would be "
        "calibrated wrongly: end that, or choose an idle GPU with CUDA_VISIBLE_DEVICES"
    )


def test_a_silent_management_library(nvml, monkeypatch):
    nvml(FakeNvml([], [], status=9))
    assert not idle.refuse_busy(b"0000:01:00.0")

    def missing(name: str):
        raise OSError(name)

    monkeypatch.setattr(idle.ctypes, "CDLL", missing)
    assert not idle.refuse_busy(b"0000:01:00.0")


@pytest.mark.parametrize(
    ("absence_ns", "alone"),
    # A look at the clock, one at a clock that moves in steps, and a turn of another program.
    [(96, True), (33_000, True), (1_980_000, False)],
)
def test_a_kernel_that_is_taken_off_shows_company(absence_ns, alone):
    class Watched:
        def longest_absence_ns(self, length_ns):
            assert length_ns == 100_000_000
            return absence_ns

    assert probes.is_alone(Watched()) is alone


# In processes of their own


def test_what_a_process_found_of_the_hosts_pace_is_told_the_next(monkeypatch):
    loops, told = iter([90.0, 70.0, 80.0, 75.0, 99.0]), []

    def plain(plan):
        told.append(plan.loop_ns)
        return [Sample("host_loop_ns", None, 1, (100.0, next(loops)))]

    monkeypatch.setattr(probing, "_plain", plain)
    (figure,) = probing.measure(lambda done: None)
    assert told == [None, 90.0, 70.0, 70.0, 70.0]
    assert (figure.name, figure.runs) == ("host_loop_ns", 10)


@pytest.mark.skipif(importlib.util.find_spec("cuda") is not None, reason="cuda-bindings is there")
def test_what_a_probing_process_cannot_do_is_said_here():
    with pytest.raises(GpuError, match="needs the package cuda-bindings"):
        probing.measure(lambda done: None)


@pytest.mark.skipif(importlib.util.find_spec("cuda") is not None, reason="cuda-bindings is there")
def test_the_same_under_a_recorder(tmp_path):
    nsys = Nsys(install_fake_nsys(tmp_path), "2023.4.4.54")
    with pytest.raises(GpuError, match="needs the package cuda-bindings"):
        probing.measure_recorded("graph", nsys, call_ns=50.0, loop_ns=1e6)


def test_probes_that_end_without_a_word(monkeypatch):
    monkeypatch.setattr(probing, "_PROBES", "gaptrace.live.nowhere")
    with pytest.raises(GpuError, match=r"ended with status 1 and said: .*No module named"):
        probing.measure(lambda done: None)


def test_probes_that_end_under_a_recorder(tmp_path, monkeypatch):
    monkeypatch.setattr(probing, "_PROBES", "gaptrace.live.nowhere")
    nsys = Nsys(install_fake_nsys(tmp_path), "2023.4.4.54")
    with pytest.raises(RecorderError, match="the probes ended with status 1"):
        probing.measure_recorded("node", nsys, call_ns=50.0, loop_ns=1e6)


@pytest.fixture
def stand_ins(monkeypatch, tmp_path):
    """Have processes measure a device that is a thread, and find the stand-in for CUPTI.

    Their folders lie in the one that this gives.
    """
    monkeypatch.setattr(probing, "_PROBES", "fake_probes")
    monkeypatch.setattr(probing, "_RECORDED_NODES", (1, 8))
    monkeypatch.setattr(probing, "_RECORDED_ROUNDS", 1)
    folders = (HERE / "stand_ins", HERE, HERE.parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, folders)))
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


@pytest.mark.parametrize("granularity", ["graph", "node"])
def test_probes_record_themselves_with_cupti(stand_ins, monkeypatch, granularity):
    spools = []

    def read_before_it_goes(*arguments, **named):
        recording = record_with_cupti(*arguments, **named)
        spools.append((recording.report, read_spool(recording.report)))
        return recording

    monkeypatch.setattr(probing, "record_with_cupti", read_before_it_goes)
    figures = probing.measure_recorded(granularity, Cupti("13.0.1"), call_ns=50.0, loop_ns=1e6)
    assert len(spools) == 2
    for path, spool in spools:
        assert spool.header["granularity"] == granularity
        assert path.is_relative_to(stand_ins)
    assert list(stand_ins.iterdir()) == []
    assert {each.recorder for each in figures} == {f"cupti-{granularity}"}
    by_key = {(each.name, each.nodes, each.branches): each for each in figures}
    assert by_key["binding_call_ns", None, 1].value == 50.0
    graphs = {key[1:] for key in by_key if key[0] == "graph_launch_api_ns"}
    assert graphs == {(1, 1), (8, 1), (8, 4)}
    assert ("launch_queue_depth", None, 1) not in by_key
    # Single launches from both processes, graphs by size from one.
    assert by_key["launch_api_ns", None, 1].runs == 2
    assert by_key["graph_launch_api_ns", 8, 4].runs == 1


def test_cupti_that_does_not_start(stand_ins, monkeypatch):
    monkeypatch.setenv("CUPTI_STAND_IN", "refuses")
    with pytest.raises(RecorderError, match="cannot start: CUPTI_ERROR_NOT_COMPATIBLE"):
        probing.measure_recorded("graph", Cupti("13.0.1"), call_ns=50.0, loop_ns=1e6)
    assert list(stand_ins.iterdir()) == []


@pytest.mark.parametrize(
    ("mode", "error", "says"),
    [
        ("busy", GpuError, "it is in use"),
        ("silent", RecorderError, r"under cupti-graph 13\.0\.1 the probes ended with status 0"),
        ("hangs", RecorderError, r"under cupti-graph 13\.0\.1 the probes ended with status 1"),
        ("interrupt", KeyboardInterrupt, None),
    ],
)
def test_probes_that_measure_nothing_under_cupti(stand_ins, monkeypatch, mode, error, says):
    monkeypatch.setenv("FAKE_PROBES", mode)
    with pytest.raises(error, match=says):
        probing.measure_recorded("graph", Cupti("13.0.1"), call_ns=50.0, loop_ns=1e6)
    assert list(stand_ins.iterdir()) == []


def test_an_error_of_the_gpu_goes_into_the_file(tmp_path, monkeypatch):
    def refuse(plan: Plan):
        assert plan == Plan((1,), (1,), 1, 0)
        raise GpuError("it is in use")

    monkeypatch.setattr(calibrate, "measure", refuse)
    plan = '{"nodes": [1], "branches": [1], "rounds": 1, "seed": 0}'
    calibrate.main([plan, str(tmp_path / "file")])
    assert json.loads((tmp_path / "file").read_text()) == {"error": "it is in use"}


# Where calibrations are kept

MACHINE = Machine("NVIDIA H200", "580.159.03", "13.0", "Linux-6.1", "AMD EPYC 9654")
MADE = Calibration(
    MACHINE,
    "2026-01-31T12:00:00+00:00",
    "0.1.0",
    {},
    (
        Figure("binding_call_ns", None, 1, None, 50.0, 49.0, 51.0, 20),
        Figure("host_loop_ns", None, 1, None, 62_000.0, 60_000.0, 110_000.0, 700),
        Figure("launch_api_ns", None, 1, None, 2_000.0, 1_900.0, 2_100.0, 20),
        Figure("graph_launch_api_ns", 1, 1, None, 2_500.0, 2_400.0, 2_600.0, 20),
        Figure("graph_launch_api_ns", 1_024, 1, None, 3_523.0, 3_400.0, 3_600.0, 20),
    ),
)


def test_the_processor_is_part_of_the_machine(tmp_path):
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: AMD EPYC 9654\n\nmodel name\t: other\n")
    assert replace(this_machine(H200, cpuinfo=info), os="Linux-6.1") == MACHINE
    assert this_machine(H200, cpuinfo=tmp_path / "none").gpu == "NVIDIA H200"


def test_every_machine_has_its_place():
    place = usual_place(MACHINE, {"XDG_DATA_HOME": "/data"})
    assert place.parent == Path("/data/gaptrace/calibrations")
    assert place.name.startswith("NVIDIA-H200-driver-580.159.03-")
    assert place == usual_place(MACHINE, {"XDG_DATA_HOME": "/data"})
    others = [
        replace(MACHINE, **{name: "other"}) for name in ("gpu", "driver", "cuda", "os", "cpu")
    ]
    assert len({usual_place(each, {}) for each in (MACHINE, *others)}) == 6
    assert usual_place(MACHINE, {}).is_relative_to(Path.home() / ".local" / "share" / "gaptrace")
    assert usual_place(Machine(None, None, None, None, None), {}).name.startswith("unknown-")


def test_a_calibration_is_kept(tmp_path):
    path = tmp_path / "new" / "folder" / "c.json"
    save(MADE, path)
    assert load(path) == MADE
    save(replace(MADE, date="2027"), path)
    assert load(path).date == "2027"
    assert [each.name for each in path.parent.iterdir()] == ["c.json"]


def test_a_calibration_that_cannot_be_kept(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CalibrationError, match="name another file with --output"):
        save(MADE, tmp_path / "file" / "c.json")


@pytest.mark.parametrize("content", ["import cupy", "{}"])
def test_what_is_no_calibration_is_not_replaced_by_one(tmp_path, content):
    path = tmp_path / "precious.py"
    path.write_text(content)
    with pytest.raises(CalibrationError, match=r"precious\.py is there and no calibration"):
        check_place(path)
    path.write_text("")
    check_place(path)
    save(MADE, path)
    check_place(path)


def test_nothing_is_kept_for_a_user_without_a_home(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    place = usual_place(MADE.machine, {})
    with pytest.raises(CalibrationError, match="set XDG_DATA_HOME"):
        check_place(place)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_calibration(tmp_path):
    with pytest.raises(CalibrationError, match="Is a directory; name a file from gaptrace"):
        load(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b'{"schema": "other"}',
        pytest.param(b"[" * 100_000, id="deep"),
    ],
)
def test_a_file_that_is_no_calibration(tmp_path, content):
    path = tmp_path / "c.json"
    path.write_bytes(content)
    with pytest.raises(CalibrationError, match="not a calibration"):
        load(path)


# The command


def test_without_a_gpu(capsys, monkeypatch):
    monkeypatch.setattr(machine, "probe_driver", lambda: NO_DRIVER)
    assert main(["calibrate"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "gaptrace: error: no GPU to calibrate: libcuda.so.1, the NVIDIA driver's library, is not "
        "installed; run this on the machine that traces are recorded on\n"
    )


@pytest.mark.skipif(machine.probe_driver().gpus != (), reason="there is a GPU")
def test_without_a_gpu_indeed():
    found = subprocess.run(
        [sys.executable, "-m", "gaptrace", "calibrate"], capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr.startswith("gaptrace: error: no GPU to calibrate: ")
    assert found.stderr.count("\n") == 1


@pytest.fixture
def here(monkeypatch, tmp_path, installed):
    """Have the machine of `MACHINE` measure what is given, with no recorder installed."""
    installed()
    monkeypatch.setattr(machine, "probe_driver", lambda: H200)
    monkeypatch.setattr(calibrations, "this_machine", lambda driver: MACHINE)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("GAPTRACE_NSYS", str(tmp_path / "nowhere"))

    def measured(*figures: Figure) -> Path:
        monkeypatch.setattr(probing, "measure", lambda progress: figures)
        return usual_place(MACHINE)

    return measured


def test_saved_in_the_usual_place(here, capsys):
    place = here(*MADE.figures)
    assert main(["calibrate"]) == 0
    out, err = capsys.readouterr()
    assert "NVIDIA H200, driver 580.159.03, CUDA 13.0" in out
    no_nsys, no_cupti, saved = err.splitlines()
    assert no_nsys.startswith("gaptrace: the cost of recording with nsys is not measured: GAPTRACE")
    assert no_cupti.startswith("gaptrace: the cost of recording with CUPTI is not measured: no CU")
    assert saved == f"gaptrace: saved in {place}"
    assert replace(load(place), date=MADE.date) == MADE
    assert main(["calibrate", "--check"]) == 0
    out, err = capsys.readouterr()
    assert "None of 5 figures moved beyond its spread since" in out
    assert err == ""


def test_what_moved_fails_the_check(here, capsys, tmp_path):
    call, loop, single, small, _ = MADE.figures
    here(call, loop, replace(single, value=3_000.0, low=2_990.0, high=3_010.0), small)
    saved, new = tmp_path / "saved.json", tmp_path / "new.json"
    save(MADE, saved)
    assert main(["calibrate", "--check", str(saved), "-o", str(new)]) == 3
    out = capsys.readouterr().out
    checked = " ".join(out[out.index("1 of 4 figures") :].split())
    assert checked.startswith(
        "1 of 4 figures moved beyond their spread since the calibration of "
        "2026-01-31T12:00:00+00:00: calibrate again not measured now: graph_launch_api_ns, 1,024 "
        "nodes figure saved low high now low high"
    )
    assert checked.endswith("launch_api_ns 2.00 us 1.90 us 2.10 us 3.00 us 2.99 us 3.01 us")
    assert load(saved) == MADE
    assert len(load(new).figures) == 4


def test_nothing_is_measured_that_could_not_be_saved(here, capsys, monkeypatch, tmp_path):
    here()
    monkeypatch.setattr(probing, "measure", lambda progress: pytest.fail("was measured"))
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "c.json"
    assert main(["calibrate", "-o", str(place)]) == 1
    assert capsys.readouterr().err == (
        f"gaptrace: error: cannot write {place}: File exists; name another file with --output\n"
    )


def test_a_slow_host_is_said(here, capsys):
    call, loop, *others = MADE.figures
    here(call, replace(loop, value=108_000.0), *others)
    assert main(["calibrate"]) == 0
    assert (
        "gaptrace: warning: other work slowed this host during most of the probes (a loop took 1.8 "
        "times as long), so that launches look too dear; calibrate again when the machine is "
        "quieter\n"
    ) in capsys.readouterr().err


def test_another_driver_is_said(here, capsys, tmp_path):
    here(*MADE.figures)
    saved = tmp_path / "saved.json"
    save(replace(MADE, machine=replace(MACHINE, driver="570.1")), saved)
    assert main(["calibrate", "--check", str(saved)]) == 0
    assert "warning: driver was 570.1 and is 580.159.03" in capsys.readouterr().out


def test_nothing_to_check_against(here, capsys):
    place = here(*MADE.figures)
    assert main(["calibrate", "--check"]) == 1
    assert capsys.readouterr().err == (
        f"gaptrace: error: there is no calibration {place}; make one with gaptrace calibrate\n"
    )


GAP = Figure("kernel_gap_ns", None, 1, None, 900.0, 890.0, 910.0, 20)
#: What a gap is, as recorded.
RECORDED = {"nsys-graph": 2_000, "nsys-node": 5_000, "cupti-graph": 1_500, "cupti-node": 3_000}


@pytest.fixture
def recorded(monkeypatch):
    """Measure `RECORDED` under recorders; those named here fail, with the error."""
    fail: dict[str, BaseException] = {}

    def measure(granularity, recorder, *, call_ns, loop_ns):
        assert (call_ns, loop_ns) == (50.0, 60_000.0)
        name = probing.recorder_name(recorder, granularity)
        if name in fail:
            raise fail[name]
        gap = float(RECORDED[name])
        return (Figure("kernel_gap_ns", None, 1, name, gap, gap - 10, gap + 10, 4),)

    monkeypatch.setattr(probing, "measure_recorded", measure)
    return fail


def test_all_recorders_are_measured_too(here, recorded, capsys, monkeypatch, tmp_path, installed):
    place = here(*MADE.figures, GAP)
    monkeypatch.setenv("GAPTRACE_NSYS", str(install_fake_nsys(tmp_path)))
    installed(cupti_python="13.0.1", nvidia_cuda_cupti="13.0.85")
    assert main(["calibrate"]) == 0
    out, err = capsys.readouterr()
    assert err == f"gaptrace: saved in {place}\n"
    saved = load(place)
    assert saved.recorders == {
        "nsys-graph": "2023.4.4.54",
        "nsys-node": "2023.4.4.54",
        "cupti-graph": "13.0.1",
        "cupti-node": "13.0.1",
    }
    for name, gap in RECORDED.items():
        added = saved.figure("recorder_kernel_gap_ns", recorder=name)
        assert added == Figure(
            *("recorder_kernel_gap_ns", None, 1, name), gap - 900.0, gap - 920.0, gap - 880.0, 4
        )
    sections = re.findall(r"What (\S+ \S+) adds\n+.*\n.*\n *(.*\S) *\n", out)
    assert [(name, *re.split("  +", row)) for name, row in sections] == [
        ("nsys-graph 2023.4.4.54", "to the gap between kernels", "1.10 us", "1.08 us", "1.12 us"),
        ("nsys-node 2023.4.4.54", "to the gap between kernels", "4.10 us", "4.08 us", "4.12 us"),
        ("cupti-graph 13.0.1", "to the gap between kernels", "600 ns", "580 ns", "620 ns"),
        ("cupti-node 13.0.1", "to the gap between kernels", "2.10 us", "2.08 us", "2.12 us"),
    ]


@pytest.mark.parametrize("error", [RecorderError("no report"), GpuError("no answer")])
def test_a_recorder_that_fails_leaves_the_others(
    here, recorded, capsys, monkeypatch, tmp_path, installed, error
):
    place = here(*MADE.figures, GAP)
    monkeypatch.setenv("GAPTRACE_NSYS", str(install_fake_nsys(tmp_path)))
    installed(cupti_python="13.0.1")
    recorded["nsys-node"] = error
    assert main(["calibrate"]) == 0
    assert capsys.readouterr().err == (
        f"gaptrace: the cost of recording with nsys is not measured: {error}\n"
        f"gaptrace: saved in {place}\n"
    )
    assert list(load(place).recorders) == ["nsys-graph", "cupti-graph", "cupti-node"]


def test_ctrl_c_under_a_recorder_ends_it_all(here, recorded, capsys, monkeypatch, installed):
    place = here(*MADE.figures, GAP)
    installed(cupti_python="13.0.1")
    recorded["cupti-graph"] = KeyboardInterrupt()
    assert main(["calibrate"]) == 130
    assert capsys.readouterr().err.endswith("gaptrace: interrupted\n")
    assert not place.exists()
