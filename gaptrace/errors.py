"""Errors a user can meet, each with what happened, where, and what to do next.

```
GaptraceError            exit status 1
├── TraceFormatError     the file is not an export that gaptrace can read
├── NotRecordedError     the file is sound but lacks what the question needs
├── WindowError          the asked window, range or device is not in the trace
├── ComparisonError      two traces say nothing about each other
├── ScheduleError        chunk sizes do not fit the graph that they are to cut
├── RecorderError        the recorder is missing or failed
├── CalibrationError     the calibration is missing, damaged, or of something else
├── GpuError             a call on the GPU failed, or what is asked cannot be done there
└── ResultError          a way to run the step computes something else
```

The library raises; only ``gaptrace.cli`` prints and chooses the exit status.
"""


class GaptraceError(Exception):
    """Base of every error that gaptrace raises on purpose; its text is one line."""


class TraceFormatError(GaptraceError):
    """The file cannot be read as a trace: missing, damaged, or of another kind."""


class NotRecordedError(GaptraceError):
    """The trace is sound but what the question needs was not recorded in it."""


class WindowError(GaptraceError):
    """The window, NVTX range or device that was asked for is not in the trace."""


class ComparisonError(GaptraceError):
    """Two traces differ in a way that would read as a change of the program."""


class ScheduleError(GaptraceError, ValueError):
    """Chunk sizes do not fit the graph that they are to cut."""


class RecorderError(GaptraceError):
    """The recorder (Nsight Systems, CUPTI) is missing, or it failed."""


class CalibrationError(GaptraceError):
    """There is no calibration of this machine, or the file holds none."""


class GpuError(GaptraceError):
    """The GPU, its driver or a library for it refused, or what is asked cannot be done there."""


class ResultError(GaptraceError):
    """One way to run a step computes something else than the step run launch by launch."""
