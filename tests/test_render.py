"""Text and JSON of a small trace, written out in full; and what must hold for any."""

import json
import re

import pytest
from real_traces import SAMPLES
from rows import call, graph, node, nvtx, op, trace

from gaptrace.analysis import analyze
from gaptrace.read import read
from gaptrace.render.json import analysis_object, recommendation_object
from gaptrace.render.text import recommendation_text, report
from gaptrace.render.units import count, duration, share

SMALL = trace(
    [op(0, 10_000, 1), graph(60_000, 100_000, 2), graph(101_000, 141_000, 3)],
    [
        call("cudaLaunchKernel", -5_000, -1_000, 1),
        call("cudaMalloc", 10_000, 30_000),
        call("cudaGraphLaunch", 50_000, 58_000, 2),
        call("cudaGraphLaunch", 59_000, 63_000, 3),
    ],
    nvtx=[nvtx("step", 20_000, 110_000)],
)

EXPECTED = """\
GPU zero, Nsight Systems before 2022
granularity graph: each graph execution is one op. Idle time inside graphs
cannot be seen and counts as busy; launch costs are near those without a
recorder only for small graphs.
recording: 100.0% of device rows have their launch

Device 0 (GPU zero)
  span 141 us, busy 90.0 us (63.8%), idle 51.0 us in 2 gaps, 3 ops
  gap length: median 50.0 us, p90 50.0 us, p99 50.0 us, max 50.0 us

  cause              idle   of idle   of span   mostly
  ──────────────────────────────────────────────────────────────────────────────
  api_other       20.0 us     39.2%     14.2%   cudaMalloc 20.0 us
  host_code       20.0 us     39.2%     14.2%
  launch_call     8.00 us     15.7%      5.7%   cudaGraphLaunch 8.00 us
  device_queued   3.00 us      5.9%      2.1%   between_ops 2.00 us,
                                                between_graphs 1.00 us

Largest gaps
        at       gap   mostly                  after   before   in range
  ──────────────────────────────────────────────────────────────────────
  0.010 ms   50.0 us   cudaMalloc 40.0%        scale   graph    step
  0.100 ms   1.00 us   between_graphs 100.0%   graph   graph    step

NVTX ranges
  range   count      span    busy      idle   idle because of
  ────────────────────────────────────────────────────────────────────────────
  step        1   90.0 us   54.4%   41.0 us   host_code 48.8%, api_other 24.4%

Steps
  nothing repeats: no NVTX range repeats on a thread; no sequence of graph execs
  repeats; no sequence of graph sizes repeats; no sequence of kernels repeats

Graphs by size
  nodes   execs   executions   duration   launch call   queued gap   starved gap
  ──────────────────────────────────────────────────────────────────────────────
      -       1            2    40.0 us       8.00 us      1.00 us             -

  medians; nodes are CUDA nodes. Queued: launched before the previous graph
  ended; starved: launched too late.

Findings
  1. [medium] the device waits for other CUDA calls: 20.0 us (14.2% of the
     span), the largest part cudaMalloc (20.0 us)
     Next: move allocation, module loading and other set-up out of the steady
     part: warm up first, and reuse memory through a pool.
  2. [medium] the host runs code between CUDA calls before it launches graphs:
     20.0 us (14.2% of the span)
     Next: profile the Python or framework code there: the size of the graphs
     does not change it, fewer launches and a lighter path to them do.
  3. [low] the device waits for graph launches: 8.00 us (5.7% of the span)
     Next: see the recommendation; recording itself lengthens graph launches, so
     compare with a run without a recorder before cutting graphs.

Recommendation
  Chunk size is not the problem: most of the idle time before graphs is
  api_other (other CUDA calls: allocation, module loading ...).
  verdict not_a_chunk_problem, regime replay: graphs are built once and launched
  again and again
  no chunk size can gain more than 8.00 us in this window: the idle time in
  launches and builds of graphs
  from this trace: graphs per step 2, device 81.0 us, launch calls of a step
  12.0 us, exposed latency 10.0 us, queued gap 1.00 us
  warning: recording lengthens graph launches and gaps between graphs; what
  chunks seem to gain in a trace can be the recorder's own cost
"""


def test_the_report_of_a_small_trace_at_80_columns():
    text = report(analyze(SMALL), width=80, color=False)

    head, rest = text.split("\n", 1)
    assert re.fullmatch(r"gaptrace \S+  t\.sqlite", head)
    assert rest == EXPECTED


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_no_line_of_a_report_is_wider_than_the_terminal(path, width):
    text = report(analyze(read(path)), width=width, color=False)

    assert max(map(len, text.splitlines())) <= width
    assert "\x1b" not in text
    for section in ("Device 0", "NVTX ranges", "Graphs by size", "Findings", "Recommendation"):
        assert f"\n{section}" in text


