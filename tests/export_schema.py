"""The tables and columns that each generation of Nsight Systems exporters writes.

One list with the first schema of every table and column, so that a DDL of any generation can be
derived; `test_exports.py` holds it against real exports.
"""

import re

#: Schema -> product version; both generations without a version have no meta table at all.
SCHEMAS = {
    "2019": None,
    "pre-2022": None,
    "2.9.1": "2022.2.1.31",
    "3.0.0": "2022.4.2.1",
    "3.1.2": "2023.1.2.43",
    "3.1.7": "2023.2.3.0",
    "3.4.0": "2023.3.1.92",
    "3.6.0": "2023.4.1.97",
    "3.7.2": "2023.4.4.54",
    "3.13.2": "2024.5.1.113",
    "3.17.2": "2025.1.3.140",
    "3.20.3": "2025.3.2.474",
    "3.24.0": "2025.5.2.266",
    "3.25.0": "2026.2.1.210",
}
UNVERSIONED = {"2019": (0,), "pre-2022": (1,)}

_OP = "start! end! deviceId! contextId! greenContextId@3.7.2 streamId! correlationId globalPid "
_HOST = "start! end! eventClass! globalTid "
_NODE = _HOST + "nameId! graphNodeId! originalGraphNodeId"
_META = "name!:TEXT value:TEXT"
_CONTEXT = "hwId! vmId! processId! deviceId! contextId! "
_ENVIRONMENT = " devStateName!:TEXT name!:TEXT nameEnum! value!:TEXT"

