"""Perfetto files, read back by Perfetto's own classes."""

import sys
from collections import Counter
from io import BytesIO
from itertools import pairwise

import polars as pl
import pytest
from contents import names_in
from exports import export
from hypothesis import given
from hypothesis import strategies as st
from perfetto_files import query_perfetto, read_perfetto, trace_processor
from real_traces import REAL, SAMPLES
from rows import call, graph, node, nvtx, op, overhead, trace
from sources_to_redact import launched

from gaptrace.analysis import analyze
from gaptrace.cli import main
from gaptrace.errors import NotRecordedError
from gaptrace.export import packets
from gaptrace.export.packets import PacketWriter
from gaptrace.export.perfetto import write_perfetto
from gaptrace.export.tracks import Track
from gaptrace.read import read


def written(folder, *args, **rows):
    """Write a trace of these rows, and read the file."""
    target = folder / "t.pftrace"
    write_perfetto(analyze(trace(*args, **rows)), target)
    return read_perfetto(target)


GPU = "GPU 0 GPU zero"
THREAD = "process 1000 / thread 1001"


def test_ops_and_calls_are_slices_and_flows_join_them(tmp_path):
    found = written(
        tmp_path,
        ops=[
            op(115, 130, 1),
            op(150, 160, 2, kind="memcpy", name="copy DtoH", bytes=4, source_memory="device"),
        ],
        api=[
            call("cudaLaunchKernel", 100, 110, 1),
            call("cudaMemcpyAsync", 140, 155, 2, return_code=700),
            call("cudaStreamSynchronize", 156, 170),
        ],
    )
    copied = {"correlation_id": 2, "bytes": 4, "source_memory": "device"}
    assert found.slices[f"{GPU} / stream 7"] == [
        (115, 130, "scale", {"correlation_id": 1}),
        (150, 160, "copy DtoH", copied),
    ]
    calls = found.slices[f"{THREAD} / CUDA calls"]
    assert [row[:3] for row in calls] == [
        (100, 110, "cudaLaunchKernel"),
        (140, 155, "cudaMemcpyAsync"),
        (156, 170, "cudaStreamSynchronize"),
    ]
    # Nothing ran before the first op: whether it found the device idle is not known.
    assert calls[0][3] == {"correlation_id": 1, "lead_ns": 5}
    assert calls[1][3] == {
        "correlation_id": 2,
        "lead_ns": -5,
        "exposed_latency_ns": 10,
        "failed_with": 700,
    }
    assert calls[2][3] == {}
    assert dict(found.flows) == {
        1: [
            (f"{THREAD} / CUDA calls", 100, "cudaLaunchKernel"),
            (f"{GPU} / stream 7", 115, "scale"),
        ],
        2: [
            (f"{THREAD} / CUDA calls", 140, "cudaMemcpyAsync"),
            (f"{GPU} / stream 7", 150, "copy DtoH"),
        ],
    }


def test_gaps_are_slices_of_one_cause_each_and_busy_is_their_complement(tmp_path):
    found = written(
        tmp_path,
        ops=[op(10, 20, 1), op(100, 110, 2)],
        api=[call("cudaLaunchKernel", 0, 5, 1), call("cudaLaunchKernel", 60, 90, 2)],
    )
    gap = {"gap_id": 0, "gap_ns": 80, "thread_id": 1001}
    assert found.slices[f"{GPU} / idle because of"] == [
        (20, 60, "host_code", gap),
        (60, 90, "launch_call", gap | {"detail": "cudaLaunchKernel"}),
        (90, 100, "device_queued", gap | {"detail": "between_ops"}),
    ]
    assert found.counters[f"{GPU} / busy"] == [(10, 1), (20, 0), (100, 1), (110, 0)]
    assert found.counters[f"{GPU} / queue depth"] == [(5, 1), (10, 0), (90, 1), (100, 0)]
    assert "granularity graph: each graph execution is one op." in found.descriptions[GPU]


