"""Findings around their thresholds, their order, their figures."""

import pytest
from cases.program import MS, US, Program
from exports import export
from rows import call, graph, graph_event, op, trace

from gaptrace.advice import CAPTURE_ADVICE, OTHERS, TOPICS
from gaptrace.analysis import analyze
from gaptrace.read import read
from gaptrace.render import words


def findings_of(made, **narrowed):
    return {finding.code: finding for finding in analyze(made, **narrowed).findings}


def waiting(idle_ns, span_ns=100_000, name="cudaMalloc", **own):
    """Two kernels; between them a call as long as the device is idle."""
    ops = [op(0, 1000, 1, **own), op(1000 + idle_ns, span_ns, 2, **own)]
    api = [
        call("cudaLaunchKernel", -20, -10, 1),
        call(name, -5, 1000 + idle_ns - 1),
        call("cudaLaunchKernel", 1000 + idle_ns - 1, 1000 + idle_ns, 2),
    ]
    return trace(ops, api)


@pytest.mark.parametrize(
    ("idle_ns", "severity"),
    [
        (2_000, None),
        (2_001, "low"),
        (10_000, "low"),
        (10_001, "medium"),
        (25_000, "medium"),
        (25_001, "high"),
    ],
)
def test_idle_time_is_a_finding_by_its_share_of_the_span(idle_ns, severity):
    # A nanosecond of the gap is the launch.
    found = findings_of(waiting(idle_ns)).get("api_other")

    assert (found and found.severity) == severity


def test_a_finding_tells_its_figures_and_the_call_that_holds_most():
    assert findings_of(waiting(5_001))["api_other"].evidence == {
        "device_id": 0,
        "idle_ns": 5_000,
        "fraction": 0.05,
        "pieces": 1,
        "largest": "cudaMalloc",
        "largest_ns": 5_000,
    }


def test_each_device_has_its_own_findings_and_launches():
    ops = [op(0, 10, 1), op(50, 60, 2), op(0, 10, 3, device_id=1), op(70, 90, 4, device_id=1)]
    api = [
        call("cudaLaunchKernel", -9, -8, 1),
        call("cudaLaunchKernel", -7, -6, 3),
        call("cudaLaunchKernel", 10, 50, 2),
        call("cudaLaunchKernel", 60, 70, 4),
    ]
    api.insert(2, call("cudaLaunchKernel", -5, -4, 5))
    ops.append(op(10, 50, 5, device_id=1))
    found = [
        (finding.evidence["device_id"], finding.evidence["single_launches"])
        for finding in analyze(trace(ops, api)).findings
        if finding.code == "launch_call:single"
    ]
    assert found == [(0, 2), (1, 3)]


def test_findings_of_several_devices_come_gravest_first():
    long = waiting(5_000, span_ns=200_000)
    short = waiting(3_000, span_ns=8_000, device_id=1)
    moved = [
        each | {"correlation_id": each["correlation_id"] + 10}
        for each in short.ops.drop("op_id", "call_id").to_dicts()
    ]
    calls = [
        each | {"correlation_id": (each["correlation_id"] or 90) + 10, "thread_id": 77}
        for each in short.api.drop("call_id", "capture_id").to_dicts()
    ]
    both = trace(
        [*long.ops.drop("op_id", "call_id").to_dicts(), *moved],
        [*long.api.drop("call_id", "capture_id").to_dicts(), *calls],
    )
    found = [(each.severity, each.evidence["device_id"]) for each in analyze(both).findings]

    assert found == [("high", 1), ("low", 0)]


@pytest.mark.parametrize(
    ("updates", "code"), [(1, "graph_build:updated"), (2, "graph_build:node_by_node")]
)
def test_a_habit_of_building_names_what_is_built(tmp_path, updates, code):
    run = Program()
    for _ in range(6):
        for _ in range(updates):
            run.call("cudaGraphExecUpdate_v10020", 200 * US)
        run.replay(5 * US, MS)
        run.wait()
    found = findings_of(read(export(tmp_path / "t.sqlite", **run.rows)))

    assert list(found) == [code]
    assert {key: found[code].evidence[key] for key in ("launches", "updated", "largest")} == {
        "launches": 5,
        "updated": 5 * updates,
        "largest": "update",
    }


