"""Whose work it was: MIG slices, green contexts, per-thread streams; from file to figures."""

import polars as pl
import pytest
import rows
from exports import (
    api,
    cuda_device,
    event_awaited,
    event_recorded,
    export,
    gpu,
    graph_trace,
    kernel,
    memcpy,
)

from gaptrace.analysis import analyze
from gaptrace.gaps import causes, device_gaps, idle_pieces
from gaptrace.graphs import graph_executions
from gaptrace.launches import launches
from gaptrace.ranges import range_tree, range_windows
from gaptrace.read import read
from gaptrace.redact import redact
from gaptrace.trace import Trace

LAUNCH = "cudaLaunchKernel_v7000"
GRAPH_LAUNCH = "cudaGraphLaunch_v10000"
STREAM = ("process_id", "device_id", "context_id", "stream_id")
#: The first schema in which a process says the uuid and the multiprocessors of its devices.
WITH_UUIDS = "3.25.0"
WITHOUT_UUIDS = "3.20.3"
A, B = "9e1c8a52-0000-4000-8000-00000000000a", "9e1c8a52-0000-4000-8000-00000000000b"
ZEROS = "00000000-0000-0000-0000-000000000000"


@pytest.fixture
def load(tmp_path):
    def build(schema: str = WITH_UUIDS, **given) -> Trace:
        return read(export(tmp_path / "t.sqlite", schema, **given))

    return build


def codes(trace: Trace) -> list[str]:
    return [warning.code for warning in trace.warnings]


def busy(trace: Trace) -> dict[int, tuple[int, int]]:
    """Return busy and idle time of each device."""
    devices = analyze(trace).devices
    return {row["device_id"]: (row["busy_ns"], row["idle_ns"]) for row in devices.to_dicts()}


def streams(trace: Trace) -> int:
    return trace.ops.select(STREAM).n_unique()


def behind(trace: Trace) -> list[tuple[str, str, int]]:
    found = causes(idle_pieces(trace, device_gaps(trace)), [])
    return found.select("cause", pl.col("detail").cast(pl.String), "idle_ns").rows()


# Streams: numbers repeat in every process, device and context


@pytest.mark.parametrize("where", [{"pid": 200}, {"device": 1}, {"context": 2}])
def test_equal_numbers_elsewhere_are_other_streams(load, where):
    places = [cuda_device(i, i, pid) for pid in (100, 200) for i in (0, 1)]
    there = {"pid": 100, "device": 0, "context": 1} | where
    trace = load(
        api=[
            api(GRAPH_LAUNCH, i, i + 1, correlation=i + 1, pid=(100, there["pid"])[i % 2])
            for i in range(4)
        ],
        graph_traces=[
            graph_trace(100 * i, 100 * i + 10, correlation=i + 1, **(there if i % 2 else {}))
            for i in range(4)
        ],
        gpus=[gpu(0), gpu(1)],
        cuda_devices=places,
    )
    assert streams(trace) == 2
    executions = graph_executions(trace).sort("start_ns")
    assert executions["gap_ns"].to_list() == [None, None, 190, 190]


# MIG: slices of one GPU


def slice_of(uuid: str | None, pid: int, gpu_id: int | None = 0, sm: int | None = 60):
    return cuda_device(0, gpu=gpu_id, pid=pid) | {"uuid": uuid, "numMultiprocessors": sm}


#: Two processes; while one works, the other does not.
TAKING_TURNS = [
    kernel(start, start + 10, pid=pid) for pid, start in ((100, 0), (200, 10), (100, 20), (200, 30))
]


def test_what_one_mig_slice_does_is_not_done_by_another(load):
    trace = load(kernels=TAKING_TURNS, cuda_devices=[slice_of(A, 100), slice_of(B, 200)])
    assert busy(trace) == {1: (20, 10), 2: (20, 10)}
    assert codes(trace) == []
    assert trace.devices.select("device_id", "name", "sm_count").rows() == [
        (0, "NVIDIA H200", 132),
        (1, "NVIDIA H200, MIG slice 1 of GPU 0", 60),
        (2, "NVIDIA H200, MIG slice 2 of GPU 0", 60),
    ]


