"""The checks of a follower before it writes batches exactly as its leader stores them (F2, R1, R5).

The batches arrive with both CRCs, offsets, epochs and append times, and are written unchanged. All
batches are checked before any batch is written. Neighbours: `writer` writes them, and `write_batch`
collects the batches of one write.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from tidelog.errors import CorruptBatch, DataCorrupt, TidelogError
from tidelog.records import HEADER_BYTES, BatchHeader, verify_batch
from tidelog.records.layout import SCHEMA_VERSION, check_framing
from tidelog.records.limits import BATCH_BYTES_HARD_MAX
from tidelog_broker.storage.files.protocol import Bytes
from tidelog_broker.storage.guard.replay import message_ids_of
from tidelog_broker.storage.points import PartitionKey


class OutOfSequence(TidelogError):
    """Sound batches that do not continue this log: they answer a request about another state of the log."""

    code = "OUT_OF_SEQUENCE"


class Received(NamedTuple):
    """A batch of a leader that passed the checks."""

    header: BatchHeader
    batch: memoryview
    message_ids: tuple[tuple[int, str], ...]
    """(offset, message id) of the records that are deduplicated (F4)."""


class Continuation(NamedTuple):
    """The point from which a batch may continue the log."""

    end_offset: int
    last_epoch: int | None
    """The epoch of the last record; None: the log holds no record."""
    leader_epoch: int
    """The epoch of the leader; no batch may have a later epoch."""


def base_of_first(data: Bytes) -> int:
    """The base offset in the header of the first batch; raises `DataCorrupt` if there is no batch."""
    header, _ = next(_split(memoryview(data), 0))
    return header.base_offset


def check_received(data: Bytes, key: PartitionKey, after: Continuation) -> list[Received]:
    """Checks and returns the batches in `data`.

    Raises `DataCorrupt` for bytes that are not sound batches, and `OutOfSequence` for batches that do not
    continue the log.
    """
    found: list[Received] = []
    expected, epoch = after.end_offset, after.last_epoch or 0
    for header, batch in _split(memoryview(data), after.end_offset):
        try:
            verify_batch(pa.py_buffer(batch), header, *key)
        except DataCorrupt as error:
            raise DataCorrupt(f"a leader sent an invalid batch: {error}", **error.details) from None  # type: ignore[arg-type]
        _check_fields(header)
        if header.base_offset != expected and not (header.compacted and header.base_offset > expected):
            raise OutOfSequence(f"a leader sent offset {header.base_offset} where {expected} is next")
        if not epoch <= header.leader_epoch <= after.leader_epoch:
            raise OutOfSequence(
                f"a leader sent a batch of leader epoch {header.leader_epoch} at offset "
                f"{header.base_offset}; from {epoch} to its own, {after.leader_epoch}, would be right"
            )
        expected, epoch = header.next_offset, header.leader_epoch
        ids: list[tuple[int, str]] = []
        if header.has_message_ids and header.schema_version == SCHEMA_VERSION:
            ids = message_ids_of(pa.py_buffer(batch), header)
        found.append(Received(header, batch, tuple(ids)))
    return found


def _split(data: memoryview, offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    at = 0
    while at < len(data) or not data:
        try:
            if len(data) - at < HEADER_BYTES:
                raise CorruptBatch(f"{len(data) - at} bytes are too few for a batch header")
            header = BatchHeader.unpack(data, at)
            check_framing(header, len(data) - at)
        except CorruptBatch as error:
            raise DataCorrupt(f"a leader sent no whole batch at byte {at}: {error}", offset=offset) from None
        yield header, data[at : at + header.length]
        at += header.length


def _check_fields(header: BatchHeader) -> None:
    """Checks header fields that can be wrong although the CRCs are right."""
    if header.length > BATCH_BYTES_HARD_MAX:
        raise DataCorrupt(
            f"a leader sent a batch of {header.length} bytes; {BATCH_BYTES_HARD_MAX} is the bound (F3)",
            offset=header.base_offset,
        )
    if not header.compacted and header.last_offset_delta != header.record_count - 1:
        raise DataCorrupt(
            f"a leader sent a batch of {header.record_count} records whose last is "
            f"{header.last_offset_delta} behind the first",
            offset=header.base_offset,
        )
