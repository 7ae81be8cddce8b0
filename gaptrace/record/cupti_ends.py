"""Ends of copies that CUPTI mixed up, cut to what streams and waits leave possible.

Seen with CUPTI 13.0 (driver 580, H200): of copies within the device that were followed by graph
executions recorded as wholes, two of four ended where a later graph execution began, seven
milliseconds late. Nsight Systems shows none such for the same program. What is certain all the
same: a copy has ended when the next work of its stream begins, and when a wait for its stream that
was called after it returns.
"""

import numpy as np

from gaptrace.record.cupti_spool import Column

_WORK = ("kernel", "memcpy", "memcpy_peer", "memset", "graph_trace")
_COPIES = ("memcpy", "memcpy_peer", "memset")
#: CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE.
_STREAM_SYNCHRONIZE = 3
_FOREVER = np.iinfo(np.int64).max
_KEY = 1 << 32


def bound_ends(columns: dict[str, dict[str, Column]]) -> int:
    """Cut the ends of copies and sets that cannot be, in place.

    Args:
        columns: of `Spool.columns`, with times that count from the begin of the recording.

    Returns:
        how many were cut.
    """
    starts = np.concatenate([columns[family]["start"] for family in _WORK])
    streams = np.concatenate([_stream(columns[family]) for family in _WORK])
    order = np.lexsort((starts, streams))
    next_work = _Later(streams[order], starts[order], starts[order])
    # A wait for an event, by the host or a stream, says nothing of what was queued after the event.
    synchronized = columns["synchronization"]
    for_stream = synchronized["type"] == _STREAM_SYNCHRONIZE
    waits = {name: column[for_stream] for name, column in synchronized.items()}
    order = np.lexsort((waits["correlation_id"], _stream(waits)))
    returned = _Later(
        _stream(waits)[order], waits["correlation_id"].astype(np.int64)[order], waits["end"][order]
    )
    cut = 0
    for family in _COPIES:
        rows = columns[family]
        stream = _stream(rows)
        latest = np.minimum(
            next_work.first_after(stream, rows["start"]),
            returned.first_after(stream, rows["correlation_id"].astype(np.int64)),
        )
        latest = np.maximum(latest, rows["start"])
        late = rows["end"] > latest
        cut += int(late.sum())
        rows["end"] = np.where(late, latest, rows["end"])
    return cut


def _stream(rows: dict[str, Column]) -> Column:
    return rows["context_id"].astype(np.int64) * _KEY + rows["stream_id"].astype(np.int64)


class _Later:
    """Looks up, by stream, the first value whose place comes after another."""

    def __init__(self, streams: Column, places: Column, values: Column) -> None:
        self._streams, self._places, self._values = streams, places, values

    def first_after(self, streams: Column, places: Column) -> Column:
        """Return the values; far in the future where there is none."""
        found = np.full(len(streams), _FOREVER)
        for stream in np.unique(streams):
            mine = streams == stream
            begin, end = np.searchsorted(self._streams, [stream, stream + 1])
            at = np.searchsorted(self._places[begin:end], places[mine], side="right")
            values = np.append(self._values[begin:end], _FOREVER)
            found[mine] = values[at]
        return found
