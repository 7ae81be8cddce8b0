"""Copies to share: nothing personal in them, the figures of their source, nothing else touched."""

import os
import random
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from export_schema import SCHEMAS, tables
from exports import (
    VM,
    api,
    diagnostic,
    event_awaited,
    event_recorded,
    export,
    global_id,
    gpu,
    graph_exec_made,
    graph_made,
    graph_trace,
    kernel,
    mark,
    memcpy,
    memset,
    named,
    node_made,
    overhead,
    profiler_overhead,
    push,
    start_end,
    sync,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recorders import install_fake_nsys, real_nsys

from gaptrace.analysis import analyze
from gaptrace.cli import main
from gaptrace.errors import GaptraceError, NotRecordedError, TraceFormatError, WindowError
from gaptrace.read import read
from gaptrace.read.sqlite import ExportFile
from gaptrace.redact import redact
from gaptrace.redact.kept import KEPT, ROWS_OF_WINDOW, TEXTS
from gaptrace.redact.names import Hider
from gaptrace.redact.proof import first_difference
from gaptrace.render.json import analysis_object

LAUNCH, GRAPH_LAUNCH = "cudaLaunchKernel_v7000", "cudaGraphLaunch_v10000"
SAMPLES = Path(__file__).parent.parent / "sample_traces"
FOLDER = os.environ.get("GAPTRACE_TRACES")
REAL = sorted([*SAMPLES.glob("*.sqlite"), *(Path(FOLDER).rglob("*.sqlite") if FOLDER else ())])
TOKEN = "hf_" + "plantedplantedplantedplantedplante"
#: Names of kernels and ranges that tell something, each in its own way.
TELLING = [
    "load /home/planted/data.bin",
    "/lustre/planted.h5",
    "read C:\\planted\\x",
    "for planted@example.org",
    "GET https://planted.example.org",
    f"login {TOKEN}",
    "USER=planted",
    "run of planted-user",
    "on planted-host now",
    "auth planted-secret-value",
]


def rows_of(path: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(
        sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    ) as db:
        return db.execute(sql).fetchall()


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def figures(path: Path) -> dict[str, object]:
    """All figures of a trace."""
    found = analysis_object(analyze(read(path)))
    del found["warnings"], found["window"], found["trace"]["path"]
    return found


def launched(*times: tuple[int, int], step: int = 1000) -> dict[str, list[dict[str, object]]]:
    """Kernels at these times, each launched 500 ns before."""
    numbered = list(enumerate(times, 1))
    return {
        "api": [api(LAUNCH, start - 500, start - 400, correlation=n) for n, (start, _) in numbered],
        "kernels": [kernel(start, end, correlation=n) for n, (start, end) in numbered],
    }


# Nothing personal


def a_full_export(path: Path, schema: str, word: str = "planted") -> Path:
    """An export with rows in every table that tests can build, and a word in all of its texts."""
    known = tables(schema)
    text = f"{word} text"
    given = {
        "api": [
            api(LAUNCH, 10, 20, correlation=1),
            api(LAUNCH, 90, 110, correlation=2),
            api(GRAPH_LAUNCH, 210, 220, correlation=3),
            api("cudaMemcpyAsync_v3020", 310, 320, correlation=4),
            api("cudaStreamSynchronize_v3020", 360, 420, correlation=5),
        ],
        "kernels": [
            kernel(100, 150, correlation=1, name="scale"),
            kernel(180, 200, correlation=2, name="/home/planted/k.cu", node=None),
        ],
        "graph_traces": [graph_trace(250, 300, correlation=3)],
        "graph_events": [graph_made(30, 1), graph_exec_made(40, 1, 2)],
        "node_events": [node_made(35, 1 << 32)],
        "memcpys": [memcpy(330, 340, correlation=4)],
        "memsets": [memset(345, 350)],
        "sync": [sync(360, 400, correlation=5)],
        "event_records": [event_recorded(1, correlation=5)],
        "overhead": [overhead("module loading", 12, 14)],
        "profiler_overhead": [profiler_overhead("flush /tmp/planted/x", 5, 8)],
        "nvtx": [
            push("step", 5, 500, domain="mine"),
            *(push(name, 5 + n, 480 - n) for n, name in enumerate(TELLING, 1)),
            push("/home/planted/registered", 6, 600, registered=True),
            start_end("plain", 7, 700),
            mark("~/planted/mark", 50),
            {"start": 1, "end": None, "eventType": 39, "text": text, "domainId": 0},
            {"start": 1, "end": None, "eventType": 33, "text": text, "domainId": 0},
        ],
        "diagnostics": [
            diagnostic("No NVTX events collected."),
            diagnostic("cannot open /home/planted/x.so"),
            diagnostic(text, severity=1),
        ],
        "gpus": [
            gpu(busLocation="0000:planted", uuid="planted-uuid", luid=7)
            if "id" in known["gpus"][1]
            else {"vmId": VM, "deviceId": 0, "name": "Tesla V100", "busLocation": "0000:planted"}
        ],
        "contexts": [{"processId": 100, "contextId": 1}],
        "streams": [{"streamId": 7, "processId": 100, "contextId": 1}],
        "environment": [
            {"globalVid": VM, "devStateName": word, "name": name, "value": value}
            for name, value in [
                ("CpuDescription", "AMD EPYC 7763"),
                ("OsDescription", "Ubuntu 24.04"),
                ("NvDriverVersion", "580.159.04"),
                ("CudaDriverVersion", "13000"),
                ("Hostname", "planted-host"),
                ("DeviceEnvironment", f"USER=planted-user;API_KEY=planted-secret-value;X={word}"),
            ]
        ],
        "session_start": [{"utcEpochNs": 1, "utcTime": word, "localTime": word}],
        "processes": [{"globalPid": global_id(1), "pid": 1, "name": f"/home/{word}/bin/python"}],
        "thread_names": [
            {"nameId": name, "globalTid": global_id(1)}
            for name in (f"{word}-worker", f"USER=planted-user\0HOST=planted-host\0T={word}")
        ],
        "capture": [
            named("PROCESS_0:ENVIRONMENT_VARIABLE", f'HF_TOKEN="{TOKEN}"'),
            named("PROCESS_0:ENVIRONMENT_VARIABLE", 'USER="planted-user"'),
            named("PROCESS_0:ENVIRONMENT_VARIABLE", 'API_KEY="planted-secret-value"'),
            named("PROCESS_0:ARGUMENT_0", f"--password={word}"),
            named(f"{word} name", word),
        ],
        "meta": [named("EXPORT_PARAM_INPUT_FILE", f"/home/{word}/run.nsys-rep")],
    }
    if "graph_traces" not in known:
        given["kernels"].append(kernel(250, 300, correlation=3, node=1 << 32))
    if schema in ("2019", "pre-2022"):
        # Without the environment nothing tells the names of user and host.
        given["thread_names"][1]["nameId"] += (
            "\0API_KEY=planted-secret-value\0HOSTNAME=planted-host"
        )
    return export(path, schema, **{key: rows for key, rows in given.items() if key in known})


def plant(path: Path, word: str) -> None:
    """Put a word wherever SQLite lets one put it and gaptrace does not look, numbers included."""
    with closing(sqlite3.connect(path)) as db:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master").fetchall()]
        read_by_gaptrace = columns_that_are_read(path)
        for table in names:
            db.execute(f'ALTER TABLE "{table}" ADD COLUMN "new {word}" TEXT')
            columns = [row[1] for row in db.execute(f'PRAGMA table_info("{table}")')]
            for column in columns:
                wanted = {*read_by_gaptrace.get(table, ()), *TEXTS.get(table, "").split()}
                if table == "StringIds" or column in ("name", "severity", "duration"):
                    continue
                if column not in wanted:
                    db.execute(f'UPDATE "{table}" SET "{column}" = ?', [f"{word} in {column}"])
        db.execute(f'CREATE TABLE "{word} table" (value TEXT, raw BLOB)')
        db.execute(f'INSERT INTO "{word} table" VALUES (?, ?)', [word, word.encode()])
        db.execute("CREATE TABLE ProcessStreams (globalPid, filenameId, contentId)")
        db.execute("INSERT INTO ProcessStreams VALUES (1, 9001, 9002)")
        db.executemany(
            "INSERT INTO StringIds (id, value) VALUES (?, ?)",
            [(9001, f"/tmp/{word}"), (9002, f"{word} printed"), (9003, word), (9004, f"A={word}")],
        )
        db.execute(f"CREATE VIEW \"{word} view\" AS SELECT '{word}' AS x")
        db.execute(f'CREATE INDEX "{word} index" ON StringIds (value)')
        db.execute(f"PRAGMA user_version = {int.from_bytes(b'AB', 'big')}")
        db.commit()


def columns_that_are_read(path: Path) -> dict[str, set[str]]:
    """What readers ask of a file by name: {table: columns}, as far as `frame` is used."""
    asked: dict[str, set[str]] = {}
    frame = ExportFile.frame

    def spy(self, table, columns):
        asked.setdefault(table, set()).update(column for column, _ in columns.values())
        return frame(self, table, columns)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ExportFile, "frame", spy)
        read(path)
    return asked


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


def inside(path: Path, device: int, begin: int, end: int) -> list[object]:
    """What `analyze --device --from --to` says of a device."""
    found = analyze(read(path), device_id=device, from_ns=begin, to_ns=end)
    return [found.devices.to_dicts(), found.causes.to_dicts()]


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_windows_of_real_traces_keep_the_figures_of_their_time(tmp_path, path):
    """Also the details of causes, which a copy is not asked to prove when it is made."""
    try:
        ops = analyze(read(path)).trace.ops
    except NotRecordedError:
        return
    first, last = ops["start_ns"].min(), ops["end_ns"].max()
    dice = random.Random(path.stem)
    for number in range(2):
        begin, end = sorted(dice.randrange(first, last) for _ in "ab")
        try:
            done = redact(path, tmp_path / f"{number}.sqlite", from_ns=begin, to_ns=end)
        except WindowError:
            continue  # all the window's work was launched before the file begins
        for row in done.figures["devices"]:
            start, stop = max(begin, row["first_ns"]), min(end, row["last_ns"])
            where = (row["device"], start, stop)
            if start < stop:
                assert inside(done.target, *where) == inside(path, *where)


#: What a thread does in one call: name of the call, table of what it makes, that row.
CALLS = {
    "launch": (LAUNCH, "kernels", kernel),
    "copy": ("cudaMemcpyAsync_v3020", "memcpys", memcpy),
    "graph": (GRAPH_LAUNCH, "graph_traces", graph_trace),
    "wait": ("cudaStreamSynchronize_v3020", "sync", sync),
    "record": ("cudaEventRecord_v3020", "event_records", event_recorded),
    "await": ("cudaStreamWaitEvent_v3020", "sync", event_awaited),
    "other": ("cudaMalloc_v3020", None, None),
}


def captured(start: int, tid: int) -> dict[str, list[dict[str, object]]]:
    """A capture of two launches, and the graph exec 2 that is made of it."""
    names = ["cudaStreamBeginCapture_v10000", LAUNCH, LAUNCH, "cudaStreamEndCapture_v10000"]
    times = [start + 3 * n for n in range(4)]
    return {
        "api": [api(name, at, at + 2, tid=tid) for name, at in zip(names, times, strict=True)],
        "graph_events": [
            graph_made(start + 12, 1, tid=tid),
            graph_exec_made(start + 13, 1, 2, tid=tid),
        ],
    }


@st.composite
def programs(draw):
    """Two threads that launch, wait, record events, capture and mark ranges, on two streams."""
    rows: dict[str, list[dict[str, object]]] = {"api": [], "nvtx": [], "profiler_overhead": []}
    now = {thread: draw(st.integers(0, 50)) for thread in (100, 101)}
    free = {7: 0, 13: 0}
    kinds = st.sampled_from([*CALLS, "launch", "capture", "overhead", "range"])
    for correlation in range(1, draw(st.integers(3, 25)) + 1):
        thread, stream = draw(st.sampled_from([100, 101])), draw(st.sampled_from([7, 13]))
        kind, start = draw(kinds), now[thread] + draw(st.integers(0, 40))
        end = now[thread] = start + draw(st.integers(15, 30))
        if kind == "capture":
            for table, made in captured(start, thread).items():
                rows.setdefault(table, []).extend(made)
        elif kind == "overhead":
            rows["profiler_overhead"].append(profiler_overhead("flush", start, end, tid=thread))
        elif kind == "range":
            rows["nvtx"].append(push(f"r{correlation % 3}", start, end + 60, tid=thread))
        else:
            name, table, row = CALLS[kind]
            rows["api"].append(api(name, start, end, tid=thread, correlation=correlation))
            at = {"correlation": correlation, "stream": stream}
            begin = max(start + draw(st.integers(1, 60)), free[stream])
            ran = (begin, begin + draw(st.integers(1, 50)))
            event = draw(st.integers(1, 2))
            if kind in ("launch", "copy", "graph"):
                free[stream] = ran[1]
            if table is not None:
                where = {"record": (event,), "await": (start, end, event), "wait": (start, end)}
                rows.setdefault(table, []).append(row(*where.get(kind, ran), **at))
    return rows


@settings(max_examples=30, deadline=None)
@given(programs(), st.integers(0, 900), st.integers(20, 900))
def test_any_window_of_any_program_keeps_the_figures_of_its_time(
    tmp_path_factory, rows, begin, size
):
    folder = tmp_path_factory.mktemp("program")
    source = export(folder / "t.sqlite", **rows)
    try:
        analyze(read(source))
        done = redact(source, folder / "copy.sqlite", from_ns=begin, to_ns=begin + size)
    except (NotRecordedError, WindowError):
        return
    for row in done.figures["devices"]:
        start, stop = max(begin, row["first_ns"]), min(begin + size, row["last_ns"])
        where = (row["device"], start, stop)
        if start < stop:
            assert inside(done.target, *where) == inside(source, *where)


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


def test_a_window_that_gives_other_figures_is_not_there(tmp_path, monkeypatch):
    source = export(tmp_path / "t.sqlite", **launched((1000, 2000), (3000, 4000)))
    monkeypatch.setitem(ROWS_OF_WINDOW, "CUPTI_ACTIVITY_KIND_RUNTIME", "0")
    with pytest.raises(GaptraceError, match="does not give the figures of its source: "):
        redact(source, tmp_path / "copy.sqlite", from_ns=500)
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


# Windows


def test_a_window_by_the_name_of_ranges_goes_from_the_first_to_the_last(tmp_path):
    rows = launched((1000, 1100), (3000, 3100), (5000, 5100), (9000, 9100))
    ranges = [push("all", 0, 9500), push("step", 2000, 3500), push("step", 4000, 6000)]
    source = export(tmp_path / "t.sqlite", nvtx=ranges, **rows)
    for name in ("step", "all/step"):
        done = redact(source, tmp_path / f"{name[:3]}.sqlite", range_name=name)
        assert done.window_ns == (2000, 6000)
        times = "SELECT start, end FROM {} ORDER BY start"
        kernels = rows_of(done.target, times.format("CUPTI_ACTIVITY_KIND_KERNEL"))
        assert kernels == [(3000, 3100), (5000, 5100)]
        assert rows_of(done.target, times.format("NVTX_EVENTS")) == [(2000, 3500), (4000, 6000)]
        assert len(rows_of(done.target, times.format("CUPTI_ACTIVITY_KIND_RUNTIME"))) == 2
    meta = dict(rows_of(done.target, "SELECT name, value FROM META_DATA_EXPORT"))
    assert meta["DERIVED_WINDOW_NS"] == "2000-6000"


def test_a_range_and_times_narrow_each_other(tmp_path):
    rows = launched((1000, 1100), (3000, 3100), (5000, 5100))
    source = export(tmp_path / "t.sqlite", nvtx=[push("step", 900, 6000)], **rows)
    done = redact(source, tmp_path / "a.sqlite", range_name="step", from_ns=2000)
    assert done.window_ns == (2000, 6000)
    done = redact(source, tmp_path / "b.sqlite", range_name="step", to_ns=4000)
    assert done.window_ns == (900, 4000)


def test_work_at_the_very_end_is_in_a_window_without_end(tmp_path):
    source = export(tmp_path / "t.sqlite", kernels=[kernel(10, 20), kernel(30, 30)])
    done = redact(source, tmp_path / "copy.sqlite", from_ns=15)
    assert rows_of(done.target, "SELECT start FROM CUPTI_ACTIVITY_KIND_KERNEL") == [(10,), (30,)]


def test_a_launch_before_the_window_comes_with_its_work(tmp_path):
    calls = [api(LAUNCH, 10, 20, correlation=1), api(LAUNCH, 30, 40, correlation=2)]
    source = export(
        tmp_path / "t.sqlite",
        api=[*calls, api("cudaMalloc_v3020", 50, 60), api("cudaMalloc_v3020", 190, 260)],
        kernels=[kernel(100, 120, correlation=1), kernel(220, 240, correlation=2)],
    )
    copy = redact(source, tmp_path / "copy.sqlite", from_ns=200).target
    kept = rows_of(copy, "SELECT start FROM CUPTI_ACTIVITY_KIND_RUNTIME ORDER BY start")
    assert kept == [(30,), (190,)]


def test_the_capture_of_a_graph_that_runs_in_the_window_tells_its_nodes(tmp_path):
    def captured(at: int, launches: int) -> list[dict[str, object]]:
        between = [api(LAUNCH, at + 10 * n, at + 10 * n + 5) for n in range(1, launches + 1)]
        return [
            api("cudaStreamBeginCapture_v10000", at, at + 5),
            *between,
            api("cudaStreamEndCapture_v10000", at + 90, at + 95),
        ]

    source = export(
        tmp_path / "t.sqlite",
        api=[
            *captured(1000, 3),
            *captured(2000, 5),
            api(GRAPH_LAUNCH, 3000, 3010, correlation=1),
            api(GRAPH_LAUNCH, 4000, 4010, correlation=2),
        ],
        graph_events=[
            graph_made(1096, 1),
            graph_exec_made(1098, 1, 2),
            graph_made(2096, 3),
            graph_exec_made(2098, 3, 4),
        ],
        graph_traces=[
            graph_trace(3100, 3200, graph=1, graph_exec=2, correlation=1),
            graph_trace(4100, 4200, graph=3, graph_exec=4, correlation=2),
        ],
    )
    done = redact(source, tmp_path / "copy.sqlite", from_ns=3500)
    assert [(row["graph_exec"], row["nodes"]) for row in done.figures["graphs"]] == [(4, 5)]
    early = "SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE start < 2000"
    assert rows_of(done.target, early) == [(0,)]


def test_a_wait_for_an_event_comes_with_the_record_it_waits_for(tmp_path):
    source = export(
        tmp_path / "t.sqlite",
        api=[
            api("cudaEventRecord_v3020", 10, 11, correlation=1),
            api("cudaEventRecord_v3020", 20, 21, correlation=2),
            api("cudaEventRecord_v3020", 30, 31, correlation=3),
            api("cudaStreamWaitEvent_v3020", 40, 41, correlation=4),
            api(LAUNCH, 50, 60, correlation=5),
            api(LAUNCH, 70, 80, correlation=6),
        ],
        event_records=[
            event_recorded(1, correlation=1, stream=13),
            event_recorded(1, correlation=2, stream=13),
            event_recorded(2, correlation=3, stream=7),
        ],
        sync=[event_awaited(40, 41, 1, correlation=4)],
        kernels=[kernel(200, 210, correlation=5), kernel(300, 310, correlation=6)],
    )
    copy = redact(source, tmp_path / "copy.sqlite", from_ns=150).target
    kept = rows_of(copy, "SELECT start FROM CUPTI_ACTIVITY_KIND_RUNTIME ORDER BY start")
    assert kept == [(20,), (40,), (50,), (70,)]
    assert read(copy).event_waits["awaited_stream_id"].to_list() == [13]
    # The second kernel did not wait for the event.
    copy = redact(source, tmp_path / "later.sqlite", from_ns=250).target
    assert read(copy).event_waits.is_empty()


def test_overheads_marks_and_domains_of_a_window(tmp_path):
    source = export(
        tmp_path / "t.sqlite",
        kernels=[kernel(100, 110), kernel(300, 310)],
        profiler_overhead=[profiler_overhead("a", 10, 20), profiler_overhead("b", 190, 220)],
        nvtx=[mark("early", 50), mark("late", 250), push("p", 205, 290, domain="d")],
    )
    copy = read(redact(source, tmp_path / "copy.sqlite", from_ns=200).target)
    assert copy.overhead["name"].to_list() == ["b"]
    assert copy.nvtx.select("name", "domain").rows() == [("p", "d"), ("late", None)]


def test_a_window_that_alone_says_nothing_is_refused(tmp_path):
    """The host is far ahead: what it launches in the window runs after it."""
    calls = [api(LAUNCH, 10 * n, 10 * n + 5, correlation=n) for n in range(1, 21)]
    kernels = [kernel(200, 210, correlation=99)]
    kernels += [kernel(1000 + 10 * n, 1005 + 10 * n, correlation=n) for n in range(1, 21)]
    source = export(tmp_path / "t.sqlite", api=calls, kernels=kernels)
    with pytest.raises(WindowError, match=r"alone cannot be analysed \(.*\); take a wider one"):
        redact(source, tmp_path / "copy.sqlite", from_ns=100, to_ns=300)
    assert names_in(tmp_path) == ["t.sqlite"]


def test_a_window_without_graphs_of_an_old_recording_in_node_granularity(tmp_path):
    kernels = [kernel(10, 20), kernel(30, 40), kernel(1000, 1010, node=1 << 32)]
    source = export(tmp_path / "t.sqlite", "2.9.1", kernels=kernels)
    done = redact(source, tmp_path / "copy.sqlite", to_ns=500)
    assert [row["idle_ns"] for row in done.figures["devices"]] == [10]
    assert (read(source).meta.granularity, read(done.target).meta.granularity) == ("node", None)


def test_a_window_of_an_export_without_all_columns(tmp_path):
    source = export(tmp_path / "t.sqlite", nvtx=[push("x", 0, 9000)], **launched((1000, 1100)))
    with closing(sqlite3.connect(source)) as db:
        for column in ("graphNodeId", "contextId", "greenContextId"):
            db.execute(f"ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN {column}")
        db.execute("ALTER TABLE TARGET_INFO_CUDA_DEVICE DROP COLUMN pid")
        db.commit()
    done = redact(source, tmp_path / "copy.sqlite", from_ns=900)
    assert [row["busy_ns"] for row in done.figures["devices"]] == [100]


# What cannot be done leaves nothing behind


@pytest.mark.parametrize(
    ("window", "error", "said"),
    [
        ({"range_name": "stp"}, WindowError, "no NVTX range is named stp; there are: step"),
        ({"from_ns": 50_000}, WindowError, "no device work between 50000 and"),
        ({"from_ns": 900, "to_ns": 800}, WindowError, "no device work between 900 and 800 ns"),
        ({"from_ns": 3000, "to_ns": 4000}, WindowError, "device work runs from 1000 ns to 2000 ns"),
    ],
)
def test_windows_that_are_not_there(tmp_path, window, error, said):
    source = export(tmp_path / "t.sqlite", nvtx=[push("step", 1, 5000)], **launched((1000, 2000)))
    with pytest.raises(error, match=said):
        redact(source, tmp_path / "copy.sqlite", **window)
    assert names_in(tmp_path) == ["t.sqlite"]


def test_a_window_of_a_trace_without_device_work(tmp_path):
    source = export(tmp_path / "t.sqlite", api=[api("cuInit", 1, 2)])
    with pytest.raises(NotRecordedError, match=f"^{source}: 1 CUDA API calls"):
        redact(source, tmp_path / "copy.sqlite", from_ns=0)
    assert names_in(tmp_path) == ["t.sqlite"]


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
    with pytest.raises(GaptraceError, match="cannot write the copy there"):
        redact(source, folder / "copy.sqlite")
    assert names_in(folder) == []


# The command


def test_the_command_says_what_it_did(tmp_path, capsys):
    source = a_full_export(tmp_path / "full.sqlite", "3.20.3")
    copy = tmp_path / "copy.sqlite"
    assert main(["redact", str(source), "-o", str(copy)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    said = " ".join(out.split())
    assert f"{copy}: " in said
    assert "same figures as full.sqlite device 0 (NVIDIA H200): busy " in said
    assert "PROCESSES (1)" in said
    assert "TARGET_INFO_SESSION_START_TIME (1)" in said
    assert "ThreadNames (2)" in said
    assert "TARGET_INFO_SYSTEM_ENV (2 of 6)" in said
    assert "busLocation" in said
    assert "uuid" in said
    assert "like secrets: --password, API_KEY, HF_TOKEN" in said
    assert "2 names of threads" in said
    assert "of them as hidden 1, hidden 2 ...; what the recorder complained of" in said
    assert "planted" not in out.replace(str(copy), "")
    assert max(map(len, out.splitlines())) <= 100


def test_the_command_with_a_window(tmp_path, capsys):
    rows = launched((1000, 2000), (3000, 4000), (900_000, 900_500))
    source = export(tmp_path / "t.sqlite", **rows)
    copy = tmp_path / "copy.sqlite"
    assert main(["redact", str(source), "-o", str(copy), "--from", "2us", "--to", "10us"]) == 0
    out, _ = capsys.readouterr()
    assert "same figures as t.sqlite from 2000 to 10000 ns (8.00 us)" in out
    assert "CUPTI_ACTIVITY_KIND_KERNEL (2 of 3)" in out
    assert rows_of(copy, "SELECT start FROM CUPTI_ACTIVITY_KIND_KERNEL") == [(3000,)]


def test_the_command_on_a_trace_without_figures(tmp_path, capsys):
    source = export(tmp_path / "t.sqlite", api=[api("cuInit", 1, 2)])
    assert main(["redact", str(source), "-o", str(tmp_path / "copy.sqlite")]) == 0
    out, _ = capsys.readouterr()
    assert "same answer as t.sqlite, no figures: 1 CUDA API calls (0 launches)" in out


def test_a_copy_of_a_copy_has_little_to_leave_out(tmp_path, capsys):
    source = export(tmp_path / "t.sqlite", "pre-2022", **launched((1000, 2000)))
    once, twice = tmp_path / "once.sqlite", tmp_path / "twice.sqlite"
    main(["redact", str(source), "-o", str(once)])
    capsys.readouterr()
    assert main(["redact", str(once), "-o", str(twice)]) == 0
    assert "nothing was to leave out" in capsys.readouterr().out
    assert twice.read_bytes() == once.read_bytes()


def test_failures_of_the_command(tmp_path, capsys):
    source = export(tmp_path / "t.sqlite", **launched((1000, 2000)))
    assert main(["redact", str(source), "-o", str(source)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        f"gaptrace: error: {source}: exists already; name a file that does not exist yet\n"
    )
    assert main(["redact", str(tmp_path / "no.sqlite"), "-o", str(tmp_path / "c.sqlite")]) == 1
    assert "no such file" in capsys.readouterr().err
    assert main(["redact", str(source)]) == 2
    assert "--output" in capsys.readouterr().err
    assert names_in(tmp_path) == ["t.sqlite"]


def test_a_report_is_exported_first(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(install_fake_nsys(tmp_path / "bin").parent), prepend=os.pathsep)
    made = a_full_export(tmp_path / "made.sqlite", "3.20.3")
    monkeypatch.setenv("FAKE_NSYS_EXPORT", str(made))
    folder = tmp_path / "run"
    folder.mkdir()
    report = folder / "run.nsys-rep"
    report.write_text("fake report")
    assert main(["redact", str(report), "-o", str(folder / "copy.sqlite")]) == 0
    assert "same figures as run.sqlite" in capsys.readouterr().out
    assert names_in(folder) == ["copy.sqlite", "run.nsys-rep", "run.sqlite"]
    assert b"planted" not in (folder / "copy.sqlite").read_bytes()


@pytest.mark.nsys
def test_nothing_of_a_real_recording_is_left(tmp_path):
    nsys = real_nsys()
    script = tmp_path / "program_planted_path.py"
    script.write_text("import sys; print('planted_out'); print('planted_err', file=sys.stderr)\n")
    planted = {"HF_TOKEN": "planted_token", "USER": "planted_user", "HARMLESS": "planted_value"}
    record = [nsys.path, "profile", "-t", "nvtx,osrt", "--sample=none", "-o", tmp_path / "run"]
    program = [sys.executable, script, "--key=planted_argument"]
    export_it = [nsys.path, "export", "--type=sqlite", f"--output={tmp_path / 'run.sqlite'}"]
    for command in ([*record, *program], [*export_it, tmp_path / "run.nsys-rep"]):
        subprocess.run(command, env=os.environ | planted, check=True, capture_output=True)
    assert (tmp_path / "run.sqlite").read_bytes().count(b"planted_") > 8

    done = redact(tmp_path / "run.sqlite", tmp_path / "copy.sqlite")
    assert b"planted_" not in done.target.read_bytes()
    assert {"HF_TOKEN", "--key"} <= set(done.secrets) | {"--key"}
    assert {"HARMLESS", "HF_TOKEN", "USER"} <= set(done.variables)
    assert done.dropped.texts["outputs of programs"] == 2
