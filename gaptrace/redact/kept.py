"""What a redacted copy keeps of an Nsight export: an allow-list of tables, columns and rows.

Everything else is left out: what is not named here cannot leak, whatever a later exporter adds.
"""

_OP = "start end deviceId contextId greenContextId streamId correlationId globalPid"
_HOST = "start end eventClass globalTid correlationId nameId"
#: Every table that is kept, with the columns that are. Process and thread ids stay, as numbers.
KEPT = {
    "CUPTI_ACTIVITY_KIND_KERNEL": f"{_OP} demangledName shortName graphNodeId",
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"{_OP} bytes copyKind srcKind dstKind graphNodeId copyCount",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{_OP} value bytes graphNodeId memKind",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": f"{_OP} graphId graphExecId",
    "CUPTI_ACTIVITY_KIND_MEM_DECOMPRESS": f"{_OP} bytes graphNodeId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": f"{_HOST} returnValue",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": f"{_OP} syncType eventId",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": "deviceId contextId greenContextId streamId correlationId"
    " globalPid eventId",
    "CUPTI_ACTIVITY_KIND_OVERHEAD": f"{_HOST} overheadType",
    "PROFILER_OVERHEAD": "start end globalTid nameId returnValue overheadType",
    "CUDA_GRAPH_EVENTS": "start end eventClass globalTid nameId graphId originalGraphId graphExecId"
    " graphNodeId originalGraphNodeId",
    "CUDA_GRAPH_NODE_EVENTS": "start end eventClass globalTid nameId graphNodeId"
    " originalGraphNodeId",
    "NVTX_EVENTS": "start end eventType rangeId text globalTid endGlobalTid textId domainId"
    " uint64Value int64Value doubleValue uint32Value int32Value floatValue",
    "DIAGNOSTIC_EVENT": "timestamp severity text globalPid",
    "TARGET_INFO_GPU": "vmId id deviceId name l2CacheSize totalMemory memoryBandwidth clockRate"
    " smCount chipName cuDevice asyncEngines computeMajor computeMinor",
    "TARGET_INFO_CUDA_DEVICE": "gpuId cudaId pid uuid numMultiprocessors",
    "TARGET_INFO_CUDA_CONTEXT_INFO": "nullStreamId hwId vmId processId deviceId contextId"
    " parentContextId isGreenContext",
    "TARGET_INFO_CUDA_NULL_STREAM": "streamId hwId vmId processId deviceId contextId",
    "TARGET_INFO_CUDA_STREAM": "streamId hwId vmId processId contextId priority flag",
    "TARGET_INFO_SYSTEM_ENV": "globalVid name value",
    "ANALYSIS_DETAILS": "globalVid duration",
    "META_DATA_CAPTURE": "name value",
    "META_DATA_EXPORT": "name value",
    "EXPORT_META_DATA": "name value",
}
#: The kept columns that hold text; in any other, text is dropped.
TEXTS = {
    "NVTX_EVENTS": "text",
    "DIAGNOSTIC_EVENT": "text",
    "TARGET_INFO_GPU": "name chipName",
    "TARGET_INFO_SYSTEM_ENV": "name value",
    "META_DATA_CAPTURE": "name value",
    "META_DATA_EXPORT": "name value",
    "EXPORT_META_DATA": "name value",
}
#: The kept columns of which only is told which values are equal: they name one GPU of the world.
NUMBERED = {"TARGET_INFO_CUDA_DEVICE": "uuid"}
#: The kept columns that name a row of StringIds; strings that none of them names are left out.
STRING_IDS = {"demangledName", "shortName", "nameId", "textId"}
#: Tables of device work with a time, whose rows decide what a window holds.
OPS = {f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")} | {
    "CUPTI_ACTIVITY_KIND_MEM_DECOMPRESS"
}

