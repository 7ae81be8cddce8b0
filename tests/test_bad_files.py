"""Files that cannot be analysed: each has its own one-line answer, and none is touched."""

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from exports import (
    api,
    diagnostic,
    export,
    graph_made,
    graph_trace,
    kernel,
    mark,
    memcpy,
    profiler_overhead,
    push,
    sync,
)

from gaptrace.cli import main
from gaptrace.errors import TraceFormatError
from gaptrace.read import read
from gaptrace.read.sqlite import ExportFile

SAMPLE = Path(__file__).parent.parent / "sample_traces" / "demo_graph.sqlite"
LAUNCH = "cudaLaunchKernel_v7000"
GRAPH_LAUNCH = "cudaGraphLaunch_v10000"


def contents(folder: Path) -> dict[str, bytes | None]:
    """Return everything under a folder; what cannot be read counts by its name."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        if path.is_file() and os.access(path, os.R_OK)
        else None
        for path in folder.rglob("*")
    }


@pytest.fixture
def refusal(tmp_path, capsys) -> Callable[[Path], str]:
    """Analyse a path that must fail; return the message after checking how it came."""

    def analyze(path: Path) -> str:
        before = contents(tmp_path)
        status = main(["analyze", str(path)])
        out, err = capsys.readouterr()
        assert status == 1, out + err
        assert out == ""
        assert err.startswith(f"gaptrace: error: {path}: ")
        assert err.count("\n") == 1
        assert err.endswith("\n")
        assert contents(tmp_path) == before
        return err.removeprefix(f"gaptrace: error: {path}: ").rstrip("\n")

    return analyze


# Sound exports that hold no answer


def test_nothing_of_cuda(tmp_path, refusal):
    path = export(tmp_path / "t.sqlite", nvtx=[push("step", 1, 2)])
    message = refusal(path)
    assert message.startswith("no CUDA activity was recorded")
    assert "nsys profile -t cuda" in message


def test_empty_tables_of_cuda_are_nothing_too(tmp_path, refusal):
    path = export(tmp_path / "t.sqlite", lazy=False)
    assert refusal(path).startswith("no CUDA activity was recorded")


def test_calls_without_device_work(tmp_path, refusal):
    calls = [api("cudaGetDeviceCount_v3020", 1, 2), api(LAUNCH, 3, 4, correlation=1)]
    message = refusal(export(tmp_path / "t.sqlite", api=calls, sync=[sync(5, 6)]))
    assert message.startswith("2 CUDA API calls (1 launches) but no device activity")


def test_the_recorders_own_explanation_is_passed_on(tmp_path, refusal):
    why = "Installed CUDA driver version (13.3) is not supported by this build"
    path = export(tmp_path / "t.sqlite", api=[api("cuInit", 1, 2)], diagnostics=[diagnostic(why)])
    assert why in refusal(path)


@pytest.mark.parametrize("schema", ["2.9.1", "3.7.2"])
def test_graph_launches_without_graph_executions(tmp_path, refusal, schema):
    path = export(
        tmp_path / "t.sqlite",
        schema,
        api=[
            api(LAUNCH, 1, 2, correlation=1),
            api(GRAPH_LAUNCH, 3, 4, correlation=2),
            api(GRAPH_LAUNCH, 5, 6, correlation=3),
        ],
        kernels=[kernel(10, 20, correlation=1)],
    )
    message = refusal(path)
    assert message.startswith("2 graph launches but no graph executions")
    assert "--cuda-graph-trace=node" in message


def test_graph_launches_alone(tmp_path, refusal):
    path = export(tmp_path / "t.sqlite", "3.7.2", api=[api(GRAPH_LAUNCH, 1, 2, correlation=1)])
    assert "no device activity" in refusal(path)


def test_work_that_was_lost_is_not_idle_time(tmp_path, refusal):
    path = export(
        tmp_path / "t.sqlite",
        api=[api(LAUNCH, 10 * i, 10 * i + 5, correlation=i) for i in range(1, 11)],
        kernels=[kernel(1000 + i, 1001 + i, correlation=i) for i in (1, 2, 9, 10)],
    )
    assert "6 of 10 single launches (60%)" in refusal(path)


# Files of another kind


def test_text(tmp_path, refusal):
    path = tmp_path / "notes.sqlite"
    path.write_text("SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL;\n")
    assert refusal(path).startswith("not an SQLite file")


def test_a_file_of_one_byte(tmp_path, refusal):
    path = tmp_path / "t.sqlite"
    path.write_bytes(b"S")
    assert refusal(path).startswith("not an SQLite file")


def test_another_programs_database(tmp_path, refusal):
    path = tmp_path / "bookmarks.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE bookmarks (url TEXT)")
        db.commit()
    said = refusal(path)
    assert said.startswith("an SQLite file, but not an Nsight Systems export")
    assert said.endswith("; name one that nsys export --type sqlite made")


def test_a_database_without_tables(tmp_path, refusal):
    path = tmp_path / "t.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 1")
    assert refusal(path).startswith("an SQLite file, but not an Nsight Systems export")


def test_empty(tmp_path, refusal):
    path = tmp_path / "t.sqlite"
    path.touch()
    assert refusal(path).startswith("the file is empty")


# Damage


@pytest.mark.parametrize("table", ["StringIds", "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS"])
def test_a_page_of_zeros(tmp_path, refusal, table):
    path = tmp_path / "t.sqlite"
    path.write_bytes(SAMPLE.read_bytes())
    with closing(sqlite3.connect(path)) as db:
        (size,) = db.execute("PRAGMA page_size").fetchone()
        ask = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        (page,) = db.execute(ask, [table]).fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(bytes(size))
    assert refusal(path).startswith("damaged or incomplete")


def test_a_time_that_is_text(tmp_path, refusal):
    path = export(tmp_path / "t.sqlite", kernels=[kernel(1, 2), kernel(3, 4)])
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = 'soon' WHERE start = 3")
        db.commit()
    message = refusal(path)
    assert "CUPTI_ACTIVITY_KIND_KERNEL" in message
    assert "export the report again" in message


# Paths


def test_a_folder(tmp_path, refusal):
    folder = tmp_path / "run"
    folder.mkdir()
    assert refusal(folder).startswith("is a folder")


def test_missing(tmp_path, refusal):
    assert refusal(tmp_path / "t.sqlite").startswith("no such file")


def test_a_link_that_leads_nowhere(tmp_path, refusal):
    link = tmp_path / "t.sqlite"
    link.symlink_to(tmp_path / "gone")
    assert refusal(link).startswith("no such file")


def test_a_pipe(tmp_path, refusal):
    pipe = tmp_path / "t.sqlite"
    os.mkfifo(pipe)  # nobody writes to it: opening it would never end
    assert refusal(pipe).startswith("a pipe or device, in which SQLite cannot seek; save it")


def test_a_file_is_no_folder(tmp_path, refusal):
    path = export(tmp_path / "t.sqlite", kernels=[kernel(1, 2)])
    assert refusal(path / "t.sqlite").startswith("cannot be read (Not a directory)")


@pytest.mark.parametrize("command", ["analyze", "recommend"])
def test_unreadable(tmp_path, capsys, command, request):
    path = export(tmp_path / "t.sqlite", kernels=[kernel(1, 2)])
    before = path.read_bytes()
    path.chmod(0o000)
    request.getfixturevalue("nobody")
    assert main([command, str(path)]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"gaptrace: error: {path}: cannot be read (Permission denied)")
    if os.getuid() == 0:
        os.seteuid(0)
    path.chmod(0o600)
    assert path.read_bytes() == before


# And one that is well, so that the refusals above are not for another reason


def test_a_sound_file_is_analysed_and_left_alone(tmp_path, capsys):
    path = export(
        tmp_path / "t.sqlite",
        api=[
            api(LAUNCH, 1, 2, correlation=1),
            api(GRAPH_LAUNCH, 3, 4, correlation=2),
            api("cudaMemcpyAsync_v3020", 5, 6, correlation=3),
        ],
        kernels=[kernel(10, 20, correlation=1)],
        graph_traces=[graph_trace(30, 40, correlation=2)],
        memcpys=[memcpy(50, 60, correlation=3)],
    )
    before = contents(tmp_path)
    assert main(["analyze", str(path)]) == 0
    out, err = capsys.readouterr()
    assert out
    assert err == ""
    assert contents(tmp_path) == before


@pytest.mark.parametrize("kept", [16, 99, 100, 4096, 0.1, 0.5, 0.9, -4096, -1])
def test_truncated_anywhere(tmp_path, refusal, kept):
    whole = SAMPLE.read_bytes()
    path = tmp_path / "t.sqlite"
    path.write_bytes(whole[: int(kept * len(whole)) if isinstance(kept, float) else kept])
    message = refusal(path)
    assert message.startswith("damaged or incomplete")
    assert "copy it again, or export the report again" in message


def test_only_work_without_times(tmp_path, refusal):
    path = export(tmp_path / "t.sqlite", kernels=[kernel(0, 0), kernel(5, 4)])
    assert "2 of 2 device rows" in refusal(path)


def test_only_graphs_that_started_on_the_host(tmp_path, refusal):
    path = export(tmp_path / "t.sqlite", graph_traces=[graph_trace(1, 2, device=2**31 - 1)])
    assert "1 device rows name no GPU" in refusal(path)


# Found by fuzzing


def changed(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()
    return path


@pytest.fixture
def one_kernel(tmp_path) -> Path:
    calls = [api(LAUNCH, 1, 2, correlation=1)]
    return export(tmp_path / "t.sqlite", api=calls, kernels=[kernel(10, 20, correlation=1)])


def test_a_view_without_end_in_place_of_a_table(one_kernel, refusal):
    changed(
        one_kernel,
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME TO hidden",
        "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE n(i) AS"
        " (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT hidden.* FROM hidden, n",
    )
    assert refusal(one_kernel).startswith("CUPTI_ACTIVITY_KIND_KERNEL is a view")


def test_work_of_no_process_that_repeats(tmp_path, capsys):
    names = "abcde" * 12
    kernels = [
        kernel(100 * i, 100 * i + 50, name=name, globalPid=None) for i, name in enumerate(names)
    ]
    path = export(tmp_path / "t.sqlite", kernels=kernels, cuda_devices=[])
    assert main(["analyze", str(path), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["steps"]["sequences"]
    assert (found["process"], found["steps"]) == (None, 12)


def test_a_copy_of_a_file_with_a_view_without_end(one_kernel, tmp_path):
    endless = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS contextId"
    )
    for view in ("TARGET_INFO_CUDA_STREAM", "mine"):
        changed(one_kernel, f"CREATE VIEW {view} AS {endless} FROM n")
    assert main(["redact", str(one_kernel), "-o", str(tmp_path / "copy.sqlite")]) == 0


def test_views_that_no_question_concerns(one_kernel):
    changed(one_kernel, "CREATE VIEW mine AS SELECT * FROM nowhere")
    assert main(["analyze", str(one_kernel)]) == 0


def test_a_schema_that_is_not_utf8(one_kernel, refusal):
    raw = one_kernel.read_bytes()
    at = raw.index(b"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL")
    one_kernel.write_bytes(raw[:at] + b"CREATE \xe4ABLE" + raw[at + 12 :])
    assert refusal(one_kernel).startswith("damaged or incomplete")


@pytest.mark.parametrize("kind", ["STORED", "VIRTUAL"])
@pytest.mark.parametrize("command", ["analyze", "redact"])
def test_columns_that_sqlite_computes(one_kernel, tmp_path, capsys, command, kind):
    sound = read(one_kernel).ops
    table = "CUPTI_ACTIVITY_KIND_KERNEL"
    with closing(sqlite3.connect(one_kernel)) as db:
        names = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
    plain = [name for name in names if name not in ("end", "correlationId")]
    changed(
        one_kernel,
        f"ALTER TABLE {table} RENAME TO old",
        f"CREATE TABLE {table} (correlationId INTEGER GENERATED ALWAYS AS (streamId - 6) {kind},"
        f' {", ".join(plain)}, "end" AS (start + 10) {kind})',
        f"INSERT INTO {table} ({', '.join(plain)}) SELECT {', '.join(plain)} FROM old",
        "DROP TABLE old",
    )
    assert read(one_kernel).ops.equals(sound)
    copy = tmp_path / "copy.sqlite"
    assert (
        main([command, str(one_kernel), *(["-o", str(copy)] if command == "redact" else [])]) == 0
    )
    assert command == "analyze" or read(copy).ops.equals(sound)
    assert capsys.readouterr().err == ""


def test_a_copy_of_a_file_whose_duration_is_text(one_kernel, tmp_path, capsys):
    changed(one_kernel, "UPDATE ANALYSIS_DETAILS SET duration = 'soon'")
    copy = tmp_path / "copy.sqlite"
    assert main(["redact", str(one_kernel), "-o", str(copy)]) == 0
    assert read(copy).meta.duration_ns is None


def test_strings_that_are_null(one_kernel):
    changed(
        one_kernel,
        "CREATE TABLE strings AS SELECT id, NULL AS value FROM StringIds",
        "DROP TABLE StringIds",
        "ALTER TABLE strings RENAME TO StringIds",
    )
    assert main(["analyze", str(one_kernel)]) == 0


def test_strings_that_are_null_against_their_schema(one_kernel):
    # Damaged pages hold nulls where SQLite believes that there are none.
    changed(
        one_kernel,
        "CREATE TABLE strings AS SELECT id, NULL AS value FROM StringIds",
        "DROP TABLE StringIds",
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_master SET name = 'StringIds', tbl_name = 'StringIds',"
        " sql = 'CREATE TABLE StringIds (id INTEGER, value TEXT NOT NULL)'"
        " WHERE name = 'strings'",
    )
    assert main(["analyze", str(one_kernel)]) == 0


def test_work_that_took_no_time_is_no_part_of_none(tmp_path, capsys):
    path = export(tmp_path / "t.sqlite", kernels=[kernel(5, 5)])
    assert main(["analyze", str(path), "--json"]) == 0
    (device,) = json.loads(capsys.readouterr().out)["devices"]
    assert (device["span_ns"], device["busy_fraction"]) == (0, None)


@pytest.mark.parametrize("version", ["²", "9" * 5_000, ""])
def test_a_cuda_version_that_is_no_number(tmp_path, version):
    row = {"devStateName": "", "name": "CudaDriverVersion", "nameEnum": 0, "value": version}
    path = export(tmp_path / "t.sqlite", kernels=[kernel(1, 2)], environment=[row])
    assert main(["analyze", str(path)]) == 0


def test_times_whose_difference_is_no_64_bit_number(tmp_path, capsys):
    far = 2**62
    kernels = [kernel(-far, -far + 5), kernel(10, 20), kernel(40, 50), kernel(far - 5, far)]
    path = export(tmp_path / "t.sqlite", kernels=kernels)
    assert main(["analyze", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [(row["span_ns"], row["idle_ns"]) for row in answer["devices"]] == [(40, 20)]
    assert "invalid_times" in [row["code"] for row in answer["warnings"]]


def test_the_longest_span_there_is(tmp_path, capsys):
    far = 2**50
    kernels = [kernel(-far, 5 - far), kernel(0, 5), kernel(far - 5, far)]
    path = export(tmp_path / "t.sqlite", kernels=kernels)
    assert main(["analyze", str(path), "--json"]) == 0
    (device,) = json.loads(capsys.readouterr().out)["devices"]
    assert (device["span_ns"], device["idle_ns"]) == (2**51, 2**51 - 15)


@pytest.mark.parametrize("shift", [0, 17 * 10**17, -(2**61), 2**61 - 2**51])
def test_times_of_another_clock_are_left_out_and_counted(tmp_path, shift):
    boot = shift + 2**50 + 2000
    path = export(
        tmp_path / "t.sqlite",
        kernels=[kernel(shift + at, shift + at + 5) for at in (1000, 1010)] + [kernel(boot, boot)],
        api=[api(LAUNCH, shift + 10, shift + 20), api(LAUNCH, shift + 10, boot)],
        nvtx=[push("step", shift + 10, shift + 20), push("", shift + 10, boot), mark("", boot)],
        profiler_overhead=[profiler_overhead("flush", boot, boot)],
        graph_events=[graph_made(shift + 5, 1), graph_made(boot, 1)],
    )
    trace = read(path)
    frames = (trace.ops, trace.api, trace.nvtx, trace.overhead, trace.graph_events)
    assert [frame.height for frame in frames] == [2, 1, 1, 0, 1]
    said = [warning.message for warning in trace.warnings if warning.code == "invalid_times"]
    assert [" ".join(text.split()[:5]) for text in said] == [
        "1 of 3 device rows",
        "1 of 2 CUDA API",
        "2 of 3 NVTX ranges",
        "1 of 1 overhead rows",
        "1 of 2 rows of",
    ]


def test_work_at_no_time_at_all(tmp_path, refusal):
    path = export(tmp_path / "t.sqlite", kernels=[kernel(2**62, 2**62 + 5), kernel(0, 0)])
    assert refusal(path).startswith("2 of 2 device rows have no, reversed or impossible times")


def test_spans_whose_sum_is_no_64_bit_number(tmp_path, refusal):
    # Each alone could be; added up they would wrap around to a small number.
    waits = [api("cudaGraphInstantiate_v12000", 0, 2**50 - i) for i in range(4100)]
    path = export(tmp_path / "t.sqlite", kernels=[kernel(10, 20)], api=waits)
    assert refusal(path).startswith("the spans in it add up to 53,428 days, which cannot be")


def test_gaps_of_streams_whose_sum_is_no_64_bit_number(tmp_path, refusal):
    streams = [kernel(at, at + 5, stream=i) for i in range(4100) for at in (0, 2**50 - 5)]
    path = export(tmp_path / "t.sqlite", kernels=streams)
    assert refusal(path).startswith("the spans in it add up to 53,")


def test_text_in_another_encoding(tmp_path, one_kernel, refusal):
    path = tmp_path / "utf16.sqlite"
    with closing(sqlite3.connect(one_kernel)) as source, closing(sqlite3.connect(path)) as copy:
        copy.execute("PRAGMA encoding = 'UTF-16le'")
        copy.executescript("\n".join(source.iterdump()))
    assert refusal(path).startswith("its text is not in UTF-8")


# Files that are being written


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_rows_that_are_not_in_the_file_yet(one_kernel, refusal, mode):
    with closing(sqlite3.connect(one_kernel, isolation_level=None)) as db:
        db.execute(f"PRAGMA journal_mode = {mode}")
        db.execute("BEGIN")
        # More than SQLite holds in memory, so that pages are written before the commit.
        db.execute("PRAGMA cache_size = 1")
        db.executemany(
            "INSERT INTO StringIds VALUES (?, ?)", [(i, "x" * 900) for i in range(99, 999)]
        )
        if mode == "WAL":
            db.execute("COMMIT")
        message = refusal(one_kernel)
    kind = {"WAL": "wal", "DELETE": "journal"}[mode]
    assert message.startswith(f"part of it is still in t.sqlite-{kind}")


def test_an_emptied_log_beside_the_file(one_kernel):
    one_kernel.with_name("t.sqlite-wal").touch()
    one_kernel.with_name("t.sqlite-journal").write_bytes(bytes(512))
    assert main(["analyze", str(one_kernel)]) == 0


@pytest.mark.parametrize("change", [lambda p: p.write_bytes(p.read_bytes() + b"x"), Path.unlink])
def test_a_file_that_changes_while_it_is_open(one_kernel, change):
    while_read = pytest.raises(TraceFormatError, match="changed while it was read")
    with while_read, ExportFile(one_kernel):
        change(one_kernel)


def test_numbers_in_place_of_texts_are_refused(tmp_path):
    """SQLite keeps a float in a column without a type; no reader agrees on how to spell it."""
    path = export(tmp_path / "t.sqlite", kernels=[kernel(0, 10)])
    with closing(sqlite3.connect(path)) as db, db:
        rows = db.execute("SELECT id, value FROM StringIds").fetchall()
        db.execute("DROP TABLE StringIds")
        db.execute("CREATE TABLE StringIds (id INTEGER, value)")
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", [*rows, (10**6, float("-inf"))])
    with pytest.raises(TraceFormatError, match="does not hold pairs of id and text"):
        read(path)