def test_colour_adds_escapes_and_changes_no_letter():
    plain, colored = (report(analyze(SMALL), width=100, color=color) for color in (False, True))

    assert "\x1b[" in colored
    without = "\n".join(
        line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", colored).splitlines()
    )
    assert without == plain.rstrip("\n")


def test_a_healthy_trace_has_no_findings_section():
    busy = trace(
        [op(i * 1000, i * 1000 + 999, i) for i in range(1, 20)],
        [call("cudaLaunchKernel", i * 10, i * 10 + 5, i) for i in range(1, 20)],
    )
    text = report(analyze(busy), width=100, color=False)

    assert "Findings" not in text
    assert "Graphs would gain nothing here" in text


def test_a_single_op_has_no_gaps_and_says_no_quantiles():
    text = report(analyze(trace([op(0, 10)])), width=100, color=False)

    assert "idle 0 ns in 0 gaps, 1 op" in text
    assert "gap length" not in text


def test_warnings_of_the_trace_are_in_the_head():
    cut = trace([op(i * 10, i * 10 + 5) for i in range(9)])

    text = report(analyze(cut), width=200, color=False)
    assert "warning: 9 of 9 device rows (100.0%) have no launch row" in text


def test_node_granularity_says_what_it_does_to_figures():
    nodes = trace([node(0, 10, 1, 0), node(11, 20, 1, 1)], granularity="node")

    text = report(analyze(nodes), width=200, color=False)
    assert "granularity node: each node of a graph is an op of its own" in text


def test_several_devices_are_told_apart_in_findings_and_ranges():
    two = trace(
        [op(0, 10, 1), op(50, 60, 2), op(0, 10, 3, device_id=1), op(90, 99, 4, device_id=1)],
        [
            call("cudaLaunchKernel", -9, -8, 1),
            call("cudaLaunchKernel", -7, -6, 3),
            call("cudaLaunchKernel", 48, 49, 2),
            call("cudaLaunchKernel", 80, 81, 4),
        ],
        nvtx=[nvtx("step", -10, 100)],
    )
    text = report(analyze(two), width=120, color=False)

    assert "Device 0 (GPU zero)" in text
    assert "Device 1 (GPU one)" in text
    assert re.search(r"range +device +count", text)
    assert "device 1: the host runs code" in text


def test_the_recommendation_alone_has_head_and_verdict():
    text = recommendation_text(analyze(SMALL), width=100, color=False)

    assert "Recommendation" in text
    assert "NVTX ranges" not in text


def test_json_has_the_documented_keys_and_only_json_types():
    found = json.loads(json.dumps(analysis_object(analyze(SMALL)), allow_nan=False))

    assert found["schema"] == "gaptrace.analysis/1"
    assert set(found) >= {"trace", "warnings", "devices", "ranges", "graphs", "findings"}
    assert set(found["trace"]) >= {
        "path",
        "format",
        "product_version",
        "schema_version",
        "granularity",
        "duration_ns",
    }
    (device,) = found["devices"]
    assert {
        key: device[key]
        for key in ("device", "name", "first_ns", "last_ns", "span_ns", "busy_ns", "idle_ns")
    } == {
        "device": 0,
        "name": "GPU zero",
        "first_ns": 0,
        "last_ns": 141_000,
        "span_ns": 141_000,
        "busy_ns": 90_000,
        "idle_ns": 51_000,
    }
    assert device["gap_ns"] == {
        "count": 2,
        "p50": 50_000,
        "p90": 50_000,
        "p99": 50_000,
        "max": 50_000,
    }
    assert device["causes"] == {
        "unrecorded": 0,
        "profiler": 0,
        "device_queued": 3_000,
        "launch_call": 8_000,
        "graph_build": 0,
        "host_sync": 0,
        "api_other": 20_000,
        "host_code": 20_000,
    }
    (step,) = found["ranges"]
    assert (step["path"], step["domain"], step["count"]) == ("step", "gaptrace", 1)
    assert (step["launches"], step["graph_launches"]) == (2, 2)
    assert sum(step["causes"].values()) == step["idle_ns"] == 41_000
    (execs,) = found["graphs"]
    assert {
        key: execs[key] for key in ("graph_exec", "device", "stream", "nodes", "executions")
    } == {
        "graph_exec": 2,
        "device": 0,
        "stream": 7,
        "nodes": None,
        "executions": 2,
    }
    assert execs["queued_gap_ns"]["p50"] == 1_000
    assert execs["starved_gap_ns"] == {
        "count": 0,
        "p50": None,
        "p90": None,
        "p99": None,
        "max": None,
    }
    assert all(
        set(f) >= {"code", "severity", "title", "evidence", "advice"} for f in found["findings"]
    )


