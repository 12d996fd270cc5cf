"""Feeds the batches of a log to its append guard, up to the log's end (DESIGN 4.9).

Neighbours: `append_guard` is the guard, and `snapshots` gives the state from which the replay starts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from tidelog.errors import DataCorrupt
from tidelog.records import BatchHeader, decode_batch
from tidelog_broker.storage.files.protocol import Bytes
from tidelog_broker.storage.guard.append_guard import AppendGuard
from tidelog_broker.storage.segments.scan import Sound, scan
from tidelog_broker.storage.segments.segment import Segment

MESSAGE_ID_HEADER = "Nats-Msg-Id"


def replay(guard: AppendGuard, segments: Iterable[Segment]) -> bool:
    """Brings the append guard up to the end of the log (DESIGN 4.9); returns whether it saw every batch.

    Every batch is verified first: a wrong guard would take new batches for repeats. Damage is
    stepped over, because its content is unknown.
    """
    whole = True
    for segment in segments:
        if segment.size and segment.next_offset > guard.offset:
            with contextlib.suppress(FileNotFoundError):
                whole &= _replay_segment(guard, segment)
    return whole


def _replay_segment(guard: AppendGuard, segment: Segment) -> bool:
    start, whole = 0, True
    if guard.offset > segment.base_offset:
        with contextlib.suppress(DataCorrupt):
            start = segment.locate(guard.offset)
    with segment.opened() as file:
        for found in scan(file, start, segment.size, *segment.key, -1):
            if not isinstance(found, Sound):
                whole = False
            elif found.header.base_offset >= guard.offset:
                header = found.header
                ids: list[tuple[int, str]] = []
                if header.has_message_ids:
                    ids = message_ids_of(segment.pread(header.length, found.position), header)
                guard.record(header, ids)
    return whole


def message_ids_of(batch: Bytes, header: BatchHeader) -> list[tuple[int, str]]:
    """Offset and message id of each record that has a message id, in a batch with attribute bit 7."""
    columns = decode_batch(batch, header)
    found = []
    for index, headers in enumerate(columns.column("headers").to_pylist()):
        for entry in headers:
            if entry["key"] == MESSAGE_ID_HEADER and entry["value"] is not None:
                name = entry["value"].decode("utf-8", "surrogateescape")
                if name:
                    found.append((header.base_offset + index, name))
                break
    return found