def test_slices_of_two_gpus_are_numbered_after_the_last_gpu(load):
    trace = load(
        kernels=[kernel(1, 2, pid=pid) for pid in (100, 200, 300, 400)],
        gpus=[gpu(0), gpu(1), gpu(5)],
        cuda_devices=[
            slice_of("c", 100, gpu_id=1),
            slice_of("a", 200, gpu_id=0),
            slice_of("b", 300, gpu_id=1),
            slice_of("d", 400, gpu_id=5, sm=132),  # a whole GPU
        ],
    )
    assert trace.ops["device_id"].to_list() == [6, 0, 7, 5]
    assert trace.devices["name"].to_list()[3:] == [
        "NVIDIA H200, MIG slice 1 of GPU 1",
        "NVIDIA H200, MIG slice 2 of GPU 1",
    ]


def test_two_processes_on_one_slice_share_it(load):
    places = [slice_of(A, 100), slice_of(A, 200), slice_of(B, 300)]
    trace = load(kernels=[*TAKING_TURNS, kernel(0, 5, pid=300)], cuda_devices=places)
    assert busy(trace) == {1: (40, 0), 2: (5, 0)}
    assert codes(trace) == []


def test_whole_gpus_with_their_uuids_keep_their_numbers(load):
    trace = load(
        kernels=TAKING_TURNS,
        gpus=[gpu(0, uuid=A), gpu(1, uuid=B)],
        cuda_devices=[slice_of(A, 100, 0, 132), slice_of(B, 200, 1, 132)],
    )
    assert busy(trace) == {0: (20, 10), 1: (20, 10)}
    assert trace.devices["device_id"].to_list() == [0, 1]


@pytest.mark.parametrize("uuids", [(None, None), (ZEROS, ZEROS), ("", ""), (A, A)])
def test_slices_that_cannot_be_told_apart_are_said_to_be_one_device(load, uuids):
    places = [slice_of(uuid, pid) for uuid, pid in zip(uuids, (100, 200), strict=True)]
    trace = load(kernels=TAKING_TURNS, cuda_devices=places)
    assert busy(trace) == {0: (40, 0)}
    assert codes(trace) == ["device_parts_unknown"]
    assert trace.warnings[0].message.startswith("2 processes use a part of GPU 0 each")


@pytest.mark.parametrize(
    ("name", "said"),
    [("NVIDIA A100-SXM4-40GB MIG 3g.20gb", ["device_parts_unknown"]), ("NVIDIA H200", [])],
)
def test_before_uuids_only_the_name_can_tell_of_mig(load, name, said):
    places = [cuda_device(0, 0, pid) for pid in (100, 200)]
    trace = load(WITHOUT_UUIDS, kernels=TAKING_TURNS, gpus=[gpu(0, name)], cuda_devices=places)
    assert codes(trace) == said


def test_one_process_in_a_slice_is_alone_there_for_all_we_know(load):
    trace = load(kernels=[kernel(0, 5)], cuda_devices=[slice_of(None, 100)])
    assert codes(trace) == []


def test_devices_without_a_gpu_in_the_export_are_told_apart_by_uuid(load):
    places = [slice_of(A, 100, gpu_id=None), slice_of(B, 200, gpu_id=None)]
    trace = load(kernels=TAKING_TURNS, gpus=[], cuda_devices=places)
    assert busy(trace) == {1: (20, 10), 2: (20, 10)}
    assert trace.devices["name"].to_list() == [None, None]
    assert codes(trace) == []


def test_devices_without_a_gpu_and_without_uuid_are_a_guess(load):
    places = [slice_of(None, 100, gpu_id=None), slice_of(None, 200, gpu_id=None)]
    trace = load(kernels=TAKING_TURNS, cuda_devices=places)
    assert busy(trace) == {0: (40, 0)}
    assert codes(trace) == ["device_by_ordinal"]


def test_a_process_that_the_map_lacks_is_a_guess(load):
    trace = load(kernels=TAKING_TURNS, cuda_devices=[cuda_device(0, 0, pid=100)])
    assert codes(trace) == ["device_by_ordinal"]
    assert trace.warnings[0].message.startswith("this export does not map 1 of 2 processes")


