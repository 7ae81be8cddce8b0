"""The reader of Nsight exports, host side: calls, graphs, ranges, overhead."""

import polars as pl
import pytest
from exports import (
    api,
    domain_made,
    event_awaited,
    event_recorded,
    export,
    global_id,
    graph_exec_made,
    graph_made,
    graph_trace,
    kernel,
    mark,
    node_made,
    overhead,
    profiler_overhead,
    push,
    start_end,
    sync,
)

from gaptrace.read import read
from gaptrace.trace import Trace


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


# Who launched it


@pytest.mark.parametrize("none", [0, None])
def test_correlation_zero_and_null_are_no_correlation(load, none):
    trace = load(
        kernels=[kernel(1, 2, correlation=none)], api=[api("cuInit", 0, 1, correlation=none)]
    )
    assert trace.ops["correlation_id"].to_list() == [None]
    assert trace.api["correlation_id"].to_list() == [None]


def test_processes_that_share_correlation_ids_stay_apart(load):
    trace = load(
        api=[
            api("cudaLaunchKernel_v7000", 10, 20, correlation=1, pid=100),
            api("cudaLaunchKernel_v7000", 11, 21, correlation=1, pid=200),
        ],
        kernels=[
            kernel(30, 40, correlation=1, pid=100, name="a"),
            kernel(31, 41, correlation=1, pid=200, name="b"),
        ],
    )
    joined = trace.ops.join(trace.api, on=["process_id", "correlation_id"], suffix="_call")
    assert rows(joined.sort("name"), "name", "start_ns_call") == [("a", 10), ("b", 11)]


def test_threads_know_their_process(load):
    trace = load(api=[api("cuInit", 0, 1, tid=105)])
    expected = [(global_id(100), global_id(100, 105))]
    assert rows(trace.api, "process_id", "thread_id") == expected


def test_ids_beyond_doubles_and_negative_ids_are_exact(load):
    top, pid, tid = 0xFE, 0xFFFFFF, 0xFFFFFD
    trace = load(
        api=[api("cuInit", 0, 1, globalTid=global_id(pid, tid, hw=top))],
        kernels=[kernel(1, 2, globalPid=global_id(pid, hw=top), correlation=2**53 + 1)],
        cuda_devices=[],
    )
    process = global_id(pid, hw=top)
    assert process < 0
    assert rows(trace.api, "process_id", "thread_id") == [(process, process + tid)]
    assert rows(trace.ops, "process_id", "correlation_id") == [(process, 2**53 + 1)]


def test_the_wrapper_of_a_call_is_not_a_second_call(load):
    trace = load(
        api=[
            api("cudaLaunchKernel", 8, 22, correlation=140, eventClass=67),
            api("cudaLaunchKernel_v7000", 10, 20, correlation=140),
        ],
        kernels=[kernel(30, 40, correlation=140)],
    )
    assert rows(trace.api, "start_ns", "end_ns") == [(10, 20)]


def test_a_wrapper_alone_is_the_call(load):
    trace = load(
        api=[
            api("cudaLaunchKernel", 8, 22, correlation=140, eventClass=67),
            api("cudaLaunchKernel_v7000", 10, 20, correlation=140, pid=200),
        ]
    )
    assert rows(trace.api, "start_ns", "process_id") == [(8, global_id(100)), (10, global_id(200))]


def test_wrappers_without_correlation_are_not_each_others_twins(load):
    trace = load(
        api=[api("cudaMalloc", 1, 2, eventClass=67), api("cuInit", 3, 4)],
    )
    assert trace.api["start_ns"].to_list() == [1, 3]


