"""gaptrace: where a GPU stands idle, why, and what CUDA graphs would change.

In the program that uses the GPU, `range` and `step` name its parts, `capture` turns work into a
CUDA graph and `split` cuts one into chunks; `measure` times ways to run a step, and `tune` advises
one. Afterwards `open` reads and analyses a recording; of its parts, `gaptrace.read.read` turns one
into a `Trace`, and `analyze` turns that into an `Analysis`.

Importing this package loads neither polars nor any GPU library; names are fetched on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gaptrace.analysis import Analysis, analyze
    from gaptrace.cell import load_ipython_extension as load_ipython_extension
    from gaptrace.live.capture import capture
    from gaptrace.live.measure import measure
    from gaptrace.live.ranges import range
    from gaptrace.live.split import split
    from gaptrace.live.step import step
    from gaptrace.notebook import open
    from gaptrace.trace import Trace
    from gaptrace.tuning import tune

__version__ = "0.1.0"

__all__ = [
    "Analysis",
    "Trace",
    "__version__",
    "analyze",
    "capture",
    "measure",
    "open",
    "range",
    "split",
    "step",
    "tune",
]

_HOME = {
    "Analysis": "gaptrace.analysis",
    "Trace": "gaptrace.trace",
    "analyze": "gaptrace.analysis",
    "capture": "gaptrace.live.capture",
    "load_ipython_extension": "gaptrace.cell",  # for %load_ext gaptrace
    "measure": "gaptrace.live.measure",
    "open": "gaptrace.notebook",
    "range": "gaptrace.live.ranges",
    "split": "gaptrace.live.split",
    "step": "gaptrace.live.step",
    "tune": "gaptrace.tuning",
}


def __getattr__(name: str) -> Any:
    """Fetch a public name from the module that defines it (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'gaptrace' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    """List the public names, those not fetched yet included."""
    return __all__
