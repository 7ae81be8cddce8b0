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
