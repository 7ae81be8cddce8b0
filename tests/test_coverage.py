"""Before an idle figure: is what was launched also there as executed?"""

import pytest
from rows import PROCESS, THREAD, call, graph, graph_event, nvtx, op, overhead, trace

from gaptrace.coverage import check_coverage, recording_facts
from gaptrace.errors import NotRecordedError
from gaptrace.graphs import graph_nodes


def launches(count, first=1):
    return [call("cudaLaunchKernel", i * 10, i * 10 + 4, i) for i in range(first, first + count)]


def ops(count, first=1):
    return [op(i * 10 + 5, i * 10 + 9, i) for i in range(first, first + count)]


def codes(given_trace):
    return [warning.code for warning in check_coverage(given_trace)]


def test_a_healthy_trace_gets_no_warning():
    assert codes(trace(ops(50), launches(50))) == []


def test_launches_of_another_thread_into_a_capture_are_not_lost():
    """PyTorch's backward pass launches from a thread of its own."""
    api = [call("cudaStreamBeginCapture", -900, -890)]
    api += [call("cudaLaunchKernel", -800 + i, -799 + i) for i in range(40)]
    others = [call("cudaLaunchKernel", -700 + i, -699 + i, thread_id=77) for i in range(60)]
    built = [call("cudaStreamEndCapture", -500, -490), call("cudaGraphInstantiate", -480, -470)]
    events = [
        graph_event(-495, "graph", graph_id=1),
        graph_event(-475, "exec", graph_id=1, graph_exec_id=2),
    ]

    def recorded(inside):
        return trace(ops(50), [*api, *inside, *built, *launches(50)], graph_events=events)

    assert codes(recorded(others)) == []
    assert graph_nodes(recorded([]))["nodes"].to_list() == [40]
    # What ran at once is none of them.
    ran = call("cudaLaunchKernel", -700, -699, 7_000, thread_id=77)
    aside = trace(
        [*ops(50), op(-650, -640, 7_000)],
        [*api, ran, *built, *launches(50)],
        graph_events=events,
    )
    assert graph_nodes(aside)["nodes"].to_list() == [40]
    assert recording_facts(aside)["launch_rows"] == 51
    # How many of theirs are nodes is not known.
    assert graph_nodes(recorded(others)).is_empty()
    # After the capture they are lost.
    late = [each | {"start_ns": -400, "end_ns": -399} for each in others]
    with pytest.raises(NotRecordedError):
        check_coverage(recorded(late))


def test_graph_launches_without_any_graph_execution_are_refused():
    # Exporters before 2024.3 drop graph executions: the GPU would read as idle.
    lost = trace([op(5, 9, 1)], [*launches(1), call("cudaGraphLaunch", 20, 25, 2)])

    with pytest.raises(NotRecordedError, match="1 graph launches but no graph executions"):
        check_coverage(lost)


def test_much_lost_work_in_the_middle_is_refused():
    lost = trace(ops(5) + ops(5, first=16), launches(20))

    with pytest.raises(NotRecordedError, match=r"10 of 20 single launches \(50%\)"):
        check_coverage(lost)


def test_a_little_lost_work_is_said_with_its_share():
    lost = trace(ops(10) + ops(39, first=12), launches(50))

    (warning,) = check_coverage(lost)
    assert warning.code == "lost_device_work"
    assert "1 of 50 single launches (2.0%)" in warning.message


def test_launches_whose_work_came_after_the_end_of_recording_hide_nothing():
    assert codes(trace(ops(5), launches(20))) == []


def test_launches_inside_a_capture_and_failed_launches_submit_no_work():
    captured = [
        call("cudaStreamBeginCapture", 1000, 1001),
        *(call("cudaLaunchKernel", 1010 + i, 1011 + i, 100 + i) for i in range(9)),
        call("cudaStreamEndCapture", 1030, 1031),
        call("cudaLaunchKernel", 1040, 1041, 200, return_code=700),
        call("cudaLaunchKernel", 1050, 1051, 201),
    ]

    assert codes(trace([*ops(5), op(1052, 1060, 201)], [*launches(5), *captured])) == []


def test_a_cut_file_is_said_to_be_cut():
    (warning,) = check_coverage(trace(ops(20), launches(10)))

    assert warning.code == "ops_without_launch"
    assert "10 of 20 device rows (50.0%)" in warning.message


def test_work_that_starts_before_its_launch_is_counted():
    early = trace(
        [op(2, 9, 1), *ops(4, first=2)], [call("cudaLaunchKernel", 5, 8, 1), *launches(4, first=2)]
    )

    assert codes(early) == ["op_before_launch"]


def test_ranges_that_never_closed_are_named():
    (warning,) = check_coverage(
        trace(ops(2), launches(2), nvtx=[nvtx("warm up", 0, 99, is_closed=False)])
    )

    assert warning.code == "range_never_closed"
    assert "warm up" in warning.message


def test_a_process_that_launched_but_has_no_device_rows_is_named():
    # One worker of two was not traced on the device: the other's figures still hold.
    pid = 7 << 24
    silent = [
        call("cudaLaunchKernel", i * 10, i * 10 + 4, i, process_id=pid, thread_id=pid + 7)
        for i in range(1, 21)
    ]

    (warning,) = check_coverage(trace(ops(5), [*launches(5), *silent]))
    assert warning.code == "process_without_device_rows"
    assert "process 7 launched 20 times" in warning.message


def test_another_process_with_equal_ids_does_not_stand_in_for_lost_work():
    other = [op(i * 10 + 5, i * 10 + 9, i, process_id=PROCESS + 1) for i in range(1, 21)]
    lost = trace([*other, op(505, 510, 50)], [*launches(20), *launches(1, first=50)])

    with pytest.raises(NotRecordedError, match="20 of 21 single launches"):
        check_coverage(lost)


