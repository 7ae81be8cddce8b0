"""What comes with every graph launch, what runs between replays: each rule around its threshold."""

import polars as pl
import pytest
from rows import call, graph, node, nvtx, op, trace

from gaptrace import gaps, graph_use, graphs, launches, ranges
from gaptrace.captures import captures

US = 1000


def use_of(made):
    windows = made.ops.group_by("device_id").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    return graph_use.graph_use(
        made,
        launches.launches(made, gaps.device_gaps(made)),
        graphs.graph_executions(made),
        windows,
        ranges.range_tree(made.nvtx),
    )


# Builds


def capture(at, nodes, code=0):
    """A capture of so many launches from `at` on, a nanosecond each."""
    inside = [call("cudaLaunchKernel", at + 1 + i, at + 2 + i) for i in range(nodes)]
    end = at + nodes + 1
    return [
        call("cudaStreamBeginCapture", at, at + 1),
        *inside,
        call("cudaStreamEndCapture", end, end + 1, return_code=code),
    ]


def built(*before_each, first=()):
    """Graph launches, each after the builds of its step.

    Builds are calls by name, or captures by their nodes, negative for one that fails.
    """
    api, ops = [], [op(-50, -40)]
    for number, builds in enumerate(before_each, 1):
        at = number * 1000
        for build in builds:
            if isinstance(build, int):
                api += capture(at, abs(build), code=901 if build < 0 else 0)
                at += abs(build) + 2
            else:
                name, code = build if isinstance(build, tuple) else (build, 0)
                api.append(call(name, at, at + 1, return_code=code))
                at += 1
        api.append(call("cudaGraphLaunch", at, at + 1, number))
        ops.append(graph(at + 5, at + 6, number))
    return use_of(trace(ops, [*first, *api])).rebuilds.row(0, named=True)


NEW, UPDATE = "cudaGraphInstantiate", "cudaGraphExecUpdate"
DROP = "cudaGraphExecDestroy"
REFUSED = (UPDATE, 910)


def turns(*shapes):
    """Steps that each drop a graph and build one of another shape."""
    return [[DROP, shape, NEW] for shape in shapes]


@pytest.mark.parametrize(
    ("steps", "habit"),
    [
        ([[]] * 4, None),
        # Two builds are a warm-up and the real one, three are a habit ...
        ([[4, NEW]] * 2, None),
        ([[4, NEW]] * 3, "instantiated_alike"),
        # ... if they come with half of the launches.
        ([[4, NEW]] * 3 + [[]] * 3, "instantiated_alike"),
        ([[4, NEW]] * 3 + [[]] * 4, None),
        # A shape that was there before comes back.
        ([[4, NEW], [5, NEW], [4, NEW]], "alternating_shapes"),
        # Two graphs are kept, and three shapes take turns; with three kept, all have their place.
        ([[4, NEW], [5, NEW], *turns(6, 4, 5, 6, 4, 5)], "more_shapes_than_kept"),
        ([[4, NEW], [5, NEW], [6, NEW], *turns(4, 5, 6, 4, 5)], "alternating_shapes"),
        # Shapes that are always new ones can be neither updated nor kept.
        ([[4, NEW], [5, NEW], [6, NEW]], "instantiated"),
        # No capture was seen: nothing is known of the shape.
        ([[NEW]] * 3, "instantiated"),
        # An update was tried, and refused.
        ([[4, REFUSED, NEW]] * 3, "instantiated"),
        # Instantiations that failed build nothing.
        ([[(NEW, 2)]] * 5, None),
        ([[UPDATE]] * 2, None),
        ([[4, UPDATE]] * 3, "updated"),
        ([[UPDATE]] * 3 + [[]] * 4, None),
        ([[UPDATE, UPDATE], [UPDATE, UPDATE], [UPDATE]], "updated"),
        ([[UPDATE, UPDATE]] * 3, "node_by_node"),
    ],
)
def test_habits_of_building(steps, habit):
    assert built(*steps)["habit"] == habit


