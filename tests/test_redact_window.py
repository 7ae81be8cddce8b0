"""Copies of a window: the figures of its time, and what of the host belongs to it."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from contents import names_in, rows_of
from exports import (
    api,
    event_awaited,
    event_recorded,
    export,
    graph_exec_made,
    graph_made,
    graph_trace,
    kernel,
    mark,
    memcpy,
    named,
    profiler_overhead,
    push,
    sync,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from real_traces import REAL
from sources_to_redact import (
    GRAPH_LAUNCH,
    LAUNCH,
    launched,
)

from gaptrace.analysis import analyze
from gaptrace.errors import GaptraceError, NotRecordedError, WindowError
from gaptrace.read import read
from gaptrace.redact import redact
from gaptrace.redact.kept import ROWS_OF_WINDOW

# The same figures


def inside(path: Path, device: int, begin: int, end: int) -> list[object]:
    """What `analyze --device --from --to` says of a device."""
    found = analyze(read(path), device_id=device, from_ns=begin, to_ns=end)
    return [found.devices.to_dicts(), found.causes.to_dicts()]


def inside_by_call(path: Path, device: int, begin: int, end: int) -> list[object]:
    """The same without the direction of copies: their op tells it, and may lie after the window."""
    found = analyze(read(path), device_id=device, from_ns=begin, to_ns=end)
    by_call = (
        found.causes.with_columns(
            pl.col("cause").cast(pl.String),
            detail=pl.col("detail").cast(pl.String).str.split(" ").list.first(),
        )
        .group_by("device_id", "cause", "detail")
        .agg(pl.col("idle_ns", "piece_count").sum())
    )
    return [found.devices.to_dicts(), by_call.sort("cause", "detail").to_dicts()]


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_windows_of_real_traces_keep_the_figures_of_their_time(tmp_path, path):
    """Also the details of causes, which a copy is not asked to prove when it is made."""
    try:
        ops = analyze(read(path)).trace.ops
    except NotRecordedError:
        return
    first, last = ops["start_ns"].min(), ops["end_ns"].max()
    dice = random.Random(path.stem)
    for number in range(2):
        begin, end = sorted(dice.randrange(first, last) for _ in "ab")
        try:
            done = redact(path, tmp_path / f"{number}.sqlite", from_ns=begin, to_ns=end)
        except WindowError:
            continue  # all the window's work was launched before the file begins
        for row in done.figures["devices"]:
            start, stop = max(begin, row["first_ns"]), min(end, row["last_ns"])
            where = (row["device"], start, stop)
            if start < stop:
                assert inside(done.target, *where) == inside(path, *where)


#: What a thread does in one call: name of the call, table of what it makes, that row.
CALLS = {
    "launch": (LAUNCH, "kernels", kernel),
    "copy": ("cudaMemcpyAsync_v3020", "memcpys", memcpy),
    "graph": (GRAPH_LAUNCH, "graph_traces", graph_trace),
    "wait": ("cudaStreamSynchronize_v3020", "sync", sync),
    "record": ("cudaEventRecord_v3020", "event_records", event_recorded),
    "await": ("cudaStreamWaitEvent_v3020", "sync", event_awaited),
    "other": ("cudaMalloc_v3020", None, None),
}


def captured(start: int, tid: int) -> dict[str, list[dict[str, object]]]:
    """A capture of two launches, and the graph exec 2 that is made of it."""
    names = ["cudaStreamBeginCapture_v10000", LAUNCH, LAUNCH, "cudaStreamEndCapture_v10000"]
    times = [start + 3 * n for n in range(4)]
    return {
        "api": [api(name, at, at + 2, tid=tid) for name, at in zip(names, times, strict=True)],
        "graph_events": [
            graph_made(start + 12, 1, tid=tid),
            graph_exec_made(start + 13, 1, 2, tid=tid),
        ],
    }


@st.composite
def programs(draw):
    """Two threads that launch, wait, record events, capture and mark ranges, on two streams."""
    rows: dict[str, list[dict[str, object]]] = {"api": [], "nvtx": [], "profiler_overhead": []}
    now = {thread: draw(st.integers(0, 50)) for thread in (100, 101)}
    free = {7: 0, 13: 0}
    kinds = st.sampled_from([*CALLS, "launch", "capture", "overhead", "range"])
    for correlation in range(1, draw(st.integers(3, 25)) + 1):
        thread, stream = draw(st.sampled_from([100, 101])), draw(st.sampled_from([7, 13]))
        kind, start = draw(kinds), now[thread] + draw(st.integers(0, 40))
        end = now[thread] = start + draw(st.integers(15, 30))
        if kind == "capture":
            for table, made in captured(start, thread).items():
                rows.setdefault(table, []).extend(made)
        elif kind == "overhead":
            rows["profiler_overhead"].append(profiler_overhead("flush", start, end, tid=thread))
        elif kind == "range":
            rows["nvtx"].append(push(f"r{correlation % 3}", start, end + 60, tid=thread))
        else:
            name, table, row = CALLS[kind]
            rows["api"].append(api(name, start, end, tid=thread, correlation=correlation))
            at = {"correlation": correlation, "stream": stream}
            begin = max(start + draw(st.integers(1, 60)), free[stream])
            ran = (begin, begin + draw(st.integers(1, 50)))
            event = draw(st.integers(1, 2))
            if kind in ("launch", "copy", "graph"):
                free[stream] = ran[1]
            if table is not None:
                where = {"record": (event,), "await": (start, end, event), "wait": (start, end)}
                rows.setdefault(table, []).append(row(*where.get(kind, ran), **at))
    return rows


@settings(max_examples=30, deadline=None)
@given(programs(), st.integers(0, 900), st.integers(20, 900))
def test_any_window_of_any_program_keeps_the_figures_of_its_time(
    tmp_path_factory, rows, begin, size
):
    folder = tmp_path_factory.mktemp("program")
    source = export(folder / "t.sqlite", **rows)
    try:
        analyze(read(source))
        done = redact(source, folder / "copy.sqlite", from_ns=begin, to_ns=begin + size)
    except (NotRecordedError, WindowError):
        return
    for row in done.figures["devices"]:
        start, stop = max(begin, row["first_ns"]), min(begin + size, row["last_ns"])
        where = (row["device"], start, stop)
        if start < stop:
            assert inside_by_call(done.target, *where) == inside_by_call(source, *where)


def test_a_window_that_gives_other_figures_is_not_there(tmp_path, monkeypatch):
    source = export(tmp_path / "t.sqlite", **launched((1000, 2000), (3000, 4000)))
    monkeypatch.setitem(ROWS_OF_WINDOW, "CUPTI_ACTIVITY_KIND_RUNTIME", "0")
    with pytest.raises(GaptraceError, match="does not give the figures of its source: "):
        redact(source, tmp_path / "copy.sqlite", from_ns=500)
    assert names_in(tmp_path) == ["t.sqlite"]


@pytest.mark.parametrize("schema", ["3.20.3", "2.9.1", "pre-2022"])
def test_a_window_leaves_out_the_times_that_its_source_leaves_out(tmp_path, schema):
    """What is far from the middle of all work need not be far from that of the window's."""
    days = 2**49 + 100
    kernels = [kernel(-days, days), kernel(1 - days, days + 1), kernel(50, 60)]
    kernels += [kernel(at, at + 10) for at in range(2000, 2200, 20)]
    unset = [kernel(at, 2**62) for at in range(4)]
    source = export(tmp_path / "t.sqlite", schema, kernels=[*kernels, *unset])
    done = redact(source, tmp_path / "copy.sqlite", to_ns=100)
    assert [(row["first_ns"], row["last_ns"]) for row in done.figures["devices"]] == [
        (-days, days + 1)
    ]
    assert read(done.target).ops.height == 3
    # The same of a copy of the copy, be it of all of it or of less.
    whole = redact(done.target, tmp_path / "whole.sqlite").target
    assert read(whole).ops.height == 3
    less = redact(whole, tmp_path / "less.sqlite", to_ns=10).target
    assert read(less).ops.height == 2


