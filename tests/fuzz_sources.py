"""Small sound exports from which `fuzz` makes broken ones: several schemas, and cuts of samples."""

import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import cache, partial
from pathlib import Path

from export_schema import tables
from exports import (
    Row,
    api,
    cuda_device,
    diagnostic,
    event_awaited,
    event_recorded,
    export,
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

SAMPLES = Path(__file__).parent.parent / "sample_traces"
LAUNCH, GRAPH_LAUNCH = "cudaLaunchKernel_v7000", "cudaGraphLaunch_v10000"


def _rows(granularity: str) -> dict[str, list[Row]]:
    """Two processes, two devices, eight steps of two launches, a copy and a graph.

    In schemas that have the columns, the devices are MIG slices, and copies run in a green context.
    """
    calls, kernels, copies, graphs, ranges = [], [], [], [], []
    for step in range(8):
        at, first = 10_000 * step, 10 * step + 1
        whose = {"pid": 100 + step % 2}
        where = whose | {"device": step % 2}
        ranges.append(push("step", at, at + 9_000, domain="loop", registered=True, **whose))
        ranges.append(push("part", at + 10, at + 4_000, int64Value=step, **whose))
        calls += [
            api(LAUNCH, at + 100, at + 300, correlation=first, **whose),
            api("cudaMemcpyAsync_v3020", at + 400, at + 500, correlation=first + 1, **whose),
            api(GRAPH_LAUNCH, at + 600, at + 900, correlation=first + 2, **whose),
            api("cudaStreamSynchronize_v3020", at + 900, at + 5_000, correlation=first + 3),
        ]
        kernels.append(kernel(at + 500, at + 1_500, correlation=first, **where))
        green = {"srcKind": 1, "greenContextId": 4}
        copies.append(memcpy(at + 1_600, at + 1_800, correlation=first + 1, **green, **where))
        if granularity == "graph":
            graphs.append(graph_trace(at + 2_000, at + 4_500, correlation=first + 2, **where))
        else:
            kernels += [
                kernel(
                    at + 2_000 + 500 * i,
                    at + 2_400 + 500 * i,
                    correlation=first + 2,
                    node=2 * 2**32 + i,
                    name=f"node{i}",
                    **where,
                )
                for i in range(5)
            ]
    build = [("StreamBeginCapture", 1), ("StreamEndCapture", 2), ("GraphInstantiate", 3)]
    calls += [api(f"cuda{name}_v10000", 20 * i, 20 * i + 9) for name, i in build]
    calls.append(api("cudaStreamWaitEvent_v3020", 70_000, 70_010, correlation=97))
    calls.append(api("cudaEventRecord_v3020", 69_000, 69_010, correlation=98))
    ranges += [start_end("session", 5, 80_000), mark("here", 50), push("open", 1, None)]
    return {
        "api": calls,
        "kernels": kernels,
        "memcpys": copies,
        "memsets": [memset(9_600, 9_700, correlation=0)],
        "graph_traces": graphs,
        "nvtx": ranges,
        "sync": [sync(900, 5_000, correlation=4), event_awaited(1, 1, 3, correlation=97)],
        "event_records": [event_recorded(3, correlation=98)],
        "overhead": [overhead("Lazy loading", 20, 90)],
        "profiler_overhead": [profiler_overhead("Buffer flush", 5_000, 5_400)],
        "graph_events": [graph_made(30, 1), graph_exec_made(40, 1, 2)],
        "node_events": [node_made(25, 2 * 2**32 + 1)],
        "diagnostics": [diagnostic("Buffers were lost")],
        "gpus": [gpu(0), gpu(1)],
        "cuda_devices": [
            cuda_device(i, i, pid) | {"uuid": f"MIG-{i}{pid}", "numMultiprocessors": 60}
            for i in (0, 1)
            for pid in (100, 101)
        ],
        "capture": [named("PROCESS_0:ENVIRONMENT_VARIABLE", 'HF_TOKEN="of ten and more"')],
    }


@cache
def _built(schema: str, granularity: str) -> bytes:
    known = tables(schema)
    rows = {key: given for key, given in _rows(granularity).items() if key in known and given}
    if "id" not in known["gpus"][1]:
        del rows["gpus"]
    for key, given in rows.items():
        columns = known[key][1]
        rows[key] = [{name: row[name] for name in row if name in columns} for row in given]
    with tempfile.TemporaryDirectory() as folder:
        path = export(Path(folder) / "t.sqlite", schema, granularity=granularity, **rows)
        return path.read_bytes()


@cache
def _cut(sample: str, rows: int) -> bytes:
    """Return a bundled sample with only the first rows of each table."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.sqlite"
        path.write_bytes((SAMPLES / sample).read_bytes())
        with closing(sqlite3.connect(path)) as db:
            found = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for (table,) in found:
                db.execute(f'DELETE FROM "{table}" WHERE rowid > {rows}')
            db.commit()
            db.execute("VACUUM")
        return path.read_bytes()


SOURCES: dict[str, Callable[[], bytes]] = {
    f"{schema} {granularity}": partial(_built, schema, granularity)
    for schema in ("2019", "pre-2022", "2.9.1", "3.1.7", "3.7.2", "3.13.2", "3.20.3", "3.25.0")
    for granularity in ("graph", "node")
    if granularity == "node" or "graph_traces" in tables(schema)
} | {
    f"first {rows} rows of {sample}": partial(_cut, f"{sample}.sqlite", rows)
    for sample in ("demo_graph", "demo_node", "decoder_node")
    for rows in (40, 300)
}