def test_building_once_is_no_habit(tmp_path):
    run = Program()
    run.launch(US, US)
    run.capture(50, 2 * US)
    run.instantiate(200 * US)
    for _ in range(5):
        run.replay(5 * US, MS)
        run.wait()
    found = findings_of(read(export(tmp_path / "t.sqlite", **run.rows)))

    assert list(found) == ["graph_build"]
    assert found["graph_build"].evidence["instantiated"] == 1


def contended(delay_ns, busy_ns):
    """One tiny copy that waits for a large one on a device that is busy for so long."""
    ops = [
        op(0, busy_ns, 1),
        op(0, 50 + delay_ns, 2, kind="memcpy", name="copy DtoH", bytes=4096, stream_id=9),
        op(
            50 + delay_ns,
            60 + delay_ns,
            3,
            kind="memcpy",
            name="copy DtoH",
            bytes=8,
            stream_id=8,
        ),
    ]
    calls = [call("cudaMemcpyAsync", 40, 50, 3), call("cudaMemcpyAsync", -5, -4, 2)]
    return trace(ops, [call("cudaLaunchKernel", -9, -8, 1), *calls])


@pytest.mark.parametrize(("delay_ns", "found"), [(1_999, False), (2_000, True)])
def test_copies_in_each_others_way_are_a_finding_from_two_percent_on(delay_ns, found):
    codes = findings_of(contended(delay_ns, 100_000))

    assert ("copy_contention" in codes) == found
    if found:
        assert codes["copy_contention"].evidence == {
            "device_id": 0,
            "delayed_ns": 2_000,
            "fraction": 0.02,
            "copies": 1,
            "direction": "copy DtoH",
        }


def never_launched(built_ns):
    run = [call("cudaGraphLaunch", at, at + 5, at) for at in (-10, 90_000, 95_000)]
    run.append(call("cudaGraphInstantiate", 0, built_ns))
    events = [
        graph_event(-50, "exec", graph_id=1, graph_exec_id=2),
        graph_event(1, "exec", graph_id=1, graph_exec_id=3),
    ]
    ops = [graph(0, 90_010, -10), graph(90_010, 95_010, 90_000), graph(95_010, 100_000, 95_000)]
    return trace(ops, run, graph_events=events)


@pytest.mark.parametrize(("built_ns", "found"), [(1_999, False), (2_000, True)])
def test_execs_that_never_run_are_a_finding_if_building_them_took_a_while(built_ns, found):
    codes = findings_of(never_launched(built_ns))

    assert ("graphs_never_launched" in codes) == found
    if found:
        assert codes["graphs_never_launched"].evidence == {"execs": 1, "built_ns": 2_000}


def test_execs_that_run_on_another_device_than_the_one_looked_at_do_run():
    made = trace(
        [graph(0, 50, 1), graph(50, 100, 3), graph(0, 100, 2, graph_exec=3, device_id=1)],
        [
            call("cudaGraphInstantiate", -200, -100),
            call("cudaGraphLaunch", -10, -5, 1),
            call("cudaGraphLaunch", -4, -3, 2),
            call("cudaGraphLaunch", -2, -1, 3),
        ],
        graph_events=[graph_event(-150, "exec", graph_id=1, graph_exec_id=3)],
    )
    assert "graphs_never_launched" not in findings_of(made, device_id=0)


def failing(*launches):
    begin, end = "cudaStreamBeginCapture", "cudaStreamEndCapture"
    return trace(
        [op(0, 10, 1), *launches],
        [
            call("cudaLaunchKernel", -9, -8, 1),
            call(begin, -7, -6),
            call("cudaMemcpy", -5, -4, return_code=906),
            call(end, -3, -2, return_code=901),
            call("cudaGraphLaunch", -1, 0, 2),
        ],
    )


