"""What each CUDA API call means for a timeline: the vendor's names in, our words out."""

import re

import polars as pl

from gaptrace.trace import API

#: `cudaGraphLaunch_v10000_ptsz` and `cuLaunchKernel_ptsz` name the same call as without suffix, as
#: does `cudaGraphLaunch_ptsz_v10000`, which is how CUPTI spells it.
_SUFFIX = re.compile(r"(_v\d+|_ptsz|_ptds)*$")

_BUILD_PHASES = (
    # Calls that make, change or destroy graphs and graph execs, by phase. `cudaGraphAdd...Node` and
    # node parameter setters on a template belong to capture: they build the template by hand.
    ("capture", re.compile(r"(StreamBeginCapture|StreamEndCapture|StreamUpdateCapture)")),
    ("instantiate", re.compile(r"GraphInstantiate")),
    ("update", re.compile(r"GraphExec(\w*SetParams|Update)|GraphNodeSetEnabled")),
    ("upload", re.compile(r"GraphUpload")),
    ("clone", re.compile(r"GraphClone")),
    ("destroy", re.compile(r"Graph(Exec)?Destroy")),
    ("capture", re.compile(r"Graph(Create$|Add\w*Node|AddDependencies|\w*Node(Set|Copy))")),
)

_KINDS = (
    ("graph_launch", re.compile(r"^cu(da)?GraphLaunch$")),
    ("wait", re.compile(r"^cu(da)?(Stream|Device|Event|Ctx|Thread)Synchronize$")),
    ("event_wait", re.compile(r"^cu(da)?StreamWaitEvent$")),
    ("blocking_copy", re.compile(r"^cu(da)?Memcpy(?!\w*Async)|^cudaMemcpy\w*Symbol$")),
    ("copy", re.compile(r"^cu(da)?(Memcpy\w*Async|Memset)")),
    ("launch", re.compile(r"^cu(da)?Launch(?!Host)")),
    ("allocate", re.compile(r"^cuda(Malloc|HostAlloc)|^cuMem(HostAlloc|Alloc|Map$)")),
    ("free", re.compile(r"^cudaFree|^cuMem(Free|Unmap$)|^cu(da)?MemPool(TrimTo|Destroy)$")),
)
_CAPTURE_STEPS = ((1, re.compile("StreamBeginCapture")), (-1, re.compile("StreamEndCapture")))


def strip_version(name: str) -> str:
    """Return the API name without version and stream-mode suffixes."""
    return _SUFFIX.sub("", name)


def classify(name: str) -> tuple[str, str | None]:
    """Return (kind, phase) of an API call named without suffix.

    Kinds: see `trace.CALL_KINDS`. Blocking copies are those whose name lacks Async; that an Async
    copy of pageable memory may also block is not visible in its name.
    """
    for phase, pattern in _BUILD_PHASES:
        if pattern.search(name):
            return "graph_build", phase
    return next((kind for kind, pattern in _KINDS if pattern.search(name)), "other"), None


def meaning_of(strings: pl.DataFrame) -> pl.DataFrame:
    """Say what each name would mean as an API call.

    Args:
        strings: name_id, value.

    Returns:
        name_id; name: without suffix; kind, phase: of `classify`; capture_step: +1 if the call
        begins a stream capture, -1 if it ends one, else 0.
    """
    names = [strip_version(value) for value in strings["value"]]
    meanings = [classify(name) for name in names]
    return pl.DataFrame(
        {
            "name_id": strings["name_id"],
            "name": pl.Series(names, dtype=API["name"]),
            "kind": pl.Series([kind for kind, _ in meanings], dtype=API["kind"]),
            "phase": pl.Series([phase for _, phase in meanings], dtype=API["phase"]),
            "capture_step": pl.Series([_capture_step(name) for name in names], dtype=pl.Int64),
        }
    )


def _capture_step(name: str) -> int:
    return next((step for step, pattern in _CAPTURE_STEPS if pattern.search(name)), 0)


#: CUpti_ActivityMemcpyKind, the same in every schema that lists it.
COPY_KINDS = {
    0: "copy",
    1: "copy HtoD",
    2: "copy DtoH",
    3: "copy HtoA",
    4: "copy AtoH",
    5: "copy AtoA",
    6: "copy AtoD",
    7: "copy DtoA",
    8: "copy DtoD",
    9: "copy HtoH",
    10: "copy PtoP",
    11: "migration HtoD",
    12: "migration DtoH",
    13: "migration DtoD",
}
UNIFIED_MEMORY_COPIES = (11, 12, 13)

#: ENUM_CUDA_MEM_KIND.
MEMORY_KINDS = {
    0: "pageable",
    1: "pinned",
    2: "device",
    3: "array",
    4: "managed",
    5: "device static",
    6: "managed static",
}

#: CUpti_ActivityOverheadKind -> our kind. 1 unknown, 3 buffer flush, 4 instrumentation and
#: 5 resource exist because of the recorder; 2 compiling, 6 module loading and 7 lazy function
#: loading exist without it; 8 is "command buffer full".
OVERHEAD_KINDS = {
    1: "profiler",
    2: "driver",
    3: "profiler",
    4: "profiler",
    5: "profiler",
    6: "driver",
    7: "driver",
    8: "back_pressure",
}
OVERHEAD_NAMES = {
    1: "recorder",
    2: "driver compiler",
    3: "buffer flush",
    4: "instrumentation",
    5: "recorder resource",
    6: "module loading",
    7: "lazy function loading",
    8: "command buffer full",
}