_ENVIRONMENT = (
    "'CpuDescription', 'CpuCores', 'NvDriverVersion', 'CudaDriverVersion', 'OsDescription'"
)
_EXPORT = (
    "name LIKE 'EXPORT_PRODUCT_%' OR name LIKE 'EXPORT_SCHEMA_VERSION%' OR name LIKE '%_SHIFT'"
    " OR name IN ('EXPORT_PARAM_TIMES_TO_EXPORT', 'EXPORT_PARAM_TABLES_TO_EXPORT') AND value <> ''"
)
#: A copy of a window notes its own; one of all that is in such a copy keeps what that notes.
_EXPORT_OF_COPY = f"{_EXPORT} OR name = 'DERIVED_MIDDLE_NS'"
_RANGES, _MARKS, _DOMAIN = "59, 60, 70, 71", "34, 65", "75"
#: Table -> which of its rows are kept; a table that is not here keeps all.
ROWS = {
    # Thread names (39) and categories (33) are of no use.
    "NVTX_EVENTS": f"eventType IN ({_RANGES}, {_MARKS}, {_DOMAIN})",
    "DIAGNOSTIC_EVENT": "severity >= 2",
    "TARGET_INFO_SYSTEM_ENV": f"name IN ({_ENVIRONMENT})",
    "META_DATA_CAPTURE": "name LIKE '%CUDA_GRAPH_TRACE_OPTIONS:%'"
    " OR name LIKE '%CUDA_SKIP_SOME_API_CALLS'",
    "META_DATA_EXPORT": _EXPORT_OF_COPY,
    "EXPORT_META_DATA": _EXPORT_OF_COPY,
}

_IN_WINDOW = "start < :to AND (end > :from OR start >= :from)"
_PROCESS = "(globalTid & ~16777215)"  # clears the thread's 24 bits
_PID = "(globalPid >> 24 & 16777215)"
_CALLED = "(SELECT process, correlation FROM temp.call)"
_USED_PIDS = f"(SELECT DISTINCT {_PID} FROM temp.op)"
#: A node's id holds its graph's id above bit 32.
NODES_OF_USED_GRAPHS = f"({_PROCESS}, graphNodeId >> 32) IN (SELECT pid, graph FROM temp.graph)"
#: The same for a copy that is cut to a window. The temporary tables `op`, `graph` and `call` hold
#: the device work in it, the graphs that this came from, and the calls that `window.narrow` keeps.
ROWS_OF_WINDOW = {
    **ROWS,
    **dict.fromkeys(["META_DATA_EXPORT", "EXPORT_META_DATA"], _EXPORT),
    **dict.fromkeys(OPS, _IN_WINDOW),
    "CUPTI_ACTIVITY_KIND_RUNTIME": f"({_IN_WINDOW})"
    ' OR (globalTid, start, "end") IN (SELECT thread, start, stop FROM temp.call)',
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": f"({_IN_WINDOW})"
    f" OR (globalPid, correlationId) IN {_CALLED}",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": f"(globalPid, correlationId) IN {_CALLED}",
    "CUPTI_ACTIVITY_KIND_OVERHEAD": _IN_WINDOW,
    "PROFILER_OVERHEAD": _IN_WINDOW,
    "CUDA_GRAPH_EVENTS": f"({_PROCESS}, graphId) IN (SELECT pid, graph FROM temp.graph)",
    "CUDA_GRAPH_NODE_EVENTS": NODES_OF_USED_GRAPHS,
    # A range that sticks out of the window is left out: without its work it would look idle.
    # Marks have no end; a domain's row is kept for its name, whenever it was made.
    "NVTX_EVENTS": f'eventType IN ({_RANGES}) AND start >= :from AND "end" <= :to'
    f" OR eventType IN ({_MARKS}) AND start BETWEEN :from AND :to OR eventType = {_DOMAIN}",
    "TARGET_INFO_CUDA_CONTEXT_INFO": f"processId IN {_USED_PIDS}",
    "TARGET_INFO_CUDA_NULL_STREAM": f"processId IN {_USED_PIDS}",
    "TARGET_INFO_CUDA_STREAM": "(processId, contextId, streamId) IN"
    f" (SELECT {_PID}, contextId, streamId FROM temp.op)",
}