@pytest.mark.parametrize("window", [{}, {"from_ns": 0, "to_ns": 12}, {"from_ns": 25, "to_ns": 35}])
def test_a_redacted_copy_keeps_slices_apart_and_their_uuids_out(tmp_path, window):
    places = [slice_of(A, 100), slice_of(B, 200)]
    source = export(tmp_path / "t.sqlite", WITH_UUIDS, kernels=TAKING_TURNS, cuda_devices=places)
    redact(source, tmp_path / "copy.sqlite", **window)
    assert A.encode() not in (tmp_path / "copy.sqlite").read_bytes()
    assert read(tmp_path / "copy.sqlite").ops["device_id"].unique().to_list() == [1, 2]


@pytest.mark.parametrize("huge", [2**31, 2**63 - 1, -(2**63)])
def test_no_number_of_a_gpu_is_too_large(load, huge):
    places = [slice_of(A, 100, gpu_id=huge), slice_of(B, 200, gpu_id=huge)]
    trace = load(kernels=TAKING_TURNS, gpus=[gpu(huge)], cuda_devices=places)
    assert trace.ops["device_id"].to_list() == [1, 2, 1, 2]


# Green contexts


def test_a_stream_of_a_green_context_is_not_the_one_of_that_number_in_its_parent(load):
    trace = load(
        kernels=[
            kernel(0, 10, stream=7),
            kernel(0, 10, stream=7, greenContextId=0),
            kernel(0, 10, stream=7, greenContextId=4),
            kernel(0, 10, stream=7, greenContextId=5),
        ],
        memcpys=[memcpy(0, 10, stream=7, greenContextId=4)],
        graph_traces=[graph_trace(0, 10, stream=7, greenContextId=5)],
    )
    assert sorted(trace.ops["context_id"]) == [1, 1, 4, 4, 5, 5]
    assert streams(trace) == 3


def test_a_device_with_green_contexts_is_one_device(load):
    trace = load(
        kernels=[
            kernel(0, 10, greenContextId=4),
            kernel(10, 30, greenContextId=5),
            kernel(25, 40, greenContextId=4),
            kernel(50, 60),
        ]
    )
    assert device_gaps(trace).select("device_id", "start_ns", "end_ns").rows() == [(0, 40, 50)]
    assert busy(trace) == {0: (50, 10)}


@pytest.mark.parametrize(("green", "what"), [(4, "between_ops"), (5, "cross_stream")])
def test_work_of_another_green_context_is_on_another_stream(load, green, what):
    calls = [api(LAUNCH, 0, 1, correlation=1), api(LAUNCH, 2, 3, correlation=2)]
    kernels = [
        kernel(10, 20, correlation=1, greenContextId=4),
        kernel(25, 30, correlation=2, greenContextId=green),
    ]
    assert behind(load(api=calls, kernels=kernels)) == [("device_queued", what, 5)]


def test_graphs_in_two_green_contexts_have_no_gap_between_them(load):
    trace = load(
        api=[api(GRAPH_LAUNCH, i, i + 1, correlation=i + 1) for i in range(4)],
        graph_traces=[
            graph_trace(100 * i, 100 * i + 10, correlation=i + 1, greenContextId=4 + i % 2)
            for i in range(4)
        ],
    )
    executions = graph_executions(trace).sort("start_ns")
    assert executions["gap_ns"].to_list() == [None, None, 190, 190]


@pytest.mark.parametrize(("recorded", "awaited"), [(4, 8), (5, None), (0, None)])
def test_an_event_of_another_green_context_is_not_of_the_stream_of_that_number(
    load, recorded, awaited
):
    trace = load(
        api=[
            api("cudaEventRecord_v3020", 1, 2, correlation=1),
            api("cudaStreamWaitEvent_v3020", 3, 4, correlation=2),
        ],
        kernels=[kernel(10, 20)],
        event_records=[event_recorded(50, correlation=1, stream=8, greenContextId=recorded)],
        sync=[event_awaited(3, 4, 50, correlation=2, stream=8, greenContextId=4)],
    )
    shown = trace.event_waits.select("context_id", "stream_id", "awaited_stream_id")
    assert shown.rows() == [(4, 8, awaited)]


