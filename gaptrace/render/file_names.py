"""Names of files that stand side by side: as short as tells them apart."""

from collections.abc import Sequence
from pathlib import Path


def told_apart(paths: Sequence[str | Path]) -> list[str]:
    """Return the last parts of each path, so many that all differ: mostly the file's name.

    The same file twice has the same name twice.
    """
    parts = [Path(path).parts for path in paths]
    longest = max(map(len, parts), default=1)
    for count in range(1, longest + 1):
        names = [str(Path(*each[-count:])) for each in parts]
        if len(set(names)) == len(set(parts)):
            return names
    return [str(path) for path in paths]
