"""On a GPU: a calibration, against itself, with company, and what its probes stand on."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
from recorders import real_nsys

from gaptrace.calibration import REGIMES, Calibration
from gaptrace.cost import ChunkModel
from gaptrace.errors import GpuError, RecorderError
from gaptrace.live import probes
from gaptrace.live.bench import Bench
from gaptrace.live.chains import Chains
from gaptrace.live.driver import done
from gaptrace.machine_costs import host_costs
from gaptrace.record.calibrations import load
from gaptrace.record.cupti import Cupti, find_cupti
from gaptrace.record.machine import probe_driver
from gaptrace.record.nsys import Nsys
from gaptrace.schedules import uniform

DRIVER = probe_driver()
SIZES = tuple(2**power for power in range(14))
BRANCHED = SIZES[3:]

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not DRIVER.gpus, reason=f"no GPU: {DRIVER.problem or 'CUDA sees none'}"),
    pytest.mark.skipif(
        find_spec("cuda") is None or find_spec("cuda.bindings") is None,
        reason="needs cuda-bindings",
    ),
]


def calibrate(*arguments: object, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gaptrace", "calibrate", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"XDG_DATA_HOME": str(home)},
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def output(home) -> str:
    """Calibrate once for all tests; what it took goes to the log of the tests."""
    begin = time.monotonic()
    found = calibrate(home=home)
    assert found.returncode == 0, found.stdout + found.stderr
    print(f"\ncalibrated in {time.monotonic() - begin:.0f} s\n{found.stdout}{found.stderr}")  # noqa: T201
    return found.stdout + found.stderr


@pytest.fixture(scope="module")
def made(output, home) -> Calibration:
    (path,) = (home / "gaptrace" / "calibrations").iterdir()
    return load(path)


# The whole of it


def test_the_machine(made, output):
    assert made.machine.gpu == DRIVER.gpus[0]
    assert made.machine.driver == DRIVER.version
    assert DRIVER.gpus[0] in output


def test_all_figures_are_there(made):
    here = {each.key for each in made.figures if each.recorder is None}
    single = {
        *("binding_call_ns", "host_loop_ns"),
        *("launch_api_ns", "launch_latency_ns", "launch_queued_api_ns"),
        *("kernel_gap_ns", "node_gap_ns", "small_node_ns", "sm_clock_hz"),
        *("launch_queue_depth", "graph_queue_depth"),
    }
    launches = ("graph_launch", "graph_first_launch", "graph_updated_launch")
    by_size = {
        *(f"{each}_{what}_ns" for each in launches for what in ("api", "latency")),
        *("capture_ns", "instantiate_ns", "upload_api_ns", "upload_ns", "exec_update_ns"),
        *("destroy_exec_ns", "destroy_graph_ns"),
    }
    gaps = {"graph_gap_ns", "cut_gap_ns", "graph_launch_queued_api_ns"}
    expected = {(name, None, 1, None) for name in single}
    expected |= {(name, nodes, 1, None) for name in by_size for nodes in SIZES}
    expected |= {(name, nodes, 4, None) for name in by_size for nodes in BRANCHED}
    expected |= {(name, nodes, 1, None) for name in gaps for nodes in (16, 128)}
    assert here == expected, sorted(map(str, here ^ expected))


def test_every_figure_lies_in_its_spread(made):
    wrong = [each for each in made.figures if not each.low <= each.value <= each.high]
    assert not wrong
    few = [each for each in made.figures if each.recorder is None and each.runs < 5]
    assert not few


#: name -> least and most on any GPU and host, in the figure's own unit. Latencies are known to a
#: few tenths of a microsecond.
BANDS = {
    "binding_call_ns": (10, 20_000),
    "host_loop_ns": (10_000, 1_000_000),
    "launch_api_ns": (200, 100_000),
    "launch_queued_api_ns": (200, 100_000),
    "launch_latency_ns": (200, 200_000),
    "kernel_gap_ns": (50, 50_000),
    "node_gap_ns": (50, 50_000),
    "small_node_ns": (50, 50_000),
    "sm_clock_hz": (200e6, 5e9),
    "launch_queue_depth": (64, probes.MOST_LAUNCHES),
    "graph_queue_depth": (16, probes.MOST_GRAPHS),
}


@pytest.mark.parametrize("name", BANDS)
def test_figures_are_possible(made, name):
    least, most = BANDS[name]
    figure = made.figure(name)
    assert least <= figure.value <= most, figure


@pytest.mark.parametrize("nodes", [16, 128])
def test_gaps_between_graphs_are_possible(made, nodes):
    gap, cut = (made.figure(name, nodes=nodes) for name in ("graph_gap_ns", "cut_gap_ns"))
    assert 0 < gap.value < 50_000, gap
    assert -500 < cut.value < 50_000, cut
    assert gap.value == pytest.approx(cut.value + made.figure("node_gap_ns").value, abs=500)


@pytest.mark.parametrize("branches", [1, 4])
def test_graph_launches_are_possible(made, branches):
    for name in ("graph_launch", "graph_first_launch", "graph_updated_launch"):
        api, latency = (
            made.table(f"{name}_{what}_ns", branches=branches) for what in ("api", "latency")
        )
        assert all(200 < each.value < 100_000_000 for each in api), api
        assert all(200 < each.value < 100_000_000 for each in latency), latency
        assert api[0].value < 2 * api[-1].value, (api[0], api[-1])


@pytest.mark.parametrize("branches", [1, 4])
@pytest.mark.parametrize("name", ["capture_ns", "instantiate_ns", "exec_update_ns"])
def test_building_costs_something_for_each_node(made, name, branches):
    table = made.table(name, branches=branches)
    assert all(each.value > 0 for each in table), table
    small = next(each for each in table if each.nodes == 64)
    assert table[-1].value > 10 * small.value, (small, table[-1])  # 128 times the nodes


def test_it_is_what_the_model_needs(made):
    for regime in REGIMES:
        for branches in (1, 4):
            cost, _ = host_costs(made, regime, "value", {}, branches)
            assert cost.ns[-1] >= cost.ns[0] > 0, (regime, cost)
    host, ready = host_costs(made, "replay", "value", {})
    model = ChunkModel(
        host=host,
        ready=ready,
        nodes=600,
        node_ns=2_000,
        in_graph_gap_ns=made.figure("node_gap_ns").value,
        cut_gap_ns=max(0.0, made.figure("cut_gap_ns", nodes=16).value),
        queue_depth=round(made.figure("graph_queue_depth").value),
    )
    times = uniform(model)
    assert (times >= model.device_only_ns).all()


# Under recorders


def usable(tool: str) -> Nsys | Cupti:
    """Return the recorder, or skip the test."""
    if tool == "nsys":
        return real_nsys()
    try:
        return find_cupti(DRIVER)
    except RecorderError as error:
        pytest.skip(f"needs CUPTI: {error}")


@pytest.mark.parametrize("tool", [pytest.param("nsys", marks=pytest.mark.nsys), "cupti"])
def test_what_recorders_add(made, output, tool):
    version = usable(tool).version
    recorders = [f"{tool}-graph", f"{tool}-node"]
    measured = {name: made.recorders.get(name) for name in recorders}
    assert measured == dict.fromkeys(recorders, version), output[-1_000:]  # ends with why not
    for recorder in recorders:
        assert f"What {recorder} {version} adds" in output
        here = [each for each in made.figures if each.recorder == recorder]
        keys = [each.key[:3] for each in here]
        call = made.figure("recorder_call_ns", recorder=recorder)
        assert call is not None, keys
        # A few us, less than launches vary from process to process.
        assert -10_000 < call.value < 100_000, call
        assert call.high > 0, call
        gap = made.figure("recorder_graph_gap_ns", nodes=16, recorder=recorder)
        assert gap is not None, keys
        assert -1_000 < gap.value < 100_000, gap
        nodes = {each.nodes for each in here if each.name == "graph_launch_api_ns"}
        assert nodes == {1, 8, 64, 512, 2048}, keys
    graph, node = (made.figure("recorder_node_ns", recorder=each) for each in recorders)
    assert graph is not None, made.recorders
    assert node is not None, made.recorders
    # About 0.2 and 1.2 us per launched node on an H200.
    assert -100 < graph.value < 10_000, graph
    assert 100 < node.value < 20_000, node
    assert node.value > graph.value, (graph, node)


# Against itself, and with company


def test_a_check_right_after_holds(made, home):
    found = calibrate("--check", home=home)
    outcome = found.stdout[found.stdout.index("the calibration of") - 80 :]
    assert found.returncode == 0, outcome + found.stderr
    assert "None of " in outcome


def test_a_check_against_another_machine_fails(made, home, tmp_path):
    (path,) = (home / "gaptrace" / "calibrations").iterdir()
    content = json.loads(path.read_text())
    for each in content["figures"]:
        if each["name"] == "sm_clock_hz":
            for field in ("value", "low", "high"):
                each[field] *= 2
    other = tmp_path / "other.json"
    other.write_text(json.dumps(content))
    found = calibrate("--check", other, home=home)
    assert found.returncode == 3, found.stdout + found.stderr
    assert "sm_clock_hz" in found.stdout


SPINNING = """
import time
from gaptrace.live.bench import Bench