# Per-thread default streams: each has a number of its own


def test_per_thread_default_streams_are_streams_of_their_own(load):
    legacy, of_thread_1, of_thread_2 = 7, 13, 14
    trace = load(
        api=[
            api(LAUNCH, 0, 1, correlation=1, tid=101),
            api(f"{LAUNCH}_ptsz", 0, 1, correlation=2, tid=101),
            api(f"{LAUNCH}_ptsz", 0, 1, correlation=3, tid=102),
        ],
        kernels=[
            kernel(10, 20, correlation=1, stream=legacy),
            kernel(15, 25, correlation=2, stream=of_thread_1),
            kernel(30, 40, correlation=3, stream=of_thread_2),
        ],
    )
    assert streams(trace) == 3
    assert trace.api["name"].unique().to_list() == ["cudaLaunchKernel"]
    launched = trace.ops.join(trace.api, on="call_id")
    assert launched.sort("start_ns")["thread_id"].to_list() == list(trace.api["thread_id"])
    assert busy(trace) == {0: (25, 5)}
    assert behind(trace) == [("device_queued", "cross_stream", 5)]


def test_each_thread_explains_the_gaps_before_the_work_of_its_default_stream(load):
    trace = load(
        api=[
            api(f"{LAUNCH}_ptsz", 0, 1, correlation=1, tid=101),
            api("cudaStreamSynchronize_v3020_ptsz", 1, 60, tid=101),
            api("cudaMalloc_v3020", 12, 18, tid=102),
            api(f"{LAUNCH}_ptsz", 20, 30, correlation=2, tid=102),
        ],
        kernels=[
            kernel(5, 10, correlation=1, stream=13),
            kernel(25, 60, correlation=2, stream=14),
        ],
    )
    assert sorted(behind(trace)) == [
        ("api_other", "cudaMalloc", 6),
        ("host_code", None, 4),
        ("launch_call", "cudaLaunchKernel", 5),
    ]


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        ("cudaLaunchKernel_v7000_ptsz", "launch"),
        ("cuLaunchKernel_ptsz", "launch"),
        ("cudaGraphLaunch_v10000_ptsz", "graph_launch"),
        ("cudaMemcpy_v3020_ptds", "blocking_copy"),
        ("cudaMemcpyAsync_v3020_ptsz", "copy"),
        ("cuMemcpyDtoH_v2_ptds", "blocking_copy"),
        ("cudaMemset_v3020_ptds", "copy"),
        ("cudaStreamSynchronize_v3020_ptsz", "wait"),
        ("cudaStreamWaitEvent_v3020_ptsz", "event_wait"),
        ("cudaStreamBeginCapture_v10000_ptsz", "graph_build"),
        ("cudaFreeAsync_v11020_ptsz", "free"),
    ],
)
def test_calls_compiled_for_per_thread_streams_mean_the_same(load, raw, kind):
    trace = load(api=[api(raw, 1, 2)], kernels=[kernel(5, 6)])
    assert trace.api.select("kind").rows() == [(kind,)]
    assert "_pt" not in str(trace.api["name"][0])


# Ranges: a join of each with each would have 2,000,000,000 pairs here


def test_very_many_launches_find_their_ranges_among_very_many():
    ranges, calls = 100_000, 20_000
    traced = rows.trace(
        nvtx=[rows.nvtx("step", 10 * i, 10 * i + 10) for i in range(ranges)],
        api=[rows.call("cudaLaunchKernel", 50 * i + 1, 50 * i + 2, i + 1) for i in range(calls)],
        ops=[rows.op(50 * i + 3, 50 * i + 5, i + 1) for i in range(calls)],
    )
    found = range_windows(traced, range_tree(traced.nvtx), launches(traced, device_gaps(traced)))
    assert found.filter(pl.col("launches") == 1)["start_ns"].to_list() == [
        50 * i for i in range(calls)
    ]
    assert found["launches"].sum() == calls