@pytest.mark.parametrize("noted", ["None", "x", "9" * 19, "9" * 5000, "\u00b2"])
def test_a_middle_that_no_copy_notes(tmp_path, noted):
    meta = [named("DERIVED_MIDDLE_NS", noted)]
    source = export(tmp_path / "t.sqlite", meta=meta, **launched((1000, 2000)))
    assert read(source).ops.height == 1


# What belongs to a window


def test_a_window_by_the_name_of_ranges_goes_from_the_first_to_the_last(tmp_path):
    rows = launched((1000, 1100), (3000, 3100), (5000, 5100), (9000, 9100))
    ranges = [push("all", 0, 9500), push("step", 2000, 3500), push("step", 4000, 6000)]
    source = export(tmp_path / "t.sqlite", nvtx=ranges, **rows)
    for name in ("step", "all/step"):
        done = redact(source, tmp_path / f"{name[:3]}.sqlite", range_name=name)
        assert done.window_ns == (2000, 6000)
        times = "SELECT start, end FROM {} ORDER BY start"
        kernels = rows_of(done.target, times.format("CUPTI_ACTIVITY_KIND_KERNEL"))
        assert kernels == [(3000, 3100), (5000, 5100)]
        assert rows_of(done.target, times.format("NVTX_EVENTS")) == [(2000, 3500), (4000, 6000)]
        assert len(rows_of(done.target, times.format("CUPTI_ACTIVITY_KIND_RUNTIME"))) == 2
    meta = dict(rows_of(done.target, "SELECT name, value FROM META_DATA_EXPORT"))
    assert meta["DERIVED_WINDOW_NS"] == "2000-6000"