def test_a_graph_execution_lies_beside_its_nodes(tmp_path):
    found = written(
        tmp_path,
        ops=[node(20, 30, 1, 0), node(35, 40, 1, 1)],
        api=[call("cudaGraphLaunch", 0, 10, 1)],
        granularity="node",
    )
    about = {"correlation_id": 1, "op_count": 2, "api_ns": 10, "lead_ns": 10}
    assert found.slices[f"{GPU} / stream 7: graphs"] == [(20, 40, "graph exec 2", about)]
    nodes = found.slices[f"{GPU} / stream 7"]
    assert [(a, b, facts["graph_node_id"] % 2**32) for a, b, _, facts in nodes] == [
        (20, 30, 0),
        (35, 40, 1),
    ]
    assert [len(ends) for ends in found.flows.values()] == [2]


def test_ranges_nest_and_what_crosses_stays_one_row(tmp_path):
    found = written(
        tmp_path,
        ops=[op(0, 100), graph(105, 110)],
        nvtx=[
            nvtx("step", 0, 100),
            nvtx("inner", 10, 50, payload=3.0),
            nvtx("inner", 50, 50, domain=None),
            nvtx("of another domain", 40, 120, domain="mine", is_closed=False),
            nvtx("request", 5, 80, kind="start_end"),
            nvtx("request", 60, 90, kind="start_end"),
            nvtx("here", 33, None, kind="mark", payload=1.5),
        ],
        overhead=[overhead(1, 2), overhead(3, 4, thread_id=None)],
    )
    assert found.slices[f"{THREAD} / NVTX"] == [
        (0, 100, "step", {"domain": "gaptrace"}),
        (10, 50, "inner", {"domain": "gaptrace", "payload": 3.0}),
        (40, 120, "of another domain", {"domain": "mine", "is_closed": False}),
        (50, 50, "inner", {}),
    ]
    assert [row[:2] for row in found.slices[f"{THREAD} / NVTX start/end"]] == [(5, 80), (60, 90)]
    marks = found.instants[f"{THREAD} / NVTX marks"]
    assert marks == [(33, "here", {"domain": "gaptrace", "payload": 1.5})]
    took = {"kind": "profiler"}
    for thread, at in ((THREAD, 1), ("process 1000 / thread unknown", 3)):
        place = f"{thread} / overhead of recorder and driver"
        assert found.slices[place] == [(at, at + 1, "buffer flush", took)]
    # Two Perfetto tracks, shown as one.
    for place in ("NVTX", "NVTX start/end"):
        lanes = found.lanes[f"{THREAD} / {place}"]
        assert len(lanes) == 2
        assert len({key for _, key in lanes}) == 1


def test_streams_say_no_more_than_tells_them_apart(tmp_path):
    def streams(*ops):
        found = written(tmp_path, ops=ops)
        (tmp_path / "t.pftrace").unlink()
        return [
            place.removeprefix(f"{GPU} / ")
            for place in found.slices
            if place.startswith(f"{GPU} / ") and "idle" not in place
        ]

    assert streams(op(0, 1), op(2, 3, stream_id=13)) == ["stream 7", "stream 13"]
    assert streams(op(0, 1), op(2, 3, context_id=2)) == [
        "stream 7, context 1",
        "stream 7, context 2",
    ]
    first, second = 5 << 24, 6 << 24
    other_host = second | 1 << 48
    assert streams(*(op(0, 1, process_id=one) for one in (first, second, other_host))) == [
        "stream 7, process 5",
        f"stream 7, process 6 ({second})",
        f"stream 7, process 6 ({other_host})",
    ]
    assert streams(op(0, 1), op(2, 3, stream_id=None)) == ["stream 7", "no stream"]


def test_ids_of_nsight_are_shown_as_the_system_knows_them(tmp_path):
    process = 1 << 56 | 1 << 48 | 4711 << 24
    launch = call("cudaLaunchKernel", 0, 5, 1, process_id=process, thread_id=process | 4712)
    found = written(tmp_path, ops=[op(10, 20, 1, process_id=process)], api=[launch])
    assert list(found.slices["process 4711 / thread 4712 / CUDA calls"])


