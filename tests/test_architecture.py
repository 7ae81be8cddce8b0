"""The arrows between modules, and what importing the package may load."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import gaptrace

PACKAGE = Path(gaptrace.__file__).parent
GPU_LIBRARIES = {"cupy", "cuda", "cupti", "torch", "nvtx", "numba"}

#: Left to right: a module imports only from parts to its left. Parts of one set see each other only
#: where they are the same part.
ORDER = (
    {"errors"},
    {"trace", "intervals", "periods", "cost", "cuts", "quantiles", "spool", "spread", "totals"},
    {"critical_path", "overlap"},
    {"drafts"},
    {"schedules", "timings", "calibration", "recommendation", "detail", "lookup"},
    {"fit", "samples", "predict", "machine_costs", "calibration_match"},
    {"sensitivity", "host_pace"},
    {"live", "record", "read"},
    {"launches", "captures"},
    {"timelines", "coverage"},
    {"gaps"},
    {"graphs", "ranges", "repeats", "work", "windows", "builds", "range_instances", "counters"},
    {"sequences", "rebuilds", "bursts", "graph_step", "copy_waits", "exec_waits", "gap_lengths"},
    {"graph_use"},
    {"steps", "graph_faults", "topics", "advice"},
    {"traced_step"},
    {"untraced"},
    {"ungraphed"},
    {"calibrated"},
    {"findings", "largest_gaps", "recommend", "step_strip"},
    {"analysis", "tuning", "calibration_choice"},
    {"compare", "prepared"},
    {"lanes"},
    {"view"},
    {"doctor", "render"},
    {"redact", "export", "notebook"},
    {"cell"},
    {"cli"},
)
#: The analyses know traces, never where one came from; the model knows nothing of either.
MUST_NOT = {
    "trace": {"read"},
    "intervals": {"trace"},
    "periods": {"trace", "intervals"},
    "cost": {"trace", "intervals"},
    "spread": {"trace", "intervals"},
    "schedules": {"trace", "intervals"},
    "timings": {"trace", "intervals"},
    "fit": {"trace", "intervals", "live"},
    "tuning": {"read", "record", "render"},
    "cuts": {"trace", "intervals"},
    "critical_path": {"trace", "intervals"},
    "detail": {"trace"},
    "gap_lengths": {"trace", "read", "record", "live"},
    "step_strip": {"read", "record", "live"},
    "lookup": {"trace", "intervals"},
    "prepared": {"read", "record", "live", "render"},
    "lanes": {"read", "record", "live", "render"},
    "view": {"read", "record", "live", "render"},
    "totals": {"trace", "intervals"},
    "spool": {"trace", "intervals"},
    "calibration": {"trace", "intervals"},
    "samples": {"trace", "intervals"},
    "read": {"record", "live"},
    "record": {"read", "live", "trace"},
    "live": {"read", "record", "trace"},
    "launches": {"read", "record", "live"},
    "captures": {"read", "record", "live"},
    "timelines": {"read", "record", "live"},
    "gaps": {"read", "record", "live"},
    "graphs": {"read", "record", "live"},
    "ranges": {"read", "record", "live"},
    "windows": {"read", "record", "live"},
    "repeats": {"read", "record", "live"},
    "range_instances": {"read", "record", "live"},
    "notebook": {"live"},
    "counters": {"read", "record", "live"},
    "sequences": {"read", "record", "live"},
    "steps": {"read", "record", "live"},
    "rebuilds": {"read", "record", "live"},
    "bursts": {"read", "record", "live"},
    "graph_use": {"read", "record", "live"},
    "graph_step": {"read", "record", "live"},
    "graph_faults": {"read", "record", "live"},
    "builds": {"read", "record", "live"},
    "copy_waits": {"read", "record", "live"},
    "exec_waits": {"read", "record", "live"},
    "topics": {"read", "record", "live"},
    "machine_costs": {"trace", "intervals", "read", "record", "live"},
    "host_pace": {"read", "record", "live"},
    "work": {"read", "record", "live"},
    "overlap": {"trace", "intervals", "read", "record", "live"},
    "sensitivity": {"trace", "intervals", "read", "record", "live"},
    "predict": {"trace", "intervals", "read", "record", "live"},
    "traced_step": {"read", "record", "live"},
    "untraced": {"read", "record", "live"},
    "ungraphed": {"read", "record", "live"},
    "calibrated": {"read", "record", "live", "render"},
    "findings": {"read", "record", "live", "render"},
    "analysis": {"read", "record", "live"},
    "compare": {"read", "record", "live", "render"},
    "recommend": {"read", "record", "live", "render"},
    "render": {"read", "record", "live", "intervals"},
    "drafts": {"trace", "intervals"},
    "export": {"record", "live", "intervals"},
}
RANK = {part: rank for rank, parts in enumerate(ORDER) for part in parts}


def part_of(module):
    """`gaptrace.read.nsys` -> read."""
    return module.split(".")[1] if "." in module else ""


def imports_of(path):
    """Names of all modules that a file imports, anywhere in it; type-checking imports included."""
    for element in ast.walk(ast.parse(path.read_text())):
        if isinstance(element, ast.Import):
            yield from (alias.name for alias in element.names)
        elif isinstance(element, ast.ImportFrom):
            assert element.level == 0, f"{path}: relative import"
            if element.module == "gaptrace":
                yield from (f"gaptrace.{alias.name}" for alias in element.names)
            else:
                yield element.module or ""


FILES = sorted(
    path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.name[:2] != "__"
)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_module_imports_only_from_the_left(path):
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for module in imports_of(path):
        if not module.startswith("gaptrace.") or module == "gaptrace.__version__":
            continue
        other = part_of(module)
        assert other == own or RANK[other] < RANK[own], f"{own} imports {module}"
        assert other not in MUST_NOT.get(own, ()), f"{own} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_live_knows_gpu_libraries(path):
    if path.relative_to(PACKAGE).parts[0] == "live":
        return
    used = {module.split(".")[0] for module in imports_of(path)} & GPU_LIBRARIES
    assert not used


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_the_command_line_prints_or_exits(path):
    if path.relative_to(PACKAGE).parts[0] in ("cli", "live"):
        return  # live runs the user's program, whose exit is its own
    for element in ast.walk(ast.parse(path.read_text())):
        if isinstance(element, ast.Call) and isinstance(element.func, ast.Name | ast.Attribute):
            called = ast.unparse(element.func)
            assert called not in ("print", "sys.exit", "exit", "click.echo"), f"{path}: {called}"


def loaded_by(statement):
    """Top-level modules that a fresh interpreter has after a statement."""
    code = f"{statement}; import sys; print(*{{name.split('.')[0] for name in sys.modules}})"
    return set(subprocess.check_output([sys.executable, "-c", code], text=True).split())


def test_importing_the_package_loads_nothing_heavy():
    heavy = GPU_LIBRARIES | {
        "plotly",
        "jinja2",
        "polars",
        "numpy",
        "rich",
        "click",
        "adbc_driver_sqlite",
        "perfetto",
        "anywidget",
    }

    assert not loaded_by("import gaptrace") & heavy


def test_help_loads_no_frames():
    statement = "from gaptrace.cli import main; main(['--help'])"
    code = f"{statement}; import sys; print('LOADED', *{{n.split('.')[0] for n in sys.modules}})"
    printed = subprocess.check_output([sys.executable, "-c", code], text=True)
    loaded = set(printed.split("LOADED")[1].split())

    assert "click" in loaded
    assert not loaded & (GPU_LIBRARIES | {"polars", "plotly", "jinja2", "numpy"})


def test_marking_ranges_loads_no_frames():
    assert "polars" not in loaded_by("import gaptrace; gaptrace.range")


def test_every_public_name_can_be_fetched():
    for name in gaptrace.__all__:
        assert getattr(gaptrace, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        gaptrace.nothing  # noqa: B018