def test_a_failed_capture_is_worse_where_no_graph_runs_at_all():
    assert findings_of(failing(graph(11, 20, 2)))["capture_failed"].severity == "medium"
    alone = findings_of(
        trace(
            [op(0, 10, 1)],
            [
                call("cudaLaunchKernel", -9, -8, 1),
                call("cudaStreamBeginCapture", -7, -6),
                call("cudaStreamEndCapture", -3, -2, return_code=904),
            ],
        )
    )["capture_failed"]
    assert (alone.severity, alone.advice) == ("high", CAPTURE_ADVICE[904])
    assert alone.evidence == {"call": "cudaStreamEndCapture", "return_code": 904, "captures": 1}


def test_failures_come_first_and_suspicions_last():
    made = trace(
        [graph(0, 1000, 1), graph(9000, 10_000, 2)],
        [
            call("cudaGraphLaunch", -9, -8, 1),
            call("cudaFree", 0, 8_000),
            call("cudaGraphLaunch", 8_000, 8_900, 2),
            call("cudaLaunchKernel", 8_901, 8_902, 3, return_code=98),
        ],
        graph_events=[graph_event(-50, "exec", graph_id=1, graph_exec_id=2)],
    )
    assert [finding.code for finding in analyze(made).findings] == [
        "launch_failed",
        "api_other",
        "launch_call:graph",
        "stale_addresses",
    ]


@pytest.mark.parametrize(("title", "advised"), [*TOPICS.values(), *OTHERS.values()])
def test_titles_and_advice_are_single_sentences_without_a_full_stop(title, advised):
    for text in (title, advised):
        assert text[0].islower()
        assert not text.endswith(".")
        assert ". " not in text


def test_figures_are_words_for_every_kind_of_finding():
    assert set(words._FIGURES) <= set(TOPICS) | set(OTHERS)
    assert set(OTHERS) <= set(words._FIGURES)


def test_code_between_the_calls_of_a_capture_counts_with_them():
    """A capture of 100 us, 20 in its two calls; 50 us of instantiation; then the graph."""
    us = 1_000
    one = trace(
        [op(0, 1 * us, 1), graph(200 * us, 300 * us, 2)],
        [
            call("cudaLaunchKernel", -2 * us, -1 * us, 1),
            call("cudaStreamBeginCapture", 10 * us, 20 * us),
            call("cudaStreamEndCapture", 100 * us, 110 * us),
            call("cudaGraphInstantiate", 110 * us, 160 * us),
            call("cudaGraphLaunch", 190 * us, 199 * us, 2),
        ],
    )
    (found,) = (each for each in analyze(one).findings if each.code.startswith("graph_build"))

    assert found.evidence["idle_ns"] == 150 * us
    assert (found.evidence["largest"], found.evidence["largest_ns"]) == ("capture", 100 * us)
    assert "the largest part capture with the host code inside it (100 us)" in words.figures(found)


@pytest.mark.parametrize(("copied", "said"), [(500, True), (499, False)])
def test_a_device_that_mostly_copies_is_told_of(copied, said):
    ops = [op(0, 1_000 - copied, 1), op(1_000 - copied, 1_000, 2, kind="memcpy")]
    api = [call("cudaLaunchKernel", -9, -8, 1), call("cudaMemcpyAsync", -7, -6, 2)]
    found = findings_of(trace(ops, api)).get("copies")

    assert (found is not None) == said
    if found:
        assert found.severity == "high"
        assert found.evidence == {
            "device_id": 0,
            "copy_ns": 500,
            "kernel_ns": 500,
            "fraction": 0.5,
        }


@pytest.mark.parametrize(("waited", "said"), [(100, True), (99, False)])
def test_collectives_that_run_alone_are_told_of_and_warned_of(waited, said):
    ops = [op(0, 1_000 - waited, 1), op(1_000 - waited, 1_000, 2, name="ncclDevKernel_Broadcast")]
    api = [call("cudaLaunchKernel", -9, -8, 1), call("cudaLaunchKernel", -7, -6, 2)]
    found = analyze(trace(ops, api))
    warned = [each.message for each in found.recommendation.warnings if each.code == "collectives"]

    assert ("collectives" in {each.code for each in found.findings}) == said
    assert [each.startswith("for 10% of the time device 0") for each in warned] == [True] * said
