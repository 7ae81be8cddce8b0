"""Buffers for CUPTI, and what of a full one goes to the spool: runs of records of one family."""

import ctypes
import json
from collections.abc import Callable, Iterator
from typing import Any

from gaptrace.spool import RECORDS, frame

#: NVIDIA advises 1 to 10 MB. 4 MiB hold 20,000 kernels or 100,000 calls.
_SIZE = 4 << 20
_AT_FIRST = 2  # buffers made beforehand, since making one takes a call that needs it longer
_END_OF_BUFFER = 12  # CUPTI_ERROR_MAX_LIMIT_REACHED
#: Kinds are numbered from 0, and there were 56 of them in CUDA 13.0.
_KINDS = 256
_MOST_TEXTS = 10_000
#: After how many records of a family in a row to look for the end of the row at once.
_LONG = 16

#: void (uint8_t **buffer, size_t *size, size_t *maxNumRecords)
_REQUESTED = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.POINTER(ctypes.c_size_t),
)
#: void (CUcontext, uint32_t streamId, uint8_t *buffer, size_t size, size_t validSize)
_COMPLETED = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
)
#: Fields that point to a text.
_TEXTS = ("name", "domain")


class Families:
    """Which kinds of records are read together, and how long a record of each is.

    A library newer than cupti-python appends fields to records. So lengths are learned from
    the library, and what cupti-python says serves only where that fails.
    """

    def __init__(self, layouts: dict[str, dict[str, Any]]) -> None:
        import numpy as np

        self.layouts = layouts
        self.texts: dict[int, list[int]] = {}
        self._likely = {}
        self.learned: dict[int, int] = {}
        #: kind -> number of its family: the first kind of it
        self.of = np.arange(_KINDS, dtype=np.uint32)
        for layout in layouts.values():
            first = layout["kinds"][0]
            for kind in layout["kinds"]:
                self.of[kind] = first
                self._likely[kind] = layout["size"]
            self.texts[first] = [layout["fields"][f][0] for f in _TEXTS if f in layout["fields"]]

    def is_wanted(self, family: int) -> bool:
        """Say whether records of a family go to the spool."""
        return family in self.texts

    def size(self, kind: int, at: int, buffer: int, valid: int, next_record: Any) -> int | None:
        """Return the length of the record at an offset of a buffer; None if nobody can say."""
        found = self.learned.get(kind)
        if found is not None:
            return found
        record = ctypes.c_void_p(buffer + at)
        status = next_record(buffer, valid, ctypes.byref(record))
        if status == 0 and record.value is not None and record.value > buffer + at:
            self.learned[kind] = record.value - (buffer + at)
            return self.learned[kind]
        if status == _END_OF_BUFFER:
            return valid - at
        return self._likely.get(kind)


