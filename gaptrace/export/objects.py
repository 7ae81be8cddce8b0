"""The analysis as a JSON file."""

import json
from collections.abc import Callable
from pathlib import Path

from gaptrace.analysis import Analysis
from gaptrace.drafts import new_file
from gaptrace.render.json import analysis_object


def write_json(
    analysis: Analysis, target: Path, progress: Callable[[int], None] | None = None
) -> None:
    """Write what `gaptrace analyze --json` prints.

    Args:
        analysis: of the whole trace.
        target: the file to make; nothing may be there.
        progress: told how many percent are done.

    Raises:
        GaptraceError: the target exists or cannot be written.
    """
    with new_file(target) as draft:
        draft.write_text(json.dumps(analysis_object(analysis), indent=1) + "\n")
    if progress:
        progress(100)
