"""Reads the whole log of a replica as a reader gets it, batch by batch, without a client or a network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from simulator.node import Key, Replica
from tidelog._connecting.framing import FetchAnswer
from tidelog._reading.fetching import FetchedBatch, FetchState
from tidelog.history import History, Read, runs_of
from tidelog.model import Position
from tidelog_proto import log_pb2

FETCH_BYTES: Final = 16 << 10
LAST_READER: Final = 1_000_000
"""The one that reads everything when all is over."""


def read_all(history: History, replica: Replica, key: Key, place: int) -> None:
    """What a reader sees that begins when all is over, and reads to the end."""
    for batch in batches_of(replica, key):
        history.reads.extend(
            Read(LAST_READER, place, batch.base_offset + index, producer, first, count)
            for index, producer, first, count in runs_of(batch.columns.column("value"))
        )


def batches_of(replica: Replica, key: Key, start: int | None = None) -> Iterator[FetchedBatch]:
    """All of a replica's log, or what begins at `start`, as a reader gets it."""
    log = replica.log
    offset = log.start_offset if start is None else start
    progress = FetchState(replica.name, key[0], key[1], Position(offset), None)
    while offset < log.end_offset:
        chunk = log.reader.read(offset, FETCH_BYTES, log.end_offset)
        assert chunk is not None, f"offset {offset} of {log!r} cannot be read"
        data = b"".join(bytes(part) for part in chunk.parts)
        yield from progress.accept(FetchAnswer(log_pb2.FetchResponse(), data))
        offset = chunk.next_offset
