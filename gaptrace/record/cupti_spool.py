"""Reads the spool of a CUPTI recording (`gaptrace.spool`) into columns, one set per family."""

import json
import mmap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gaptrace.errors import RecorderError
from gaptrace.spool import RECORDS, frames

Column = npt.NDArray[Any]
_TEXTS = ("name", "domain")


@dataclass
class Spool:
    """What one process recorded.

    Attributes:
        header: see `gaptrace.live.cupti`.
        columns: family -> field -> values; texts as numbers into `texts`, -1 for none. Families of
            which nothing was recorded are there, without rows.
        texts: what was pointed to.
        graphs: [time, thread, event, graph, exec or original] each.
        dropped: how many records CUPTI had no room for.
        unread_bytes: of records that could not be read.
        left_out: {what was not recorded: why}.
        is_cut: the file ends within a frame, or without the mark of an orderly end.
    """

    header: dict[str, Any]
    columns: dict[str, dict[str, Column]] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    graphs: list[list[Any]] = field(default_factory=list)
    dropped: int = 0
    unread_bytes: int = 0
    left_out: dict[str, str] = field(default_factory=dict)
    is_cut: bool = True


def read_spool(path: Path) -> Spool:
    """Read a spool; of one that is cut off, what was complete.

    Raises:
        RecorderError: there is none, or it holds not even its header.
    """
    try:
        with path.open("rb") as file:
            content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        raise RecorderError(f"{path}: no CUPTI recording in it ({error}); record again") from error
    rest = frames(content)
    tag, header, is_whole = next(rest)
    if tag != b"H" or not is_whole:
        raise RecorderError(
            f"{path}: not a CUPTI recording, or cut off before anything was recorded; record again"
        )
    spool = Spool(json.loads(bytes(header)))
    _read_frames(spool, rest)
    return spool


def _read_frames(spool: Spool, rest: Iterator[tuple[bytes, memoryview, bool]]) -> None:
    families = spool.header["families"]
    family_of = {kind: name for name, layout in families.items() for kind in layout["kinds"]}
    parts: dict[str, list[dict[str, Column]]] = {
        name: [_no_rows(families[name])] for name in families
    }
    numbers = _Texts()
    for tag, content, is_whole in rest:
        if tag == b"R" and len(content) >= RECORDS.size:
            kind, size = RECORDS.unpack_from(content)
            name = family_of[kind]
            rows = _columns(families[name], size, content[RECORDS.size :])
            parts[name].append(numbers.replace_pointers(rows))
        elif not is_whole:
            break
        elif tag == b"T":
            numbers.note(json.loads(bytes(content)))
        elif tag == b"G":
            spool.graphs.append(json.loads(bytes(content)))
        elif tag == b"L":
            lost = json.loads(bytes(content))
            spool.dropped += lost.get("dropped", 0)
            spool.unread_bytes += lost.get("unread_bytes", 0)
            spool.left_out |= lost.get("left_out", {})
        elif tag == b"E":
            spool.is_cut = False
    spool.texts = numbers.texts
    spool.columns = {
        name: {key: np.concatenate([part[key] for part in of_family]) for key in of_family[0]}
        for name, of_family in parts.items()
    }


def _no_rows(layout: dict[str, Any]) -> dict[str, Column]:
    rows = _columns(layout, layout["size"], memoryview(b""))
    return {key: rows[key].astype(np.int64) if key in _TEXTS else rows[key] for key in rows}


def _columns(layout: dict[str, Any], size: int, content: memoryview) -> dict[str, Column]:
    """Return the fields of all whole records in a run."""
    count = len(content) // size
    if not count:
        return {key: np.empty(0, dtype) for key, (_, dtype) in layout["fields"].items()}
    return {
        key: np.ndarray((count,), dtype, content, offset, (size,)).copy()
        for key, (offset, dtype) in layout["fields"].items()
    }


class _Texts:
    """Texts by number, and which of them each pointer leads to at the moment."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}
        self._of_pointer: dict[int, int] = {0: -1}

    def note(self, texts: dict[str, str]) -> None:
        for pointer, text in texts.items():
            number = self._numbers.setdefault(text, len(self.texts))
            if number == len(self.texts):
                self.texts.append(text)
            self._of_pointer[int(pointer)] = number

    def replace_pointers(self, rows: dict[str, Column]) -> dict[str, Column]:
        for key in _TEXTS:
            if key in rows:
                pointers, at = np.unique(rows[key], return_inverse=True)
                known = [self._of_pointer.get(pointer, -1) for pointer in pointers.tolist()]
                rows[key] = np.array(known, np.int64)[at]
        return rows