class BufferPool:
    """Hands buffers to CUPTI, takes them back full, and passes on what they hold.

    It must live as long as the process: CUPTI may call it at any time. So several recordings of one
    process share one, which passes on to the latest.

    Args:
        library: libcupti.
        families: of records.
    """

    def __init__(self, library: Any, families: Families) -> None:
        self._library = library
        self._families = families
        self._write: Callable[[bytes], None] = _drop
        self._buffers: dict[int, Any] = {}
        self._free: list[int] = []
        self._texts: dict[int, str] = {}
        self._on_first_use: Callable[[], None] | None = None
        # CUPTI keeps no reference to what it calls.
        self._callbacks = _REQUESTED(self._requested), _COMPLETED(self._completed)
        for _ in range(_AT_FIRST):
            self._free.append(self._new())

    def pass_to(self, write: Callable[[bytes], None], on_first_use: Callable[[], None]) -> None:
        """Pass what is recorded from now on to another recording.

        Args:
            write: takes frames; called on a thread of CUPTI or on one that flushes.
            on_first_use: called once, when CUPTI next wants a buffer.
        """
        self._texts.clear()  # the other one has read none of them
        self._on_first_use, self._write = on_first_use, write

    def pass_to_nobody(self) -> None:
        """Drop what CUPTI still hands over."""
        self._on_first_use, self._write = None, _drop

    def register(self) -> None:
        """Let CUPTI use these buffers.

        Raises:
            RuntimeError: it does not want to.
        """
        status = self._library.cuptiActivityRegisterCallbacks(*self._callbacks)
        if status != 0:
            raise RuntimeError(f"cuptiActivityRegisterCallbacks failed with {status}")

    def _new(self) -> int:
        import numpy as np

        buffer = np.empty(_SIZE, np.uint8)
        self._buffers[buffer.ctypes.data] = buffer
        return int(buffer.ctypes.data)

    def _requested(self, buffer: Any, size: Any, most_records: Any) -> None:
        try:
            address = self._free.pop()
        except IndexError:
            address = self._new()
        buffer[0], size[0], most_records[0] = address, _SIZE, 0
        first, self._on_first_use = self._on_first_use, None
        if first is not None:
            first()

    def _completed(
        self, context: int | None, stream: int, buffer: int, size: int, valid: int
    ) -> None:
        if valid:
            self._write(b"".join(self._frames(buffer, valid)))
        dropped = ctypes.c_size_t()
        self._library.cuptiActivityGetNumDroppedRecords(context, stream, ctypes.byref(dropped))
        if dropped.value:
            self._write(frame(b"L", json.dumps({"dropped": dropped.value}).encode()))
        self._free.append(buffer)

    def _frames(self, buffer: int, valid: int) -> Iterator[bytes]:
        """Frames of a buffer: texts before the records that point to them."""
        import numpy as np

        words = self._buffers[buffer][: valid // 8 * 8].view("<u8")
        found: list[bytes] = []
        texts: dict[int, str] = {}
        for (family, size), places in self._places(buffer, valid).items():
            if not self._families.is_wanted(family):
                continue
            first = np.array(places, np.int64) // 8
            rows = np.lib.stride_tricks.sliding_window_view(words, size // 8)[first]
            for offset in self._families.texts[family]:
                for pointer in np.unique(rows[:, offset // 8]).tolist():
                    self._note_text(pointer, texts)
            found.append(frame(b"R", RECORDS.pack(family, size), rows.tobytes()))
        if texts:
            yield frame(b"T", json.dumps(texts).encode())
        yield from found

    def _places(self, buffer: int, valid: int) -> dict[tuple[int, int], list[int]]:
        """Return where the records of each family and length begin.

        A launch leaves the record of its call and that of its kernel side by side, so that records
        are mostly looked at one by one; a graph leaves those of its nodes in a row.
        """
        kinds = memoryview(self._buffers[buffer])[: valid // 4 * 4].cast("I")
        families = self._families
        sizes, family_of = families.learned, families.of.tolist()
        places: dict[tuple[int, int], list[int]] = {}
        of_kind: dict[int, list[int]] = {}
        at, alike, last = 0, 0, -1
        while at < valid:
            kind = kinds[at >> 2]
            size = sizes.get(kind) or self._size(kind, at, buffer, valid)
            if size is None or at + size > valid:
                # CUPTI's own walk ends at such a record, too.
                self._write(frame(b"L", json.dumps({"unread_bytes": valid - at}).encode()))
                break
            family = family_of[kind]
            own = of_kind.get(kind)
            if own is None:
                own = of_kind[kind] = places.setdefault((family, size), [])
            alike = alike + 1 if family == last else 0
            last = family
            if alike < _LONG:
                own.append(at)
                at += size
            else:
                rest = self._buffers[buffer][at : valid // 4 * 4].view("<u4")
                end = at + size * run_length(rest, size // 4, family, families.of)
                own.extend(range(at, end, size))
                at, alike = end, 0
        return places

    def _size(self, kind: int, at: int, buffer: int, valid: int) -> int | None:
        if not 0 < kind < _KINDS:
            return None
        next_record = self._library.cuptiActivityGetNextRecord
        return self._families.size(kind, at, buffer, valid, next_record)

    def _note_text(self, pointer: int, texts: dict[int, str]) -> None:
        """Read a text anew each time: its memory may hold another one since."""
        if not pointer:
            return
        text = ctypes.string_at(pointer).decode(errors="replace")
        if self._texts.get(pointer) != text:
            if len(self._texts) >= _MOST_TEXTS:
                self._texts.clear()
            self._texts[pointer] = texts[pointer] = text


def _drop(content: bytes) -> None:
    """Take frames that nobody wants."""


def run_length(words: Any, step: int, family: int, families: Any) -> int:
    """Return how many records in a row belong to a family; at least 1.

    Args:
        words: 32-bit words from the first record on; a record begins with its kind.
        step: words in a record.
        family: of the first record.
        families: kind -> family.
    """
    import numpy as np

    kinds = words[: len(words) // step * step : step]
    known, look = 1, 16
    while known < len(kinds):
        part = kinds[known : known + look]
        others = np.flatnonzero(families[np.minimum(part, len(families) - 1)] != family)
        if len(others):
            return known + int(others[0])
        known += len(part)
        look *= 8
    return known
