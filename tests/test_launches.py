"""Launches joined to their ops, and what the device saw of them."""

from rows import PROCESS, call, graph, node, op, trace

from gaptrace import gaps, launches


def rows_of(given_trace, *columns):
    found = launches.launches(given_trace, gaps.device_gaps(given_trace))
    return found.select(columns).rows()


def test_a_launch_that_found_the_device_idle_exposes_its_latency():
    late = trace([op(0, 10), op(40, 50, 2)], [call("cudaLaunchKernel", 20, 35, 2)])

    columns = ("api_ns", "lead_ns", "exposed_latency_ns")
    assert rows_of(late, *columns) == [(15, 5, 20)]


def test_a_launch_made_while_the_device_was_busy_exposes_none():
    early = trace([op(0, 30), op(40, 50, 2)], [call("cudaLaunchKernel", 20, 25, 2)])

    assert rows_of(early, "lead_ns", "exposed_latency_ns") == [(15, None)]


def test_lead_is_negative_when_work_starts_before_the_call_returns():
    slow = trace([op(0, 10), graph(43, 90, 2)], [call("cudaGraphLaunch", 13, 3789, 2)])

    columns = ("api_ns", "lead_ns", "exposed_latency_ns")
    assert rows_of(slow, *columns) == [(3776, 43 - 3789, 30)]


def test_a_graph_launch_with_many_nodes_is_one_launch():
    nodes = trace(
        [node(10, 20, 9, 0), node(21, 30, 9, 1), node(31, 40, 9, 2)],
        [call("cudaGraphLaunch", 0, 5, 9)],
    )

    assert rows_of(nodes, "call_kind", "op_count", "start_ns", "end_ns", "api_ns") == [
        ("graph_launch", 3, 10, 40, 5)
    ]


def test_equal_correlation_ids_of_two_processes_are_two_launches():
    ranks = trace(
        [op(10, 20, 5), op(12, 22, 5, process_id=PROCESS + 1, device_id=1)],
        [
            call("cudaLaunchKernel", 0, 5, 5),
            call("cudaLaunchKernel", 1, 8, 5, process_id=PROCESS + 1, thread_id=9),
        ],
    )

    assert rows_of(ranks, "device_id", "api_ns") == [(0, 5), (1, 7)]


def test_unified_memory_migrations_belong_to_no_launch():
    migrated = trace([op(0, 10, 3, is_unified_memory=True)], [call("cudaLaunchKernel", 0, 5, 3)])

    assert rows_of(migrated, "call_id") == []


def copy(start, end, launch, name, size, **memory):
    return op(start, end, launch, kind="memcpy", name=f"copy {name}", bytes=size, **memory)


def test_copies_are_named_by_direction_host_memory_and_tiny_ones_by_size():
    copied = trace(
        [
            copy(10, 20, 1, "HtoD", 4, source_memory="pageable", target_memory="device"),
            copy(30, 40, 2, "DtoH", 1 << 20, source_memory="device", target_memory="pinned"),
            copy(50, 60, 3, "DtoD", 8, source_memory="device", target_memory="device"),
        ],
        [
            call("cudaMemcpy", 0, 20, 1),
            call("cudaMemcpyAsync", 22, 25, 2),
            call("cudaMemcpyAsync", 42, 45, 3),
        ],
    )

    assert launches.call_names(copied).to_list() == [
        "cudaMemcpy HtoD pageable, 4 bytes",
        "cudaMemcpyAsync DtoH pinned",
        "cudaMemcpyAsync DtoD",
    ]


def test_a_wait_for_a_value_on_its_way_to_the_host_says_so():
    read_back = trace(
        [
            op(5, 9, 1),
            copy(10, 20, 2, "DtoH", 8, source_memory="device", target_memory="pinned"),
            op(40, 50, 3),
        ],
        [
            call("cudaLaunchKernel", 0, 1, 1),
            call("cudaMemcpyAsync", 2, 4, 2),
            call("cudaStreamSynchronize", 6, 21),
            call("cudaLaunchKernel", 30, 31, 3),
            call("cudaStreamSynchronize", 33, 51),
        ],
    )

    assert [n for n in launches.call_names(read_back) if "Synchronize" in n] == [
        "cudaStreamSynchronize for copy DtoH pinned, 8 bytes",
        "cudaStreamSynchronize",
    ]


def test_a_graph_launch_keeps_its_name_though_the_graph_holds_copies():
    nodes = trace([copy(10, 20, 1, "DtoD", 8, graph_exec_id=2)], [call("cudaGraphLaunch", 0, 5, 1)])

    assert launches.call_names(nodes).to_list() == ["cudaGraphLaunch"]