def test_a_range_and_times_narrow_each_other(tmp_path):
    rows = launched((1000, 1100), (3000, 3100), (5000, 5100))
    source = export(tmp_path / "t.sqlite", nvtx=[push("step", 900, 6000)], **rows)
    done = redact(source, tmp_path / "a.sqlite", range_name="step", from_ns=2000)
    assert done.window_ns == (2000, 6000)
    done = redact(source, tmp_path / "b.sqlite", range_name="step", to_ns=4000)
    assert done.window_ns == (900, 4000)


def test_work_at_the_very_end_is_in_a_window_without_end(tmp_path):
    source = export(tmp_path / "t.sqlite", kernels=[kernel(10, 20), kernel(30, 30)])
    done = redact(source, tmp_path / "copy.sqlite", from_ns=15)
    assert rows_of(done.target, "SELECT start FROM CUPTI_ACTIVITY_KIND_KERNEL") == [(10,), (30,)]


def test_a_launch_before_the_window_comes_with_its_work(tmp_path):
    calls = [api(LAUNCH, 10, 20, correlation=1), api(LAUNCH, 30, 40, correlation=2)]
    source = export(
        tmp_path / "t.sqlite",
        api=[*calls, api("cudaMalloc_v3020", 50, 60), api("cudaMalloc_v3020", 190, 260)],
        kernels=[kernel(100, 120, correlation=1), kernel(220, 240, correlation=2)],
    )
    copy = redact(source, tmp_path / "copy.sqlite", from_ns=200).target
    kept = rows_of(copy, "SELECT start FROM CUPTI_ACTIVITY_KIND_RUNTIME ORDER BY start")
    assert kept == [(30,), (190,)]


def test_the_capture_of_a_graph_that_runs_in_the_window_tells_its_nodes(tmp_path):
    def captured(at: int, launches: int) -> list[dict[str, object]]:
        between = [api(LAUNCH, at + 10 * n, at + 10 * n + 5) for n in range(1, launches + 1)]
        return [
            api("cudaStreamBeginCapture_v10000", at, at + 5),
            *between,
            api("cudaStreamEndCapture_v10000", at + 90, at + 95),
        ]

    source = export(
        tmp_path / "t.sqlite",
        api=[
            *captured(1000, 3),
            *captured(2000, 5),
            api(GRAPH_LAUNCH, 3000, 3010, correlation=1),
            api(GRAPH_LAUNCH, 4000, 4010, correlation=2),
        ],
        graph_events=[
            graph_made(1096, 1),
            graph_exec_made(1098, 1, 2),
            graph_made(2096, 3),
            graph_exec_made(2098, 3, 4),
        ],
        graph_traces=[
            graph_trace(3100, 3200, graph=1, graph_exec=2, correlation=1),
            graph_trace(4100, 4200, graph=3, graph_exec=4, correlation=2),
        ],
    )
    done = redact(source, tmp_path / "copy.sqlite", from_ns=3500)
    assert [(row["graph_exec"], row["nodes"]) for row in done.figures["graphs"]] == [(4, 5)]
    early = "SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE start < 2000"
    assert rows_of(done.target, early) == [(0,)]


def test_a_wait_for_an_event_comes_with_the_record_it_waits_for(tmp_path):
    source = export(
        tmp_path / "t.sqlite",
        api=[
            api("cudaEventRecord_v3020", 10, 11, correlation=1),
            api("cudaEventRecord_v3020", 20, 21, correlation=2),
            api("cudaEventRecord_v3020", 30, 31, correlation=3),
            api("cudaStreamWaitEvent_v3020", 40, 41, correlation=4),
            api(LAUNCH, 50, 60, correlation=5),
            api(LAUNCH, 70, 80, correlation=6),
        ],
        event_records=[
            event_recorded(1, correlation=1, stream=13),
            event_recorded(1, correlation=2, stream=13),
            event_recorded(2, correlation=3, stream=7),
        ],
        sync=[event_awaited(40, 41, 1, correlation=4)],
        kernels=[kernel(200, 210, correlation=5), kernel(300, 310, correlation=6)],
    )
    copy = redact(source, tmp_path / "copy.sqlite", from_ns=150).target
    kept = rows_of(copy, "SELECT start FROM CUPTI_ACTIVITY_KIND_RUNTIME ORDER BY start")
    assert kept == [(20,), (40,), (50,), (70,)]
    assert read(copy).event_waits["awaited_stream_id"].to_list() == [13]
    # The second kernel did not wait for the event.
    copy = redact(source, tmp_path / "later.sqlite", from_ns=250).target
    assert read(copy).event_waits.is_empty()


