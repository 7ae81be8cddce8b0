"""Each instance of a range by itself: rows in, rows out, and a slow oracle."""

import json
from pathlib import Path

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import call, nvtx, op, trace

from gaptrace.analysis import analyze
from gaptrace.cli import main
from gaptrace.range_instances import range_instances
from gaptrace.timelines import CAUSES

DEMO = str(Path(__file__).parent.parent / "sample_traces" / "demo_graph.sqlite")


def test_instances_by_themselves():
    """Two steps of 100 ns: in the first the device waits for a malloc, in the second for code."""
    analysis = analyze(
        trace(
            [op(0, 40, 1), op(90, 130, 2), op(160, 200, 3)],
            [
                call("cudaLaunchKernel", -5, -1, 1),
                call("cudaMalloc", 40, 80),
                call("cudaLaunchKernel", 84, 90, 2),
                call("cudaLaunchKernel", 150, 160, 3),
            ],
            nvtx=[nvtx("step", 0, 100, payload=7.0), nvtx("step", 100, 200)],
        )
    )
    first, second = analysis.range_instances.to_dicts()
    own = ("path", "instance", "payload", "start_ns", "span_ns", "busy_ns", "idle_ns", "launches")
    assert [first[k] for k in own] == ["step", 0, 7.0, 0, 100, 50, 50, 1]
    assert [second[k] for k in own] == ["step", 1, None, 100, 100, 70, 30, 1]
    assert {c: first[c] for c in CAUSES.categories if first[c]} == {
        "api_other": 40,
        "host_code": 4,
        "launch_call": 6,
    }
    assert {c: second[c] for c in CAUSES.categories if second[c]} == {
        "host_code": 20,
        "launch_call": 10,
    }


SPANS = st.tuples(st.integers(0, 60), st.integers(0, 20))


@settings(max_examples=150)
@given(
    windows=st.lists(st.tuples(SPANS, st.integers(0, 1), st.sampled_from("ab")), max_size=8),
    edges=st.lists(st.integers(0, 80), max_size=12, unique=True),
    kinds=st.lists(st.sampled_from(list(CAUSES.categories)), min_size=12, max_size=12),
)
def test_every_instance_against_counting_nanoseconds(windows, edges, kinds):
    rows = [
        {"path": path, "domain": None, "device_id": device, "payload": None, "process_id": 1}
        | {"thread_id": 1, "start_ns": at, "end_ns": at + length, "launches": 0}
        | {"graph_launches": 0, "range_id": row}
        for row, ((at, length), device, path) in enumerate(windows)
    ]
    types = {"domain": pl.String, "payload": pl.Float64, "device_id": pl.Int64, "path": pl.String}
    names = (
        "range_id",
        "process_id",
        "thread_id",
        "start_ns",
        "end_ns",
        "launches",
        "graph_launches",
    )
    frame = pl.DataFrame(
        rows,
        schema_overrides=types,
        schema=None if rows else types | dict.fromkeys(names, pl.Int64),
    )
    spans = list(zip(sorted(edges)[::2], sorted(edges)[1::2], kinds, strict=False))
    pieces = pl.DataFrame(
        [{"device_id": 0, "start_ns": a, "end_ns": b, "cause": c} for a, b, c in spans],
        schema={"device_id": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64, "cause": CAUSES},
    )
    found = range_instances(frame, pieces)

    seen = {}
    for row, given_row in zip(
        found.to_dicts(), sorted(rows, key=lambda r: r["start_ns"]), strict=True
    ):
        assert (row["path"], row["start_ns"]) == (given_row["path"], given_row["start_ns"])
        key = (row["path"], row["device_id"])
        assert row["instance"] == seen.get(key, 0)
        seen[key] = row["instance"] + 1
        inside = range(row["start_ns"], row["end_ns"])
        for cause in CAUSES.categories:
            slow = sum(any(a <= ns < b and c == cause for a, b, c in spans) for ns in inside) * (
                row["device_id"] == 0
            )
            assert row[cause] == slow
        assert row["idle_ns"] == sum(row[cause] for cause in CAUSES.categories)
        assert row["busy_ns"] == len(inside) - row["idle_ns"]


def test_instances_of_a_real_trace_add_up(capsys):
    assert main(["analyze", DEMO, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    instances = found["range_instances"]["instances"]
    assert (
        found["range_instances"]["count"]
        == len(instances)
        == sum(r["count"] for r in found["ranges"])
    )
    # Instances of these ranges follow each other, so that they add up to the whole.
    for row in found["ranges"]:
        mine = [i for i in instances if (i["path"], i["domain"]) == (row["path"], row["domain"])]
        assert sum(i["idle_ns"] for i in mine) == row["idle_ns"]
        for cause, ns in row["causes"].items():
            assert sum(i["causes"].get(cause, 0) for i in mine) == ns


def test_a_narrowed_report_names_the_instances_with_most_idle_time(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "110")
    assert main(["analyze", DEMO, "--range", "graph:75/step"]) == 0
    out = capsys.readouterr().out
    assert "Range instances" in out
    assert "of 20, those with most idle time" in out
    assert main(["analyze", DEMO]) == 0
    assert "Range instances" not in capsys.readouterr().out


def test_a_range_that_windows_cut_into_pieces_is_one_instance(capsys):
    assert main(["analyze", DEMO, "--range", "per_launch/step", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    own = next(row for row in found["ranges"] if row["path"] == "per_launch")
    (one,) = (i for i in found["range_instances"]["instances"] if i["path"] == "per_launch")
    assert own["count"] == 1
    assert (one["instance"], one["launches"]) == (0, own["launches"])
    assert (one["span_ns"], one["idle_ns"]) == (own["span_ns"], own["idle_ns"])
    assert one["causes"] == {cause: ns for cause, ns in own["causes"].items() if ns}
