"""Cutting and capturing graphs without a GPU: what is launched, refused, warned of and freed."""

import gc
import sys
from contextlib import contextmanager
from itertools import pairwise

import numpy as np
import pytest
from fake_driver import CUresult, FakeDriver
from hypothesis import given
from hypothesis import strategies as st

import gaptrace
from gaptrace.errors import GpuError, ScheduleError
from gaptrace.live import capture as capture_module
from gaptrace.live import graph_topology
from gaptrace.live import split as split_module
from gaptrace.live.graph_handles import graph_handle, stream_handle

KERNEL, CHILD, EVENT_WAIT, EVENT_RECORD, SIGNAL, SEMAPHORE_WAIT = 0, 4, 6, 7, 8, 9
ALLOCATION, FREE, MEMORY_OPS, CONDITIONAL = 10, 11, 12, 13


def put_in(patch, fake, programmatic=()):
    """Have gaptrace call the fake driver; edges given by label are programmatic."""

    def edges_between(graph):
        found = fake.graphs[graph]
        edges = sorted(found.edges)
        marks = [(found.labels[a], found.labels[b]) in programmatic for a, b in edges]
        return np.array(edges, np.uint64).reshape(-1, 2), np.array(marks, bool)

    for module in (split_module, graph_topology, capture_module):
        patch.setattr(module, "driver", lambda: fake)
    patch.setattr(graph_topology, "edges_between", edges_between)
    for library in ("torch", "cupy"):
        patch.delitem(sys.modules, library, raising=False)
    return fake


@pytest.fixture
def fake(monkeypatch):
    return put_in(monkeypatch, FakeDriver())


def chain(nodes):
    return [(a, a + 1) for a in range(nodes - 1)]