@pytest.mark.parametrize(
    ("raw", "name", "kind", "phase"),
    [
        ("cudaLaunchKernel_v7000", "cudaLaunchKernel", "launch", None),
        ("cudaLaunchKernelExC_v11060_ptsz", "cudaLaunchKernelExC", "launch", None),
        ("cudaLaunchCooperativeKernel_v9000", "cudaLaunchCooperativeKernel", "launch", None),
        ("cudaLaunch_v3020", "cudaLaunch", "launch", None),
        ("cuLaunchKernel", "cuLaunchKernel", "launch", None),
        ("cuLaunchKernelEx", "cuLaunchKernelEx", "launch", None),
        ("cudaMemcpyAsync_v3020", "cudaMemcpyAsync", "copy", None),
        ("cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync", "copy", None),
        ("cudaMemsetAsync_v3020", "cudaMemsetAsync", "copy", None),
        ("cudaGraphLaunch_v10000", "cudaGraphLaunch", "graph_launch", None),
        ("cudaGraphLaunch_v10000_ptsz", "cudaGraphLaunch", "graph_launch", None),
        ("cuGraphLaunch", "cuGraphLaunch", "graph_launch", None),
        ("cudaMemcpy_v3020", "cudaMemcpy", "blocking_copy", None),
        ("cuMemcpyDtoH_v2", "cuMemcpyDtoH", "blocking_copy", None),
        ("cudaStreamSynchronize_v3020", "cudaStreamSynchronize", "wait", None),
        ("cudaEventSynchronize_v3020", "cudaEventSynchronize", "wait", None),
        ("cuCtxSynchronize", "cuCtxSynchronize", "wait", None),
        ("cudaStreamWaitEvent_v3020", "cudaStreamWaitEvent", "event_wait", None),
        ("cudaStreamBeginCapture_v10000", "cudaStreamBeginCapture", "graph_build", "capture"),
        ("cudaStreamEndCapture_v10000", "cudaStreamEndCapture", "graph_build", "capture"),
        ("cudaGraphAddKernelNode_v10000", "cudaGraphAddKernelNode", "graph_build", "capture"),
        ("cudaGraphInstantiate_v12000", "cudaGraphInstantiate", "graph_build", "instantiate"),
        ("cudaGraphExecUpdate_v10020", "cudaGraphExecUpdate", "graph_build", "update"),
        ("cudaGraphUpload_v10000", "cudaGraphUpload", "graph_build", "upload"),
        ("cudaGraphClone_v10000", "cudaGraphClone", "graph_build", "clone"),
        ("cudaGraphExecDestroy_v10000", "cudaGraphExecDestroy", "graph_build", "destroy"),
        ("cudaGraphDestroy_v10000", "cudaGraphDestroy", "graph_build", "destroy"),
        ("cudaMalloc_v3020", "cudaMalloc", "allocate", None),
        ("cudaHostAlloc_v3020", "cudaHostAlloc", "allocate", None),
        ("cuMemAlloc_v2", "cuMemAlloc", "allocate", None),
        ("cuMemMap", "cuMemMap", "allocate", None),
        ("cudaFree_v3020", "cudaFree", "free", None),
        ("cudaFreeHost_v3020", "cudaFreeHost", "free", None),
        ("cuMemFreeAsync_ptsz", "cuMemFreeAsync", "free", None),
        ("cuMemUnmap", "cuMemUnmap", "free", None),
        ("cudaMemPoolTrimTo_v11020", "cudaMemPoolTrimTo", "free", None),
        ("cuMemGetAllocationGranularity", "cuMemGetAllocationGranularity", "other", None),
        ("cudaStreamGetCaptureInfo_v12030", "cudaStreamGetCaptureInfo", "other", None),
        ("cudaLaunchHostFunc_v10000", "cudaLaunchHostFunc", "other", None),
    ],
)
def test_calls_are_named_without_version_and_sorted_by_what_they_do(load, raw, name, kind, phase):
    trace = load(api=[api(raw, 1, 2)])
    assert rows(trace.api, "name", "kind", "phase") == [(name, kind, phase)]


def test_return_codes_are_kept(load):
    assert load(api=[api("cuInit", 0, 1, returnValue=901)]).api["return_code"].to_list() == [901]


# Graphs