def test_times_before_the_session_are_moved(tmp_path):
    found = written(tmp_path, ops=[op(-50, 20), op(30, 40)], nvtx=[nvtx("step", -80, 90)])
    assert [row[:2] for row in found.slices[f"{GPU} / stream 7"]] == [(30, 100), (110, 120)]
    assert [row[:2] for row in found.slices[f"{THREAD} / NVTX"]] == [(0, 170)]
    assert found.counters[f"{GPU} / busy"] == [(30, 1), (100, 0), (110, 1), (120, 0)]


SPAN = st.tuples(st.integers(0, 20), st.integers(0, 8)).map(lambda span: (span[0], sum(span)))


@given(st.lists(SPAN, max_size=15))
def test_any_slices_are_read_back_as_they_were(tmp_path_factory, spans):
    rows = [(start, end, f"{number}") for number, (start, end) in enumerate(spans)]
    frame = pl.DataFrame(
        rows,
        schema={"start_ns": pl.Int64, "end_ns": pl.Int64, "name": pl.String},
        orient="row",
    )
    path = tmp_path_factory.mktemp("any") / "t.pftrace"
    with path.open("wb") as file:
        writer = PacketWriter(file)
        writer.write(Track(("group", "row"), "slices", frame))
        writer.finish()
    found = read_perfetto(path).slices["group / row"]
    assert sorted(row[:3] for row in found) == sorted(rows)


def test_packets_are_written_in_batches(monkeypatch, tmp_path):
    rows = {"ops": [op(at, at + 5) for at in range(0, 1000, 10)]}
    whole = written(tmp_path, **rows)
    monkeypatch.setattr(packets, "_BATCH", 7)
    sizes, percentages = [], []

    class Counting(BytesIO):
        def write(self, part):
            sizes.append(len(part))
            return super().write(part)

    frame = pl.DataFrame({"time_ns": [1, 2, 3], "value": [1, 0, 1]})
    file, rows_told = Counting(), []
    writer = PacketWriter(file, tick=rows_told.append)
    for name in ("a", "b", "c"):
        writer.write(Track((name,), "counter", frame), "about")
    writer.finish()
    assert len(sizes) == 2  # 1 + 3 * (1 + 3) packets
    assert sum(rows_told) == 9
    (tmp_path / "t.pftrace").unlink()
    write_perfetto(analyze(trace(**rows)), tmp_path / "t.pftrace", percentages.append)
    assert read_perfetto(tmp_path / "t.pftrace") == whole
    assert percentages == sorted(percentages)
    assert percentages[-1] == 100


def figures(analysis):
    """What must be in the file of a trace, by kind of track."""
    observed = analysis.trace
    marks = observed.nvtx.filter(pl.col("kind") == "mark").height
    return {
        "ops": observed.ops.height,
        "graphs": analysis.executions.height,
        "CUDA calls": observed.api.height,
        "NVTX": observed.nvtx.height - marks,
        "marks": marks,
        "overhead": observed.overhead.height,
        "pieces": analysis.idle.height,
        "flows": analysis.launches.height,
        "idle_ns": analysis.devices["idle_ns"].sum(),
        "busy_ns": analysis.devices["busy_ns"].sum(),
    }


def kind_of(place):
    own = place.split(" / ")[-1]
    if own.endswith(": graphs"):
        return "graphs"
    if own.startswith(("stream", "no stream")):
        return "ops"
    return {"idle because of": "pieces", "overhead of recorder and driver": "overhead"}.get(
        own, own.removesuffix(" start/end") if own.startswith("NVTX") else own
    )


def busy_time(changes):
    return sum(after - before for (before, value), (after, _) in pairwise(changes) if value)


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_real_traces_are_in_the_file_whole(path, tmp_path):
    try:
        analysis = analyze(read(path))
    except NotRecordedError as error:
        pytest.skip(str(error))
    write_perfetto(analysis, tmp_path / "t.pftrace")
    found = read_perfetto(tmp_path / "t.pftrace")
    counts = Counter()
    for place, rows in found.slices.items():
        counts[kind_of(place)] += len(rows)
        if kind_of(place) == "pieces":
            counts["idle_ns"] += sum(end - start for start, end, _, _ in rows)
    counts["marks"] = sum(map(len, found.instants.values()))
    counts["busy_ns"] = sum(
        busy_time(changes) for place, changes in found.counters.items() if place.endswith("busy")
    )
    assert all(len(ends) == 2 for ends in found.flows.values())
    assert {kind: counts[kind] for kind in figures(analysis)} | {
        "flows": len(found.flows)
    } == figures(analysis)


