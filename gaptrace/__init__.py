"""gaptrace: where a GPU stands idle, why, and what CUDA graphs would change.

Importing this package loads neither polars nor any GPU library; names are fetched on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gaptrace.live.ranges import range, step

__version__ = "0.1.0"

__all__ = ["__version__", "range", "step"]

_HOME = {
    "range": "gaptrace.live.ranges",
    "step": "gaptrace.live.ranges",
}


def __getattr__(name: str) -> Any:
    """Fetch a public name from the module that defines it (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'gaptrace' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