with Bench() as bench:
    kernel = bench.spin(2_000_000)
    print("busy", flush=True)
    end = time.monotonic() + 300
    while time.monotonic() < end:
        bench.launch(kernel, bench.stream, 20)
        bench.wait()
"""


@pytest.fixture
def company() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", SPINNING], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "busy\n"
        time.sleep(1)  # as long as the management library looks back
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_busy_gpu_is_refused(company, home, tmp_path):
    found = calibrate("-o", tmp_path / "c.json", home=home)
    assert company.poll() is None
    assert found.returncode == 1, found.stdout + found.stderr
    assert found.stderr.startswith("gaptrace: error: the GPU is in use ("), found.stderr
    assert found.stderr.count("\n") == 1
    assert not (tmp_path / "c.json").exists()


def test_without_the_management_library_company_is_noticed(company):
    with Bench() as bench:
        probes.warm_up(bench)
        absence_ns = bench.longest_absence_ns(100_000_000)
        assert not probes.is_alone(bench), absence_ns


# What the probes stand on


def test_alone_on_an_idle_gpu():
    with Bench() as bench:
        probes.warm_up(bench)
        absence_ns = bench.longest_absence_ns(100_000_000)
        assert probes.is_alone(bench), absence_ns


def test_device_time_is_in_proportion_to_clocks():
    with Bench() as bench:
        probes.warm_up(bench)
        times = [
            bench.device_ns(partial(bench.launch, bench.spin(clocks), bench.stream))
            for clocks in (1_000_000, 4_000_000)
        ]
    assert times[1] / times[0] == pytest.approx(4, rel=0.2), times


def test_device_time_leaves_the_host_out():
    with Bench() as bench:
        probes.warm_up(bench)
        kernel = bench.spin(0)

        def slowly() -> None:
            for _ in range(5):
                bench.launch(kernel, bench.stream)
                time.sleep(0.01)

        slow = bench.device_ns(slowly)
    assert slow is not None
    assert slow < 5_000_000


def test_a_latch_runs_out_and_lets_go_after_an_error():
    with Bench() as bench:
        with bench.latched(patience_ns=1_000_000) as held:
            bench.wait()
            assert not held()
        with bench.latched() as held:
            assert held()
        with pytest.raises(ZeroDivisionError), bench.latched():
            _ = 1 / 0
        bench.wait()


def test_the_latency_is_part_of_what_the_host_sees():
    with Bench() as bench:
        probes.warm_up(bench)
        call = bench.launching(bench.answer(marks=True), bench.stream)
        for _ in range(20):
            begin = time.perf_counter_ns()
            launch = bench.timed_launch(call)
            whole = time.perf_counter_ns() - begin
            assert launch.latency_ns is not None
            assert 0 < launch.latency_ns < whole, launch


def test_the_latency_of_held_work_is_the_time_held():
    """Known by construction: the kernel cannot begin before the latch in front of it lets go."""
    with Bench() as bench:
        probes.warm_up(bench)
        call = bench.launching(bench.answer(marks=True), bench.stream)

        def behind_a_latch() -> object:
            bench._ticket += 1
            bench._latch_values[1], bench._latch_values[2] = bench._ticket, 5_000_000
            bench.launch(bench._latch, bench.stream)
            return call()

        found = [bench.timed_launch(behind_a_latch).latency_ns for _ in range(5)]
    assert all(each is not None and 4_900_000 < each < 8_000_000 for each in found), found


@pytest.mark.parametrize(("nodes", "branches"), [(1, 1), (2, 1), (64, 1), (8, 4), (67, 4)])
def test_graphs_have_the_nodes_asked_for(nodes, branches):
    with Bench() as bench:
        graph, _ = Chains(bench, branches).capture(nodes)
        _, count = done(bench.cuda.cuGraphGetNodes(graph, 0), "counting nodes")
        done(bench.cuda.cuGraphDestroy(graph), "freeing the graph")
    assert count == nodes


def test_everything_is_freed():
    with Bench() as bench:
        chains = Chains(bench, 4)
        probes.graph_costs(bench, chains, 2_048, 4)
        before, _ = done(bench.cuda.cuMemGetInfo(), "asking for memory")
        for _ in range(20):
            probes.graph_costs(bench, chains, 2_048, 4)
        after, _ = done(bench.cuda.cuMemGetInfo(), "asking for memory")
    assert before - after < 32 << 20, (before, after)


def test_the_kernels_say_what_is_wrong_with_them(monkeypatch):
    from gaptrace.live import kernels

    monkeypatch.setattr(kernels, "SOURCE", "not a program")
    with pytest.raises(GpuError, match="NVRTC cannot compile"), Bench():
        pass


#: In a process of its own: any test before it that uses two streams would hide what it looks for.
KERNELS_ON_YET_ANOTHER_STREAM = """
import statistics
from functools import partial
from gaptrace.live.bench import Bench
from gaptrace.live.chains import executable

def graph_ns(bench, line):
    launch = partial(bench.cuda.cuGraphLaunch, line, bench.stream)
    return statistics.median(bench.device_ns(launch) for _ in range(9))

with Bench() as bench, executable(bench, bench.spin(0), 300) as line:
    before = graph_ns(bench, line)
    other = bench.new_stream()
    for _ in range(20):
        bench.launch(bench.spin(0), other)
        bench.launch(bench.spin(0), bench.stream)
    bench.wait()
    print(before, graph_ns(bench, line))
"""


def test_kernels_on_yet_another_stream_change_nothing():
    done = subprocess.run(
        [sys.executable, "-c", KERNELS_ON_YET_ANOTHER_STREAM],
        capture_output=True,
        text=True,
        check=True,
    )
    before, after = map(float, done.stdout.split())
    # Without use_other_streams it was 159 and then 212 us on an H200.
    assert after == pytest.approx(before, rel=0.05)
