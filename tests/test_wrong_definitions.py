"""Definitions of idle that other tools use, each on a trace where it is wrong. Ours shares none.

Beside every trace stands what the other definition would say. See docs/beside_others.md.
"""

from rows import PROCESS, call, graph, node, nvtx, op, trace

from gaptrace import gaps
from gaptrace.analysis import analyze


def idle_ns(given_trace):
    return analyze(given_trace).devices["idle_ns"].to_list()


def test_not_kernels_alone_in_graph_granularity():
    # Kernels alone: 90 idle between the two single kernels.
    replayed = trace(
        [op(0, 5, 1), graph(5, 80, 2), graph(90, 95, 3), op(95, 100, 4)],
        [
            call("cudaLaunchKernel", -9, -8, 1),
            call("cudaGraphLaunch", -7, -6, 2),
            call("cudaGraphLaunch", -5, -4, 3),
            call("cudaLaunchKernel", -3, -2, 4),
        ],
    )

    assert idle_ns(replayed) == [10]


def test_not_copies_as_idle():
    # Kernels alone: 30 idle, of which 25 are a copy.
    copied = trace([op(0, 10), op(12, 37, kind="memcpy", name="copy HtoD"), op(40, 50)])

    assert idle_ns(copied) == [5]


def test_not_the_sum_of_the_gaps_of_streams():
    # Stream 1 has a gap of 20, stream 2 one of 15; the device has none.
    streams = [op(0, 10, stream_id=1), op(30, 40, stream_id=1)]
    streams += [op(5, 15, stream_id=2), op(15, 30, stream_id=2)]

    assert idle_ns(trace(streams)) == [0]


def test_not_start_minus_the_previous_end():
    # Sorted by start, the previous op ends at 20: a "gap" of 60 inside an op that runs to 100.
    assert idle_ns(trace([op(0, 100), op(10, 20), op(80, 110)])) == [0]


def test_not_negative_where_ops_overlap():
    # Programmatic dependent launch: "next start - previous end" is -2.
    assert idle_ns(trace([op(0, 10), op(8, 15), op(20, 25)])) == [5]


def test_not_the_sum_of_durations_as_busy():
    # Durations sum to 190 in a span of 100: 190 % "utilisation", and a negative idle time.
    overlapping = analyze(trace([op(0, 100), op(5, 95, stream_id=9)])).devices

    assert overlapping["busy_fraction"].to_list() == [1.0]


def test_not_processes_of_one_gpu_apart():
    # Each process by itself is idle for 20, the device for 10.
    shared = [op(0, 10), op(30, 40), op(10, 20, process_id=PROCESS + 1)]

    assert idle_ns(trace(shared)) == [10]


def test_not_processes_of_two_gpus_together():
    # Both call their device 0; merged, the union would be busy throughout.
    ranks = [op(0, 10), op(20, 30)]
    ranks += [op(i, i + 10, device_id=1, process_id=PROCESS + 1) for i in (5, 15)]

    assert idle_ns(trace(ranks)) == [10, 0]


def test_not_only_long_gaps():
    # A threshold of a microsecond would find none of these thousand, half of the time.
    short = [op(i * 1_000, i * 1_000 + 500) for i in range(1_001)]

    assert idle_ns(trace(short)) == [500_000]


def test_not_times_rounded_to_microseconds():
    # Starts rounded up and ends down: 3,600 idle instead of 2,000.
    precise = [op(i * 10_400, i * 10_400 + 9_400) for i in range(3)]

    assert idle_ns(trace(precise)) == [2_000]


def test_not_the_whole_of_a_wait_that_touches_the_gap():
    # The host waits 14,440 for work that runs meanwhile; 5 of it lie in the gap.
    waited = trace(
        [op(0, 14_440), op(22_000, 22_010, 3)],
        [call("cudaStreamSynchronize", 5, 14_445), call("cudaLaunchKernel", 21_990, 22_000, 3)],
    )
    found = gaps.causes(gaps.idle_pieces(waited, gaps.device_gaps(waited)), ["device_id"])

    assert dict(found.select("cause", "idle_ns").rows()) == {
        "host_code": 7_545,
        "launch_call": 10,
        "host_sync": 5,
    }


def test_not_queue_time_as_starvation():
    # Launched 100,000 ahead: the host is early, not late.
    ahead = trace(
        [op(0, 100_000, 1), op(100_002, 200_000, 2)],
        [call("cudaLaunchKernel", -9, -8, 1), call("cudaLaunchKernel", -5, -4, 2)],
    )
    found = gaps.causes(gaps.idle_pieces(ahead, gaps.device_gaps(ahead)), ["device_id"])

    assert found.select("cause", "idle_ns").rows() == [("device_queued", 2)]


def test_not_the_launch_call_for_every_node():
    # 50 nodes, one call of 400: charged per node it would be 20,000.
    nodes = trace(
        [node(1_000 + i * 10, 1_009 + i * 10, 1, i) for i in range(50)],
        [call("cudaGraphLaunch", 500, 900, 1)],
    )

    assert analyze(nodes).launches["api_ns"].to_list() == [400]


def test_not_first_to_last_op_of_a_range():
    # The extent of its work leaves out the wait for the first op: nothing would be idle here.
    stepped = trace(
        [op(0, 10, 1), op(90, 100, 2)],
        [call("cudaLaunchKernel", -5, -1, 1), call("cudaLaunchKernel", 80, 88, 2)],
        nvtx=[nvtx("step", 20, 100)],
    )

    assert analyze(stepped).ranges.select("span_ns", "idle_ns").rows() == [(80, 70)]
