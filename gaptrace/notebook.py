"""Traces in a notebook: `gaptrace.open`."""

import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from gaptrace.analysis import Analysis, analyze
from gaptrace.calibration import Calibration
from gaptrace.calibration_choice import choose_calibration
from gaptrace.errors import GaptraceError
from gaptrace.prepared import Prepared, prepare
from gaptrace.read import read
from gaptrace.record.export import export
from gaptrace.render.summary import summary
from gaptrace.render.text import report

if TYPE_CHECKING:
    from gaptrace.render.widget import Timeline

#: Columns of the text of a report; what a notebook's cell shows without wrapping.
_WIDTH = 100


@dataclass(frozen=True)
class OpenTrace:
    """A trace that was opened; shows a summary as the last line of a cell.

    Attributes:
        analysis: every figure, as polars frames; `analysis.trace` holds the rows themselves.
        calibration: what launches cost on its machine without a recorder; None where not known.
    """

    analysis: Analysis
    calibration: Calibration | None = None

    def report(self) -> str:
        """Return the report as text."""
        return report(self.analysis, width=_WIDTH, color=False)

    def timeline(self, from_ns: int | None = None, to_ns: int | None = None) -> "Timeline":
        """Return a timeline to zoom into; the last line of a cell shows it.

        Every zoom and every move is drawn anew from all ops, calls and ranges of its window: exact
        sums where they are too many to be drawn one by one. Dragging zooms, a double click shows
        the whole again; from Python, `timeline.window = (from_ns, to_ns)` or `None` does. In a
        notebook without Python, as on a web page, the figure is as it was saved.

        Args:
            from_ns: where to begin, in nanoseconds since the session began.
            to_ns: where to end.

        Raises:
            GaptraceError: the package anywidget is not installed.
        """
        try:
            from gaptrace.render.widget import Timeline
        except ModuleNotFoundError as error:
            raise GaptraceError(
                f"a timeline in a notebook needs the package {error.name}, which is not installed: "
                "pip install 'gaptrace[notebook]'"
            ) from error
        return Timeline(self._prepared, from_ns, to_ns)

    @cached_property
    def _prepared(self) -> Prepared:
        return prepare(self.analysis)

    def _repr_html_(self) -> str:
        return summary(self.analysis)

    def __repr__(self) -> str:
        return f"gaptrace.open({self.analysis.trace.meta.path!r})"


def open(
    path: str | Path,
    *,
    device_id: int | None = None,
    range_name: str | None = None,
    from_ns: int | None = None,
    to_ns: int | None = None,
    calibration: str | Path | None = None,
) -> OpenTrace:
    """Open a trace and analyse it.

    Args:
        path: an SQLite export, or a .nsys-rep report, which is exported first.
        device_id: only this physical GPU.
        range_name: only inside NVTX ranges of this name or path.
        from_ns: only from this time on, in nanoseconds since the session began.
        to_ns: only until this time.
        calibration: a file from `gaptrace calibrate`, made on the machine of the trace. Without it
            the saved one of the same GPU, driver and CUDA, where there is one.

    Warns:
        UserWarning: a saved calibration could not be read.

    Raises:
        GaptraceError: as `gaptrace.read.read`, `gaptrace.analyze` and the export do.
    """
    path = Path(path)
    exported = export(path) if path.suffix == ".nsys-rep" else path
    trace = read(exported)
    chosen = None if calibration is None else Path(calibration)
    known, unread = choose_calibration(trace, chosen)
    for error in unread:
        warnings.warn(str(error), stacklevel=2)
    analysis = analyze(
        trace,
        device_id=device_id,
        range_name=range_name,
        from_ns=from_ns,
        to_ns=to_ns,
        calibration=known,
    )
    return OpenTrace(analysis, known)