def test_nodes_of_one_launch_all_keep_its_correlation(load):
    trace = load(
        api=[api("cudaGraphLaunch_v10000", 1, 5, correlation=9)],
        kernels=[
            kernel(10, 20, correlation=9, node=(3 << 32) + 1),
            kernel(20, 30, correlation=9, node=(3 << 32) + 2),
        ],
        granularity="node",
    )
    assert rows(trace.ops, "correlation_id", "graph_node_id", "graph_exec_id") == [
        (9, (3 << 32) + 1, 3),
        (9, (3 << 32) + 2, 3),
    ]
    assert trace.api.height == 1
    assert trace.meta.granularity == "node"


def test_graph_executions_make_the_granularity_graph(load):
    trace = load("3.20.3", granularity=None, graph_traces=[graph_trace(1, 2)])
    assert trace.meta.granularity == "graph"


def test_a_column_for_nodes_without_nodes_says_nothing(load):
    trace = load("2.9.1", kernels=[kernel(1, 2, node=None)])
    assert trace.ops["graph_node_id"].to_list() == [None]
    assert trace.meta.granularity is None


@pytest.mark.parametrize("granularity", ["graph", "node"])
@pytest.mark.parametrize("schema", ["3.4.0", "3.20.3", "3.25.0"])
def test_the_recorded_mode_is_found_under_both_its_names(load, schema, granularity):
    assert load(schema, granularity=granularity).meta.granularity == granularity


def test_rows_outweigh_the_recorded_mode(load):
    trace = load(granularity="graph", kernels=[kernel(1, 2, node=1 << 32)])
    assert trace.meta.granularity == "node"


@pytest.mark.parametrize("schema", ["2.9.1", "3.7.2", "3.20.3"])
def test_creation_of_nodes_is_read_from_the_table_of_that_generation(load, schema):
    trace = load(schema, node_events=[node_made(5, (2 << 32) + 1, original=1 << 32)])
    shown = ("time_ns", "event", "graph_node_id", "graph_exec_id")
    assert rows(trace.graph_events, *shown) == [(5, "node", (2 << 32) + 1, 2)]


def test_creation_of_graphs_and_execs(load):
    trace = load(graph_events=[graph_made(5, 1), graph_exec_made(6, 1, graph_exec=2)])
    assert rows(trace.graph_events, "time_ns", "event", "graph_id", "graph_exec_id") == [
        (5, "graph", 1, None),
        (6, "exec", 1, 2),
    ]


# Ranges


def test_names_come_from_text_or_from_registered_strings(load):
    trace = load(nvtx=[push("plain", 1, 9), push("registered", 2, 8, registered=True)])
    assert trace.nvtx["name"].to_list() == ["plain", "registered"]


def test_rows_about_domains_and_names_are_not_ranges(load):
    other = [
        domain_made("CCCL", 1, domain=2) | {"eventType": kind, "end": None}
        for kind in (33, 39, 75, 76)
    ]
    trace = load(nvtx=[*other, push("step", 2, 3)])
    assert rows(trace.nvtx, "name", "start_ns", "end_ns") == [("step", 2, 3)]


def test_kinds_of_ranges_and_marks(load):
    trace = load(nvtx=[push("a", 1, 9), start_end("b", 2, 12), mark("c", 3)])
    assert rows(trace.nvtx, "name", "kind", "start_ns", "end_ns", "is_closed") == [
        ("a", "push_pop", 1, 9, True),
        ("b", "start_end", 2, 12, True),
        ("c", "mark", 3, None, True),
    ]


def test_a_range_that_ends_with_the_session_was_never_closed(load):
    ranges = [push("open", 10, 100), push("closed", 20, 99), start_end("also", 30, 100)]
    trace = load(nvtx=ranges, duration=100)
    assert rows(trace.nvtx, "name", "end_ns", "is_closed") == [
        ("open", 100, False),
        ("closed", 99, True),
        ("also", 100, False),
    ]


