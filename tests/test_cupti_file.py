"""From the spool of the CUPTI recorder to an export, and through the reader to a trace."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from exports import global_id
from spools import (
    END,
    PID,
    header,
    lost,
    made,
    record,
    records,
    texts,
    write_spool,
)

from gaptrace.analysis import analyze
from gaptrace.cli import main
from gaptrace.errors import NotRecordedError, RecorderError
from gaptrace.read import read
from gaptrace.record.cupti_file import convert
from gaptrace.record.kernel_names import demangled, short_name
from gaptrace.record.machine import Driver
from gaptrace.render.text import report

H200 = Driver("580.159.03", "13.0", ("NVIDIA H200",), None)
HOST = global_id(PID, PID)
LAUNCHED = (
    texts("_Z5scalePfi"),
    records("api", record("api", start=10, end=20, cbid=13, correlation_id=1)),
    records(
        "kernel",
        record("kernel", start=100, end=200, name="_Z5scalePfi", correlation_id=1),
    ),
)


def trace_of(tmp_path: Path, *parts: bytes, ended: bool = True):
    spool = write_spool(tmp_path / "graph.cupti", *parts)
    return read(convert(spool, tmp_path / "graph.sqlite", H200, ended=ended))


def table(tmp_path: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(tmp_path / "graph.sqlite")) as db:
        return db.execute(sql).fetchall()


def test_a_launch(tmp_path):
    trace = trace_of(tmp_path, header(), *LAUNCHED, END)
    assert trace.ops.rows() == [
        (
            *(0, "kernel", 100, 200, 0, global_id(PID), 1, 7, 1, 0, "scale"),
            *(None, None, None, None, None, False),
        )
    ]
    assert trace.api.rows() == [
        (0, 10, 20, global_id(PID), HOST, 1, "cudaLaunchKernel", "launch", None, 0, None)
    ]
    assert trace.warnings == ()
    assert table(tmp_path, "SELECT value FROM StringIds") == [
        ("scale(float*, int)",),
        ("scale",),
        ("_Z5scalePfi",),
        ("cudaLaunchKernel_v7000",),
    ]


def test_what_the_file_says_of_itself(tmp_path):
    meta = trace_of(tmp_path, header(), *LAUNCHED, END).meta
    assert (meta.format, meta.product_version) == ("gaptrace-cupti", "13.0")
    assert (meta.granularity, meta.duration_ns) == ("graph", 201)
    assert (meta.driver, meta.cuda) == ("580.159.03", "13.0")
    assert table(tmp_path, "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME") == [
        (1_700_000_000_000_000_000,)
    ]


def test_the_report_names_the_recorder(tmp_path):
    text = report(analyze(trace_of(tmp_path, header(), *LAUNCHED, END)), width=200, color=False)
    assert "NVIDIA H200, driver 580.159.03, CUDA 13.0, CUPTI 13.0 (schema 3.20.3)" in text
    assert "Nsight" not in text.splitlines()[1]


def test_copies_sets_and_copies_between_devices(tmp_path):
    copy = record(
        "memcpy", start=10, end=20, correlation_id=3, bytes=4, copy_kind=1, src_kind=1, dst_kind=3
    )
    peer = record(
        "memcpy_peer",
        start=30,
        end=40,
        correlation_id=4,
        bytes=8,
        copy_kind=10,
        src_kind=3,
        dst_kind=3,
        src_device_id=1,
        dst_device_id=0,
    )
    zero = record("memset", start=50, end=60, correlation_id=5, bytes=16, memory_kind=3)
    ops = trace_of(
        tmp_path,
        header(),
        records("memcpy", copy),
        records("memcpy_peer", peer),
        records("memset", zero),
        END,
    ).ops
    chosen = ops.select("name", "start_ns", "end_ns", "bytes", "source_memory", "target_memory")
    assert chosen.rows() == [
        ("copy HtoD", 10, 20, 4, "pageable", "device"),
        ("copy PtoP", 30, 40, 8, "device", "device"),
        ("memset", 50, 60, 16, None, None),
    ]
    copies = "SELECT srcDeviceId, dstDeviceId FROM CUPTI_ACTIVITY_KIND_MEMCPY ORDER BY start"
    assert table(tmp_path, copies) == [(None, None), (1, 0)]


def test_graph_executions_and_the_nodes_of_their_graph(tmp_path):
    # Two launches in a capture make a graph of two nodes; instantiating it makes a clone.
    calls = {**{20: "cudaGraphLaunch_ptsz_v10000", 13: "cudaLaunchKernel_v7000"}}
    calls |= {317: "cudaStreamBeginCapture_v10000", 318: "cudaStreamEndCapture_v10000"}
    rows = (
        record("api", start=0, end=2, cbid=317, correlation_id=1),
        record("api", start=3, end=4, cbid=13, correlation_id=2),
        record("api", start=5, end=6, cbid=13, correlation_id=3),
        record("api", start=7, end=9, cbid=318, correlation_id=4),
        record("api", start=50, end=60, cbid=20, correlation_id=9),
    )
    trace = trace_of(
        tmp_path,
        header(calls={5: calls, 4: {}}),
        made(1, "graph", 1),
        made(20, "graph", 2, 1),
        made(21, "exec", 1, 2),
        records("api", *rows),
        records(
            "graph_trace", record("graph_trace", start=70, end=90, graph_id=2, correlation_id=9)
        ),
        END,
    )
    assert trace.ops.select("kind", "graph_exec_id", "call_id").rows() == [("graph", 2, 4)]
    assert trace.api["name"][4] == "cudaGraphLaunch"
    assert trace.graph_events.select("time_ns", "event", "graph_id", "graph_exec_id").rows() == [
        (1, "graph", 1, None),
        (20, "graph", 2, None),
        (21, "exec", 1, 2),
    ]
    assert analyze(trace).graphs.select("graph_exec_id", "nodes").rows() == [(2, 2)]


def test_nodes(tmp_path):
    node = 2 << 32 | 5
    trace = trace_of(
        tmp_path,
        header("node"),
        texts("scale"),
        records("kernel", record("kernel", start=1, end=2, name="scale", graph_node_id=node)),
        END,
    )
    assert trace.meta.granularity == "node"
    assert trace.ops.select("name", "graph_exec_id", "graph_node_id").rows() == [("scale", 2, node)]


def test_waits_and_recorded_events(tmp_path):
    trace = trace_of(
        tmp_path,
        header(),
        *LAUNCHED,
        records("api", record("api", kind=4, start=30, end=31, cbid=1, correlation_id=5)),
        records("api", record("api", kind=4, start=40, end=41, cbid=295, correlation_id=6)),
        records("cuda_event", record("cuda_event", correlation_id=5, event_id=3, stream_id=7)),
        records(
            "synchronization",
            record("synchronization", start=40, end=41, type=2, correlation_id=6, stream_id=8,
                   cuda_event_id=3),
        ),
        END,
    )  # fmt: skip
    waits = trace.event_waits.select("call_id", "stream_id", "event_id", "awaited_stream_id")
    assert waits.rows() == [(2, 8, 3, 7)]
    assert trace.api["name"][1] == "call 1"  # a number that this cupti-python does not know


def test_overheads(tmp_path):
    rows = (
        record("overhead", start=5, end=6, overhead_kind=5 << 16, object_kind=2,
               **{"object_id.pt.thread_id": PID}),
        record("overhead", start=7, end=8, overhead_kind=1 << 16, object_kind=1),
    )  # fmt: skip
    trace = trace_of(tmp_path, header(), *LAUNCHED, records("overhead", *rows), END)
    chosen = trace.overhead.select("start_ns", "end_ns", "thread_id", "name", "kind")
    assert chosen.rows() == [
        (5, 6, HOST, "lazy function loading", "driver"),
        (7, 8, global_id(PID), "buffer flush", "profiler"),
    ]


def test_gpus_from_the_recording(tmp_path):
    uuid = bytes(range(16))
    device = record("device", id=0, name="NVIDIA H200", num_multiprocessors=132,
                    global_memory_size=150 << 30, compute_capability_major=9,
                    uuid=uuid)  # fmt: skip
    trace = trace_of(
        tmp_path, header(), texts("NVIDIA H200"), records("device", device, device), *LAUNCHED, END
    )
    assert trace.devices.rows() == [(0, "NVIDIA H200", 132, 150 << 30, "9.0")]
    assert table(tmp_path, "SELECT gpuId, cudaId, pid, uuid FROM TARGET_INFO_CUDA_DEVICE") == [
        (0, 0, PID, "00010203-0405-0607-0809-0a0b0c0d0e0f")
    ]


# One row per call


def names(trace) -> list[str]:
    return trace.api["name"].cast(str).to_list()


def test_a_driver_call_inside_a_runtime_call_is_left_out(tmp_path):
    rows = (
        record("api", start=10, end=20, cbid=13, correlation_id=1),
        record("api", kind=4, start=12, end=19, cbid=307, correlation_id=1),
        record("api", kind=4, start=30, end=40, cbid=307, correlation_id=2),
        # Another thread is not inside it.
        record("api", kind=4, start=13, end=14, cbid=307, correlation_id=3, thread_id=101),
    )
    trace = trace_of(tmp_path, header(), *LAUNCHED[::2], records("api", *rows), END)
    assert names(trace) == ["cudaLaunchKernel", "cuLaunchKernel", "cuLaunchKernel"]


def test_a_driver_call_that_the_work_is_linked_to_stays(tmp_path):
    rows = (
        record("api", start=10, end=20, cbid=13, correlation_id=9),
        record("api", kind=4, start=12, end=19, cbid=307, correlation_id=1),
    )
    trace = trace_of(tmp_path, header(), *LAUNCHED[::2], records("api", *rows), END)
    assert names(trace) == ["cudaLaunchKernel", "cuLaunchKernel"]
    assert trace.ops["call_id"].to_list() == [1]


# NVTX


def marker(flags: int, when: int, number: int, name: str | int = 0, domain: str | int = 0, **at):
    thread = {"object_id.pt.thread_id": at.get("thread", PID)}
    return record("marker", flags_=flags, timestamp=when, id=number, name=name, domain=domain,
                  object_kind=2, **thread)  # fmt: skip


START, STOP, MARK = 2, 4, 1


def ranges(tmp_path, *rows: bytes, payloads: tuple[bytes, ...] = ()):
    said = texts("step", "inner", "capture", "gaptrace", "here", "plain", "NVTX", "mine", "user")
    parts = [records("marker", *rows), *([records("marker_data", *payloads)] if payloads else [])]
    nvtx = trace_of(tmp_path, header(), said, *LAUNCHED, *parts, END).nvtx
    return nvtx.select(
        "start_ns", "end_ns", "domain", "name", "kind", "payload", "is_closed"
    ).rows()


def test_ranges_of_domains_with_payloads(tmp_path):
    found = ranges(
        tmp_path,
        marker(START, 10, 1, "step", "gaptrace"),
        marker(START, 12, 2, "inner"),
        marker(STOP, 14, 2),
        marker(STOP, 20, 1),
        marker(MARK, 30, 3, "here"),
        payloads=(
            record("marker_data", id=1, payload_kind=4, **{"payload.metric_value_int64": 7}),
            record("marker_data", id=2, payload_kind=1),  # none
            record("marker_data", id=3, payload_kind=0, **{"payload.metric_value_double": 0.5}),
        ),
    )
    assert found == [
        (10, 20, "gaptrace", "step", "push_pop", 7.0, True),
        (12, 14, None, "inner", "push_pop", None, True),
        (30, None, None, "here", "mark", 0.5, True),
    ]


def test_a_range_that_never_ends(tmp_path):
    assert ranges(tmp_path, marker(START, 10, 1, "step")) == [
        (10, 201, None, "step", "push_pop", None, False)
    ]


def test_ranges_that_cannot_have_been_pushed(tmp_path):
    found = ranges(
        tmp_path,
        # The second ends after the first, in which it began.
        *(marker(START, 10, 1, "step"), marker(START, 15, 2, "inner")),
        *(marker(STOP, 20, 1), marker(STOP, 25, 2)),
        # It ends on another thread.
        *(marker(START, 30, 3, "step"), marker(STOP, 40, 3, thread=101)),
        # As gaptrace marks captures.
        *(marker(START, 50, 4, "capture", "gaptrace"), marker(STOP, 60, 4)),
    )
    assert [row[3:5] for row in found] == [
        ("step", "push_pop"),
        ("inner", "start_end"),
        ("step", "start_end"),
        ("capture", "start_end"),
    ]


# What is missing


def test_times_that_were_not_collected_stay_unknown(tmp_path):
    missing = record("kernel", start=0, end=0, name="_Z5scalePfi", correlation_id=2)
    trace = trace_of(tmp_path, header(), *LAUNCHED, records("kernel", missing), END)
    assert trace.ops.height == 1
    assert [warning.code for warning in trace.warnings] == ["invalid_times"]


@pytest.mark.parametrize("ending", [b"", END[:3]])
def test_a_spool_without_its_end(tmp_path, ending):
    trace = trace_of(tmp_path, header(), *LAUNCHED, ending)
    assert trace.ops.height == 1
    (warning,) = trace.warnings
    assert warning.code == "recorder_diagnostic"
    assert warning.message.startswith("The recording breaks off: ")


def test_a_spool_cut_off_anywhere_keeps_what_was_complete(tmp_path):
    first = record("kernel", start=100, end=200, name="_Z5scalePfi", correlation_id=1)
    second = record("kernel", start=300, end=400, name="_Z5scalePfi", correlation_id=2)
    before = header() + LAUNCHED[0] + LAUNCHED[1]
    frames = records("kernel", first, second)
    kept = {}
    for length in (*range(0, len(frames), 8), len(frames)):
        folder = tmp_path / str(length)
        folder.mkdir()
        try:
            trace = trace_of(folder, before, frames[:length])
        except NotRecordedError:
            kept[length] = 0
            continue
        kept[length] = trace.ops.height
        assert [warning.code for warning in trace.warnings] == ["recorder_diagnostic"]
    head = len(frames) - len(first) - len(second)
    assert kept == {length: sum(length >= head + n * len(first) for n in (1, 2)) for length in kept}


def test_a_program_that_was_killed_after_its_recording_ended(tmp_path):
    (warning,) = trace_of(tmp_path, header(), *LAUNCHED, END, ended=False).warnings
    assert warning.message.startswith("The recording breaks off: ")


def test_what_was_lost_is_said(tmp_path):
    trace = trace_of(
        tmp_path,
        header(),
        *LAUNCHED,
        lost(dropped=3),
        lost(dropped=4),
        lost(unread_bytes=88),
        lost(left_out={"graphs made": "cuptiSubscribe failed with 39"}),
        END,
    )
    assert [warning.message for warning in trace.warnings] == [
        "CUPTI had no room for 7 records, which are missing.",
        "88 bytes of CUPTI records could not be read.",
        "CUPTI did not record graphs made: cuptiSubscribe failed with 39.",
    ]


def test_graphs_that_are_older_than_the_recording_are_counted(tmp_path):
    ran = [
        record("graph_trace", start=at, end=at + 50, graph_id=number)
        for at, number in ((100, 4), (200, 5), (300, 5), (400, 8))
    ]
    known = made(1, "graph", 3) + made(2, "exec", 3, 4)
    trace = trace_of(tmp_path, header(), known, records("graph_trace", *ran), END)
    (warning,) = (w.message for w in trace.warnings if "before the recording" in w.message)
    assert warning.startswith("2 CUDA graphs that ran were made before the recording began: ")

    unknown = lost(left_out={"graphs made": "cuptiSubscribe failed with 39"})
    (tmp_path / "graph.sqlite").unlink()
    trace = trace_of(tmp_path, header(), unknown, records("graph_trace", *ran), END)
    assert [w.message for w in trace.warnings if "before the recording" in w.message] == []


def test_the_device_of_a_wait_in_a_context_that_is_older_than_the_recording(tmp_path):
    kernel = record("kernel", start=100, end=200, name="scale", device_id=1, context_id=3)
    wait = record("synchronization", start=210, end=220, context_id=3, type=4)
    parts = header(), texts("scale"), records("kernel", kernel), records("synchronization", wait)
    trace_of(tmp_path, *parts, END)
    asked = "SELECT deviceId FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
    assert table(tmp_path, asked) == [(1,)]


def test_records_of_a_newer_cupti(tmp_path):
    row = record("kernel", longer=40, start=100, end=200, name="scale", correlation_id=1)
    trace = trace_of(tmp_path, header(), texts("scale"), records("kernel", row, row), END)
    assert trace.ops.select("name", "start_ns", "end_ns").rows() == [("scale", 100, 200)] * 2


def test_a_pointer_that_leads_to_another_text_later(tmp_path):
    import json

    from spools import pointer

    from gaptrace.spool import frame

    again = frame(b"T", json.dumps({pointer("first"): "second"}).encode())
    row = record("kernel", start=100, end=200, name="first", correlation_id=1)
    later = record("kernel", start=300, end=400, name="first", correlation_id=2)
    trace = trace_of(
        tmp_path,
        header(),
        texts("first"),
        records("kernel", row),
        again,
        records("kernel", later),
        END,
    )
    assert trace.ops["name"].cast(str).to_list() == ["first", "second"]


def test_nothing_on_the_device(tmp_path):
    calls = records("api", record("api", start=10, end=20, cbid=13, correlation_id=1))
    with pytest.raises(NotRecordedError, match=r"1 CUDA API calls \(1 launches\) but no device"):
        trace_of(tmp_path, header(), calls, END)


@pytest.mark.parametrize("content", [b"", b"H", header()[:100], LAUNCHED[1]])
def test_no_recording(tmp_path, content):
    spool = tmp_path / "graph.cupti"
    spool.write_bytes(content)
    with pytest.raises(RecorderError, match=r"graph\.cupti: .*; record again$"):
        convert(spool, tmp_path / "graph.sqlite", H200, ended=True)
    assert not (tmp_path / "graph.sqlite").exists()


def test_a_folder_that_cannot_be_written(tmp_path):
    spool = write_spool(tmp_path / "graph.cupti", header(), *LAUNCHED, END)
    with pytest.raises(RecorderError, match="cannot write the export"):
        convert(spool, tmp_path / "absent" / "graph.sqlite", H200, ended=True)


def test_a_copy_to_share_is_still_one_of_cupti(tmp_path):
    trace_of(tmp_path, header(), *LAUNCHED, END)
    copy = tmp_path / "copy.sqlite"
    assert main(["redact", str(tmp_path / "graph.sqlite"), "-o", str(copy)]) == 0
    meta = read(copy).meta
    assert (meta.format, meta.product_version, meta.granularity) == (
        "gaptrace-cupti",
        "13.0",
        "graph",
    )


# Names of kernels


def test_demangling():
    assert demangled(["_Z5scalePfi", "cupy_add", "_Zrubbish"]) == {
        "_Z5scalePfi": "scale(float*, int)",
        "cupy_add": "cupy_add",
        "_Zrubbish": "_Zrubbish",
    }


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("scale(float*, int)", "scale"),
        ("cupy_add", "cupy_add"),
        ("void at::native::elementwise<4, at::F<(int)2> >(int, at::F<(int)2>)", "elementwise"),
        ("void (anonymous namespace)::softmax<float>(float*)", "softmax"),
        ("void a::b<c>::operator()<int>(int) const", "operator"),
        ("ncclKernel<a, (b<2>)>", "ncclKernel"),
        ("", ""),
    ],
)
def test_short_names(name, short):
    assert short_name(name) == short


def test_ends_of_copies_that_cannot_be_are_cut_and_said(tmp_path):
    """A copy has ended when the next work of its stream begins, and when a wait for it returns."""
    own = {"bytes": 16, "copy_kind": 8, "src_kind": 3, "dst_kind": 3}
    copies = (
        # Cut by the kernel that follows on its stream ...
        record("memcpy", start=10, end=900, correlation_id=1, stream_id=7, **own),
        # ... by the wait that was called after it (one called before says nothing) ...
        record("memcpy", start=100, end=900, correlation_id=5, stream_id=8, **own),
        # ... or not at all: what comes next is on another stream.
        record("memcpy", start=200, end=210, correlation_id=6, stream_id=9, **own),
        record("memcpy", start=300, end=900, correlation_id=7, stream_id=9, **own),
    )
    waits = (
        record("synchronization", start=90, end=95, type=3, correlation_id=4, stream_id=8),
        record("synchronization", start=105, end=140, type=3, correlation_id=8, stream_id=8),
        record("synchronization", start=150, end=160, type=3, correlation_id=9, stream_id=8),
        # A stream was told to wait for an event, and the host waited for one: of earlier work.
        record("synchronization", start=110, end=112, type=2, correlation_id=7, stream_id=8),
        record("synchronization", start=113, end=118, type=1, correlation_id=7, stream_id=8),
    )
    kernel = record("kernel", start=50, end=60, correlation_id=3, stream_id=7)
    trace = trace_of(
        tmp_path,
        header(),
        records("memcpy", *copies),
        records("synchronization", *waits),
        records("kernel", kernel),
        END,
    )
    found = trace.ops.filter(kind="memcpy").select("start_ns", "end_ns").rows()
    assert found == [(10, 50), (100, 140), (200, 210), (300, 900)]
    assert ["CUPTI gave 2 copies an end after" in w.message for w in trace.warnings] == [True]


def test_the_default_domain_has_no_name_again(tmp_path):
    rows = (
        *(marker(START, 10, 1, "plain", "NVTX"), marker(STOP, 20, 1)),
        *(marker(START, 30, 2, "mine", "user"), marker(STOP, 40, 2)),
    )
    found = ranges(tmp_path, *rows)
    assert [row[2:4] for row in found] == [(None, "plain"), ("user", "mine")]
