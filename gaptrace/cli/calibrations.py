"""Which calibration a command uses."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gaptrace.cli import one_line
from gaptrace.errors import CalibrationError

if TYPE_CHECKING:
    from gaptrace.calibration import Calibration
    from gaptrace.trace import Trace

calibration_option = click.option(
    "--calibration",
    "calibration_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What launches cost without a recorder where TRACE was made, from gaptrace calibrate.  "
    "[default: the saved one of the same GPU, driver and CUDA]",
)


def calibration_for(trace: "Trace", chosen: Path | None) -> "Calibration | None":
    """Return the calibration that was chosen, else the saved one of the trace's machine.

    Raises:
        CalibrationError: the one that was chosen cannot be read, or is of another GPU, whose costs
            say nothing here. Another driver or CUDA is a warning in the recommendation.
    """
    from gaptrace.calibration_match import best_match, differences
    from gaptrace.record.calibrations import folder, load

    if chosen is not None:
        calibration = load(chosen)
        if gpus := differences(calibration, trace).get("gpu"):
            raise CalibrationError(
                f"{chosen} was made on {gpus[0]}, {trace.meta.path} on {gpus[1]}: launch costs of "
                "one say nothing of the other; calibrate there, or leave --calibration out"
            )
        return calibration
    saved = []
    for path in sorted(folder().glob("*.json")):
        try:
            saved.append(load(path))
        except CalibrationError as error:
            click.echo(f"gaptrace: warning: {one_line(error)}", err=True)
    return best_match(saved, trace)
