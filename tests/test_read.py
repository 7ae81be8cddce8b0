"""The reader of Nsight exports: which files, device work, devices, the recording itself."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from export_schema import SCHEMAS
from exports import (
    DTOH,
    NONE,
    UM_DTOH,
    UM_HTOD,
    api,
    cuda_device,
    diagnostic,
    export,
    global_id,
    gpu,
    graph_trace,
    kernel,
    memcpy,
    memset,
    named,
    profiler_overhead,
    push,
    sync,
)

from gaptrace.errors import NotRecordedError, TraceFormatError
from gaptrace.gaps import device_gaps
from gaptrace.read import read
from gaptrace.trace import API, DEVICES, GRAPH_EVENTS, NVTX, OPS, OVERHEAD, Trace


@pytest.fixture
def load(tmp_path):
    """Build an export from rows and read it. With no device rows given, one kernel is there."""

    def build(schema: str = "3.20.3", **rows) -> Trace:
        if not rows.keys() & {"kernels", "memcpys", "memsets", "graph_traces"}:
            rows["kernels"] = [kernel(1000, 1010)]
        return read(export(tmp_path / "t.sqlite", schema, **rows))

    return build


def rows(frame: pl.DataFrame, *columns: str) -> list[tuple[object, ...]]:
    return frame.select(columns).rows()


def codes(trace: Trace) -> list[str]:
    return [warning.code for warning in trace.warnings]


# Which files


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_generation_gives_the_same_rows(load, schema):
    trace = load(
        schema,
        api=[api("cudaLaunchKernel_v7000", 10, 20, correlation=1)],
        kernels=[kernel(100, 200, correlation=1, name="scale")],
        memcpys=[memcpy(210, 220, kind=DTOH)],
        nvtx=[push("step", 5, 300, domain="mine")],
        profiler_overhead=[profiler_overhead("flush", 30, 40)],
    )
    process = global_id(100)
    assert rows(trace.ops, "start_ns", "end_ns", "name", "process_id", "device_id") == [
        (100, 200, "scale", process, 0),
        (210, 220, "copy DtoH", process, 0),
    ]
    assert rows(trace.api, "start_ns", "end_ns", "name") == [(10, 20, "cudaLaunchKernel")]
    assert rows(trace.nvtx, "start_ns", "end_ns", "name", "domain") == [(5, 300, "step", "mine")]
    assert rows(trace.overhead, "start_ns", "end_ns", "kind") == [(30, 40, "profiler")]
    known = SCHEMAS[schema] is not None
    assert trace.meta.schema_version == (schema if known else None)
    assert trace.meta.product_version == SCHEMAS[schema]


def test_a_schema_from_the_future_is_read_by_column_names(load):
    trace = load(meta=[named("EXPORT_SCHEMA_VERSION", "3.99.1")], kernels=[kernel(1, 2)])
    assert rows(trace.ops, "start_ns", "end_ns") == [(1, 2)]
    assert trace.meta.schema_version == "3.99.1"


def test_the_order_of_columns_and_new_ones_do_not_matter(tmp_path):
    path = export(tmp_path / "t.sqlite", kernels=[kernel(100, 200, correlation=9, stream=13)])
    before = read(path).ops
    table = "CUPTI_ACTIVITY_KIND_KERNEL"
    with closing(sqlite3.connect(path)) as db:
        names = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        turned = ", ".join(reversed(names))
        db.execute(f"ALTER TABLE {table} RENAME TO old")
        db.execute(f"CREATE TABLE {table} AS SELECT 'later' AS future, {turned} FROM old")
        db.execute("DROP TABLE old")
        db.commit()
    assert read(path).ops.equals(before)


def test_absent_and_empty_tables_mean_the_same(tmp_path):
    lazy = read(export(tmp_path / "lazy.sqlite", kernels=[kernel(1, 2)]))
    full = read(export(tmp_path / "full.sqlite", kernels=[kernel(1, 2)], lazy=False))
    for name in ("ops", "api", "nvtx", "overhead", "graph_events", "devices"):
        assert getattr(lazy, name).equals(getattr(full, name)), name


def test_empty_frames_keep_their_columns(load):
    trace = load(kernels=[kernel(1, 2)], gpus=[])
    frames = [trace.ops, trace.api, trace.nvtx, trace.overhead, trace.graph_events, trace.devices]
    assert [frame.schema for frame in frames] == [OPS, API, NVTX, OVERHEAD, GRAPH_EVENTS, DEVICES]
    assert [frame.height for frame in frames] == [1, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("name", ["a b.sqlite", "50%#1?x=y.sqlite", "größe.sqlite", "no_suffix"])
def test_any_file_name_will_do(tmp_path, name):
    path = export(tmp_path / name, kernels=[kernel(1, 2)])
    assert read(path).ops.height == 1
    assert read(str(path)).meta.path == str(path)


def test_reading_leaves_the_file_and_its_folder_alone(tmp_path):
    path = export(tmp_path / "t.sqlite", kernels=[kernel(1, 2)])
    before = path.read_bytes()
    read(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.sqlite"]


def test_a_read_only_file_in_a_read_only_folder_is_read(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    path = export(folder / "t.sqlite", kernels=[kernel(1, 2)])
    path.chmod(0o444)
    folder.chmod(0o555)
    try:
        assert read(path).ops.height == 1
    finally:
        folder.chmod(0o755)


# Device work


def test_all_kinds_of_work_become_ops_in_order_of_time(load):
    trace = load(
        kernels=[kernel(40, 50, name="scale")],
        memcpys=[memcpy(20, 30, kind=DTOH, srcKind=2, dstKind=1)],
        memsets=[memset(10, 15)],
        graph_traces=[graph_trace(0, 5, graph_exec=2)],
    )
    shown = ("op_id", "start_ns", "kind", "name", "graph_exec_id", "bytes", "target_memory")
    assert rows(trace.ops, *shown) == [
        (0, 0, "graph", "graph", 2, None, None),
        (1, 10, "memset", "memset", None, 4096, None),
        (2, 20, "memcpy", "copy DtoH", None, 4096, "pinned"),
        (3, 40, "kernel", "scale", None, None, None),
    ]


def test_work_of_the_decompression_engine_is_device_work(tmp_path):
    path = export(tmp_path / "t.sqlite", kernels=[kernel(0, 10), kernel(30, 40)])
    table = "CUPTI_ACTIVITY_KIND_MEM_DECOMPRESS"  # since 2026
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"CREATE TABLE {table} (start, end, deviceId, streamId, globalPid)")
        db.execute(f"INSERT INTO {table} VALUES (5, 25, 0, 8, ?)", [global_id(100)])
        db.commit()
    trace = read(path)
    assert rows(trace.ops, "start_ns", "kind")[1] == (5, "decompress")
    assert device_gaps(trace).select("start_ns", "end_ns").rows() == [(25, 30)]


@pytest.mark.parametrize("kind", [0, 1, 2, 3, 4])
def test_synchronization_rows_of_any_number_are_not_device_work(load, kind):
    trace = load(kernels=[kernel(90, 95)], sync=[sync(0, 100, kind=kind, stream=NONE)])
    assert rows(trace.ops, "start_ns", "end_ns") == [(90, 95)]
    assert trace.event_waits.is_empty()


def test_overlap_on_one_stream_is_kept_as_it_was(load):
    trace = load(kernels=[kernel(0, 10), kernel(8, 15)])
    assert rows(trace.ops, "start_ns", "end_ns", "stream_id") == [(0, 10, 7), (8, 15, 7)]


def test_work_without_times_or_with_reversed_ones_is_left_out_and_counted(load):
    trace = load(kernels=[kernel(0, 0), kernel(50, 40), kernel(60, 70)])
    assert rows(trace.ops, "start_ns", "end_ns") == [(60, 70)]
    assert codes(trace) == ["invalid_times"]
    assert "2 of 3" in trace.warnings[0].message


def test_a_graph_execution_with_end_zero_is_left_out_and_counted(load):
    trace = load(graph_traces=[graph_trace(7000, 0), graph_trace(8000, 8100)])
    assert rows(trace.ops, "start_ns", "end_ns") == [(8000, 8100)]
    assert codes(trace) == ["invalid_times"]


def test_work_of_no_length_is_kept(load):
    assert rows(load(memsets=[memset(5, 5)]).ops, "start_ns", "end_ns") == [(5, 5)]


def test_times_before_the_session_and_after_its_duration_are_kept(load):
    trace = load(kernels=[kernel(-20, -10), kernel(95, 120)], duration=100)
    assert rows(trace.ops, "start_ns", "end_ns") == [(-20, -10), (95, 120)]
    assert trace.meta.duration_ns == 100


def test_start_and_stop_of_the_session_are_of_another_clock(tmp_path):
    path = export(tmp_path / "t.sqlite", kernels=[kernel(10, 20), kernel(90, 95)], duration=100)
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE ANALYSIS_DETAILS SET startTime = 1571168225420775, stopTime = 1")
        db.commit()
    trace = read(path)
    assert rows(trace.ops, "start_ns", "end_ns") == [(10, 20), (90, 95)]
    assert trace.meta.duration_ns == 100


def test_migrations_of_unified_memory_are_told_apart(load):
    at = {"context": 0, "stream": 0, "correlation": 0}
    trace = load(
        memcpys=[
            memcpy(0, 10, kind=UM_HTOD, **at),
            memcpy(5, 15, kind=UM_DTOH, **at),
            memcpy(20, 30, correlation=4),
        ]
    )
    assert rows(trace.ops, "start_ns", "is_unified_memory", "correlation_id") == [
        (0, True, None),
        (5, True, None),
        (20, False, 4),
    ]


def test_a_kernel_whose_name_is_not_among_the_strings(load):
    trace = load(kernels=[kernel(1, 2, shortName=77)])
    assert rows(trace.ops, "name") == [("kernel",)]


# Devices


def test_ordinals_inside_processes_become_physical_gpus(load):
    trace = load(
        kernels=[kernel(1, 2, pid=100), kernel(3, 4, pid=200), kernel(5, 6, pid=200, device=1)],
        gpus=[gpu(0, "NVIDIA H200"), gpu(1, "NVIDIA H100")],
        cuda_devices=[
            cuda_device(0, gpu=0, pid=100),
            cuda_device(0, gpu=1, pid=200),
            cuda_device(1, gpu=0, pid=200),
        ],
    )
    assert rows(trace.ops, "start_ns", "device_id", "stream_id") == [
        (1, 0, 7),
        (3, 1, 7),
        (5, 0, 7),
    ]
    gpus = sorted(rows(trace.devices, "device_id", "name"))
    assert gpus == [(0, "NVIDIA H200"), (1, "NVIDIA H100")]
    assert codes(trace) == []


def test_without_the_map_ordinals_of_several_processes_are_a_guess(load):
    trace = load(kernels=[kernel(1, 2, pid=100), kernel(3, 4, pid=200)], cuda_devices=[])
    assert trace.ops["device_id"].to_list() == [0, 0]
    assert codes(trace) == ["device_by_ordinal"]


def test_without_the_map_one_process_is_no_guess(load):
    assert codes(load("3.7.2", kernels=[kernel(1, 2)])) == []


def test_a_graph_that_starts_on_the_host_has_no_device(load):
    trace = load(graph_traces=[graph_trace(1, 2, device=2**31 - 1), graph_trace(3, 4)])
    assert rows(trace.ops, "start_ns", "device_id") == [(3, 0)]
    assert codes(trace) == ["device_unknown"]


def test_the_oldest_generation_calls_the_id_of_a_gpu_otherwise(load):
    old = {"vmId": 1, "deviceId": 3, "name": "Tesla V100"}
    trace = load("2019", gpus=[old], kernels=[kernel(1, 2, device=3)])
    assert rows(trace.devices, "device_id", "name") == [(3, "Tesla V100")]


def test_facts_about_a_gpu(load):
    facts = {"totalMemory": 1 << 37, "computeMajor": 9, "computeMinor": 0}
    trace = load(gpus=[gpu(0, "NVIDIA H200", **facts)])
    shown = ("name", "sm_count", "memory_bytes", "compute_capability")
    assert rows(trace.devices, *shown) == [("NVIDIA H200", 132, 1 << 37, "9.0")]


# What the recording says of itself


def test_facts_about_the_machine(load):
    facts = [("NvDriverVersion", "580.1"), ("CudaDriverVersion", "13020"), ("OsDescription", "L")]
    # So a processor is written that the recorder does not know.
    facts.append(("CpuDescription", "unknown"))
    trace = load(
        environment=[{"devStateName": "x", "name": name, "value": value} for name, value in facts]
    )
    assert (trace.meta.driver, trace.meta.cuda, trace.meta.os) == ("580.1", "13.2", "L")
    assert trace.meta.cpu is None


def test_complaints_of_the_recorder_become_warnings(load):
    lost = "Not all CUDA events might\nhave been collected."
    trace = load(
        diagnostics=[
            diagnostic("Number of CUPTI events produced: 43", severity=1),
            diagnostic(lost, severity=2),
            diagnostic(lost, severity=2),
            diagnostic("CUPTI error", severity=3),
            diagnostic("The session was cut short.", pid=0),
            # A compiler that the program started: of course it does not use CUDA.
            diagnostic("No CUDA events collected. Does the process use CUDA?", pid=200),
        ]
    )
    assert [(warning.code, warning.message) for warning in trace.warnings] == [
        ("recorder_diagnostic", "Not all CUDA events might have been collected."),
        ("recorder_diagnostic", "CUPTI error"),
        ("recorder_diagnostic", "The session was cut short."),
    ]


def test_complaints_about_processes_that_only_ask_for_devices_are_no_news(load):
    text = "No NVTX events collected. Does the process use NVTX?"
    trace = load(
        api=[
            api("cudaGetDeviceCount", 10, 20, correlation=1, pid=200),
            api("cudaLaunchKernel", 10, 20, correlation=1, pid=300),
        ],
        diagnostics=[diagnostic(f"{text} It is {pid}.", pid=pid) for pid in (200, 300)],
    )
    assert [warning.message for warning in trace.warnings] == [f"{text} It is 300."]


def test_capture_options_repeat_names(load):
    trace = load(capture=[named("CAPTURE_EVENT_TYPE", "Cuda"), named("CAPTURE_EVENT_TYPE", "Nvtx")])
    assert trace.meta.granularity == "graph"


def test_text_that_is_not_utf8_does_not_stop_the_reader(tmp_path):
    path = export(tmp_path / "t.sqlite", kernels=[kernel(1, 2, name="x")])
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE StringIds SET value = CAST(X'61FF62' AS TEXT) WHERE value = 'x'")
        db.commit()
    assert read(path).ops["name"].to_list() == ["a\ufffdb"]


@pytest.mark.parametrize("value", ["'soon'", "1.5", "X'00'"])
def test_a_time_that_is_no_integer_is_refused(tmp_path, value):
    path = export(tmp_path / "t.sqlite", kernels=[kernel(1, 2), kernel(3, 4)])
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = {value} WHERE start = 3")
        db.commit()
    with pytest.raises(TraceFormatError, match="CUPTI_ACTIVITY_KIND_KERNEL"):
        read(path)


# Real exports, where some are at hand

REAL = os.environ.get("GAPTRACE_TRACES")


@pytest.mark.skipif(not REAL, reason="GAPTRACE_TRACES names no folder with real exports")
def test_real_exports_give_frames_of_the_documented_columns():
    unrecorded = []
    for path in sorted(Path(REAL or "").glob("**/*.sqlite")):
        try:
            trace = read(path)
        except NotRecordedError:
            unrecorded.append(path.name)
            continue
        frames = (trace.ops, trace.api, trace.nvtx, trace.overhead, trace.graph_events)
        schemas = [frame.schema for frame in frames]
        assert schemas == [OPS, API, NVTX, OVERHEAD, GRAPH_EVENTS], path.name
        assert (trace.ops["end_ns"] >= trace.ops["start_ns"]).all(), path.name
    assert unrecorded == [
        "nsys2023.4_no_cuda.sqlite",
        "nsys2025.1_runtime_only.sqlite",
        "two_ranks_killed.sqlite",
    ]


@pytest.mark.parametrize("late", [{}, {"registered": True, "doubleValue": 2.5}])
def test_values_may_come_late_in_a_column(tmp_path, late):
    many = [push("step", i, i + 1, registered=True) for i in range(65_536)]
    path = export(
        tmp_path / "t.sqlite",
        kernels=[kernel(1, 2)],
        nvtx=[*many, push("last", 70_000, 70_001, **late)],
    )
    assert read(path).nvtx["name"].to_list()[-1] == "last"


def test_a_range_whose_text_is_not_utf8(tmp_path):
    path = export(tmp_path / "t.sqlite", kernels=[kernel(1, 2)], nvtx=[push("y", 1, 2)])
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE NVTX_EVENTS SET text = CAST(X'61FF62' AS TEXT)")
        db.commit()
    assert read(path).nvtx["name"].to_list() == ["a\ufffdb"]


def test_devices_are_in_the_order_of_their_ids(tmp_path):
    gpus = [gpu(i) for i in range(8)]
    path = export(tmp_path / "t.sqlite", kernels=[kernel(1, 2)], gpus=gpus)
    assert read(path).devices["device_id"].to_list() == list(range(8))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("EXPORT_PARAM_TIMES_TO_EXPORT", "1s/2s"),
        ("EXPORT_PARAM_TABLES_TO_EXPORT", "CUPTI_ACTIVITY_KIND_KERNEL"),
        ("EXPORT_CONFIG_TIME_SHIFT", "5"),
    ],
)
@pytest.mark.parametrize("schema", ["3.20.3", "2.9.1"])
def test_a_partial_or_shifted_export_says_so(tmp_path, name, value, schema):
    meta = [named(name, value)]
    path = export(tmp_path / "t.sqlite", schema, kernels=[kernel(1, 2)], meta=meta)
    assert {warning.code for warning in read(path).warnings} & {"partial_export", "shifted_times"}