def test_threads_with_a_shape_each_do_not_alternate():
    api, ops = [], [op(-50, -40)]
    for number in range(12):
        at, own = 1_000 * number, {"thread_id": 100 + number % 2}
        calls = [*capture(at, 2 + 3 * (number % 2)), call(NEW, at + 10, at + 11)]
        calls.append(call("cudaGraphLaunch", at + 20, at + 21, number))
        api += [each | own for each in calls]
        ops.append(graph(at + 30, at + 40, number))
    row = use_of(trace(ops, api)).rebuilds.row(0, named=True)

    assert (row["captures"], row["shapes"], row["shape_changes"]) == (12, 1, 0)
    assert row["habit"] == "instantiated_alike"


def test_builds_are_counted_between_the_first_and_the_last_op():
    row = built([4, UPDATE, NEW], [4, REFUSED, NEW], [5, NEW], first=[call(NEW, -90, -80)])

    assert row == {
        "process_id": 1000,
        "launches": 3,
        "instantiated": 3,
        "updated": 1,
        "refused": 1,
        "captures": 3,
        "shapes": 2,
        "shape_changes": 1,
        "kept": 4,
        "habit": "instantiated",
    }


def test_kept_graphs_are_those_alive_at_once():
    assert built([4, NEW], [DROP, NEW], [DROP, NEW])["kept"] == 1
    assert built([4, NEW], [NEW], [DROP, DROP, NEW])["kept"] == 2
    assert built([4, NEW], [(NEW, 2)], [(DROP, 1)])["kept"] == 1
    # Two were there before the recording began, as their destruction tells.
    assert built([DROP, DROP], [NEW], [NEW])["kept"] == 2
    assert built([DROP, DROP], [NEW], [NEW], [NEW])["kept"] == 3


def test_failed_and_empty_captures_have_no_shape():
    sound = [[4, NEW]] * 3
    assert built([7, NEW], *sound)["shapes"] == 2
    assert built([-7, NEW], *sound)["shapes"] == 1
    assert built([0, NEW], *sound)["shapes"] == 1

    (sound, broken) = captures(
        trace(api=[*capture(0, 3), *capture(10, 2, code=901)]).api
    ).to_dicts()
    assert (sound["nodes"], sound["is_sound"]) == (3, True)
    assert (broken["nodes"], broken["is_sound"]) == (2, False)
    assert (broken["start_ns"], broken["end_ns"]) == (10, 14)


# Bursts


def sequence(letters, extra_api=(), ranges_around=()):
    """G: a replay; k: a kernel by itself; I: an instantiation."""
    api, ops = [], []
    for number, letter in enumerate(letters):
        at = number * 10
        if letter == "I":
            api.append(call(NEW, at, at + 1))
            continue
        name = "cudaGraphLaunch" if letter == "G" else "cudaLaunchKernel"
        api.append(call(name, at, at + 1, number))
        ops.append((graph if letter == "G" else op)(at + 2, at + 5, number))
    return use_of(trace(ops, [*api, *extra_api], nvtx=ranges_around)).bursts


@pytest.mark.parametrize(
    ("letters", "bursts", "kernels"),
    [
        ("GGGG" + "k" * 7 + "G", 0, 0),
        ("GGGG" + "k" * 8 + "G", 1, 8),
        # What usually comes between replays belongs to them.
        (("G" + "k" * 20) * 4 + "G", 0, 0),
        (("G" + "kk") * 4 + "k" * 7 + "G", 0, 0),
        (("G" + "kk") * 4 + "k" * 8 + "G", 1, 10),
        # Before the first replay and after the last one is no between.
        ("k" * 20 + "GGG" + "k" * 20, 0, 0),
        ("GGGGG" + "k" * 8 + "G" + "k" * 9 + "G", 2, 17),
    ],
)
def test_bursts_are_single_launches_above_the_usual_between_replays(letters, bursts, kernels):
    found = sequence(letters)

    assert (found["burst_id"].n_unique(), found.height) == (bursts, kernels)
    assert not found["is_rebuilt"].any()


