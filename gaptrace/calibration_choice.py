"""Which calibration goes with a trace: the one that is named, else the saved one of its machine."""

from pathlib import Path

from gaptrace.calibration import Calibration
from gaptrace.calibration_match import best_match, differences
from gaptrace.errors import CalibrationError
from gaptrace.record.calibrations import folder, load
from gaptrace.trace import Trace


def choose_calibration(
    trace: Trace, chosen: Path | None
) -> tuple[Calibration | None, tuple[CalibrationError, ...]]:
    """Return the calibration that was chosen, else the saved one of the trace's machine.

    Args:
        trace: the trace.
        chosen: the file that was named; None: one of the saved ones.

    Returns:
        The calibration, None where none fits; and why saved ones could not be read.

    Raises:
        CalibrationError: the one that was chosen cannot be read, or is of another GPU, whose costs
            say nothing here. Another driver or CUDA is a warning in the recommendation.
    """
    if chosen is not None:
        calibration = load(chosen)
        if gpus := differences(calibration, trace).get("gpu"):
            raise CalibrationError(
                f"{chosen} was made on {gpus[0]}, {trace.meta.path} on {gpus[1]}: launch costs of "
                "one say nothing of the other; calibrate there, or leave the calibration out"
            )
        return calibration, ()
    saved, unread = [], []
    for path in sorted(folder().glob("*.json")):
        try:
            saved.append(load(path))
        except CalibrationError as error:
            unread.append(error)
    return best_match(saved, trace), tuple(unread)
