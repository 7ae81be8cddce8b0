"""The `Trace`: one frozen record of everything observed, whichever recorder wrote it.

Every frame has a schema below. Times are integer nanoseconds since the session began, spans are
half open `[start_ns, end_ns)`, ids are the recorder's own 64-bit integers, missing is null.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import polars as pl

Granularity = Literal["graph", "node"]
DType = pl.DataType | type[pl.DataType]


def _schema(columns: Mapping[str, DType]) -> pl.Schema:
    return pl.Schema(columns)


#: Names repeat: each is stored once.
NAMES = pl.Categorical()
#: Kinds of device work.
OP_KINDS = pl.Enum(["kernel", "memcpy", "memset", "graph", "decompress"])
#: Where memory of a copy lies.
MEMORY_KINDS = pl.Enum(
    ["pageable", "pinned", "device", "array", "managed", "device static", "managed static"]
)
#: Kinds of API calls: launch submits a kernel, copy an asynchronous copy or a set, blocking_copy a
#: copy for which it waits, graph_launch a graph; wait makes the host wait for the device,
#: event_wait a stream for an event; graph_build makes, changes or destroys graphs (CALL_PHASES);
#: allocate makes memory, free gives it back to the driver.
CALL_KINDS = pl.Enum(
    [
        "launch",
        "copy",
        "blocking_copy",
        "graph_launch",
        "wait",
        "event_wait",
        "graph_build",
        "allocate",
        "free",
        "other",
    ]
)
#: Kinds of calls that submit device work.
SUBMITTING = ("launch", "copy", "blocking_copy", "graph_launch")
#: Phases of building graphs.
CALL_PHASES = pl.Enum(["capture", "instantiate", "update", "upload", "clone", "destroy"])

OPS = _schema(
    {
        # One device execution per row, sorted by start_ns.
        "op_id": pl.Int64,  # the row's number
        "kind": OP_KINDS,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "device_id": pl.Int64,  # the physical GPU or MIG slice, not the ordinal inside a process
        "process_id": pl.Int64,
        "context_id": pl.Int64,  # a green context's own, not its parent's
        "stream_id": pl.Int64,  # unique only within (process_id, device_id, context_id)
        "correlation_id": pl.Int64,  # unique only within process_id; null when there is none
        "call_id": pl.Int64,  # the call that launched it; null when that was not recorded
        "name": NAMES,  # short kernel name, copy direction, "memset", "graph"
        "graph_exec_id": pl.Int64,  # null for work that was not launched by a graph
        "graph_node_id": pl.Int64,  # null outside node granularity
        "bytes": pl.Int64,  # copies and sets
        "source_memory": MEMORY_KINDS,  # copies
        "target_memory": MEMORY_KINDS,
        "is_unified_memory": pl.Boolean,  # a migration by the driver; belongs to no stream
    }
)

API = _schema(
    {
        # One CUDA API call of the host per row, sorted by start_ns.
        "call_id": pl.Int64,  # the row's number
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "process_id": pl.Int64,
        "thread_id": pl.Int64,
        "correlation_id": pl.Int64,
        "name": NAMES,  # without version suffix: cudaGraphLaunch
        "kind": CALL_KINDS,
        "phase": CALL_PHASES,  # of graph_build
        "return_code": pl.Int64,  # 0: success
        # The call that began the stream capture in which this one was made, by the same thread;
        # null outside. A launch in a capture submits no work: it adds a node.
        "capture_id": pl.Int64,
    }
)

NVTX = _schema(
    {
        # One NVTX range or mark per row, sorted by start_ns.
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,  # null for marks
        "process_id": pl.Int64,
        "thread_id": pl.Int64,
        "domain": pl.String,  # null for the default domain and for one whose name was not kept
        "name": pl.String,
        "kind": pl.String,  # push_pop, start_end, mark
        "payload": pl.Float64,  # numbers only; exact up to 2**53
        "is_closed": pl.Boolean,  # false when the session ended before the range did
    }
)

OVERHEAD = _schema(
    {
        # Time that the recorder or the driver took from a host thread.
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "process_id": pl.Int64,
        "thread_id": pl.Int64,
        "name": pl.String,
        # profiler: exists only because of recording. driver: lazy loading, compiling; exists
        # without a recorder too. back_pressure: the launch queue was full.
        "kind": pl.String,
    }
)

EVENT_WAITS = _schema(
    {
        # One order to a stream to wait for an event (cudaStreamWaitEvent) per row.
        "call_id": pl.Int64,
        "process_id": pl.Int64,
        "context_id": pl.Int64,
        "stream_id": pl.Int64,  # the stream that waits
        "event_id": pl.Int64,
        # The stream of this context on which the event was recorded last; null when not known,
        # or in another context.
        "awaited_stream_id": pl.Int64,
        "recorded_call_id": pl.Int64,  # the call that recorded it there; null when not known
    }
)

GRAPH_EVENTS = _schema(
    {
        # Creation of graphs, graph execs and nodes, as host instants.
        "time_ns": pl.Int64,
        "process_id": pl.Int64,
        "thread_id": pl.Int64,
        "event": pl.String,  # graph, exec, node
        "graph_id": pl.Int64,
        "graph_exec_id": pl.Int64,
        "graph_node_id": pl.Int64,
    }
)

DEVICES = _schema(
    {
        # One physical GPU, or one MIG slice of one, per row.
        "device_id": pl.Int64,
        "name": pl.String,
        "sm_count": pl.Int64,
        "memory_bytes": pl.Int64,
        "compute_capability": pl.String,
    }
)


@dataclass(frozen=True)
class TraceWarning:
    """Something a reader of the figures must know.

    Attributes:
        code: stable, for machines.
        message: one sentence, for people.
    """

    code: str
    message: str


@dataclass(frozen=True)
class Meta:
    """What is known of the recording itself.

    Attributes:
        path: the file that was read.
        format: `nsys-sqlite`, or `gaptrace-cupti` when gaptrace's own recorder wrote it.
        product_version: of the exporter; the capture may be older. Of CUPTI in `gaptrace-cupti`.
        schema_version: as three numbers, null before 2022.
        granularity: `graph` when a graph execution is one op, `node` when each of its nodes is;
            null when nothing in the file tells (no graph was launched, or an old recorder).
        duration_ns: length of the session.
        driver: version of the NVIDIA driver.
        cuda: CUDA version of that driver, as `13.0`.
        cpu: the host processor.
        os: the host's operating system.
    """

    path: str
    format: str
    product_version: str | None = None
    schema_version: str | None = None
    granularity: Granularity | None = None
    duration_ns: int | None = None
    driver: str | None = None
    cuda: str | None = None
    cpu: str | None = None
    os: str | None = None


@dataclass(frozen=True)
class Trace:
    """Everything observed in one recording. Readers make it; analyses never change it.

    Attributes:
        meta: the recording.
        ops: device executions (`OPS`).
        api: CUDA API calls (`API`).
        nvtx: ranges and marks (`NVTX`).
        overhead: time taken by recorder or driver (`OVERHEAD`).
        event_waits: streams that wait for events (`EVENT_WAITS`).
        graph_events: creation of graphs, execs, nodes (`GRAPH_EVENTS`).
        devices: physical GPUs (`DEVICES`).
        warnings: what the reader met on the way.
    """

    meta: Meta
    ops: pl.DataFrame
    api: pl.DataFrame
    nvtx: pl.DataFrame
    overhead: pl.DataFrame
    event_waits: pl.DataFrame
    graph_events: pl.DataFrame
    devices: pl.DataFrame
    warnings: tuple[TraceWarning, ...] = ()
