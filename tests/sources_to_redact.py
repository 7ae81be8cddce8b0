"""Exports to redact: small ones, and ones that tell something in every place where they can."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from export_schema import tables
from exports import (
    VM,
    api,
    diagnostic,
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

from gaptrace.read import read
from gaptrace.read.sqlite import ExportFile
from gaptrace.redact.kept import TEXTS

LAUNCH, GRAPH_LAUNCH = "cudaLaunchKernel_v7000", "cudaGraphLaunch_v10000"
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


def launched(*times: tuple[int, int], step: int = 1000) -> dict[str, list[dict[str, object]]]:
    """Kernels at these times, each launched 500 ns before."""
    numbered = list(enumerate(times, 1))
    return {
        "api": [api(LAUNCH, start - 500, start - 400, correlation=n) for n, (start, _) in numbered],
        "kernels": [kernel(start, end, correlation=n) for n, (start, end) in numbered],
    }


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