def test_a_graph_instantiated_before_the_next_replay_makes_a_burst_a_reset():
    found = sequence("GIGGGGG" + "k" * 8 + "IG" + "k" * 8 + "GI" + "G")

    by_burst = found.group_by("burst_id", maintain_order=True).agg(pl.col("is_rebuilt").first())
    assert by_burst["is_rebuilt"].to_list() == [True, False]


def test_bursts_name_the_innermost_range_around_their_launches():
    letters = "GGG" + "k" * 8 + "G"
    found = sequence(letters, ranges_around=[nvtx("run", -1, 900), nvtx("bs 42", 30, 65)])

    assert found["range"].to_list() == ["run/bs 42"] * 4 + ["run"] * 4


# Loops


def loop(iterations, *, gap_us, graph_us=30, size=4, name="copy DtoH", **own):
    """Graphs with a tiny copy to the host between them, each launched after it."""
    api, ops, at = [], [], 0
    for number in range(1, 2 * iterations + 2, 2):
        api.append(call("cudaGraphLaunch", at - 2 * US, at, number))
        ops.append(graph(at, at + graph_us * US, number))
        copied = at + graph_us * US + US
        api.append(call("cudaMemcpyAsync", at + 1, at + 2, number + 1))
        ops.append(
            op(copied, copied + 500, number + 1, kind="memcpy", name=name, bytes=size, **own)
        )
        at += (graph_us + gap_us) * US
    return use_of(trace(ops, api)).loops


@pytest.mark.parametrize(("iterations", "found"), [(7, 0), (8, 8)])
def test_a_loop_has_enough_iterations(iterations, found):
    assert loop(iterations, gap_us=30).height == found


@pytest.mark.parametrize(("gap_us", "found"), [(14, 0), (15, 10)])
def test_the_gaps_of_a_loop_are_of_the_order_of_its_graphs(gap_us, found):
    assert loop(10, gap_us=gap_us).height == found


def test_large_copies_copies_to_the_device_and_copies_in_graphs_are_no_reads():
    assert loop(10, gap_us=30, size=64).height == 10
    assert loop(10, gap_us=30, size=65).is_empty()
    assert loop(10, gap_us=30, name="copy HtoD").is_empty()
    assert loop(10, gap_us=30, graph_exec_id=2).is_empty()


def test_a_loop_tells_its_iterations():
    found = loop(9, gap_us=30)

    assert found.select("gap_ns", "duration_ns").unique().rows() == [(30 * US, 30 * US)]
    assert found["read_op_id"].n_unique() == found["call_id"].n_unique() == 9


# No graphs


def eager(kernels, *, kernel_ns, every_ns, extra=(), extra_api=()):
    ops = [op(i * every_ns, i * every_ns + kernel_ns, i) for i in range(1, kernels + 1)]
    api = [
        call("cudaLaunchKernel", i * every_ns - 2, i * every_ns, i) for i in range(1, kernels + 1)
    ]
    return use_of(trace([*ops, *extra], [*api, *extra_api])).ungraphed


@pytest.mark.parametrize(
    ("kernels", "kernel_ns", "found"),
    [(99, 4, []), (100, 4, [(0, 100, 4.0, 10.0)]), (100, 9, [(0, 100, 9.0, 10.0)]), (100, 10, [])],
)
def test_graphs_are_missed_where_many_kernels_are_shorter_than_their_launches(
    kernels, kernel_ns, found
):
    assert eager(kernels, kernel_ns=kernel_ns, every_ns=10).rows() == found


def test_graphs_are_not_missed_on_a_device_that_runs_one():
    one = {"extra": [graph(5000, 5010, 9999)], "extra_api": [call("cudaGraphLaunch", 1, 2, 9999)]}

    assert eager(200, kernel_ns=4, every_ns=10, **one).is_empty()


def test_a_device_in_node_granularity_runs_graphs_too():
    one = {"extra": [node(5000, 5010, 9999, 1)]}
    one["extra_api"] = [call("cudaGraphLaunch", 1, 2, 9999)]

    assert eager(200, kernel_ns=4, every_ns=10, **one).is_empty()
