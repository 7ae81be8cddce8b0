"""The spool of the CUPTI recorder: what the profiled process leaves, as frames in one file.

A frame is a tag of one byte, the length of what follows as 8 bytes, little-endian, and that many
bytes. A process that dies leaves the last frame cut off; all before it are whole.

- `H`, first, once: JSON, see `gaptrace.live.cupti`: who recorded, when, and how records look.
- `T`: JSON {"pointer": "text"}: texts that records point to, from here on.
- `G`: JSON [time, thread, event, graph, exec, or the graph that it is a clone of]: a graph or graph
  exec was made.
- `R`: kind and size of a record (4 bytes each), then records of one family, as CUPTI wrote them.
- `L`: JSON of what is not there: `dropped`, records that CUPTI had no room for; `unread_bytes` of
  records that nobody can read; `left_out`, {what this CUPTI does not record: why}.
- `E`, last: nothing; the recording ended in order.
"""

import struct
from collections.abc import Iterator

#: The name under which nvtx's default domain is recorded: CUPTI drops what has no domain at all.
DEFAULT_DOMAIN = "NVTX"

#: What a frame of records begins with: kind and size of one.
RECORDS = struct.Struct("<II")
_FRAME = struct.Struct("<cQ")


def frame(tag: bytes, *parts: bytes | memoryview) -> bytes:
    """Return a frame: a tag of one byte, and what it holds."""
    return b"".join((_FRAME.pack(tag, sum(map(len, parts))), *parts))


def frames(spool: memoryview) -> Iterator[tuple[bytes, memoryview, bool]]:
    """Yield tag, content and whether it is whole, of each frame; only the last can be cut off."""
    at = 0
    while at < len(spool):
        if len(spool) - at < _FRAME.size:
            yield b"", spool[at:], False
            return
        tag, length = _FRAME.unpack_from(spool, at)
        at += _FRAME.size
        content = spool[at : at + length]
        yield tag, content, len(content) == length
        at += length
