"""Failed captures and launches, unused execs, addresses gone stale."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import PROCESS, THREAD, call, graph, graph_event, op, trace

from gaptrace import graph_faults

BEGIN, END = "cudaStreamBeginCapture", "cudaStreamEndCapture"


def failed(*rows):
    return graph_faults.failed_captures(trace(api=rows)).select("call_name", "return_code").rows()


def test_a_sound_capture_has_not_failed():
    assert failed(call(BEGIN, 0, 1), call("cudaLaunchKernel", 2, 3), call(END, 4, 5)) == []


def test_the_first_failed_call_of_a_capture_is_at_fault():
    found = failed(
        call(BEGIN, 0, 1),
        call("cudaMalloc", 2, 3, return_code=900),
        call("cudaLaunchKernel", 4, 5, return_code=901),
        call(END, 6, 7, return_code=901),
    )
    assert found == [("cudaMalloc", 900)]


def test_the_call_at_fault_may_be_another_threads_of_the_process():
    begin, end = call(BEGIN, 0, 1), call(END, 6, 7, return_code=901)
    other = {"thread_id": THREAD + 1, "return_code": 900}

    assert failed(begin, call("cudaMalloc", 2, 3, **other), end) == [("cudaMalloc", 900)]
    elsewhere = call("cudaMalloc", 2, 3, process_id=PROCESS + 1, **other)
    assert failed(begin, elsewhere, end) == [(END, 901)]


def test_without_another_failed_call_the_end_of_the_capture_is_named():
    assert failed(call(BEGIN, 0, 1), call(END, 4, 5, return_code=904)) == [(END, 904)]


@pytest.mark.parametrize("code", [1, 600, 899, 909, 910])
def test_other_errors_do_not_make_a_capture_fail(code):
    ended = call(END, 6, 7)
    assert failed(call(BEGIN, 0, 1), call("cudaMalloc", 2, 3, return_code=code), ended) == []


def test_errors_outside_captures_are_none_of_theirs():
    assert (
        failed(
            call("cudaMalloc", -5, -4, return_code=900),
            call(BEGIN, 0, 1),
            call(END, 6, 7),
            call("cudaMalloc", 8, 9, return_code=900),
        )
        == []
    )


def test_failed_launches_are_counted_by_call_and_error():
    found = graph_faults.failed_launches(
        trace(
            api=[
                call("cudaGraphLaunch", 0, 1),
                call("cudaLaunchKernel", 1, 2, return_code=98),
                call("cudaGraphLaunch", 2, 3, return_code=700),
                call("cudaGraphLaunch", 4, 5, return_code=700),
                call("cudaMalloc", 6, 7, return_code=2),
                call(BEGIN, 10, 11),
                call("cudaLaunchKernel", 12, 13, return_code=901),
                call(END, 14, 15),
            ]
        )
    )
    assert found.rows() == [("cudaGraphLaunch", 700, 2), ("cudaLaunchKernel", 98, 1)]


def unused(*launches):
    """Execs 7, 8, 9 made at 15, 40, 60; launches as (exec, time)."""
    return graph_faults.unused_execs(
        trace(
            [
                graph(at + 10, at + 11, number, graph_exec=exec_id)
                for number, (exec_id, at) in enumerate(launches, 1)
            ],
            [
                call("cudaGraphInstantiate", 10, 20),
                call("cudaGraphInstantiate", 30, 55),
                *(
                    call("cudaGraphLaunch", at, at + 1, number)
                    for number, (_, at) in enumerate(launches, 1)
                ),
            ],
            graph_events=[
                graph_event(15, "exec", graph_id=1, graph_exec_id=7),
                graph_event(40, "exec", graph_id=1, graph_exec_id=8),
                graph_event(60, "exec", graph_id=1, graph_exec_id=9),
                graph_event(5, "graph", graph_id=1),
            ],
        )
    ).rows()


def test_execs_that_never_ran_and_what_they_took_to_build():
    assert unused((7, 90), (7, 95)) == [(PROCESS, 8, 25), (PROCESS, 9, None)]


@pytest.mark.parametrize(
    ("launches", "found"),
    [
        ([], 0),
        # Each ran once: the turn of the others may come after the recording.
        ([(7, 90)], 0),
        ([(7, 90), (8, 95)], 0),
        ([(7, 20), (7, 90)], 0),
        ([(7, 50), (7, 90)], 1),
        ([(8, 70), (8, 90)], 2),
    ],
)
def test_execs_are_unused_if_another_ran_twice_since_they_were_built(launches, found):
    assert len(unused(*launches)) == found


def used(*api, execs=((7, 0),), launches=((7, 100),)):
    """Stale execs after some calls; execs as (id, made at), launches as (exec, at)."""
    made = trace(
        [
            graph(at + 5, at + 6, number, graph_exec=exec_id)
            for number, (exec_id, at) in enumerate(launches, 1)
        ],
        [
            *api,
            *(
                call("cudaGraphLaunch", at, at + 1, number)
                for number, (_, at) in enumerate(launches, 1)
            ),
        ],
        graph_events=[
            graph_event(at, "exec", graph_id=1, graph_exec_id=exec_id) for exec_id, at in execs
        ],
    )
    return graph_faults.stale_execs(made).select("graph_exec_id", "freed", "call_name").rows()


def free(at, **own):
    return call("cudaFree", at, at + 1, **own)


def allocate(at, **own):
    return call("cudaMalloc", at, at + 1, **own)


def test_memory_freed_between_building_and_launch_may_be_the_graphs():
    assert used(free(50)) == [(7, 1, "cudaFree")]


@pytest.mark.parametrize("at", [-10, 101])
def test_memory_freed_before_building_or_after_the_last_launch_is_not(at):
    assert used(free(at)) == []


def test_calls_that_failed_free_and_allocate_nothing():
    assert used(free(50, return_code=1)) == []
    # Out of memory: a cache is given back, and the allocation tried again.
    assert used(allocate(20, return_code=2), free(30)) == [(7, 1, "cudaFree")]


def test_what_was_allocated_since_may_be_freed():
    assert used(allocate(10), free(20), allocate(30), free(40)) == []
    assert used(allocate(10), free(20), free(30)) == [(7, 2, "cudaFree")]
    # Freed first and allocated anew: the buffer moved.
    assert used(free(20), allocate(30)) == [(7, 1, "cudaFree")]


def test_an_update_bakes_addresses_anew():
    update = call("cudaGraphExecUpdate", 60, 61)

    assert used(free(50), update) == []
    assert used(free(50), update, free(70)) == [(7, 1, "cudaFree")]
    assert used(free(50), update, launches=((7, 55), (7, 100))) == [(7, 1, "cudaFree")]


def test_each_exec_is_judged_by_its_own_life():
    execs, launches = ((7, 0), (8, 40), (9, 60)), ((7, 20), (8, 80), (9, 90))

    assert used(free(50), execs=execs, launches=launches) == [(8, 1, "cudaFree")]


def test_another_process_frees_its_own():
    assert used(free(50, process_id=PROCESS + 1)) == []


def test_execs_whose_building_was_not_recorded_are_not_judged():
    assert used(free(50), execs=()) == []


def test_a_trace_without_graphs_has_no_faults():
    found = graph_faults.graph_faults(trace([op(0, 5, 1)], [call("cudaLaunchKernel", -2, -1, 1)]))

    assert found.failed_captures.is_empty()
    assert found.failed_launches.is_empty()
    assert found.unused_execs.is_empty()
    assert found.stale_execs.is_empty()


@given(
    st.lists(st.sampled_from("fau"), max_size=14),
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 160)), min_size=1, max_size=4),
)
def test_stale_execs_are_those_that_a_walk_through_the_calls_finds(letters, lives):
    """f: free, a: allocate, u: update; each exec is made at one time and launched at two others."""
    calls = [(10 * i + 5, letter) for i, letter in enumerate(letters)]
    names = {"f": "cudaFree", "a": "cudaMalloc", "u": "cudaGraphExecUpdate"}
    execs = [(20 + number, made) for number, (made, _) in enumerate(lives)]
    launches = [
        (20 + number, made + after)
        for number, (made, lasts) in enumerate(lives)
        for after in (lasts // 2, lasts + 1)
    ]

    def is_stale(exec_id, made):
        for at in (at for owner, at in launches if owner == exec_id):
            last = max((t + 1 for t, letter in calls if letter == "u" and t <= at), default=made)
            balance = 0
            for t, letter in calls:
                if max(made, last) <= t < at:
                    balance += {"f": 1, "a": -1, "u": 0}[letter]
                    if balance > 0:
                        return True
        return False

    found = used(
        *(call(names[letter], at, at + 1) for at, letter in calls), execs=execs, launches=launches
    )
    assert {row[0] for row in found} == {
        exec_id for exec_id, made in execs if is_stale(exec_id, made)
    }