#: (keyword of `export`, table, first schema, first schema without it, columns). In a column `!`
#: is NOT NULL, `:` the type where it is not INTEGER, `@` the first schema that has it and `<`
#: the first without it. The bounds are those of the files read, so a column may be older.
TABLES = [
    ("kernels", "CUPTI_ACTIVITY_KIND_KERNEL", "", "", _OP + """
        demangledName! shortName! mangledName@2.9.1 launchType cacheConfig registersPerThread!
        gridX! gridY! gridZ! blockX! blockY! blockZ! staticSharedMemory! dynamicSharedMemory!
        localMemoryPerThread! localMemoryTotal! gridId! sharedMemoryExecuted graphNodeId
        sharedMemoryLimitConfig qmdBulkReleaseDone@3.23.3 qmdPreexitDone@3.23.3
        qmdLastCtaDone@3.23.3 graphId@3.23.3 clusterX@3.23.3 clusterY@3.23.3 clusterZ@3.23.3
        clusterSchedulingPolicy@3.23.3 maxPotentialClusterSize@3.23.3 maxActiveClusters@3.23.3
        sharedMemoryRequestedPercentage@3.24.14 tensorSizeMinusOneElements!:TEXT@3.24.18"""),
    ("memcpys", "CUPTI_ACTIVITY_KIND_MEMCPY", "", "", _OP + """
        bytes! copyKind! deprecatedSrcId srcKind dstKind srcDeviceId srcContextId dstDeviceId
        dstContextId migrationCause graphNodeId virtualAddress@2.9.1 copyCount@3.17.2"""),
    ("memsets", "CUPTI_ACTIVITY_KIND_MEMSET", "", "", _OP + "value! bytes! graphNodeId memKind"),
    ("graph_traces", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "3.11.2", "",
        _OP + "graphId! graphExecId!"),
    ("sync", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "", "",
        _OP + "deprecatedSyncType@3.17.2 syncType! eventId! eventSyncId@3.17.2"),
    ("event_records", "CUPTI_ACTIVITY_KIND_CUDA_EVENT", "2.9.1", "",
        "timestamp@3.23.3 " + _OP.removeprefix("start! end! ") + "eventId! eventSyncId@3.17.2"),
    ("api", "CUPTI_ACTIVITY_KIND_RUNTIME", "", "",
        _HOST + "correlationId nameId! returnValue! callchainId"),
    ("overhead", "CUPTI_ACTIVITY_KIND_OVERHEAD", "3.24.0", "",
        _HOST + "correlationId nameId overheadType!"),
    ("profiler_overhead", "PROFILER_OVERHEAD", "", "",
        "start! end! globalTid correlationId<2.9.1 nameId! returnValue!<3.24.0"
        " overheadType!@3.24.0"),
    # One name, two meanings: nodes first, graphs later.
    ("node_events", "CUDA_GRAPH_EVENTS", "", "3.11.2", _NODE),
    ("node_events", "CUDA_GRAPH_NODE_EVENTS", "3.11.2", "", _NODE),
    ("graph_events", "CUDA_GRAPH_EVENTS", "3.11.2", "",
        _HOST + "nameId! graphId originalGraphId graphExecId"),
    ("nvtx", "NVTX_EVENTS", "", "", """
        start! end eventType! rangeId category color text:TEXT globalTid endGlobalTid textId
        domainId uint64Value int64Value doubleValue:REAL uint32Value int32Value floatValue:REAL
        jsonTextId jsonText:TEXT binaryData:TEXT@3.17.2"""),
    ("diagnostics", "DIAGNOSTIC_EVENT", "3.11.2", "",
        "timestamp! timestampType! source! severity! text!:TEXT globalPid"),
    ("gpus", "TARGET_INFO_GPU", "", "1", "vmId! deviceId! name:TEXT busLocation:TEXT isDiscrete"),
    ("gpus", "TARGET_INFO_GPU", "1", "", """
        vmId! id! name:TEXT busLocation:TEXT isDiscrete l2CacheSize totalMemory memoryBandwidth
        clockRate smCount pwGpuId uuid:TEXT luid chipName:TEXT cuDevice ctxswDevPath:TEXT
        ctrlDevPath:TEXT revision nodeMask constantMemory maxIPC maxRegistersPerBlock
        maxShmemPerBlock maxShmemPerBlockOptin maxShmemPerSm maxRegistersPerSm threadsPerWarp
        asyncEngines maxWarpsPerSm maxBlocksPerSm maxThreadsPerBlock maxBlockDimX maxBlockDimY
        maxBlockDimZ maxGridDimX maxGridDimY maxGridDimZ computeMajor computeMinor smMajor
        smMinor"""),
    ("cuda_devices", "TARGET_INFO_CUDA_DEVICE", "3.17.2", "",
        "gpuId cudaId! pid! uuid:TEXT@3.24.7 numMultiprocessors@3.24.7"),
    ("contexts", "TARGET_INFO_CUDA_NULL_STREAM", "", "3.6.0", "streamId! " + _CONTEXT),
    ("contexts", "TARGET_INFO_CUDA_CONTEXT_INFO", "3.6.0", "", "nullStreamId! " + _CONTEXT
        + "parentContextId isGreenContext numMultiprocessors@3.24.7"),
    ("streams", "TARGET_INFO_CUDA_STREAM", "", "",
        "streamId! hwId! vmId! processId! contextId! priority! flag!"),
    ("environment", "TARGET_INFO_SYSTEM_ENV", "2.9.1", "3.0.0", "globalVid!" + _ENVIRONMENT),
    ("environment", "TARGET_INFO_SYSTEM_ENV", "3.0.0", "", "globalVid" + _ENVIRONMENT),
    ("session_start", "TARGET_INFO_SESSION_START_TIME", "2.9.1", "",
        "utcEpochNs utcTime:TEXT localTime:TEXT systemClockNs@3.24.7"),
    ("details", "ANALYSIS_DETAILS", "2.9.1", "", "globalVid! duration! startTime! stopTime!"),
    ("processes", "PROCESSES", "2.9.1", "", "globalPid pid name:TEXT"),
    ("thread_names", "ThreadNames", "", "", "nameId! priority globalTid"),
    ("capture", "META_DATA_CAPTURE", "3.4.0", "", _META),
    ("meta", "EXPORT_META_DATA", "2.9.1", "3.4.0", _META),
    ("meta", "META_DATA_EXPORT", "3.4.0", "", _META),
]  # fmt: skip
_COLUMN = re.compile(r"(\w+)(!?)(?::(\w+))?(?:@([\d.]+))?(?:<([\d.]+))?$")


def version(schema: str) -> tuple[int, ...]:
    """Return a schema as comparable integers; generations without a version come first."""
    return UNVERSIONED.get(schema) or tuple(int(part) for part in schema.split(".") if part)


def tables(schema: str) -> dict[str, tuple[str, dict[str, tuple[str, bool]]]]:
    """Return {keyword: (table, {column: (type, not null)})} of one schema."""
    here = version(schema)
    return {
        keyword: (table, _columns(columns, here))
        for keyword, table, since, until, columns in TABLES
        if _within(here, since, until)
    }


def _within(here: tuple[int, ...], since: str | None, until: str | None) -> bool:
    return (not since or here >= version(since)) and (not until or here < version(until))


def _columns(text: str, here: tuple[int, ...]) -> dict[str, tuple[str, bool]]:
    found = {}
    for word in text.split():
        match = _COLUMN.match(word)
        assert match, word
        name, required, kind, since, until = match.groups()
        if _within(here, since, until):
            found[name] = (kind or "INTEGER", bool(required))
    return found
