"""A Perfetto file as rows again, read by Perfetto's own protobuf classes or its trace processor.

With the classes, slices are paired as the trace processor does it: packets in order of time, those
of one time in order of the file; an end closes the slice of its track that began last.
"""

import os
import shutil
from collections import defaultdict
from dataclasses import dataclass, field

import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema
from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

#: Where else than in PATH the program is.
VARIABLE = "GAPTRACE_TRACE_PROCESSOR"


@dataclass
class Read:
    """What is in a file, by the place of a track: its groups and its own name, joined by ` / `."""

    slices: dict = field(default_factory=lambda: defaultdict(list))  # start, end, name, facts
    instants: dict = field(default_factory=lambda: defaultdict(list))  # time, name, facts
    counters: dict = field(default_factory=lambda: defaultdict(list))  # time, value
    flows: dict = field(default_factory=lambda: defaultdict(list))  # place, start, name
    descriptions: dict = field(default_factory=dict)
    lanes: dict = field(default_factory=lambda: defaultdict(set))


def read_perfetto(path):
    trace = schema.Trace()
    trace.ParseFromString(path.read_bytes())
    assert trace.packet[0].sequence_flags == schema.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
    read, tracks, names, facts = Read(), {}, {}, {}
    for packet in trace.packet:
        assert packet.trusted_packet_sequence_id == 1
        names |= {entry.iid: entry.name for entry in packet.interned_data.event_names}
        facts |= {entry.iid: entry.name for entry in packet.interned_data.debug_annotation_names}
        if packet.HasField("track_descriptor"):
            _describe(packet.track_descriptor, tracks, read)
        elif packet.HasField("track_event"):
            # Names and tracks are known before they are used, in the order of the file.
            assert packet.track_event.track_uuid in tracks
            assert not packet.track_event.name_iid or packet.track_event.name_iid in names
    events = [packet for packet in trace.packet if packet.HasField("track_event")]
    _add_events(read, events, tracks, names, facts)
    return read


def _add_events(read, events, tracks, names, facts):
    open_slices = defaultdict(list)
    for packet in sorted(events, key=lambda packet: packet.timestamp):  # sorted() is stable
        event, time = packet.track_event, packet.timestamp
        place, name = tracks[event.track_uuid], names.get(event.name_iid)
        kind = schema.TrackEvent.Type.Name(event.type)
        if kind == "TYPE_SLICE_BEGIN":
            open_slices[event.track_uuid].append((time, name, _facts(event, facts)))
        elif kind == "TYPE_SLICE_END":
            start, begun, told = open_slices[event.track_uuid].pop()
            read.slices[place].append((start, time, begun, told))
        elif kind == "TYPE_INSTANT":
            read.instants[place].append((time, name, _facts(event, facts)))
        else:
            read.counters[place].append((time, event.counter_value))
        for flow in event.flow_ids:
            read.flows[flow].append((place, time, name))
    assert not any(open_slices.values())
    for rows in read.slices.values():
        rows.sort(key=lambda row: (row[0], -row[1], row[2]))


def _describe(described, tracks, read):
    parent = tracks[described.parent_uuid] + " / " if described.parent_uuid else ""
    place = tracks[described.uuid] = parent + described.name
    read.lanes[place].add((described.uuid, described.sibling_merge_key))
    if described.description:
        read.descriptions[place] = described.description


def _facts(event, names):
    return {
        names[fact.name_iid]: getattr(fact, fact.WhichOneof("value"))
        for fact in event.debug_annotations
    }


def trace_processor():
    """Return the path of Perfetto's trace processor, or skip the test."""
    found = os.environ.get(VARIABLE) or shutil.which("trace_processor_shell")
    if found is None:
        pytest.skip(f"no trace_processor_shell in PATH or named by {VARIABLE}")
    return found


def query_perfetto(path, program):
    """Read a file with the trace processor; instants are slices of no length, facts are left out.

    Returns:
        slices, counters and flows as in `Read`, flows as pairs; and what it found wrong.
    """
    config = TraceProcessorConfig(bin_path=program, unique_port=True)
    with TraceProcessor(trace=str(path), config=config) as processor:

        def rows(query):
            return [tuple(row.__dict__.values()) for row in processor.query(query)]

        tracks = {own: (name, parent) for own, name, parent in rows(_TRACKS)}
        slices = {own: (_place(track, tracks), *row) for own, track, *row in rows(_SLICES)}
        found = Read()
        for place, start, end, name in slices.values():
            found.slices[place].append((start, end, name))
        for track, time, value in rows("SELECT track_id, ts, value FROM counter ORDER BY ts"):
            found.counters[_place(track, tracks)].append((time, value))
        flows = [
            tuple((place, start, name) for place, start, _, name in (slices[a], slices[b]))
            for a, b in rows("SELECT slice_out, slice_in FROM flow")
        ]
        problems = rows("SELECT name, value FROM stats WHERE severity != 'info' AND value != 0")
    return found.slices, found.counters, flows, problems


_TRACKS = "SELECT id, name, parent_id FROM track"
_SLICES = "SELECT id, track_id, ts, ts + dur AS end, name FROM slice ORDER BY ts, dur DESC, name"


def _place(track, tracks):
    name, parent = tracks[track]
    return name if parent is None else f"{_place(parent, tracks)} / {name}"