def test_a_range_without_an_end_in_a_file_that_says_no_session_end_was_never_closed(load):
    trace = load(nvtx=[push("open", 10, None), push("closed", 20, 99)], schema="2019")
    assert rows(trace.nvtx, "name", "end_ns", "is_closed") == [
        ("open", 10, False),
        ("closed", 99, True),
    ]


@pytest.mark.parametrize("value", [float("inf"), float("-inf")])
def test_an_infinite_payload_is_none(load, value):
    trace = load(nvtx=[push("step", 0, 1) | {"doubleValue": value}])
    assert trace.nvtx["payload"].to_list() == [None]


def test_domains_are_named_and_belong_to_their_process(load):
    trace = load(
        nvtx=[
            push("default", 0, 1),
            push("mine", 2, 3, domain="gaptrace", pid=100),
            push("theirs", 4, 5, domain="NCCL", pid=200),
            push("lost", 6, 7, domain=5),
        ]
    )
    assert rows(trace.nvtx, "name", "domain") == [
        ("default", None),
        ("mine", "gaptrace"),
        ("theirs", "NCCL"),
        # Its name is not in the file; still it is a stack of its own.
        ("lost", "domain 5"),
    ]


def test_the_same_range_in_every_rank_is_one_per_process(load):
    trace = load(nvtx=[push("sample_0", 10 + rank, 20, pid=100 + rank) for rank in range(8)])
    assert trace.nvtx["process_id"].to_list() == [global_id(100 + rank) for rank in range(8)]


def test_the_enclosing_range_comes_first(load):
    trace = load(nvtx=[push("inner", 5, 6), push("outer", 5, 9)])
    assert trace.nvtx["name"].to_list() == ["outer", "inner"]


@pytest.mark.parametrize(
    ("column", "value"),
    [("int64Value", -5), ("uint64Value", 7), ("doubleValue", 3.5), ("int32Value", 4)],
)
def test_payloads_are_read_from_whichever_column_holds_them(load, column, value):
    assert load(nvtx=[push("a", 1, 2, **{column: value})]).nvtx["payload"].to_list() == [value]


def test_the_largest_payload_is_no_obstacle(load):
    trace = load(nvtx=[push("a", 1, 2, int64Value=2**63 - 1), push("b", 3, 4)])
    assert trace.nvtx["payload"].to_list() == [float(2**63 - 1), None]


# Overhead


def test_overhead_is_told_apart_by_who_causes_it(load):
    trace = load(
        "3.24.0",
        overhead=[
            overhead("Lazy Function Loading", 1, 2, kind=7),
            overhead("Buffer Full", 3, 4, kind=8),
            overhead("CUPTI Buffer flush", 5, 6, kind=3),
        ],
        profiler_overhead=[profiler_overhead("TLS allocation", 7, 8)],
    )
    assert rows(trace.overhead, "start_ns", "kind") == [
        (1, "driver"),
        (3, "back_pressure"),
        (5, "profiler"),
        (7, "profiler"),
    ]


def test_a_stream_waits_for_the_stream_on_which_the_event_was_recorded_last(load):
    trace = load(
        api=[
            api("cudaEventRecord_v3020", 1, 2, correlation=1),
            api("cudaEventRecord_v3020", 3, 4, correlation=2),
            api("cudaStreamWaitEvent_v3020", 5, 6, correlation=3),
            api("cudaStreamWaitEvent_v3020", 7, 8, correlation=4),
            api("cudaStreamSynchronize_v3020", 9, 10, correlation=5),
        ],
        event_records=[
            event_recorded(50, correlation=1, stream=7),
            event_recorded(50, correlation=2, stream=9),
        ],
        sync=[
            event_awaited(5, 6, 50, correlation=3, stream=8),
            event_awaited(7, 8, 51, correlation=4, stream=8),  # recorded before the recording began
            sync(9, 10, correlation=5),  # the host waits
        ],
    )
    columns = ("call_id", "stream_id", "event_id", "awaited_stream_id", "recorded_call_id")
    assert rows(trace.event_waits, *columns) == [(2, 8, 50, 9, 1), (3, 8, 51, None, None)]
