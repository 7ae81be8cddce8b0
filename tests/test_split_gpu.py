"""On a GPU: graphs that are cut compute what they did whole, are refused with reason, and freed."""

# What is printed shows where a test fails.
# ruff: noqa: T201

import os
import sys
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from dags import Device, expected, said
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gaptrace
from gaptrace import cuts
from gaptrace.errors import GpuError
from gaptrace.live.graph_topology import read_topology
from gaptrace.record.machine import probe_driver

DRIVER = probe_driver()

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not DRIVER.gpus, reason=f"no GPU: {DRIVER.problem or 'CUDA sees none'}"),
    pytest.mark.filterwarnings("default"),  # what the GPU libraries warn of when imported is theirs
]


def needs(*modules: str) -> None:
    for module in modules:
        if find_spec(module.split(".")[0]) is None:
            pytest.skip(f"needs {module}")


@pytest.fixture(autouse=True)
def versions():
    """Have every failure show what it ran with."""
    for name in ("cuda-bindings", "cuda-core", "cupy-cuda13x", "torch"):
        with suppress(PackageNotFoundError):
            print(name, version(name), end="; ")
    print(DRIVER)


@pytest.fixture(scope="module")
def device():
    needs("cuda")
    return Device()


# Random graphs


@st.composite
def dags(draw):
    """Nodes, edges that point forward, order of creation, spins, a schedule."""
    nodes = draw(st.integers(1, 24))
    pairs = [(a, b) for b in range(nodes) for a in range(b)]
    edges = draw(st.sets(st.sampled_from(pairs), max_size=3 * nodes)) if pairs else set()
    order = draw(st.permutations(range(nodes)))
    # Nodes of different length, so that one that does not wait overtakes one that it should.
    spins = draw(st.lists(st.sampled_from([0, 2_000, 20_000]), min_size=nodes, max_size=nodes))
    ends = draw(st.sets(st.integers(1, nodes - 1))) if nodes > 1 else set()
    return nodes, edges, order, spins, np.diff([0, *sorted(ends), nodes]).tolist()


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(dag=dags())
def test_any_schedule_computes_the_same_bytes(device, dag):
    nodes, edges, order, spins, schedule = dag
    graph = device.dag(nodes, edges, order, spins)
    with gaptrace.split(graph, schedule=schedule) as chunks:
        assert list(chunks.schedule) == schedule
        device.clear()
        chunks.launch(device.stream)
        np.testing.assert_array_equal(device.read(nodes), expected(nodes, edges), str(dag))
        device.clear()
        chunks.upload(device.stream)
        for _ in range(3):
            chunks.launch(device.stream)
        np.testing.assert_array_equal(device.read(nodes), expected(nodes, edges), str(dag))
    with gaptrace.split(graph, chunk=max(1, nodes // 3)) as chunks:
        device.clear()
        chunks.launch(device.stream)
        np.testing.assert_array_equal(device.read(nodes), expected(nodes, edges), str(dag))
    said(device.api.cuGraphDestroy(graph))


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(dag=dags())
def test_the_topology_is_what_was_built(device, dag):
    nodes, edges, order, _, _ = dag
    graph = device.dag(nodes, edges, order)
    topology = read_topology(int(graph))
    created = {row: number for number, row in enumerate(order)}
    renamed = np.array([(created[a], created[b]) for a, b in edges], np.int64).reshape(-1, 2)
    place = np.argsort(cuts.topological_order(nodes, renamed))
    assert sorted(map(tuple, topology.edges.tolist())) == sorted(
        map(tuple, place[renamed].tolist())
    ), "the driver lists nodes in another order than that of creation"
    assert not topology.programmatic.any()
    assert {node.type for node in topology.nodes} == {0}
    said(device.api.cuGraphDestroy(graph))


def test_the_original_still_runs_after_it_was_cut(device):
    edges = {(a, a + 1) for a in range(49)}
    graph = device.dag(50, edges)
    with gaptrace.split(graph, chunk=7):
        whole = said(device.api.cuGraphInstantiate(graph, 0))
        device.clear()
        said(device.api.cuGraphLaunch(whole, device.stream))
        np.testing.assert_array_equal(device.read(50), expected(50, edges))
    said(device.api.cuGraphExecDestroy(whole))
    said(device.api.cuGraphDestroy(graph))


def test_chunks_outlive_the_graph_and_run_from_its_handle(device):
    edges = {(a, a + 1) for a in range(19)}
    graph = device.dag(20, edges)
    with gaptrace.split(int(graph), chunk=3) as chunks:
        said(device.api.cuGraphDestroy(graph))
        device.clear()
        chunks.launch(int(device.stream))
        np.testing.assert_array_equal(device.read(20), expected(20, edges))


def test_branches_are_warned_of(device):
    graph = device.dag(8, {(a, a + 2) for a in range(6)})
    with gaptrace.split(graph, chunk=4) as chunks:
        assert chunks.widths == (2,)
        assert "2 branches" in chunks.warnings[0]
    said(device.api.cuGraphDestroy(graph))


def test_programmatic_edges_are_read_and_warned_of(device):
    edges = {(a, a + 1) for a in range(19)}
    programmatic = {(a, a + 1) for a in range(0, 19, 2)}
    graph = device.dag(20, edges, programmatic=programmatic)
    topology = read_topology(int(graph))
    found = topology.edges[topology.programmatic].tolist()
    assert sorted(map(tuple, found)) == sorted(programmatic)
    with gaptrace.split(graph, schedule=[10, 1, 9]) as chunks:
        assert chunks.warnings == (
            "1 of 2 cuts go through programmatic edges: the later kernel no longer starts before "
            "the earlier one has ended",
        )
        device.clear()
        chunks.launch(device.stream)
        np.testing.assert_array_equal(device.read(20), expected(20, edges))
    said(device.api.cuGraphDestroy(graph))


def test_child_graphs_stay_whole(device):
    edges = {(a, a + 1) for a in range(5)}
    inner = device.dag(6, edges)
    outer = device.new_graph()
    child = said(device.api.cuGraphAddChildGraphNode(outer, None, 0, inner))
    after = device.add_kernel(outer, 6, 4, 1)  # the last entry of the table: row 4
    device.connect(outer, [(child, after)])
    with gaptrace.split(outer, chunk=1) as chunks:
        assert chunks.schedule == (1, 1)
        device.clear()
        chunks.launch(device.stream)
        np.testing.assert_array_equal(device.read(7), expected(7, edges | {(4, 6)}))
    for graph in (inner, outer):
        said(device.api.cuGraphDestroy(graph))


# Refusals


def test_a_graph_that_allocates_is_refused(device):
    api, graph = device.api, device.new_graph()
    node = api.CUDA_MEM_ALLOC_NODE_PARAMS()
    node.bytesize = 1 << 20
    node.poolProps.allocType = api.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    node.poolProps.location.type = api.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    node.poolProps.location.id = 0
    said(api.cuGraphAddMemAllocNode(graph, None, 0, node))
    with pytest.raises(GpuError, match=r"node 0 \(memory allocation\) keeps the graph from being"):
        gaptrace.split(graph, chunk=1)
    said(api.cuGraphDestroy(graph))


def test_a_graph_with_a_condition_is_refused(device):
    api, graph = device.api, device.new_graph()
    condition = said(api.cuGraphConditionalHandleCreate(graph, device.context, 1, 1))
    node = api.CUgraphNodeParams()
    node.type = api.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
    node.conditional.handle = condition
    node.conditional.type = api.CUgraphConditionalNodeType.CU_GRAPH_COND_TYPE_IF
    node.conditional.size = 1
    node.conditional.ctx = device.context
    said(api.cuGraphAddNode(graph, None, None, 0, node))
    with pytest.raises(GpuError, match=r"node 0 \(conditional\) keeps the graph from being cut"):
        gaptrace.split(graph, chunk=1)
    said(api.cuGraphDestroy(graph))


def test_a_wait_for_an_event_of_a_later_chunk_is_refused(device):
    api, graph = device.api, device.new_graph()
    event = said(api.cuEventCreate(0))
    wait = said(api.cuGraphAddEventWaitNode(graph, None, 0, event))
    record = said(api.cuGraphAddEventRecordNode(graph, None, 0, event))
    with pytest.raises(GpuError, match=r"node 0 \(event wait\) may wait for node 1"):
        gaptrace.split(graph, chunk=1)
    device.connect(graph, [(wait, record)])
    gaptrace.split(graph, chunk=1).close()
    said(api.cuGraphDestroy(graph))


# What is freed


def counted(monkeypatch, api):
    """Count what is made and freed from here on."""
    numbers = {}

    def counting(name):
        call = getattr(api, name)

        def counted_call(*arguments):
            result = call(*arguments)
            numbers[name] = numbers.get(name, 0) + (int(result[0]) == 0)
            return result

        monkeypatch.setattr(api, name, counted_call)

    for name in ("cuGraphClone", "cuGraphDestroy", "cuGraphInstantiate", "cuGraphExecDestroy"):
        counting(name)
    return numbers


def test_all_that_is_made_is_freed(device, monkeypatch):
    graph = device.dag(100, {(a, a + 1) for a in range(99)})
    numbers = counted(monkeypatch, device.api)
    chunks = gaptrace.split(graph, chunk=9)
    assert numbers == {"cuGraphClone": 12, "cuGraphDestroy": 12, "cuGraphInstantiate": 12}
    chunks.close()
    chunks.close()
    assert numbers["cuGraphExecDestroy"] == 12


@pytest.mark.parametrize("fails_at", [0, 5, 11])
def test_all_is_freed_where_instantiating_fails(device, monkeypatch, fails_at):
    api = device.api
    graph = device.dag(100, {(a, a + 1) for a in range(99)})
    numbers = counted(monkeypatch, api)
    call = api.cuGraphInstantiate

    def failing(*arguments):
        if numbers.get("cuGraphInstantiate", 0) == fails_at:
            return (api.CUresult.CUDA_ERROR_OUT_OF_MEMORY, None)
        return call(*arguments)

    monkeypatch.setattr(api, "cuGraphInstantiate", failing)
    with pytest.raises(GpuError, match="instantiating a chunk: the driver answered CUDA_ERROR_OUT"):
        gaptrace.split(graph, chunk=9)
    assert numbers["cuGraphClone"] == numbers["cuGraphDestroy"]
    assert numbers.get("cuGraphExecDestroy", 0) == fails_at


def memory(device):
    """Return free device memory and the memory of this process, in bytes."""
    said(device.api.cuCtxSynchronize())
    free, _ = said(device.api.cuMemGetInfo())
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return free, resident


def test_many_cuts_leave_no_memory(device):
    graph = device.dag(100, {(a, a + 1) for a in range(99)})

    def cut_and_run(times):
        for _ in range(times):
            with gaptrace.split(graph, chunk=10) as chunks:
                chunks.launch(device.stream)

    cut_and_run(50)
    free, resident = memory(device)
    cut_and_run(500)
    free_after, resident_after = memory(device)
    # 5,000 execs and clones of 100 nodes: leaked, they would take hundreds of megabytes.
    assert free - free_after < 32 << 20, (free, free_after)
    assert resident_after - resident < 64 << 20, (resident, resident_after)
    said(device.api.cuGraphDestroy(graph))


def test_ten_thousand_nodes_in_a_hundred_chunks(device):
    graph = device.new_graph()
    nodes = [device.add_kernel(graph, row % 500) for row in range(10_000)]
    device.connect(graph, list(pairwise(nodes)))
    begin = time.perf_counter()
    with gaptrace.split(graph, chunk=100) as chunks:
        print("seconds to cut:", time.perf_counter() - begin)
        assert chunks.schedule == (100,) * 100
        device.clear()
        chunks.launch(device.stream)
        np.testing.assert_array_equal(device.read(500), expected(500, []))
    said(device.api.cuGraphDestroy(graph))


# PyTorch


def decoder():
    """Return a step of a small transformer decoder, its output, and a function to reset it."""
    import torch

    torch.manual_seed(1)
    width, heads, layers, context = 128, 4, 4, 32
    weights = [torch.randn(4, width, width, device="cuda") / 16 for _ in range(layers)]
    cache = torch.zeros(layers, 2, context, width, device="cuda")
    x = torch.randn(1, width, device="cuda")
    position = torch.zeros(1, dtype=torch.long, device="cuda")
    start = x.clone()

    def step():
        h = x
        for layer, (q, k, v, o) in enumerate(weights):
            n = torch.nn.functional.layer_norm(h, (width,))
            cache[layer, 0].index_copy_(0, position, n @ k)
            cache[layer, 1].index_copy_(0, position, n @ v)
            query = (n @ q).view(heads, 1, -1)
            key = cache[layer, 0].view(context, heads, -1).transpose(0, 1)
            value = cache[layer, 1].view(context, heads, -1).transpose(0, 1)
            scores = (query @ key.transpose(1, 2)) / 8
            masked = scores.masked_fill(torch.arange(context, device="cuda") > position, -1e9)
            h = h + (masked.softmax(-1) @ value).reshape(1, width) @ o
        x.copy_(torch.nn.functional.layer_norm(h, (width,)))
        position.add_(1)

    def reset():
        cache.zero_()
        position.zero_()
        x.copy_(start)

    return step, x, cache, reset


def tokens(run, x, cache, reset, steps=16):
    """Return all that the steps computed, bit by bit."""
    import torch

    reset()
    seen = []
    for _ in range(steps):
        run()
        seen.append(x.clone())
    torch.cuda.synchronize()
    return torch.cat([*seen, cache.view(-1, x.shape[1])])


@pytest.fixture(scope="module")
def torch_step():
    needs("torch")
    import torch

    step, x, cache, reset = decoder()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    return step, x, cache, reset


@pytest.mark.parametrize("chunk", [1, 8, 50, 500])
def test_a_decoder_of_torch_cut_is_the_same_bit_for_bit(torch_step, chunk):
    import torch

    step, x, cache, reset = torch_step
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        step()
    whole = tokens(graph.replay, x, cache, reset)
    with gaptrace.split(graph, chunk=chunk) as chunks:
        print("nodes", chunks.nodes, "warnings", chunks.warnings)
        stream = torch.cuda.current_stream()
        cut = tokens(lambda: chunks.launch(stream), x, cache, reset)
    assert torch.equal(whole, cut)


def test_a_decoder_captured_by_gaptrace(torch_step):
    import torch

    step, x, cache, reset = torch_step
    eager = tokens(step, x, cache, reset)
    with gaptrace.capture(step) as captured, gaptrace.split(captured, chunk=20) as chunks:
        stream = torch.cuda.current_stream()
        cut = tokens(lambda: chunks.launch(stream), x, cache, reset)
        assert chunks.nodes > 40
    torch.testing.assert_close(cut, eager)


def test_outputs_of_a_capture_of_torch_stay(torch_step):
    import torch

    a = torch.arange(1000.0, device="cuda")
    captured = gaptrace.capture(lambda: (a * 2 + 1).sqrt())
    with captured, gaptrace.split(captured, chunk=1) as chunks:
        for factor in (1, 3):
            a.mul_(factor)
            noise = [torch.full((1000,), -7.0, device="cuda") for _ in range(50)]
            chunks.launch(torch.cuda.current_stream())
            assert torch.equal(captured.outputs, (a * 2 + 1).sqrt()), factor
            del noise


def test_graphs_that_torch_does_not_hand_out(torch_step):
    import torch

    a = torch.zeros(10, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        a.add_(1)
    for without in (graph, torch.cuda.CUDAGraph(keep_graph=True)):
        with pytest.raises(GpuError, match=r"make it with torch.cuda.CUDAGraph\(keep_graph=True\)"):
            gaptrace.split(without, chunk=1)


def test_a_capture_that_fails_leaves_torch_usable(torch_step):
    import torch

    a = torch.arange(10.0, device="cuda")
    stream = torch.cuda.Stream()
    before = torch.cuda.current_stream()

    def reads_back():
        return (a + 1).sum().item()

    with pytest.raises(GpuError, match="cudaErrorStreamCapture") as caught:
        gaptrace.capture(reads_back, stream)
    print(caught.value)
    assert "\n" not in str(caught.value)
    assert "call the function once before" in str(caught.value)
    assert torch.cuda.current_stream() == before
    with torch.cuda.stream(stream):
        assert (a + 1).sum().item() == 55
    with pytest.raises(KeyError, match="mine"):
        gaptrace.capture(lambda: {}[(a + 1, "mine")[1]], stream)
    with gaptrace.capture(lambda: a + 1, stream) as captured:
        gaptrace.split(captured, chunk=1).close()
    torch.cuda.empty_cache()
    assert torch.equal(a + 1, torch.arange(1.0, 11.0, device="cuda"))


def test_random_numbers_of_torch_work_after_a_capture_that_failed(torch_step):
    import torch

    a = torch.arange(10.0, device="cuda")
    with pytest.raises(GpuError):
        gaptrace.capture(lambda: (torch.rand_like(a) + a).sum().item())
    torch.manual_seed(3)
    first = torch.rand(5, device="cuda")
    torch.manual_seed(3)
    assert torch.equal(first, torch.rand(5, device="cuda"))


# CuPy


@pytest.fixture
def cupy_only(monkeypatch):
    """Give CuPy, and have gaptrace not see PyTorch, which would capture for both."""
    needs("cupy")
    import cupy

    monkeypatch.setitem(sys.modules, "torch", None)
    return cupy


def cupy_step(cupy):
    """Return a step that needs temporary memory, its input and what it must give."""
    x = cupy.arange(10_000, dtype=cupy.float32)
    y = cupy.zeros_like(x)

    def step():
        for factor in range(1, 20):
            y[...] = cupy.sqrt(x * factor + 1) + y * 0.5
        return y * 2

    return step, x, y


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_work_of_cupy_captured_and_cut(cupy_only, chunk):
    cupy = cupy_only
    step, x, y = cupy_step(cupy)
    step()
    stream = cupy.cuda.Stream(non_blocking=True)
    with gaptrace.capture(step) as captured, gaptrace.split(captured, chunk=chunk) as chunks:
        assert chunks.nodes >= 19 * 4
        for start in (0, 5):
            x[...] = cupy.arange(10_000, dtype=cupy.float32) + start
            y.fill(0)
            wanted = step().copy()
            y.fill(0)
            noise = [cupy.full(10_000, -7, cupy.float32) for _ in range(50)]
            cupy.cuda.Device().synchronize()
            chunks.launch(stream)
            stream.synchronize()
            assert bool((captured.outputs == wanted).all()), start
            del noise


def test_cupy_captures_on_its_own_stream(cupy_only):
    cupy = cupy_only
    step, _, y = cupy_step(cupy)
    step()
    y.fill(0)
    wanted = step().copy()
    stream = cupy.cuda.Stream(non_blocking=True)
    y.fill(0)
    cupy.cuda.Device().synchronize()
    with gaptrace.capture(step, stream) as captured, gaptrace.split(captured, chunk=5) as chunks:
        chunks.launch(stream)
        stream.synchronize()
        assert bool((captured.outputs == wanted).all())
        assert cupy.cuda.get_current_stream() != stream


def test_the_pool_of_a_capture_is_freed(cupy_only, device):
    cupy = cupy_only
    step, _, _ = cupy_step(cupy)
    step()
    big = cupy.zeros(1 << 24, cupy.float32)

    def capture_and_close(times):
        for _ in range(times):
            gaptrace.capture(lambda: big * 2).close()

    (big * 2).sum()
    capture_and_close(2)
    free, _ = memory(device)
    capture_and_close(20)  # 64 MiB each
    free_after, _ = memory(device)
    assert free - free_after < 128 << 20, (free, free_after)


def test_a_capture_that_fails_leaves_cupy_usable(cupy_only):
    cupy = cupy_only
    a = cupy.arange(10, dtype=cupy.float32)
    stream = cupy.cuda.Stream(non_blocking=True)
    float((a + 1).sum())
    with pytest.raises(GpuError, match="CUDA does not capture this") as caught:
        gaptrace.capture(lambda: float((a + 1).sum()), stream)
    print(caught.value)
    assert not stream.is_capturing()
    with stream:
        assert float((a + 1).sum()) == 55
    with pytest.raises(KeyError, match="mine"):
        gaptrace.capture(lambda: {}[(a + 1, "mine")[1]], stream)
    assert not stream.is_capturing()
    gaptrace.capture(lambda: a + 1, stream).close()


def test_side_streams_that_do_not_come_back(cupy_only):
    cupy = cupy_only
    a = cupy.zeros(10, cupy.float32)
    a[...] = 2
    stream, side = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))

    def forks():
        side.wait_event(stream.record())
        with side:
            a[...] = 2

    with pytest.raises(GpuError, match=r"UNJOINED: have the stream .* wait for every side stream"):
        gaptrace.capture(forks, stream)
    assert not stream.is_capturing()
    assert not side.is_capturing()


def test_nothing_and_the_default_stream(cupy_only):
    with pytest.raises(GpuError, match="launched nothing on the stream"):
        gaptrace.capture(lambda: None)
    with pytest.raises(GpuError, match="does not capture the legacy default stream"):
        gaptrace.capture(lambda: None, cupy_only.cuda.Stream.null)


def test_a_graph_that_cupy_captured(cupy_only):
    cupy = cupy_only
    step, _, y = cupy_step(cupy)
    step()
    y.fill(0)
    step()
    wanted = y.copy()
    stream = cupy.cuda.Stream(non_blocking=True)
    y.fill(0)
    with stream:
        step()  # so that the pool has memory for this stream
    stream.synchronize()
    with stream:
        stream.begin_capture()
        kept = step()
        graph = stream.end_capture()
    y.fill(0)
    cupy.cuda.Device().synchronize()
    if not hasattr(graph, "graph"):
        with pytest.raises(GpuError, match=r"capture through gaptrace.capture\(function\)"):
            gaptrace.split(graph, chunk=10)
        pytest.skip(f"CuPy {cupy.__version__} does not hand out its graphs")
    with gaptrace.split(graph, chunk=10) as chunks:
        chunks.launch(stream)
        stream.synchronize()
        assert bool((y == wanted).all())
        del kept


# cuda.core


def test_graphs_of_cuda_core(device):
    needs("cuda.core")
    core = pytest.importorskip("cuda.core")
    gpu = core.Device(0)
    gpu.set_current()
    module = core.Program(
        'extern "C" __global__ void one(int *x) { *x = *x * 3 + 1; }',
        "c++",
        core.ProgramOptions(arch=f"sm_{gpu.arch}"),
    ).compile("cubin")
    kernel = module.get_kernel("one")
    said(device.api.cuMemsetD8(device.rows, 0, 8))
    builder = gpu.create_stream().create_graph_builder().begin_building()
    for _ in range(5):
        core.launch(builder, core.LaunchConfig(grid=1, block=1), kernel, device.rows)
    if not hasattr(type(builder), "graph_definition"):
        with pytest.raises(GpuError):
            gaptrace.split(builder, chunk=2)
        pytest.skip(f"cuda.core {core.__version__} has no GraphBuilder.graph_definition")
    with pytest.raises(GpuError, match=r"call end_building\(\)"):
        gaptrace.split(builder, chunk=2)
    builder.end_building()
    with gaptrace.split(builder, chunk=2) as chunks:
        assert chunks.schedule == (2, 2, 1)
        stream = gpu.create_stream()
        chunks.launch(stream)
        stream.sync()
    assert device.read(1)[0, 0] == 121
    with gaptrace.split(builder.graph_definition, chunk=2) as chunks:
        assert chunks.nodes == 5
    with pytest.raises(GpuError, match="an executable graph cannot be cut"):
        gaptrace.split(builder.complete(), chunk=2)
