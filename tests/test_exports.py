"""The export builder itself: against the real exports in $GAPTRACE_TRACES, and on its own words.

GAPTRACE_TRACES names a folder with real Nsight Systems exports (*.sqlite, one level deep or two).
"""

import os
from functools import cache
from pathlib import Path

import pytest
from contents import rows_of
from export_schema import SCHEMAS, tables, version
from exports import api, export, global_id, graph_made, graph_trace, kernel, node_made, push

REAL = os.environ.get("GAPTRACE_TRACES")
#: Columns that a public 2.9.1 file got after its export; no exporter writes them.
ADDED = {("CUPTI_ACTIVITY_KIND_RUNTIME", "name"), ("CUPTI_ACTIVITY_KIND_MEMCPY", "name")}


def columns_of(path: Path) -> dict[str, dict[str, tuple[object, bool]]]:
    """Return {table: {column: (type, not null)}} in file order."""
    return {
        str(table): {
            str(name): (kind, bool(needed))
            for _, name, kind, needed, _, _ in rows_of(path, f"PRAGMA table_info({table})")
        }
        for (table,) in rows_of(path, "SELECT name FROM sqlite_master WHERE type = 'table'")
    }


@cache
def real_files() -> dict[str, list[Path]]:
    """Return {schema: real exports of it}; those without a version are all `pre-2022`."""
    found: dict[str, list[Path]] = {}
    for path in sorted(Path(REAL or "").glob("**/*.sqlite")):
        meta = columns_of(path).keys() & {"META_DATA_EXPORT", "EXPORT_META_DATA"}
        ask = "SELECT value FROM {} WHERE name = 'EXPORT_SCHEMA_VERSION'"
        schema = rows_of(path, ask.format(*meta))[0][0] if meta else "pre-2022"
        found.setdefault(str(schema), []).append(path)
    return found


@pytest.mark.parametrize("schema", SCHEMAS)
def test_tables_and_columns_are_those_of_real_files_of_that_generation(tmp_path, schema):
    if not REAL:
        pytest.skip("GAPTRACE_TRACES names no folder with real exports")
    if schema not in real_files():
        pytest.skip(f"no real export of schema {schema} in GAPTRACE_TRACES")
    built = columns_of(export(tmp_path / "t.sqlite", schema, lazy=False))
    compared = set()
    for path in real_files()[schema]:
        for table, real in columns_of(path).items():
            if table in built:
                same = {name: kind for name, kind in real.items() if (table, name) not in ADDED}
                assert list(built[table].items()) == list(same.items()), f"{table} of {path.name}"
                compared.add(table)
    assert len(compared) > 5


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_table_of_a_schema_can_be_written(tmp_path, schema):
    path = export(tmp_path / "t.sqlite", schema, lazy=False)
    assert columns_of(path).keys() == {"StringIds"} | {name for name, _ in tables(schema).values()}


def test_lazy_files_hold_only_tables_with_rows(tmp_path):
    path = export(tmp_path / "t.sqlite", kernels=[kernel(1, 2)])
    assert columns_of(path).keys() == {
        "StringIds",
        "CUPTI_ACTIVITY_KIND_KERNEL",
        "TARGET_INFO_GPU",
        "TARGET_INFO_CUDA_DEVICE",
        "ANALYSIS_DETAILS",
        "META_DATA_CAPTURE",
        "META_DATA_EXPORT",
    }


def test_names_are_ids_of_strings(tmp_path):
    path = export(
        tmp_path / "t.sqlite",
        api=[api("cudaLaunchKernel_v7000", 1, 2), api("cudaLaunchKernel_v7000", 3, 4)],
        kernels=[kernel(5, 6, name="scale")],
    )
    strings = rows_of(path, "SELECT value FROM StringIds ORDER BY value")
    assert strings == [("cudaLaunchKernel_v7000",), ("scale",)]
    joined = "SELECT value FROM StringIds JOIN {} ON StringIds.id = {}"
    calls = rows_of(path, joined.format("CUPTI_ACTIVITY_KIND_RUNTIME", "nameId"))
    assert calls == [("cudaLaunchKernel_v7000",)] * 2


def test_a_literal_row_arrives_as_written(tmp_path):
    row = kernel(100, 200, correlation=3, stream=13, device=1, pid=7, node=5, gridX=64)
    path = export(tmp_path / "t.sqlite", kernels=[row])
    sql = (
        "SELECT start, end, correlationId, streamId, deviceId, contextId, globalPid, graphNodeId, "
        "gridX, gridY, launchType FROM CUPTI_ACTIVITY_KIND_KERNEL"
    )
    expected = (100, 200, 3, 13, 1, 1, (1 << 48) + (7 << 24), 5, 64, 0, None)
    assert rows_of(path, sql) == [expected]


def test_a_table_that_a_generation_lacks_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"no graph_traces in schema 3\.7\.2"):
        export(tmp_path / "t.sqlite", "3.7.2", graph_traces=[graph_trace(1, 2)])


def test_a_column_that_a_generation_lacks_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no column greenContextId in CUPTI_ACTIVITY_KIND_KERNEL"):
        export(tmp_path / "t.sqlite", "3.4.0", kernels=[kernel(1, 2, greenContextId=1)])


def test_the_name_of_the_table_of_graph_nodes_changed(tmp_path):
    old = export(tmp_path / "old.sqlite", "3.7.2", node_events=[node_made(5, node=1)])
    new = export(
        tmp_path / "new.sqlite", node_events=[node_made(5, 1)], graph_events=[graph_made(4, 9)]
    )
    assert rows_of(old, "SELECT start, graphNodeId FROM CUDA_GRAPH_EVENTS") == [(5, 1)]
    assert rows_of(new, "SELECT start, graphNodeId FROM CUDA_GRAPH_NODE_EVENTS") == [(5, 1)]
    assert rows_of(new, "SELECT start, graphId FROM CUDA_GRAPH_EVENTS") == [(4, 9)]


def test_domains_given_by_name_are_numbered_per_process(tmp_path):
    path = export(
        tmp_path / "t.sqlite",
        nvtx=[
            push("a", 1, 2, domain="mine"),
            push("b", 3, 4, domain="yours"),
            push("c", 5, 6, domain="mine"),
            push("d", 7, 8, domain="mine", pid=200),
            push("e", 9, 10),
        ],
    )
    pid = "globalTid >> 24 & 16777215"
    made = rows_of(path, f"SELECT text, domainId, {pid} FROM NVTX_EVENTS WHERE eventType = 75")
    assert made == [("mine", 1, 100), ("yours", 2, 100), ("mine", 1, 200)]
    used = rows_of(path, "SELECT text, domainId FROM NVTX_EVENTS WHERE eventType = 59")
    assert used == [("a", 1), ("b", 2), ("c", 1), ("d", 1), ("e", 0)]


def test_ids_with_the_top_bit_are_stored_negative():
    assert global_id(100, 100) == 0x0001_000064_000064
    assert global_id(0, 0, hw=0xFE) == (0xFE01 << 48) - (1 << 64)


def test_schemas_are_in_the_order_of_their_versions():
    assert list(SCHEMAS) == sorted(SCHEMAS, key=version)
