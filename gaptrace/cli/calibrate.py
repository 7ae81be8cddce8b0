"""``gaptrace calibrate``."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from gaptrace.cli import one_line, say
from gaptrace.errors import GpuError, RecorderError

if TYPE_CHECKING:
    from gaptrace.calibration import Calibration, Figure, Machine
    from gaptrace.record.cupti import Cupti
    from gaptrace.record.machine import Driver
    from gaptrace.record.nsys import Nsys

_RECORDERS = ("nsys", "CUPTI")
_GRANULARITIES: tuple[Literal["graph", "node"], ...] = ("graph", "node")


@click.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Save there instead of the usual place.",
)
@click.option(
    "--check",
    "saved_in",
    is_flag=False,
    flag_value="",
    metavar="[FILE]",
    help="Compare with the calibration in FILE, or in the usual place, and save only with -o.",
)
def command(output: Path | None, saved_in: str | None) -> int:
    """Measure what launches, graphs and gaps cost on this machine.

    On the first GPU that CUDA sees, which must be idle: half a minute without a recorder, then a
    shorter set under Nsight Systems and under CUPTI, where they are, for what recording itself
    costs. Saved as JSON for this GPU, driver, CUDA, system and processor, in
    $XDG_DATA_HOME/gaptrace/calibrations (~/.local/share/gaptrace/calibrations).

    With --check, exit status 3 says that a figure without a recorder moved beyond what runs differ
    by, or could not be measured again.
    """
    from gaptrace.calibration import compare
    from gaptrace.cli.terminal import color, width
    from gaptrace.record.calibrations import check_place, load, save, this_machine, usual_place
    from gaptrace.record.machine import probe_driver
    from gaptrace.render.calibration import calibration_text, check_text

    driver = probe_driver()
    if not driver.gpus:
        problem = driver.problem or "CUDA sees none"
        raise GpuError(
            f"no GPU to calibrate: {problem}; run this on the machine that traces are recorded on"
        )
    machine = this_machine(driver)
    place = usual_place(machine)
    saved = None if saved_in is None else load(Path(saved_in) if saved_in else place)
    saves = saved is None or output is not None
    if saves:
        check_place(output or place)
    made = _measured(machine, driver, with_recorders=saves)
    shown, colored = width(), color(sys.stdout)
    click.echo(calibration_text(made, width=shown, color=colored), nl=False)
    if saves:
        save(made, output or place)
        say(f"saved in {output or place}")
    if saved is None:
        return 0
    check = compare(saved, made)
    click.echo(check_text(check, saved, width=shown, color=colored), nl=False)
    return 3 if check.moved or check.missing else 0


def _measured(machine: "Machine", driver: "Driver", *, with_recorders: bool) -> "Calibration":
    from gaptrace import __version__
    from gaptrace.calibration import Calibration
    from gaptrace.cli.progress import percentage_bar
    from gaptrace.live.host_pace import FULL
    from gaptrace.record.probing import PROCESSES, measure

    runs = PROCESSES + with_recorders * len(_RECORDERS) * len(_GRANULARITIES)
    recorders: dict[str, str] = {}
    with percentage_bar("calibrating") as progress:
        figures = measure(lambda done: progress(100 * done // runs))
        loop = _of("host_loop_ns", figures)
        if with_recorders:
            recorders, recorded = _recorded(
                figures, driver, lambda done: progress(100 * (PROCESSES + done) // runs)
            )
            figures += recorded
    if loop.value > FULL * loop.low:
        say(
            "warning: other work slowed this host during most of the probes (a loop took "
            f"{loop.value / loop.low:.1f} times as long), so that launches look too dear; "
            "calibrate again when the machine is quieter"
        )
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Calibration(machine, now, __version__, recorders, figures)


def _of(name: str, figures: "tuple[Figure, ...]") -> "Figure":
    (found,) = (each for each in figures if each.name == name)
    return found


def _recorded(
    plain: "tuple[Figure, ...]", driver: "Driver", progress: Callable[[int], None]
) -> "tuple[dict[str, str], tuple[Figure, ...]]":
    """Measure under every recorder; one that is missing or fails is left out, and said."""
    from gaptrace.record.probing import measure_recorded, recorder_name
    from gaptrace.samples import recorder_costs

    call_ns, loop_ns = _of("binding_call_ns", plain).value, _of("host_loop_ns", plain).low
    versions: dict[str, str] = {}
    figures: tuple[Figure, ...] = ()
    for number, called in enumerate(_RECORDERS):
        try:
            recorder = _find(called, driver)
            for done, granularity in enumerate(_GRANULARITIES, len(_GRANULARITIES) * number):
                progress(done)
                found = measure_recorded(granularity, recorder, call_ns=call_ns, loop_ns=loop_ns)
                name = recorder_name(recorder, granularity)
                versions[name] = recorder.version
                figures += (*found, *recorder_costs((*plain, *found), name))
        except (GpuError, RecorderError) as error:
            say(f"the cost of recording with {called} is not measured: {one_line(error)}")
    return versions, figures


def _find(called: str, driver: "Driver") -> "Nsys | Cupti":
    from gaptrace.record.cupti import find_cupti
    from gaptrace.record.nsys import find_nsys

    return find_nsys() if called == "nsys" else find_cupti(driver)