@st.composite
def cut_graphs(draw):
    """Node count, edges between nodes created in any order, and a schedule."""
    nodes = draw(st.integers(1, 12))
    pairs = [(a, b) for b in range(nodes) for a in range(b)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    names = draw(st.permutations(range(nodes)))
    ends = draw(st.sets(st.integers(1, nodes - 1))) if nodes > 1 else set()
    bounds = [0, *sorted(ends), nodes]
    schedule = [after - before for before, after in pairwise(bounds)]
    return nodes, [(names[a], names[b]) for a, b in edges], schedule


# What the chunks are


@given(cut_graphs())
def test_chunks_hold_every_node_once_and_no_edge_points_back(cut):
    nodes, edges, schedule = cut
    with pytest.MonkeyPatch.context() as patch:
        fake = put_in(patch, FakeDriver())
        graph = fake.new_graph(nodes, edges)
        chunks = gaptrace.split(graph, schedule=schedule)
        pieces = [fake.execs[piece] for piece in chunks.execs]
        assert [len(labels) for labels, _ in pieces] == schedule == list(chunks.schedule)
        chunk_of = {label: index for index, (labels, _) in enumerate(pieces) for label in labels}
        assert set(chunk_of) == set(range(nodes))
        assert all(chunk_of[a] <= chunk_of[b] for a, b in edges)
        inside = {(a, b) for a, b in edges if chunk_of[a] == chunk_of[b]}
        assert set().union(*(found for _, found in pieces)) == inside
        assert list(fake.graphs) == [graph]
        assert len(fake.graphs[graph].labels) == nodes
        chunks.close()
        assert fake.execs == {}


@given(cut_graphs())
def test_nothing_is_left_wherever_the_driver_fails(cut):
    nodes, edges, schedule = cut
    with pytest.MonkeyPatch.context() as patch:
        for fail_at in range(200):
            fake = put_in(patch, FakeDriver(fail_at))
            graph = fake.new_graph(nodes, edges)
            try:
                gaptrace.split(graph, schedule=schedule).close()
            except GpuError as error:
                assert "the driver answered CUDA_ERROR_INVALID_VALUE" in str(error)
            else:
                break
            finally:
                assert fake.execs == {}
                assert list(fake.graphs) == [graph]
        assert fail_at > 0


def test_chunks_are_launched_in_order_on_the_stream(fake):
    with gaptrace.split(fake.new_graph(10, chain(10)), chunk=4) as chunks:
        chunks.upload(7)
        chunks.launch(7)
        chunks.launch()
        first, second, third = chunks.execs
        assert fake.uploaded == [(first, 7), (second, 7), (third, 7)]
        assert fake.launched == [*fake.uploaded, (first, 0), (second, 0), (third, 0)]
        assert (chunks.schedule, chunks.nodes, chunks.widths) == ((4, 4, 2), 10, (1, 1))
        assert chunks.warnings == ()


def test_a_range_around_each_instantiation_tells_the_size(fake, monkeypatch):
    made = []

    @contextmanager
    def seen(name, payload):
        before = len(fake.execs)
        yield
        made.append((name, payload, len(fake.execs) - before))

    monkeypatch.setattr(split_module, "named_range", seen)
    gaptrace.split(fake.new_graph(10, chain(10)), chunk=4).close()

    assert made == [("cut", 4, 1), ("cut", 4, 1), ("cut", 2, 1)]


def test_closing_twice_is_fine_and_launching_then_is_not(fake):
    chunks = gaptrace.split(fake.new_graph(2), chunk=1)
    chunks.close()
    chunks.close()
    assert (fake.execs, chunks.execs) == ({}, ())
    with pytest.raises(GpuError, match="closed: split the graph again"):
        chunks.launch()
    with pytest.raises(GpuError, match="closed: split the graph again"):
        chunks.upload()


def test_chunks_that_nobody_holds_are_freed(fake):
    gaptrace.split(fake.new_graph(2), chunk=1)
    gc.collect()
    assert fake.execs == {}


def test_chunks_keep_what_was_cut(fake):
    class CUgraph(int):
        freed = False

        def __del__(self):
            CUgraph.freed = True

    chunks = gaptrace.split(CUgraph(fake.new_graph(2)), chunk=1)
    gc.collect()
    assert not CUgraph.freed
    chunks.close()
    gc.collect()
    assert CUgraph.freed


def test_a_failing_launch_names_the_error(fake):
    with gaptrace.split(fake.new_graph(2), chunk=1) as chunks:
        fake.fail_at = next(fake._calls) + 1
        with pytest.raises(GpuError, match=r"launching a chunk of a graph: .*INVALID_VALUE"):
            chunks.launch()


# Arguments


def test_either_chunk_or_schedule(fake):
    with pytest.raises(ScheduleError, match="give either chunk="):
        gaptrace.split(fake.new_graph(2), chunk=2, schedule=[1, 1])


def test_without_either_the_graph_stays_whole(fake):
    with gaptrace.split(fake.new_graph(3)) as chunks:
        assert chunks.schedule == (3,)


def test_schedules_that_do_not_fit(fake):
    graph = fake.new_graph(3)
    with pytest.raises(ScheduleError, match="sum to 2, but the graph has 3 nodes"):
        gaptrace.split(graph, schedule=[1, 1])
    with pytest.raises(ScheduleError, match="a chunk must be"):
        gaptrace.split(graph, chunk=0)
    with pytest.raises(ScheduleError, match="the graph has no nodes"):
        gaptrace.split(fake.new_graph(), chunk=5)
    assert fake.execs == {}


# Branches and programmatic edges

FORK = [(a, a + 1) for a in range(15) if a != 7] + [(6, 8)]


def test_cuts_move_away_from_branches(fake):
    with gaptrace.split(fake.new_graph(16, FORK), chunk=8) as chunks:
        assert (chunks.schedule, chunks.widths, chunks.warnings) == ((7, 9), (1,), ())


@pytest.mark.parametrize("arguments", [{"chunk": 8, "narrow": False}, {"schedule": [8, 8]}])
def test_cuts_that_stay_are_warned_of(fake, arguments):
    with gaptrace.split(fake.new_graph(16, FORK), **arguments) as chunks:
        assert (chunks.schedule, chunks.widths) == ((8, 8), (2,))
        (warning,) = chunks.warnings
    assert warning == (
        "1 of 1 cuts go across branches that could run side by side (the widest after node 7: "
        "2 branches): the cut holds the later ones back until the earlier ones are done"
    )


def test_cuts_move_away_from_programmatic_edges(monkeypatch):
    fake = put_in(monkeypatch, FakeDriver(), programmatic={(7, 8), (8, 9)})
    with gaptrace.split(fake.new_graph(16, chain(16)), chunk=8) as chunks:
        assert (chunks.schedule, chunks.warnings) == ((7, 9), ())


def test_programmatic_edges_that_are_cut_are_warned_of(monkeypatch):
    fake = put_in(monkeypatch, FakeDriver(), programmatic={(7, 8), (8, 9)})
    with gaptrace.split(fake.new_graph(16, chain(16)), schedule=[8, 4, 4]) as chunks:
        (warning,) = chunks.warnings
    assert warning.startswith("1 of 2 cuts go through programmatic edges: the later kernel")


# Refusals


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (
            ALLOCATION,
            r"node 1 \(memory allocation\) keeps the graph from being cut: .*gaptrace.capt",
        ),
        (FREE, r"node 1 \(memory free\) keeps the graph from being cut: "),
        (CONDITIONAL, r"node 1 \(conditional\) keeps the graph from being cut: "),
    ],
)
def test_nodes_that_cuda_does_not_copy(fake, kind, reason):
    with pytest.raises(GpuError, match=reason):
        gaptrace.split(fake.new_graph(3, chain(3), {1: kind}), chunk=1)
    inner = fake.new_graph(2, [], {1: kind})
    outer = fake.new_graph(3, chain(3), {1: CHILD})
    fake.children[fake.node(outer, 1)] = inner
    with pytest.raises(GpuError, match=reason):
        gaptrace.split(outer, chunk=3)


