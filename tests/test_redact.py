"""Copies to share: nothing personal in them, the figures of their source, nothing else touched."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from contents import names_in, rows_of
from export_schema import SCHEMAS, tables
from exports import (
    api,
    diagnostic,
    export,
    kernel,
    named,
    push,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from real_traces import REAL
from sources_to_redact import (
    TELLING,
    a_full_export,
    columns_that_are_read,
    launched,
    plant,
)

from gaptrace.analysis import analyze
from gaptrace.errors import GaptraceError, NotRecordedError, TraceFormatError
from gaptrace.read import read
from gaptrace.read.sqlite import ExportFile
from gaptrace.redact import redact
from gaptrace.redact.kept import KEPT
from gaptrace.redact.names import Hider
from gaptrace.redact.proof import first_difference
from gaptrace.render.json import analysis_object


def figures(path: Path) -> dict[str, object]:
    """All figures of a trace."""
    found = analysis_object(analyze(read(path)))
    del found["warnings"], found["window"], found["trace"]["path"]
    return found


# Nothing personal


@pytest.mark.parametrize("schema", SCHEMAS)
def test_no_planted_word_is_in_a_byte_of_the_copy(tmp_path, schema):
    source = a_full_export(tmp_path / "full.sqlite", schema)
    plant(source, "planted")
    before = source.read_bytes()
    assert before.count(b"planted") > 50
    done = redact(source, tmp_path / "copy.sqlite")
    copy = done.target.read_bytes()
    assert b"planted" not in copy.lower()
    assert source.read_bytes() == before
    # Every telling name is numbered, the others are there.
    assert done.hidden >= len(TELLING) + 4
    names = [name for (name,) in rows_of(done.target, "SELECT text FROM NVTX_EVENTS")]
    assert "step" in names
    assert len({name for name in names if name and name.startswith("hidden ")}) >= len(TELLING)
    # As many ranges as there were, under numbers.
    assert len(done.figures["ranges"]) == len(figures(source)["ranges"])


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.sampled_from(sorted(SCHEMAS)),
    st.text(st.characters(codec="utf-8", exclude_characters="\"'\0"), min_size=4, max_size=40),
)
def test_whatever_the_word_it_is_not_in_the_copy(tmp_path_factory, schema, text):
    word = f"q{text}q"
    folder = tmp_path_factory.mktemp("word")
    source = a_full_export(folder / "full.sqlite", schema, word)
    plant(source, word)
    assert word.encode() in source.read_bytes()
    copy = redact(source, folder / "copy.sqlite").target.read_bytes()
    assert word.encode() not in copy


def test_a_copy_has_no_free_page_and_nothing_beside_it(tmp_path):
    source = a_full_export(tmp_path / "full.sqlite", "3.20.3")
    copy = redact(source, tmp_path / "copy.sqlite").target
    assert names_in(tmp_path) == ["copy.sqlite", "full.sqlite"]
    assert rows_of(copy, "PRAGMA freelist_count") == [(0,)]
    assert rows_of(copy, "PRAGMA integrity_check") == [("ok",)]
    kinds = {kind for (kind,) in rows_of(copy, "SELECT DISTINCT type FROM sqlite_master")}
    assert kinds == {"table"}


def test_the_machine_is_still_described(tmp_path):
    source = a_full_export(tmp_path / "full.sqlite", "3.20.3")
    before, after = read(source), read(redact(source, tmp_path / "copy.sqlite").target)
    for name in ("driver", "cuda", "cpu", "os", "product_version", "schema_version", "duration_ns"):
        assert getattr(after.meta, name) == getattr(before.meta, name) is not None
    assert after.devices.equals(before.devices)
    codes = [warning.code for warning in after.warnings]
    assert codes == ["recorder_diagnostic", "recorder_diagnostic"]
    assert after.warnings[0].message == "No NVTX events collected."
    assert "looks_secret" in [warning.code for warning in before.warnings]
    meta = dict(
        rows_of(redact(source, tmp_path / "b.sqlite").target, "SELECT * FROM META_DATA_EXPORT")
    )
    assert meta["DERIVED_BY"] == "gaptrace redact"
    assert "DERIVED_WINDOW_NS" not in meta


def test_a_partial_export_still_says_so(tmp_path):
    meta = [
        named("EXPORT_PARAM_TIMES_TO_EXPORT", "1s/2s"),
        named("EXPORT_PARAM_TABLES_TO_EXPORT", ""),
        named("EXPORT_PARAM_INPUT_FILE", "x"),
    ]
    source = export(tmp_path / "t.sqlite", meta=meta, **launched((1000, 2000)))
    copy = read(redact(source, tmp_path / "copy.sqlite").target)
    assert [warning.code for warning in copy.warnings] == ["partial_export"]


@pytest.mark.parametrize("to_ns", [None, 2500])
@pytest.mark.parametrize(
    "emptied",
    [
        "UPDATE META_DATA_EXPORT SET value = NULL",
        "DELETE FROM META_DATA_EXPORT WHERE name <> 'EXPORT_CONFIG_TIME_SHIFT'",
        "UPDATE META_DATA_EXPORT SET name = 'EXPORT_PARAM_INPUT_FILE', value = 'x'",
        "DELETE FROM META_DATA_EXPORT",
    ],
)
def test_an_export_that_describes_itself_in_an_older_table_as_well(tmp_path, emptied, to_ns):
    source = export(tmp_path / "t.sqlite", **launched((1000, 2000), (3000, 4000)))
    version = read(source).meta.product_version
    assert version is not None
    with closing(sqlite3.connect(source)) as db, db:
        db.execute("CREATE TABLE EXPORT_META_DATA AS SELECT * FROM META_DATA_EXPORT")
        db.execute(emptied)
    assert read(source).meta.product_version == version
    copy = redact(source, tmp_path / "copy.sqlite", to_ns=to_ns).target
    assert read(copy).meta.product_version == version


@pytest.mark.parametrize("name", TELLING[:7])
def test_names_that_tell_something_are_numbered(tmp_path, name):
    with ExportFile(export(tmp_path / "t.sqlite", kernels=[kernel(1, 2)])) as file:
        hide = Hider(file)
    assert hide(name.encode()) == "hidden 1"
    assert hide(b"step") == "step"
    assert hide(name.encode()) == "hidden 1"
    assert hide(None) is None


@pytest.mark.parametrize(
    "name",
    [
        "load /lustre/acme/ckpt/model-00001-of-00002.safetensors",
        "/nowhere/data.parquet",
        "/nowhere/x.tar.gz",
        "copy of /nowhere/t.sqlite",
        "C:/acme/x",
        "\\\\fileserver\\acme\\x.pt",
        "/work/acme/run7/latest",
        "/data2/acme/run",
        "/gpfs/acme",
        "bind 2001:db8::42",
        "2001:db8:0:0:0:0:0:42",
        "rank 0 on node12",
    ],
)
def test_paths_and_machines_of_many_kinds_are_numbered(tmp_path, name):
    source = export(
        tmp_path / "t.sqlite",
        kernels=[kernel(1, 2)],
        capture=[named("PROCESS_0:ENVIRONMENT_VARIABLE", "HOSTNAME=node12.corp.example")],
    )
    with ExportFile(source) as file:
        assert Hider(file)(name.encode()) == "hidden 1"


@pytest.mark.parametrize(
    "name",
    [
        "/net/conv1/Conv",
        "/shared/Gather",
        "/network/block.3/norm.weight_orig",
        "epoch 12:30:45",
        "cub::detail",
        "a::b::c",
        "dead::beef::cafe",
        "/encoder/layer.0/attention/MatMul",
        "/model/layers.11/self_attn/q_proj",
        "train/step",
        "a / b",
        "aten::view, seq = 12, op_id = 314290",
        "void (anonymous namespace)::softmax_warp_forward<float, float, 8, true>(float*, int)",
        "std::operator/(Vec3 const&, float)",
        "~Foo",
        "torch.nn.Linear.net",
        "v1.2.3",
        "NCCL 2.21.5+cuda12.4",
        "user",
        "x@y",
        "no NVTX events collected.",
        "Intel(R) Core(TM) i7-10875H CPU @ 2.30GHz",
    ],
)
def test_names_that_tell_nothing_are_kept(tmp_path, name):
    with ExportFile(export(tmp_path / "t.sqlite", kernels=[kernel(1, 2)])) as file:
        assert Hider(file)(name.encode()) == name


def test_names_that_are_not_utf8_are_kept_as_they_are_read(tmp_path):
    source = export(tmp_path / "t.sqlite", nvtx=[push("x", 1, 3000)], **launched((1000, 2000)))
    with closing(sqlite3.connect(source)) as db:
        db.execute("UPDATE NVTX_EVENTS SET text = CAST(X'61ff' AS TEXT)")
        db.commit()
    done = redact(source, tmp_path / "copy.sqlite")
    assert [row["path"] for row in done.figures["ranges"]] == ["a\ufffd"]


# The same figures


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_real_traces_keep_their_figures(tmp_path, path):
    before = path.read_bytes()
    done = redact(path, tmp_path / "copy.sqlite")
    try:
        expected = figures(path)
    except NotRecordedError as error:
        assert done.figures == {"refused": str(error).removeprefix(f"{path}: ")}
        with pytest.raises(NotRecordedError):
            figures(done.target)
    else:
        assert done.figures == expected == figures(done.target)
    assert done.target_bytes <= done.source_bytes == len(before)
    assert path.read_bytes() == before
    assert names_in(tmp_path) == ["copy.sqlite"]


def test_a_trace_that_cannot_be_analysed_is_copied_with_its_reason(tmp_path):
    rows = launched(*((1000 * n, 1000 * n + 10) for n in range(1, 11)))
    source = export(tmp_path / "t.sqlite", api=rows["api"], kernels=rows["kernels"][::5])
    done = redact(source, tmp_path / "copy.sqlite")
    assert done.figures["refused"].startswith("the device work of 4 of")
    with pytest.raises(NotRecordedError, match="the device work of 4 of"):
        analyze(read(done.target))


def test_the_recorders_reason_is_kept_without_what_it_tells(tmp_path):
    why = diagnostic("CUPTI failed, see /home/alice/log")
    source = export(tmp_path / "t.sqlite", api=[api("cuInit", 1, 2)], diagnostics=[why])
    done = redact(source, tmp_path / "copy.sqlite")
    assert "(the recorder says: hidden 1)" in done.figures["refused"]


def test_every_column_that_is_read_is_kept(tmp_path):
    exist: dict[str, set[str]] = {}
    for schema in SCHEMAS:
        for table, columns in tables(schema).values():
            exist.setdefault(table, set()).update(columns)
    for schema in SCHEMAS:
        asked = columns_that_are_read(a_full_export(tmp_path / f"{schema}.sqlite", schema))
        assert asked.keys() <= KEPT.keys()
        for table, columns in asked.items():
            # Readers ask all tables of device work for the same columns.
            missing = columns & exist.get(table, set()) - set(KEPT[table].split())
            assert not missing, f"{table} {missing}"


def test_a_copy_that_gives_other_figures_is_not_there(tmp_path, monkeypatch):
    source = export(tmp_path / "t.sqlite", **launched((1000, 2000), (3000, 4000)))
    columns = KEPT["CUPTI_ACTIVITY_KIND_KERNEL"].replace("shortName", "")
    monkeypatch.setitem(KEPT, "CUPTI_ACTIVITY_KIND_KERNEL", columns)
    with pytest.raises(GaptraceError) as caught:
        redact(source, tmp_path / "copy.sqlite")
    assert str(caught.value) == (
        f"{tmp_path / 'copy.sqlite'}: not written, since the copy does not give the figures of its "
        "source: largest_gaps[0].previous_op is scale in the source and kernel in the copy; report "
        "this, with the version of Nsight Systems"
    )
    assert names_in(tmp_path) == ["t.sqlite"]


@pytest.mark.parametrize(
    ("source", "copy", "said"),
    [
        ({"a": [1, 2]}, {"a": [1, 2]}, None),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, "a.b[1] is 2 in the source and 3 in the copy"),
        ({"a": [1, 2]}, {"a": [1]}, "a is 2 rows in the source and 1 rows in the copy"),
        ({"a": 1}, {}, "a is 1 in the source and None in the copy"),
        ({}, {"a": 1}, "a is None in the source and 1 in the copy"),
        ({"a": 1}, {"refused": "x"}, "refused is None in the source and x in the copy"),
        ({"a": {"b": 1}}, {"a": None}, "a is {'b': 1} in the source and None in the copy"),
    ],
)
def test_the_first_difference_is_named(source, copy, said):
    assert first_difference(source, copy) == said


# What cannot be done leaves nothing behind


def test_what_is_there_is_never_written_over(tmp_path):
    source = export(tmp_path / "t.sqlite", **launched((1000, 2000)))
    before = source.read_bytes()
    other = tmp_path / "other.txt"
    other.write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name, said in [
        ("t.sqlite", "exists already"),
        ("other.txt", "exists already"),
        ("link", "exists already"),
        ("folder", "is a folder"),
        ("folder/../t.sqlite", "exists already"),
    ]:
        with pytest.raises(GaptraceError, match=said):
            redact(source, tmp_path / name)
    with pytest.raises(GaptraceError, match="no such folder"):
        redact(source, tmp_path / "missing" / "copy.sqlite")
    assert source.read_bytes() == before
    assert other.read_text() == "mine"
    assert names_in(tmp_path) == ["folder", "link", "other.txt", "t.sqlite"]


def test_a_file_that_appears_in_the_meantime_is_not_written_over(tmp_path):
    source = export(tmp_path / "t.sqlite", **launched((1000, 2000)))
    target = tmp_path / "copy.sqlite"
    with pytest.raises(GaptraceError, match="exists already"):
        redact(source, target, progress=lambda _: target.write_text("mine"))
    assert target.read_text() == "mine"
    assert names_in(tmp_path) == ["copy.sqlite", "t.sqlite"]


def test_a_file_system_without_hard_links_will_do(tmp_path, monkeypatch):
    source = export(tmp_path / "t.sqlite", **launched((1000, 2000)))

    def link(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    assert redact(source, tmp_path / "copy.sqlite").target.exists()
    assert names_in(tmp_path) == ["copy.sqlite", "t.sqlite"]


def test_an_interruption_leaves_nothing(tmp_path):
    source = export(tmp_path / "t.sqlite", **launched((1000, 2000)))
    seen = []

    def interrupt(percentage: int) -> None:
        seen.append((percentage, names_in(tmp_path)))
        if percentage == 60:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        redact(source, tmp_path / "copy.sqlite", progress=interrupt)
    assert len(seen[-1][1]) == 2  # a draft was there
    assert names_in(tmp_path) == ["t.sqlite"]


@pytest.mark.parametrize("broken", ["CUPTI_ACTIVITY_KIND_KERNEL", "OSRT_API"])
def test_a_damaged_source(tmp_path, broken):
    """Also where only a table is damaged that the analysis does not read."""
    source = export(tmp_path / "t.sqlite", **launched((1000, 2000)))
    with closing(sqlite3.connect(source)) as db:
        db.execute("CREATE TABLE OSRT_API (start INTEGER)")
        db.execute("INSERT INTO OSRT_API VALUES (1)")
        db.commit()
        (size,) = db.execute("PRAGMA page_size").fetchone()
        ask = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        (page,) = db.execute(ask, [broken]).fetchone()
    with source.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(bytes(size))
    with pytest.raises(TraceFormatError, match=r"damaged or incomplete SQLite file \("):
        redact(source, tmp_path / "copy.sqlite")
    assert names_in(tmp_path) == ["t.sqlite"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_written(tmp_path):
    source = export(tmp_path / "t.sqlite", **launched((1000, 2000)))
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o555)
    with pytest.raises(GaptraceError, match="nothing can be written in this folder"):
        redact(source, folder / "copy.sqlite")
    assert names_in(folder) == []