def test_graph_launches_are_judged_apart_from_single_launches():
    api = [
        *launches(90),
        *(call("cudaGraphLaunch", 2000 + i, 2001 + i, 900 + i) for i in range(10)),
    ]
    served = [graph(2002, 2003, 900), graph(2012, 2013, 909)]

    with pytest.raises(NotRecordedError, match="8 of 10 graph launches"):
        check_coverage(trace(ops(90) + served, api))


def test_the_facts_of_a_recording_are_counted():
    counted = recording_facts(
        trace(
            [*ops(3), op(2_000, 2_010), op(1, 4, 90)],
            [*launches(5), call("cudaLaunchKernel", 2, 3, 90)],
            overhead=[
                overhead(0, 10),
                overhead(5, 20),
                overhead(5, 20, thread_id=THREAD + 1),
                overhead(30, 33, kind="driver"),
                overhead(40, 45, kind="back_pressure"),
            ],
        )
    )

    assert counted == {
        "device_rows": 5,
        "launch_rows": 6,
        "device_rows_without_launch": 1,
        "launches_without_device_rows": 2,
        "device_rows_before_launch": 1,
        "profiler_rows": 3,
        "profiler_ns": 20 + 15,
        "driver_rows": 1,
        "driver_ns": 3,
        "back_pressure_rows": 1,
        "back_pressure_ns": 5,
    }


def test_work_lost_of_one_thread_is_not_taken_for_work_that_still_waited():
    """Its last rows are missing while another thread's work goes on."""
    api = launches(50) + [
        call("cudaLaunchKernel", i * 10 + 1, i * 10 + 2, 100 + i, thread_id=77)
        for i in range(1, 51)
    ]
    other_works = [*ops(50), op(17, 18, 101)]

    with pytest.raises(NotRecordedError, match="of 48 of 100 single launches"):
        check_coverage(trace(other_works, api))
    # Where all ended together the work waited, of however many threads.
    assert codes(trace([*ops(5), op(56, 58, 105)], api[:50] + api[54:60])) == []
    assert codes(trace([op(17, 18, 101), *ops(5)], api[:50] + api[50:51])) == []
    # Another device goes on by itself.
    elsewhere = [each | {"device_id": 1} for each in ops(50)]
    assert codes(trace([*elsewhere, op(17, 18, 101)], api)) == []


def test_launches_of_two_threads_onto_one_queue_that_still_waited():
    """As of PyTorch: forward from one thread, backward from another; nothing was called later."""
    forward = launches(30)
    backward = [each | {"thread_id": 77} for each in launches(30, first=31)]
    rest = launches(30, first=61)

    assert codes(trace(ops(45), [*forward, *backward, *rest])) == []
    assert codes(trace(ops(60), [*forward, *backward, *rest])) == []
    # The last of forward ran after the last of backward, which was launched again since.
    again = [each | {"thread_id": 77} for each in launches(30, first=91)]
    assert codes(trace(ops(70), [*forward, *backward, *rest, *again])) == []


def test_a_launch_that_driver_and_runtime_both_tell_of_is_not_lost():
    inner = [
        each | {"name": "cuLaunchKernel", "end_ns": each["start_ns"] + 2} for each in launches(20)
    ]

    assert codes(trace(ops(20), [*launches(20), *inner])) == []


def test_migrations_of_unified_memory_have_no_launch_to_miss():
    moved = [
        op(
            i * 10,
            i * 10 + 2,
            kind="memcpy",
            stream_id=None,
            context_id=None,
            is_unified_memory=True,
        )
        for i in range(1, 51)
    ]
    healthy = trace([*ops(50), *moved], launches(50))

    assert codes(healthy) == []
    assert recording_facts(healthy)["device_rows_without_launch"] == 0


def test_work_of_graphs_that_does_not_say_its_graph_is_warned_of():
    api = [call("cudaGraphLaunch", i * 10, i * 10 + 4, i) for i in range(1, 11)]

    assert codes(trace(ops(10), api)) == ["graphs_not_named"]
    assert codes(trace([*ops(9), graph(105, 109, 10)], api)) == []


def test_what_ran_while_its_thread_captured_is_no_node():
    api = [
        call("cudaStreamBeginCapture", 0, 1),
        *[call("cudaLaunchKernel", 2 + i, 3 + i, 900 + i) for i in range(5)],
        call("cudaStreamEndCapture", 20, 21),
        call("cudaGraphInstantiate", 22, 23),
        *launches(50, first=5),
    ]
    events = [
        graph_event(20, "graph", graph_id=1),
        graph_event(22, "exec", graph_id=1, graph_exec_id=2),
    ]
    at_once = [op(4, 5, 900), op(5, 6, 901)]
    found = trace([*at_once, *ops(50, first=5)], api, graph_events=events)

    assert graph_nodes(found)["nodes"].to_list() == [3]
    assert recording_facts(found)["launch_rows"] == 52


def test_a_capture_that_ends_on_another_thread_ends():
    relaxed = [
        call("cudaStreamBeginCapture", 0, 1),
        call("cudaLaunchKernel", 2, 3),
        call("cudaStreamEndCapture", 4, 5, thread_id=77),
    ]

    assert codes(trace(ops(20), [*relaxed, *launches(20)])) == []
    with pytest.raises(NotRecordedError, match="of 16 of 20 single launches"):
        check_coverage(trace([*ops(3), *ops(1, first=20)], [*relaxed, *launches(20)]))
    # Of a process that did not begin it, an end ends nothing.
    foreign = [*relaxed[:2], relaxed[2] | {"process_id": PROCESS + 1}]
    assert codes(trace([*ops(3), *ops(1, first=20)], [*foreign, *launches(20)])) == []
