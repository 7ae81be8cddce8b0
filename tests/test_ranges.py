"""NVTX ranges: the tree, the devices they are about, what they cost."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from rows import PROCESS, THREAD, call, graph, nvtx, op, trace

from gaptrace import gaps, launches, ranges


def summed(given_trace):
    """Windows, summary and causes of all ranges of a trace."""
    between = gaps.device_gaps(given_trace)
    pieces = pl.concat(
        [
            gaps.idle_pieces(given_trace, between),
            gaps.idle_pieces(given_trace, gaps.edge_gaps(given_trace)),
        ]
    )
    made = launches.launches(given_trace, between)
    windows = ranges.range_windows(given_trace, ranges.range_tree(given_trace.nvtx), made)
    return ranges.range_summary(windows, pieces), ranges.range_causes(windows, pieces)


def paths_of(*rows):
    return ranges.range_tree(trace(nvtx=rows).nvtx).select("path", "depth").rows()


def test_ranges_nest_by_time_on_one_thread():
    assert paths_of(nvtx("step", 0, 50), nvtx("attn", 5, 20), nvtx("mlp", 20, 50)) == [
        ("step", 0),
        ("step/attn", 1),
        ("step/mlp", 1),
    ]


def test_ranges_of_equal_span_nest_in_the_order_given():
    assert paths_of(nvtx("outer", 0, 9), nvtx("inner", 0, 9)) == [("outer", 0), ("outer/inner", 1)]


def test_other_threads_and_domains_have_their_own_stack():
    rows = (
        nvtx("step", 0, 50),
        nvtx("other thread", 5, 20, thread_id=THREAD + 1),
        nvtx("other domain", 6, 20, domain="NCCL"),
    )

    assert paths_of(*rows) == [("step", 0), ("other thread", 0), ("other domain", 0)]


def test_what_ends_after_the_range_around_it_is_not_inside_that():
    assert paths_of(
        nvtx("step", 0, 100), nvtx("late", 90, 105), nvtx("step", 100, 200), nvtx("in", 110, 200)
    ) == [("step", 0), ("late", 0), ("step", 0), ("step/in", 1)]


def test_start_end_ranges_may_cross_and_have_no_parents():
    rows = (nvtx("step", 0, 50), nvtx("io", 5, 80, kind="start_end"))

    assert paths_of(*rows) == [("step", 0), ("io", 0)]


def test_marks_and_ranges_cut_off_by_the_end_are_left_out():
    rows = (nvtx("mark", 3, None, kind="mark"), nvtx("open", 0, 99, is_closed=False))

    assert paths_of(*rows) == []


def test_numbers_that_pytorch_gives_each_range_do_not_make_paths():
    rows = (
        nvtx("aten::mm, seq = 4, op_id = 9", 0, 5),
        nvtx("aten::mm, op_id = 10, sizes = [[2]]", 6, 9),
    )

    assert [path for path, _ in paths_of(*rows)] == ["aten::mm", "aten::mm, sizes = [[2]]"]


def test_a_range_costs_what_the_device_does_in_its_window():
    stepped = trace(
        [op(0, 10, 1), op(30, 60, 2)],
        [call("cudaLaunchKernel", -5, -1, 1), call("cudaLaunchKernel", 22, 28, 2)],
        nvtx=[nvtx("step", 5, 40)],
    )
    summary, causes = summed(stepped)

    columns = ("path", "count", "launches", "graph_launches", "span_ns", "busy_ns", "idle_ns")
    assert summary.select(columns).rows() == [("step", 1, 1, 0, 35, 15, 20)]
    assert causes.select("cause", "idle_ns").rows() == [
        ("host_code", 12),
        ("launch_call", 6),
        ("device_queued", 2),
    ]


def test_instances_of_a_path_add_up_and_children_count_again():
    looped = trace(
        [op(0, 10, 1), graph(20, 30, 2), graph(45, 50, 3)],
        [
            call("cudaLaunchKernel", -5, -1, 1),
            call("cudaGraphLaunch", 12, 18, 2),
            call("cudaGraphLaunch", 41, 44, 3),
        ],
        nvtx=[nvtx("loop", 0, 50), nvtx("step", 10, 30), nvtx("step", 40, 50)],
    )
    summary, _ = summed(looped)

    columns = ("path", "count", "graph_launches", "span_ns", "busy_ns", "idle_ns")
    assert summary.select(columns).rows() == [
        ("loop", 1, 2, 50, 25, 25),
        ("loop/step", 2, 2, 30, 15, 15),
    ]


def test_instances_that_overlap_count_once():
    threads = trace(
        [op(0, 10, 1), op(20, 30, 2)],
        [call("cudaLaunchKernel", -5, -1, 1), call("cudaLaunchKernel", 12, 18, 2)],
        nvtx=[nvtx("work", 0, 30), nvtx("work", 5, 30, thread_id=THREAD + 1)],
    )
    summary, _ = summed(threads)

    assert summary.select("count", "span_ns", "busy_ns").rows() == [(2, 30, 20)]


def test_one_range_per_rank_is_one_instance_on_each_device():
    other = {"process_id": PROCESS + 1, "thread_id": THREAD + 7}
    ranks = trace(
        [op(0, 10, 1), op(0, 5, 1, device_id=1, process_id=PROCESS + 1)],
        [call("cudaLaunchKernel", -5, -1, 1), call("cudaLaunchKernel", -6, -2, 1, **other)],
        nvtx=[nvtx("step", -8, 10), nvtx("step", -8, 10, **other)],
    )
    summary, _ = summed(ranks)

    assert summary.select("device_id", "count", "launches").rows() == [(0, 1, 1), (1, 1, 1)]


def test_a_range_that_launches_nothing_is_about_the_devices_of_its_process():
    paused = trace(
        [op(0, 10, 1), op(50, 60, 2), op(0, 60, device_id=1, process_id=PROCESS + 1)],
        [call("cudaLaunchKernel", -5, -1, 1), call("cudaLaunchKernel", 40, 50, 2)],
        nvtx=[nvtx("pause", 15, 35)],
    )
    summary, _ = summed(paused)

    assert summary.select("device_id", "launches", "busy_ns", "idle_ns").rows() == [(0, 0, 0, 20)]


def test_a_start_end_range_counts_launches_of_all_threads_of_its_process():
    rows = trace(
        [op(10, 20, 1), op(20, 30, 2), op(30, 40, 3)],
        [
            call("cudaLaunchKernel", 0, 5, 1),
            call("cudaLaunchKernel", 2, 8, 2, thread_id=THREAD + 1),
            call("cudaLaunchKernel", 20, 25, 3),
        ],
        nvtx=[nvtx("io", 0, 15, kind="start_end")],
    )
    summary, _ = summed(rows)

    assert summary["launches"].to_list() == [2]


def test_calls_of_no_length_and_of_one_instant_all_count():
    found, _ = summed(
        trace(
            [op(20, 30, 1), op(40, 50, 2), op(60, 70, 3)],
            [
                call("cudaLaunchKernel", 5, 5, 1),
                call("cudaLaunchKernel", 5, 8, 2, thread_id=77),
                call("cudaLaunchKernel", 9, 10, 3),
            ],
            nvtx=[nvtx("all", 0, 80, kind="start_end"), nvtx("mine", 1, 80)],
        )
    )

    assert found.select("path", "launches").rows() == [("all", 3), ("mine", 2)]


def test_a_call_belongs_to_the_range_in_which_it_begins():
    crossing = trace(
        [op(10, 20, 1), op(30, 40, 2)],
        [call("cudaLaunchKernel", 0, 8, 1), call("cudaLaunchKernel", 22, 28, 2)],
        nvtx=[nvtx("first", 5, 25), nvtx("second", 25, 40)],
    )
    summary, _ = summed(crossing)

    assert summary.select("path", "launches").rows() == [("first", 1), ("second", 0)]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), min_size=1, max_size=12))
def test_the_tree_agrees_with_a_stack(lengths):
    """Properly nested ranges, made by cutting each one into the room its parent leaves."""
    rows, room = [], [(0, 1000)]
    for number, (offset, length) in enumerate(lengths):
        start, end = room[-1]
        if end - start < 3:
            room.pop()
            start, end = room[-1] if room else (1000 + number * 100, 1000 + number * 100 + 90)
        begin = min(start + 1 + offset % 5, end - 1)
        finish = min(begin + length, end)
        rows.append((f"r{number}", begin, finish, number))
        room[-1:] = [(finish, end), (begin, finish)] if room else [(begin, finish)]
    tree = ranges.range_tree(trace(nvtx=[nvtx(name, a, b) for name, a, b, _ in rows]).nvtx)

    for row in tree.to_dicts():
        own = row["path"].rsplit("/", 1)[-1]
        start, end = next((a, b) for name, a, b, _ in rows if name == own)
        around = [
            (a, -b, number, name)
            for name, a, b, number in rows
            if (a, -b, number) < (start, -end, int(own[1:])) and a <= start and b >= end
        ]
        assert row["path"].split("/")[:-1] == [name for *_, name in sorted(around)]


def innermost(tree_rows, *instants):
    points = pl.DataFrame(
        instants, schema={"thread_id": pl.Int64, "time_ns": pl.Int64}, orient="row"
    )
    tree = ranges.range_tree(trace(nvtx=tree_rows).nvtx)
    return ranges.innermost_ranges(tree, points)["range"].to_list()


def test_an_instant_lies_in_the_range_begun_last_on_its_thread():
    rows = [
        nvtx("step", 0, 100),
        nvtx("attn", 10, 20),
        nvtx("copy", 15, 30, domain="other"),
        nvtx("own", 0, 90, thread_id=7),
        nvtx("crossing", 0, 99, kind="start_end"),
    ]
    instants = [(THREAD, at) for at in (16, 5, 10, 20, 30, 100)]

    found = innermost(rows, *instants, (7, 50), (8, 50))
    assert found == ["copy", "step", "step/attn", "copy", "step", None, "own", None]


def test_without_ranges_an_instant_lies_in_none():
    assert innermost([], (THREAD, 5)) == [None]
