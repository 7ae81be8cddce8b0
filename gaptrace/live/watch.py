"""Arms the profiled process: opens NVTX to the recorder, and has graphs named on import."""

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any

from gaptrace.live.graph_names import name_cupy_graphs, name_torch_graphs
from gaptrace.live.imports import Action, AfterImport
from gaptrace.live.notes import RunNotes
from gaptrace.live.ranges import recording_domain
from gaptrace.spool import DEFAULT_DOMAIN

#: Where the recorder says which library takes the calls of the NVTX headers.
_INJECTION = "NVTX_INJECTION64_PATH"


def watch_imports(notes: RunNotes) -> None:
    """Arrange that graphs are named when the program imports CuPy or PyTorch.

    `notes.nvtx` gets the version of `nvtx` and its state, measured under the recorder that runs:
    `recorded`, `silent` or `absent`. Where the recorder's extension is too old for this nvtx (see
    `_open_without_extension`), the state is `unused` until the program imports nvtx, and then
    `recorded without extension` or `silent`.
    """
    try:
        notes.nvtx["version"] = version("nvtx")
    except PackageNotFoundError:
        notes.nvtx["state"] = "absent"
        return
    actions = naming_actions(notes)
    probe = subprocess.run(
        [sys.executable, "-P", "-m", "gaptrace.live.probe"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    notes.nvtx["state"] = "recorded" if probe.returncode == 0 else "silent"
    if probe.returncode != 0 and _INJECTION in os.environ:
        notes.nvtx["state"] = "unused"

        def open_nvtx(nvtx: ModuleType) -> None:
            _open_without_extension(nvtx)
            notes.nvtx["state"] = (
                "silent" if recording_domain() is None else "recorded without extension"
            )

        actions["nvtx"] = open_nvtx
    elif notes.is_recording_itself:
        actions["nvtx"] = name_default_domain
    sys.meta_path.insert(0, AfterImport(actions))


def naming_actions(notes: RunNotes) -> dict[str, Action]:
    """Return what to do once a module is imported, so that graphs are named; noted in `graphs`."""
    return {
        "cupy.cuda.stream": _naming(notes, "cupy", name_cupy_graphs),
        "torch.cuda.graphs": _naming(notes, "torch", name_torch_graphs),
    }


def name_default_domain(nvtx: ModuleType) -> None:
    """Give nvtx's default domain a name, since CUPTI drops what goes to a domain without one.

    Seen with CUPTI 13.0 and nvtx 0.2.17, whose calls all name a domain, if only by a null handle.
    What other libraries push without any domain is recorded.
    """
    inner = import_module("nvtx.nvtx")
    get_domain = inner.get_domain

    @functools.wraps(get_domain)
    def named(name: str | None = None) -> Any:
        return get_domain(DEFAULT_DOMAIN if name is None else name)

    for module in (inner, nvtx):
        vars(module)["get_domain"] = named


def _naming(notes: RunNotes, library: str, name_graphs: Callable[[ModuleType, Any], str]) -> Action:
    def act(module: ModuleType) -> None:
        domain = recording_domain()
        notes.graphs[library] = (
            "left alone: nothing records NVTX ranges"
            if domain is None
            else name_graphs(module, domain)
        )

    return act


def _open_without_extension(nvtx: ModuleType) -> None:
    """Let `nvtx` record under a recorder whose NVTX payload extension is too old for it.

    From 0.2.12 on, nvtx asks the recorder, through the payload extension, whether a domain is
    enabled, and records nothing after a no. Nsight Systems 2022.4.2 and 2023.4.4 refuse to set the
    extension up for these headers, which reads as a no, although they take all ranges and plain
    payloads. (Measured with nvtx 0.2.12 to 0.2.17.) The headers look the extension up once, in the
    library that the environment names at that moment. So: attach the recorder for plain ranges,
    then have the extension looked up in a library that has none, which reads as enabled from
    0.2.13 on.
    """
    lib = import_module("nvtx._lib.lib")
    if not hasattr(lib, "initialize"):
        return
    injection = os.environ[_INJECTION]
    lib.initialize()
    os.environ[_INJECTION] = str(lib.__file__)
    try:
        nvtx.get_domain("gaptrace")
    finally:
        os.environ[_INJECTION] = injection
