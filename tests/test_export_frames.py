"""Parquet, CSV and JSON files, read back and compared with what they were made of."""

import json
import resource
from functools import cache

import polars as pl
import pytest
from contents import names_in
from exports import export
from polars.testing import assert_frame_equal
from real_traces import REAL, SAMPLES
from rows import call, event_wait, graph, nvtx, op, overhead, trace
from sources_to_redact import launched

from gaptrace import __version__
from gaptrace.analysis import analyze
from gaptrace.cli import main
from gaptrace.errors import GaptraceError, NotRecordedError
from gaptrace.export import columns, frames
from gaptrace.export.columns import describe, unit
from gaptrace.export.frames import flattened, write_csv, write_parquet
from gaptrace.export.objects import write_json
from gaptrace.read import read


def awkward():
    """A trace whose texts a careless writer would confuse: empty, missing, with quotes."""
    return analyze(
        trace(
            ops=[op(10, 20, 1, name='say "a,b"\nand more'), graph(100, 110), op(5, 6, device_id=1)],
            api=[call("cudaLaunchKernel", 0, 5, 1), call("cudaStreamWaitEvent", 30, 31)],
            nvtx=[nvtx("", 0, 50, domain=None), nvtx("\u00fc", 60, 70, domain="", payload=0.1)],
            overhead=[overhead(1, 2, thread_id=None)],
            event_waits=[event_wait(1, 7, event_id=-(2**63))],
        )
    )


@cache
def analysis_of(path):
    try:
        return analyze(read(path))
    except NotRecordedError as error:
        pytest.skip(str(error))


SOURCES = pytest.mark.parametrize(
    "source", [None, *SAMPLES], ids=lambda path: path.stem if path else "awkward"
)


def made(source):
    return analysis_of(source) if source else awkward()


def files_in(folder, ending):
    return {
        str(path.relative_to(folder).with_suffix("")): path for path in folder.rglob(f"*{ending}")
    }


@SOURCES
def test_parquet_files_are_the_frames(source, tmp_path):
    analysis = made(source)
    write_parquet(analysis, tmp_path / "out")
    files = files_in(tmp_path / "out", ".parquet")
    expected = frames.frames(analysis)
    assert files.keys() == expected.keys()
    for name, frame in expected.items():
        assert_frame_equal(pl.read_parquet(files[name]), frame)


def test_the_frames_are_those_of_trace_and_analysis():
    found = frames.frames(awkward())
    assert {name.split("/")[1] for name in found if name.startswith("trace/")} == {
        "ops",
        "api",
        "nvtx",
        "overhead",
        "event_waits",
        "graph_events",
        "devices",
    }
    assert {"gaps", "idle", "causes", "ranges", "range_instances", "range_causes"} < {
        name.split("/")[1] for name in found if name.startswith("analysis/")
    }
    assert {f"analysis/{name}" for name in ("steps", "executions", "graphs")} < found.keys()


def test_parquet_files_say_what_they_are(tmp_path):
    write_parquet(awkward(), tmp_path / "out")
    metadata = pl.read_parquet_metadata(tmp_path / "out/analysis/devices.parquet")
    assert metadata["gaptrace.schema"] == "gaptrace.frames/1"
    assert metadata["gaptrace.version"] == __version__
    assert metadata["gaptrace.frame"] == "analysis/devices"
    told = json.loads(metadata["gaptrace.columns"])
    assert list(told) == pl.read_parquet(tmp_path / "out/analysis/devices.parquet").columns
    assert told["busy_ns"] == {
        "unit": "ns",
        "description": "time in which at least one op ran on the device",
    }
    assert told["busy_fraction"]["unit"] == "1"
    assert told["device_id"]["unit"] is None
    assert json.loads(metadata["gaptrace.trace"])["granularity"] == "graph"
    warnings = json.loads(metadata["gaptrace.warnings"])
    assert all(warning.keys() == {"code", "message"} for warning in warnings)
    assert warnings


@SOURCES
def test_csv_files_are_the_frames_with_structs_flat(source, tmp_path):
    analysis = made(source)
    write_csv(analysis, tmp_path / "out")
    files = files_in(tmp_path / "out", ".csv")
    expected = {name: flattened(frame) for name, frame in frames.frames(analysis).items()}
    assert files.keys() == expected.keys() | {"columns"}
    for name, frame in expected.items():
        back = pl.read_csv(files[name], schema=frame.schema)
        assert_frame_equal(back, frame)
    told = pl.read_csv(files["columns"])
    assert told.select("frame", "column", "type").rows() == [
        (name, column, str(dtype.base_type()))
        for name, frame in expected.items()
        for column, dtype in frame.schema.items()
    ]
    assert told["description"].null_count() == 0


def test_structs_become_columns_with_dots():
    frame = pl.DataFrame({"a": [1], "gap_ns": [{"count": 3, "p50": None}], "b": ["x"]})
    assert flattened(frame).to_dicts() == [
        {"a": 1, "gap_ns.count": 3, "gap_ns.p50": None, "b": "x"}
    ]
    none = pl.DataFrame({"s": [None]}, schema={"s": pl.Struct({"x": pl.Int64})})
    assert flattened(none).to_dicts() == [{"s.x": None}]


