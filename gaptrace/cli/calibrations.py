"""Which calibration a command uses."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gaptrace.cli import one_line, say

if TYPE_CHECKING:
    from gaptrace.calibration import Calibration
    from gaptrace.trace import Trace

calibration_option = click.option(
    "--calibration",
    "calibration_file",
    type=click.Path(path_type=Path, readable=False),
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
    from gaptrace.calibration_choice import choose_calibration

    calibration, unread = choose_calibration(trace, chosen)
    told: set[str] = click.get_current_context().meta.setdefault(__name__, set())
    for message in map(one_line, unread):
        if message not in told:  # by an earlier trace of this command
            say(f"warning: {message}")
        told.add(message)
    return calibration