def test_a_child_graph_is_cut_around(fake):
    outer = fake.new_graph(3, chain(3), {1: CHILD})
    fake.children[fake.node(outer, 1)] = fake.new_graph(2)
    with gaptrace.split(outer, chunk=1) as chunks:
        assert chunks.schedule == (1, 1, 1)


def waiting(fake, edges, first, second, events=(5, 5)):
    """Return a graph of four nodes, the second of one type and the third of another."""
    graph = fake.new_graph(4, edges, {1: first, 2: second})
    fake.events = {fake.node(graph, label): events[label - 1] for label in (1, 2)}
    return graph


SIDE_BY_SIDE = [(0, 1), (0, 2), (1, 3), (2, 3)]


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        (EVENT_WAIT, EVENT_RECORD, r"node 1 \(event wait\) may wait for node 2 \(event record\)"),
        (SEMAPHORE_WAIT, SIGNAL, r"node 1 \(external semaphore wait\) may wait for node 2"),
        (
            MEMORY_OPS,
            KERNEL,
            r"node 1 \(batched memory operations\) may wait for node 2 \(kernel\)",
        ),
    ],
)
def test_a_wait_for_what_a_later_chunk_does(fake, first, second, names):
    graph = waiting(fake, SIDE_BY_SIDE, first, second)
    with pytest.raises(GpuError, match=names):
        gaptrace.split(graph, schedule=[2, 2])
    for schedule in ([4], [1, 3], [1, 2, 1]):
        gaptrace.split(graph, schedule=schedule).close()
    in_order = waiting(fake, chain(4), first, second)
    gaptrace.split(in_order, schedule=[2, 2]).close()


def test_waits_for_other_events_or_earlier_records(fake):
    other = waiting(fake, SIDE_BY_SIDE, EVENT_WAIT, EVENT_RECORD, events=(5, 6))
    gaptrace.split(other, schedule=[2, 2]).close()
    earlier = waiting(fake, SIDE_BY_SIDE, EVENT_RECORD, EVENT_WAIT)
    gaptrace.split(earlier, schedule=[2, 2]).close()


# Handles of graphs


class Torch:
    def __init__(self, answer):
        self.answer = answer

    def raw_cuda_graph(self):
        if isinstance(self.answer, str):
            raise RuntimeError(f"{self.answer}\nException raised from somewhere")
        return self.answer


class Builder:
    def __init__(self, definition):
        self.definition = definition

    @property
    def graph_definition(self):
        if self.definition is None:
            raise RuntimeError("still building")
        return self.definition


class Definition:
    def __init__(self, handle):
        self.handle = handle


class CUgraph(int):
    pass


class CUgraphExec(int):
    pass


class CuPy:
    def __init__(self, **attributes):
        vars(self).update(attributes)

    def debug_dot_str(self):
        raise AssertionError


class OldTorch:
    def capture_begin(self):
        raise AssertionError