def test_every_column_is_described_and_nothing_else():
    used = {
        (name, column)
        for name, frame in frames.frames(awkward()).items()
        for column in frame.columns
    }
    for name, column in used:
        assert describe(name, column)
    own = {(name, column) for name, texts in columns._OWN.items() for column in texts}
    assert own <= used
    assert {column for name, column in used if (name, column) not in own} == set(
        columns._EVERYWHERE
    )


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("start_ns", "ns"),
        ("gap_ns.p50", "ns"),
        ("gap_ns.count", None),
        ("host_code", "ns"),
        ("busy_fraction", "1"),
        ("bytes", "byte"),
        ("memory_bytes", "byte"),
        ("op_id", None),
    ],
)
def test_units(column, expected):
    assert unit(column) == expected


def test_a_field_of_a_struct_is_described():
    assert describe("analysis/devices", "gap_ns.p90") == "length of a gap: 90 %"
    with pytest.raises(KeyError):
        describe("analysis/devices", "nonsense")


@pytest.mark.parametrize(
    "path", [path for path in REAL if path not in SAMPLES], ids=lambda p: p.stem
)
def test_other_real_traces(path, tmp_path):
    analysis = analysis_of(path)
    write_parquet(analysis, tmp_path / "parquet")
    write_csv(analysis, tmp_path / "csv")
    for name, frame in frames.frames(analysis).items():
        assert_frame_equal(pl.read_parquet(tmp_path / f"parquet/{name}.parquet"), frame)
        assert pl.read_csv(tmp_path / f"csv/{name}.csv", infer_schema=False).height == frame.height


@pytest.fixture
def source(tmp_path):
    return export(tmp_path / "t.sqlite", **launched((1000, 2000), (3000, 4000)))


def test_json_is_what_analyze_prints(source, tmp_path, capsys):
    assert main(["analyze", str(source), "--json"]) == 0
    printed = capsys.readouterr().out
    assert main(["export", str(source), "--to", "json"]) == 0
    assert (tmp_path / "t.json").read_text() == printed


def test_json_is_what_analyze_prints_with_a_calibration(tmp_path, capsys):
    folder = SAMPLES[0].parent
    calibration = str(folder / "h200_calibration.json")
    told = [str(folder / "demo_graph.sqlite"), "--calibration", calibration]
    assert main(["analyze", *told, "--json"]) == 0
    printed = capsys.readouterr().out
    assert main(["export", *told, "--to", "json", "-o", str(tmp_path / "t.json")]) == 0
    assert (tmp_path / "t.json").read_text() == printed
    assert json.loads(printed)["recommendation"]["verdict"] == "one_graph"


@pytest.mark.parametrize(
    ("format_", "name"), [("parquet", "t_parquet"), ("csv", "t_csv"), ("json", "t.json")]
)
def test_the_command_says_what_it_made_and_does_it_once(format_, name, source, tmp_path, capsys):
    before = source.read_bytes()
    assert main(["export", str(source), "--to", format_]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith(f"{tmp_path / name}: ")
    assert source.read_bytes() == before
    assert names_in(tmp_path) == sorted([name, "t.sqlite"])
    made_at = (tmp_path / name).stat().st_mtime_ns
    assert main(["export", str(source), "--to", format_]) == 1
    what = "exists already" if format_ == "json" else "is a folder"
    expected = (
        f"gaptrace: error: {tmp_path / name}: {what}; choose a name that does not exist yet\n"
    )
    assert capsys.readouterr().err == expected
    assert (tmp_path / name).stat().st_mtime_ns == made_at


def test_the_output_can_be_named(source, tmp_path, capsys):
    assert main(["export", str(source), "--to", "csv", "-o", str(tmp_path / "mine")]) == 0
    files = len(frames.frames(awkward())) + 1
    assert capsys.readouterr().out.endswith(f" in {files} files\n")
    assert (tmp_path / "mine/trace/ops.csv").is_file()


def test_failures_of_the_command(source, tmp_path, capsys):
    for missing in (tmp_path / "no.sqlite", tmp_path / "no" / "no.sqlite"):
        assert main(["export", str(missing), "--to", "csv"]) == 1
        assert f"{missing}: no such file; check the path" in capsys.readouterr().err
    assert main(["export", str(source), "--to", "csv", "-o", str(tmp_path / "no/out")]) == 1
    assert "no such folder" in capsys.readouterr().err
    assert main(["export", str(source), "--to", "json", "-o", str(source)]) == 1
    assert "exists already" in capsys.readouterr().err
    assert main(["export", str(source), "--to", "xml"]) == 2
    assert main(["export", str(source)]) == 2
    assert names_in(tmp_path) == ["t.sqlite"]


@pytest.mark.parametrize("write", [write_parquet, write_csv, write_json])
def test_a_disk_that_takes_no_more_is_one_line(write, tmp_path):
    analysis = awkward()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))  # bytes of a file
    try:
        with pytest.raises(GaptraceError, match=r"out: cannot be written: .*; name another place"):
            write(analysis, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("write", [write_parquet, write_csv])
def test_what_was_half_written_is_removed(write, tmp_path):
    def fill_the_disk(_):
        assert names_in(tmp_path)
        raise OSError(28, "No space left on device")

    with pytest.raises(GaptraceError, match="out: cannot be written: No space left on device"):
        write(awkward(), tmp_path / "out", fill_the_disk)
    assert names_in(tmp_path) == []