def test_overheads_marks_and_domains_of_a_window(tmp_path):
    source = export(
        tmp_path / "t.sqlite",
        kernels=[kernel(100, 110), kernel(300, 310)],
        profiler_overhead=[profiler_overhead("a", 10, 20), profiler_overhead("b", 190, 220)],
        nvtx=[mark("early", 50), mark("late", 250), push("p", 205, 290, domain="d")],
    )
    copy = read(redact(source, tmp_path / "copy.sqlite", from_ns=200).target)
    assert copy.overhead["name"].to_list() == ["b"]
    assert copy.nvtx.select("name", "domain").rows() == [("p", "d"), ("late", None)]


def test_a_window_that_alone_says_nothing_is_refused(tmp_path):
    """The host is far ahead: what it launches in the window runs after it."""
    calls = [api(LAUNCH, 10 * n, 10 * n + 5, correlation=n) for n in range(1, 21)]
    kernels = [kernel(200, 210, correlation=99)]
    kernels += [kernel(1000 + 10 * n, 1005 + 10 * n, correlation=n) for n in range(1, 21)]
    source = export(tmp_path / "t.sqlite", api=calls, kernels=kernels)
    with pytest.raises(WindowError, match=r"alone cannot be analysed \(.*\); take a wider one"):
        redact(source, tmp_path / "copy.sqlite", from_ns=100, to_ns=300)
    assert names_in(tmp_path) == ["t.sqlite"]


def test_a_window_without_graphs_of_an_old_recording_in_node_granularity(tmp_path):
    kernels = [kernel(10, 20), kernel(30, 40), kernel(1000, 1010, node=1 << 32)]
    source = export(tmp_path / "t.sqlite", "2.9.1", kernels=kernels)
    done = redact(source, tmp_path / "copy.sqlite", to_ns=500)
    assert [row["idle_ns"] for row in done.figures["devices"]] == [10]
    assert (read(source).meta.granularity, read(done.target).meta.granularity) == ("node", None)


def test_a_window_of_an_export_without_all_columns(tmp_path):
    source = export(tmp_path / "t.sqlite", nvtx=[push("x", 0, 9000)], **launched((1000, 1100)))
    with closing(sqlite3.connect(source)) as db:
        for column in ("graphNodeId", "contextId", "greenContextId"):
            db.execute(f"ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN {column}")
        db.execute("ALTER TABLE TARGET_INFO_CUDA_DEVICE DROP COLUMN pid")
        db.commit()
    done = redact(source, tmp_path / "copy.sqlite", from_ns=900)
    assert [row["busy_ns"] for row in done.figures["devices"]] == [100]


# What is no window


@pytest.mark.parametrize(
    ("window", "error", "said"),
    [
        ({"range_name": "stp"}, WindowError, "no NVTX range is named stp; there are: step"),
        ({"from_ns": 50_000}, WindowError, "no device work in the window asked for"),
        ({"from_ns": 900, "to_ns": 800}, WindowError, "begins at 900 ns and ends at 800 ns"),
        ({"from_ns": 10, "to_ns": 800}, WindowError, "no device work between 10 and 800 ns"),
        ({"from_ns": 3000, "to_ns": 4000}, WindowError, "device work runs from 1000 ns to 2000 ns"),
    ],
)
def test_windows_that_are_not_there(tmp_path, window, error, said):
    source = export(tmp_path / "t.sqlite", nvtx=[push("step", 1, 5000)], **launched((1000, 2000)))
    with pytest.raises(error, match=said):
        redact(source, tmp_path / "copy.sqlite", **window)
    assert names_in(tmp_path) == ["t.sqlite"]


def test_a_window_of_a_trace_without_device_work(tmp_path):
    source = export(tmp_path / "t.sqlite", api=[api("cuInit", 1, 2)])
    with pytest.raises(NotRecordedError, match=f"^{source}: 1 CUDA API calls"):
        redact(source, tmp_path / "copy.sqlite", from_ns=0)
    assert names_in(tmp_path) == ["t.sqlite"]