def in_file(path):
    """What the protobuf classes find in a file, as `query_perfetto` returns it."""
    found = read_perfetto(path)
    slices = {place: [row[:3] for row in rows] for place, rows in found.slices.items()}
    slices |= {
        place: [(time, time, name) for time, name, _ in rows]
        for place, rows in found.instants.items()
    }
    flows = [tuple(sorted(ends, key=lambda end: end[1])) for ends in found.flows.values()]
    return slices, found.counters, flows


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_perfetto_itself_reads_the_same(path, tmp_path):
    program, target = trace_processor(), tmp_path / "t.pftrace"
    analysis = analyze(read(path))
    write_perfetto(analysis, target)
    slices, counters, flows, problems = query_perfetto(target, program)
    assert problems == []

    expected = figures(analysis)
    counts = Counter()
    for place, rows in slices.items():
        counts[{"NVTX marks": "marks"}.get(place.split(" / ")[-1], kind_of(place))] += len(rows)
        if kind_of(place) == "pieces":
            counts["idle_ns"] += sum(end - start for start, end, _ in rows)
    for place, changes in counters.items():
        if place.endswith("busy"):
            counts["busy_ns"] += busy_time(changes)
    assert {kind: counts[kind] for kind in expected} | {"flows": len(flows)} == expected
    # A flow leaves the call and arrives at the op.
    assert {(out[0].split(" / ")[-1], kind_of(into[0])) for out, into in flows} == {
        ("CUDA calls", "ops")
    }
    assert (slices, counters) == in_file(target)[:2]
    assert sorted(flows) == sorted(in_file(target)[2])


def test_perfetto_itself_nests_what_crosses(tmp_path):
    program, target = trace_processor(), tmp_path / "t.pftrace"
    found = analyze(
        trace(
            [op(0, 100), graph(105, 110)],
            nvtx=[
                nvtx("outer", 0, 100),
                nvtx("inner", 10, 50),
                nvtx("at its end", 50, 50),
                nvtx("crosses", 40, 120, is_closed=False),
                nvtx("request", 5, 80, kind="start_end"),
                nvtx("request", 60, 90, kind="start_end"),
                nvtx("here", 33, None, kind="mark"),
            ],
            overhead=[overhead(1, 2), overhead(3, 4, thread_id=None)],
        )
    )
    write_perfetto(found, target)
    slices, counters, flows, problems = query_perfetto(target, program)

    assert problems == []
    assert slices[f"{THREAD} / NVTX"] == [
        (0, 100, "outer"),
        (10, 50, "inner"),
        (40, 120, "crosses"),
        (50, 50, "at its end"),
    ]
    assert (slices, counters, flows) == in_file(target)


def test_the_command_writes_the_file(tmp_path, capsys):
    source = export(tmp_path / "t.sqlite", **launched((1000, 2000), (3000, 4000)))
    before = source.read_bytes()
    assert main(["export", str(source), "--to", "perfetto"]) == 0
    target = tmp_path / "t.pftrace"
    out, err = capsys.readouterr()
    assert err == ""
    assert out == f"{target}: {target.stat().st_size / 1e3:.0f} kB\n"
    assert source.read_bytes() == before
    assert names_in(tmp_path) == ["t.pftrace", "t.sqlite"]
    assert sum(map(len, read_perfetto(target).slices.values())) > 4


def test_without_the_package_the_extra_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "perfetto.protos.perfetto.trace", None)
    missing = tmp_path / "not even read.sqlite"
    assert main(["export", str(missing), "--to", "perfetto"]) == 1
    assert capsys.readouterr().err == (
        "gaptrace: error: the package perfetto, which brings the format, is not installed: "
        "pip install 'gaptrace[perfetto]'\n"
    )


def test_an_interruption_leaves_nothing(tmp_path):
    def interrupt(percentage):
        assert names_in(tmp_path)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_perfetto(analyze(trace(ops=[op(0, 1)])), tmp_path / "t.pftrace", interrupt)
    assert names_in(tmp_path) == []
