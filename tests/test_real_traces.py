"""Golden figures on real exports: the bundled ones, and more where a folder of them is named.

$GAPTRACE_TRACES names a folder with real exports and a GOLDEN.json of figures that were computed
without gaptrace.
"""

import json
import sqlite3
from pathlib import Path

import polars as pl
import pytest
from real_traces import FOLDER, SAMPLES, needs_folder

from gaptrace.analysis import analyze
from gaptrace.errors import NotRecordedError
from gaptrace.read import read

GOLDEN = json.loads((Path(FOLDER) / "GOLDEN.json").read_text()) if FOLDER else {}
BUSY_TABLES = ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")


def figures_of(analysis):
    """The figures of GOLDEN.json, from an analysis."""
    return {
        str(row["device_id"]): {
            "ops": row["op_count"],
            "first": row["first_ns"],
            "last": row["last_ns"],
            "span_ns": row["span_ns"],
            "busy_ns": row["busy_ns"],
            "idle_ns": row["idle_ns"],
            "gaps": row["gap_count"],
            "max_gap_ns": row["gap_ns"]["max"],
        }
        for row in analysis.devices.to_dicts()
    }


def figures_by_hand(path):
    """The same figures from the file itself, row by row, for exports of one process per device."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    spans = {}
    for kind in BUSY_TABLES:
        if f"CUPTI_ACTIVITY_KIND_{kind}" in tables:
            query = f"SELECT deviceId, start, end FROM CUPTI_ACTIVITY_KIND_{kind}"
            for device, start, end in connection.execute(query):
                spans.setdefault(device, []).append((start, end))
    connection.close()
    figures = {}
    for device, rows in spans.items():
        rows.sort()
        gaps, running = [], rows[0][1]
        for start, end in rows[1:]:
            if start > running:
                gaps.append(start - running)
            running = max(running, end)
        span = running - rows[0][0]
        figures[str(device)] = {
            "ops": len(rows),
            "first": rows[0][0],
            "last": running,
            "span_ns": span,
            "busy_ns": span - sum(gaps),
            "idle_ns": sum(gaps),
            "gaps": len(gaps),
            "max_gap_ns": max(gaps),
        }
    return figures


def assert_adds_up(analysis):
    """Causes sum to idle on every device and every range; busy and idle fill the span."""
    for table, causes, key in (
        (analysis.devices, analysis.causes, ["device_id"]),
        (analysis.ranges, analysis.range_causes, ["path", "domain", "device_id"]),
    ):
        sums = causes.group_by(key).agg(by_cause=pl.col("idle_ns").sum())
        joined = table.join(sums, on=key, how="left", nulls_equal=True)
        assert (joined["by_cause"].fill_null(0) == joined["idle_ns"]).all()
        assert (table["busy_ns"] + table["idle_ns"] == table["span_ns"]).all()
        assert (table["busy_ns"] >= 0).all()


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_bundled_traces_give_the_figures_that_their_rows_give(path):
    before = path.read_bytes()
    analysis = analyze(read(path))

    assert figures_of(analysis) == figures_by_hand(path)
    assert_adds_up(analysis)
    assert path.read_bytes() == before


@needs_folder
@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_real_traces_match_the_golden_figures(name):
    path = Path(FOLDER) / name
    if not GOLDEN[name]:
        with pytest.raises(NotRecordedError):
            analyze(read(path))
        return
    analysis = analyze(read(path))

    assert figures_of(analysis) == GOLDEN[name]
    assert_adds_up(analysis)


@needs_folder
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("public/nsys2023.4_no_cuda.sqlite", "no CUDA activity was recorded"),
        ("public/nsys2025.1_runtime_only.sqlite", "3 CUDA API calls (0 launches) but no device"),
        ("two_ranks_killed.sqlite", "11 CUDA API calls (0 launches) but no device"),
    ],
)
def test_traces_without_device_work_say_what_they_hold(name, said):
    with pytest.raises(NotRecordedError) as caught:
        read(Path(FOLDER) / name)

    assert said in str(caught.value)


@needs_folder
def test_one_program_in_both_granularities_has_the_same_graphs():
    """The demo, recorded twice: 51 graph execs of the same sizes, launched the same 255 times."""

    def sizes(name):
        found = analyze(read(Path(FOLDER) / name)).graph_sizes
        return found.select("nodes", "execs", "executions").rows()

    expected = [(600, 1, 5), (300, 2, 10), (100, 6, 30), (50, 12, 60), (20, 30, 150)]
    assert sizes("demo_graph.sqlite") == expected
    assert sizes("demo_node.sqlite") == expected


@needs_folder
def test_the_recorders_effect_on_queued_gaps_is_seen():
    """Gaps between queued graphs: 2.1 to 2.5 us in graph, 5.4 us in node granularity."""

    def queued_ns(name):
        found = analyze(read(Path(FOLDER) / name)).graph_sizes
        by_nodes = dict(found.select("nodes", "queued_gap_ns").rows())
        return [by_nodes[nodes]["p50"] for nodes in (300, 100, 50, 20)]

    assert all(2_050 <= gap <= 2_550 for gap in queued_ns("demo_graph.sqlite"))
    assert all(5_300 <= gap <= 5_700 for gap in queued_ns("demo_node.sqlite"))


@needs_folder
@pytest.mark.parametrize("name", ["demo_graph.sqlite", "demo_node.sqlite"])
def test_the_600_node_step_gets_no_verdict_that_the_recorder_alone_has_made(name):
    """Untraced, one graph of 600 nodes is best; under any recorder chunks of 100 look better."""
    found = analyze(read(Path(FOLDER) / name), range_name="graph:600").recommendation

    assert (found.verdict, found.cause) == ("needs_calibration", "host_cost_by_nodes")
    assert (found.regime, found.nodes) == ("replay", 600)


@needs_folder
def test_regimes_of_a_decoder_are_told_apart():
    path = Path(FOLDER) / "llm_node.sqlite"
    trace = read(path)

    regimes = {
        name: analyze(trace, range_name=name).recommendation.regime
        for name in ("eager", "graph", "graph_sync_item", "recapture_every_step")
    }
    assert regimes == {
        "eager": None,
        "graph": "replay",
        "graph_sync_item": "replay",
        "recapture_every_step": "instantiate",
    }