@pytest.mark.parametrize(
    "graph",
    [9, CUgraph(9), Torch(9), Builder(Definition(CUgraph(9))), Definition(9), CuPy(graph=9)],
    ids=lambda graph: type(graph).__name__,
)
def test_handles_of_graphs(graph):
    assert graph_handle(graph) == 9


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (
            Torch("keep_graph was false"),
            r"keep_graph=True\) and capture .*\(keep_graph was false\)$",
        ),
        (OldTorch(), "PyTorch 2.8 or newer"),
        (Builder(None), r"call end_building\(\) .*\(still building\)$"),
        (Definition(CUgraphExec(9)), "an executable graph cannot be cut"),
        (CUgraphExec(9), "an executable graph cannot be cut"),
        (CuPy(), r"this CuPy does not hand out .* gaptrace.capture\(function\)"),
        (CuPy(graph=0), "the graph has no handle"),
        (0, "the graph has no handle"),
        (True, "builtins.bool is no graph that gaptrace knows"),
        ("graph", "builtins.str is no graph that gaptrace knows"),
        (None, "NoneType is no graph that gaptrace knows"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_graph_to_cut(graph, reason):
    with pytest.raises(GpuError, match=reason) as caught:
        graph_handle(graph)
    assert "\n" not in str(caught.value)


def test_handles_of_streams():
    class Protocol:
        def __cuda_stream__(self):
            return 0, 8

    assert stream_handle(None) == 0
    assert stream_handle(8) == 8
    assert stream_handle(Protocol()) == 8
    assert stream_handle(type("Torch", (), {"cuda_stream": 8})()) == 8
    assert stream_handle(type("CuPy", (), {"ptr": 8})()) == 8
    assert stream_handle(np.int64(8)) == 8


@pytest.mark.parametrize("stream", ["8", True, 8.5, object()])
def test_what_is_no_stream(stream):
    with pytest.raises(GpuError, match="is no stream that gaptrace knows"):
        stream_handle(stream)


# Capturing through the driver


def test_a_function_is_captured_and_the_graph_freed(fake):
    (_, stream) = fake.cuStreamCreate(1)

    def work():
        for _ in range(5):
            fake.launch(stream)
        return "result"

    with gaptrace.capture(work, stream) as captured:
        assert captured.outputs == "result"
        with gaptrace.split(captured, chunk=2) as chunks:
            assert chunks.schedule == (2, 2, 1)
    assert (fake.graphs, fake.execs, captured.outputs) == ({}, {}, None)
    captured.close()
    with pytest.raises(GpuError, match="has been closed: capture it again"):
        gaptrace.split(captured, chunk=2)


def test_a_stream_is_made_and_ended_where_none_is_given(fake):
    streams = []

    def work():
        streams.extend(fake.streams)
        fake.launch(*streams)

    gaptrace.capture(work).close()
    assert len(streams) == 1
    assert fake.streams == {}


def test_the_function_lives_as_long_as_the_graph(fake):
    (_, stream) = fake.cuStreamCreate(1)

    class Work:
        freed = False

        def __call__(self):
            fake.launch(stream)

        def __del__(self):
            Work.freed = True

    captured = gaptrace.capture(Work(), stream)
    gc.collect()
    assert not Work.freed
    del captured
    gc.collect()
    assert Work.freed
    assert fake.graphs == {}


def state(fake, stream):
    return fake.cuStreamIsCapturing(stream)[1].name


def test_what_cuda_does_not_capture_is_said_and_the_capture_ended(fake):
    (_, stream) = fake.cuStreamCreate(1)

    def work():
        fake.invalidate(stream)
        raise RuntimeError(
            "CUDA error: not permitted\nSearch for `cudaErrorStreamCaptureUnsupported'"
        )

    with pytest.raises(GpuError) as caught:
        gaptrace.capture(work, stream)
    assert str(caught.value).startswith(
        "CUDA does not capture this (RuntimeError: CUDA error: not permitted, "
        "cudaErrorStreamCaptureUnsupported): call the function once before"
    )
    assert state(fake, stream).endswith("NONE")
    assert fake.graphs == {}


def test_what_else_the_function_raises_passes_on(fake):
    (_, stream) = fake.cuStreamCreate(1)

    def work():
        fake.launch(stream)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        gaptrace.capture(work, stream)
    assert state(fake, stream).endswith("NONE")
    assert fake.graphs == {}


@pytest.mark.parametrize(
    ("ending", "advice"),
    [
        (CUresult.CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "wait for every side stream"),
        (CUresult.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "call the function once before"),
    ],
)
def test_a_capture_that_cannot_be_ended(fake, ending, advice):
    (_, stream) = fake.cuStreamCreate(1)
    fake.ending = ending
    with pytest.raises(GpuError, match=f"the driver answered {ending.name}: .*{advice}"):
        gaptrace.capture(lambda: fake.launch(stream), stream)
    assert fake.graphs == {}


def test_nothing_captured(fake):
    with pytest.raises(GpuError, match="launched nothing on the stream that was captured"):
        gaptrace.capture(lambda: None)
    assert fake.graphs == {}


def test_streams_that_cannot_be_captured(fake):
    for legacy in (0, 1):
        with pytest.raises(GpuError, match="does not capture the legacy default stream"):
            gaptrace.capture(lambda: None, legacy)
    (_, stream) = fake.cuStreamCreate(1)

    def twice():
        fake.launch(stream)
        gaptrace.capture(lambda: None, stream)

    with pytest.raises(GpuError, match="the stream is already being captured"):
        gaptrace.capture(twice, stream)
    assert state(fake, stream).endswith("NONE")


def test_a_library_that_refuses_by_itself_is_worded_alike(fake):
    def work():
        raise RuntimeError("the current stream is capturing, so synchronous calls are not allowed")

    with pytest.raises(GpuError, match=r"CUDA does not capture this \(RuntimeError: the current"):
        gaptrace.capture(work)
    assert fake.graphs == {}