def test_json_of_a_trace_without_gaps_has_null_quantiles():
    (device,) = analysis_object(analyze(trace([op(0, 10)])))["devices"]

    assert device["gap_ns"] == {"count": 0, "p50": None, "p90": None, "p99": None, "max": None}


def test_recommendation_json_has_the_documented_keys():
    found = recommendation_object(analyze(SMALL).recommendation)

    assert found["schema"] == "gaptrace.recommendation/1"
    assert found["unit"] == "cuda graph nodes"
    assert set(found) >= {
        "regime",
        "verdict",
        "nodes",
        "chunk",
        "plateau",
        "schedule",
        "predicted_ns",
        "gain_ns",
        "gain_cap_ns",
        "break_even_replays",
        "inputs",
        "warnings",
    }
    assert set(found["predicted_ns"]) == {
        "per_launch",
        "one_graph",
        "chunk",
        "schedule",
        "device_only",
    }


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, "-"),
        (0, "0 ns"),
        (7, "7.00 ns"),
        (999, "999 ns"),
        (999.6, "1.00 us"),
        (1_234, "1.23 us"),
        (12_345, "12.3 us"),
        (999_499, "999 us"),
        (999_600, "1.00 ms"),
        (59_000_000_000, "59.0 s"),
        (4_000_000_000_000, "4000 s"),
        (-1_500, "-1.50 us"),
    ],
)
def test_durations_choose_their_unit_by_size(ns, text):
    assert duration(ns) == text


def test_shares_and_counts():
    assert [share(1, 3), share(0, 3), share(1, 100_000), share(1, 0)] == [
        "33.3%",
        "0.0%",
        "<0.1%",
        "-",
    ]
    assert [count(None), count(0), count(12_345)] == ["-", "0", "12,345"]


@pytest.mark.parametrize(
    "name", ["step [red]", "step [/x]", "f::[lambda() (instance 1)]", "layer:x:0:fire:"]
)
def test_names_are_shown_as_they_are(name):
    named = trace(
        [op(5, 6, 1), op(20, 30, 2)],
        [call("cudaLaunchKernel", 2, 3, 1), call("cudaLaunchKernel", 8, 9, 2)],
        nvtx=[nvtx(name, 1, 90)],
    )

    assert name in report(analyze(named), width=100, color=False)


STEPPED = trace(
    [op(i * 10_000, i * 10_000 + (6_000 if i != 7 else 9_000), i) for i in range(1, 11)],
    [call("cudaLaunchKernel", i * 10_000 - 500, i * 10_000 - 100, i) for i in range(1, 11)],
    nvtx=[nvtx("decode", i * 10_000 - 900, i * 10_000 + 9_000) for i in range(1, 11)],
)


def test_steps_are_found_and_summed_up():
    text = report(analyze(STEPPED), width=100, color=False)

    assert re.search(r"\n  decode +10 +0 +9\.90 us +9\.90 us +6\.00 us +3\.90 us +0\n", text)
    assert "found by NVTX ranges" in text


def test_json_of_steps_adds_up():
    found = json.loads(json.dumps(analysis_object(analyze(STEPPED)), allow_nan=False))["steps"]

    assert (found["source"], found["unit"]) == ("nvtx", "decode")
    (sequence,) = found["sequences"]
    assert (sequence["steps"], sequence["busy_ns"]["max"]) == (10, 9_000)
    assert all(s["busy_ns"] + s["idle_ns"] == s["span_ns"] == 9_900 for s in found["steps"])
    assert [s["busy_ns"] for s in found["steps"]].index(9_000) == 6


def test_json_says_why_there_are_no_steps():
    found = analysis_object(analyze(trace([op(0, 10), op(20, 30)])))["steps"]

    assert (found["source"], found["sequences"], found["steps"]) == (None, [], [])
    assert found["reason"]


def test_what_is_built_is_said_in_all_and_per_step():
    rows, api, ops = [], [], []
    for step in range(6):
        at = step * 1_000_000
        rows.append(nvtx("token", at, at + 900_000))
        api += [
            call("cudaGraphExecUpdate", at, at + 20_000),
            call("cudaGraphLaunch", at + 30_000, at + 35_000, step),
        ]
        ops.append(graph(at + 40_000, at + 800_000, step))
    api.append(call("cudaGraphInstantiate", 5_810_000, 5_850_000))
    text = report(analyze(trace(ops, api, nvtx=rows)), width=100, color=False)

    assert (
        "built on the host in the whole trace: update 6 in 120 us, instantiate 1 in 40.0 us;"
        in text
    )
    joined = " ".join(text.split())
    assert (
        "steps of token build graphs: update 1 in 20.0 us, instantiate 1 in 40.0 us (in 1 steps)."
        in joined
    )
