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
"""The name, in histories, of the reader that reads everything at the end of a run."""


def read_all(history: History, replica: Replica, key: Key, place: int) -> None:
    """Adds to the history the reads of a reader that reads the whole log at the end of a run."""
    for batch in batches_of(replica, key):
        history.reads.extend(
            Read(LAST_READER, place, batch.base_offset + index, producer, first, count)
            for index, producer, first, count in runs_of(batch.columns.column("value"))
        )


def batches_of(replica: Replica, key: Key, start: int | None = None) -> Iterator[FetchedBatch]:
    """The batches of a replica's log from `start` (default: its log start), as a reader gets them."""
    log = replica.log
    offset = log.start_offset if start is None else start
    progress = FetchState(replica.name, key[0], key[1], Position(offset), None)
    while offset < log.end_offset:
        chunk = log.reader.read(offset, FETCH_BYTES, log.end_offset)
        assert chunk is not None, f"offset {offset} of {log!r} cannot be read"
        data = b"".join(bytes(part) for part in chunk.parts)
        yield from progress.accept(FetchAnswer(log_pb2.FetchResponse(), data))
        offset = chunk.next_offset
