"""Tracks as packets of the Perfetto trace format, through the schema of the package perfetto.

A trace is a sequence of packets, so that what is written in parts is whole when read. Slices are
pairs of a begin and an end; on one Perfetto track they must nest, so that slices that cross go to
tracks of their own with the same merge key, which Perfetto shows as one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import polars as pl

from gaptrace.errors import GaptraceError
from gaptrace.export.tracks import Track

#: Packets that are kept before they are written: some 100 kB.
_BATCH = 2_000
#: All packets are of one sequence, which makes its names known once (interned_data).
_SEQUENCE = 1
#: Columns that are more than a fact about a row.
_OWN = {"slices": ("start_ns", "end_ns"), "instants": ("time_ns",), "counter": ("time_ns", "value")}


def schema() -> Any:
    """Import Perfetto's protobuf classes.

    Raises:
        GaptraceError: the package is not installed.
    """
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
    except ImportError as error:
        raise GaptraceError(
            "the package perfetto, which brings the format, is not installed: "
            "pip install 'gaptrace[perfetto]'"
        ) from error
    return perfetto_trace_pb2


@dataclass
class _Lane:
    """A Perfetto track, with the ends of the slices that are open on it, innermost last."""

    uuid: int
    ends: list[int] = field(default_factory=list)


class PacketWriter:
    """Writes tracks to an open file, a batch of packets at a time.

    Times are written as they are, in nanoseconds, plus `offset_ns`: Perfetto has none below 0.
    """

    def __init__(
        self, file: BinaryIO, *, offset_ns: int = 0, tick: Callable[[int], None] | None = None
    ) -> None:
        """Begin a trace.

        Args:
            file: where the packets go.
            offset_ns: is added to all times.
            tick: told, now and then, how many rows of tracks have been written since.
        """
        self._schema = schema()
        events, packets = self._schema.TrackEvent, self._schema.TracePacket
        self._begins, self._ends = events.TYPE_SLICE_BEGIN, events.TYPE_SLICE_END
        self._happens, self._counts = events.TYPE_INSTANT, events.TYPE_COUNTER
        self._uses_names = packets.SEQ_NEEDS_INCREMENTAL_STATE
        self._file, self._offset, self._tick = file, offset_ns, tick or (lambda _: None)
        self._batch = self._schema.Trace()
        self._rows = 0
        self._uuids: dict[tuple[str, ...], int] = {}
        self._tracks = 0
        self._interned: dict[str, dict[str, int]] = {}
        # Only packets after this one may use names that were made known.
        self._packet().sequence_flags = packets.SEQ_INCREMENTAL_STATE_CLEARED

    def write(self, track: Track, about: str | None = None) -> None:
        """Write a track, and the groups around it that are not there yet.

        Args:
            track: what to write; its frame need not be sorted.
            about: a sentence about the outermost group.
        """
        for depth in range(1, len(track.place)):
            self._group(track.place[:depth], about if depth == 1 else None)
        self._tracks += 1
        uuid = self._describe(track, self._tracks)
        {"slices": self._slices, "instants": self._instants, "counter": self._counter}[track.kind](
            track, uuid
        )

    def finish(self) -> None:
        """Write what is left."""
        self._file.write(self._batch.SerializeToString())
        self._batch = self._schema.Trace()
        self._tick(self._rows)
        self._rows = 0

    def _slices(self, track: Track, uuid: int) -> None:
        frame, shown = self._prepared(track, ["start_ns", pl.col("end_ns").neg()])
        lanes = [_Lane(uuid)]
        for start, end, name, flow, *values in frame.iter_rows():
            for lane in lanes:
                while lane.ends and lane.ends[-1] <= start:
                    self._end(lane)
                if not lane.ends or lane.ends[-1] >= end:
                    break
            else:
                self._tracks += 1
                lane = _Lane(self._describe(track, self._tracks))
                lanes.append(lane)
            lane.ends.append(end)
            event = self._named(self._begins, lane.uuid, start, name)
            if flow is not None:
                event.flow_ids.append(flow)
            self._facts(event, shown, values)
        for lane in lanes:
            while lane.ends:
                self._end(lane)

    def _end(self, lane: _Lane) -> None:
        self._event(self._ends, lane.uuid, lane.ends.pop())

    def _instants(self, track: Track, uuid: int) -> None:
        frame, shown = self._prepared(track, ["time_ns"])
        for time, name, flow, *values in frame.iter_rows():
            event = self._named(self._happens, uuid, time, name)
            if flow is not None:
                event.flow_ids.append(flow)
            self._facts(event, shown, values)

    def _counter(self, track: Track, uuid: int) -> None:
        for time, value in track.frame.select("time_ns", "value").iter_rows():
            _, event = self._event(self._counts, uuid, time)
            event.counter_value = value
            self._rows += 1

    def _prepared(
        self, track: Track, order: Sequence[str | pl.Expr]
    ) -> tuple[pl.DataFrame, list[tuple[int, str]]]:
        """Rows in order, and of each fact about them its name's number and its field."""
        frame = track.frame.sort(order, maintain_order=True)
        if "flow_id" not in frame.columns:
            frame = frame.with_columns(flow_id=pl.lit(None, pl.Int64))
        own = [*_OWN[track.kind], "name", "flow_id"]
        facts = [name for name in frame.columns if name not in own and not _is_null(frame[name])]
        shown = [(self._intern("debug_annotation_names", f), _field(frame[f])) for f in facts]
        return frame.select(*own, *facts), shown

    def _named(self, kind: int, uuid: int, time: int, name: str) -> Any:
        number = self._intern("event_names", name)
        packet, event = self._event(kind, uuid, time)
        packet.sequence_flags = self._uses_names
        event.name_iid = number
        self._rows += 1
        return event

    def _facts(self, event: Any, shown: list[tuple[int, str]], values: list[Any]) -> None:
        for (number, where), value in zip(shown, values, strict=True):
            if value is not None:
                fact = event.debug_annotations.add()
                fact.name_iid = number
                setattr(fact, where, value)

    def _intern(self, kind: str, name: str) -> int:
        """Return the number of a name, which is made known first when it is new."""
        known = self._interned.setdefault(kind, {})
        number = known.get(name)
        if number is None:
            number = known[name] = len(known) + 1
            entry = getattr(self._packet().interned_data, kind).add()
            entry.iid, entry.name = number, name
        return number

    def _packet(self) -> Any:
        if len(self._batch.packet) >= _BATCH:
            self.finish()
        packet = self._batch.packet.add()
        packet.trusted_packet_sequence_id = _SEQUENCE
        return packet

    def _event(self, kind: int, uuid: int, time: int) -> tuple[Any, Any]:
        packet = self._packet()
        packet.timestamp = time + self._offset
        event = packet.track_event
        event.type = kind
        event.track_uuid = uuid
        return packet, event

    def _group(self, place: tuple[str, ...], about: str | None) -> None:
        if place in self._uuids:
            return
        self._tracks += 1
        self._uuids[place] = self._tracks
        described = self._descriptor(place, self._tracks, self._tracks)
        described.child_ordering = self._schema.TrackDescriptor.EXPLICIT
        if about:
            described.description = about

    def _describe(self, track: Track, uuid: int) -> int:
        """Make a track known; the further lanes of one are shown with its first."""
        first = self._uuids.setdefault(track.place, uuid)
        described = self._descriptor(track.place, uuid, first)
        if track.kind == "counter":
            described.counter.unit = self._schema.CounterDescriptor.UNIT_COUNT
        return uuid

    def _descriptor(self, place: tuple[str, ...], uuid: int, first: int) -> Any:
        described = self._packet().track_descriptor
        described.uuid, described.name, described.sibling_order_rank = uuid, place[-1], first
        if len(place) > 1:
            described.parent_uuid = self._uuids[place[:-1]]
        described.sibling_merge_behavior = (
            self._schema.TrackDescriptor.SIBLING_MERGE_BEHAVIOR_BY_SIBLING_MERGE_KEY
        )
        described.sibling_merge_key = str(first)
        return described


def _is_null(column: pl.Series) -> bool:
    return column.null_count() == len(column)


def _field(column: pl.Series) -> str:
    """Return the field of a debug annotation that holds values of a column."""
    if column.dtype == pl.Boolean:
        return "bool_value"
    if column.dtype.is_integer():
        return "int_value"
    return "double_value" if column.dtype.is_float() else "string_value"
