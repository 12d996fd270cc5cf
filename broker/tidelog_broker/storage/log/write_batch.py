"""The input and the outcome of an append, and the batches that are collected for one write.

Neighbours: `writer` writes the batches, `append_guard` decides about each batch.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.errors import DiskFull, StorageFailed, TidelogError
from tidelog.model import PipelineOrder
from tidelog.records import HEADER_BYTES, BatchHeader, stamp
from tidelog_broker.storage.files.protocol import Bytes
from tidelog_broker.storage.folder.leader_epochs import LeaderEpochs
from tidelog_broker.storage.guard.append_guard import BatchRef, GuardLimits
from tidelog_broker.storage.log.replicated import Received
from tidelog_broker.storage.segments.index import RELATIVE_OFFSET_MAX
from tidelog_broker.storage.segments.segment import Segment

DEFAULT_GUARD_LIMITS = GuardLimits()

FULL_DISK_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings of a stream that its partition logs need."""

    segment_bytes: int = 1 << 30
    segment_age_us: int | None = None
    guard: GuardLimits = DEFAULT_GUARD_LIMITS


class AppendItem(NamedTuple):
    """A validated batch that waits to be appended."""

    batch: bytes | memoryview
    """The batch as the client sent it: the leader's fields are zero."""
    header: BatchHeader
    expected_offset: int | None = None
    message_ids: tuple[tuple[int, str], ...] = ()
    """(index of the record, message id) of the records that must be deduplicated."""
    sender: PipelineOrder | None = None
    """The sender whose order must hold; None: no order must hold."""
    reset: bool = False
    """The sender starts again after a refusal."""
    sink_run: int = 0
    """The run of the sink that sends the batch (S3); 0: it is not of a sink."""


class Appended(NamedTuple):
    """The place of a batch in the log."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    append_time_us: int
    duplicate: bool


class Staged:
    """The batches of one write, and the outcomes of the append to which they belong."""

    __slots__ = (
        "append_time_us",
        "buffers",
        "bytes",
        "end",
        "headers",
        "ids",
        "leader_epoch",
        "outcomes",
        "places",
        "senders",
    )

    def __init__(self, leader_epoch: int, append_time_us: int) -> None:
        self.leader_epoch = leader_epoch
        self.append_time_us = append_time_us
        self.outcomes: list[Appended | TidelogError] = []
        """One outcome for each batch of the append, in order, over all its writes."""
        self.clear()

    def clear(self) -> None:
        """Empties the write, for the next write of the same append."""
        self.buffers: list[Bytes] = []
        """Two buffers for each batch: its header and the rest."""
        self.headers: list[BatchHeader] = []
        self.ids: list[list[tuple[int, str]]] = []
        self.places: list[int] = []
        """Indexes of the outcomes that fail if the write fails: those of the batches and of their repeats."""
        self.senders: list[PipelineOrder | None] = []
        """One sender for each entry of `places`."""
        self.bytes = 0
        self.end = 0
        """The offset after the last batch."""

    def fits(self, header: BatchHeader, active: Segment, segment_bytes: int) -> bool:
        """Whether a batch may follow these in the active segment; the first batch of a segment always may."""
        size = active.size + self.bytes
        if size == 0:
            return True
        if size + header.length > segment_bytes:
            return False
        # Batches from a leader already have their offsets, and may leave a gap (R12).
        end = max(self.end if self.headers else active.next_offset, header.base_offset)
        return end + header.last_offset_delta - active.base_offset <= RELATIVE_OFFSET_MAX

    def add(self, item: AppendItem, stream_id: bytes, partition: int, base_offset: int) -> None:
        """Adds a batch, stamped with its place in the log (F2)."""
        raw = stamp(
            item.batch,
            stream_id=stream_id,
            partition=partition,
            base_offset=base_offset,
            append_time_us=self.append_time_us,
            leader_epoch=self.leader_epoch,
        )
        header = BatchHeader.unpack(raw)
        self.buffers += (raw, memoryview(item.batch)[HEADER_BYTES:])
        self.headers.append(header)
        self.ids.append([(base_offset + index, name) for index, name in item.message_ids if name])
        self.places.append(len(self.outcomes))
        self.senders.append(item.sender)
        self.bytes += header.length
        self.end = header.next_offset
        self.outcomes.append(
            Appended(base_offset, self.end - 1, self.leader_epoch, self.append_time_us, duplicate=False)
        )

    def take(self, one: Received) -> None:
        """Adds a batch that is written unchanged, as the leader stored it."""
        self.buffers += (one.batch[:HEADER_BYTES], one.batch[HEADER_BYTES:])
        self.headers.append(one.header)
        self.ids.append(list(one.message_ids))
        self.bytes += one.header.length
        self.end = one.header.next_offset

    def repeat(self, ref: BatchRef, epochs: LeaderEpochs, sender: PipelineOrder | None) -> None:
        """Adds the outcome of a repeat: the place of its first copy, which may itself be in this write."""
        epoch: int | None = self.leader_epoch
        if self.headers and ref.base_offset >= self.headers[0].base_offset:
            self.places.append(len(self.outcomes))
            self.senders.append(sender)
        else:
            epoch = epochs.epoch_at(ref.base_offset)
        last = ref.base_offset + ref.records - 1
        self.outcomes.append(Appended(ref.base_offset, last, epoch or 0, ref.append_time_us, duplicate=True))

    def refuse(self, error: TidelogError, sender: PipelineOrder | None) -> None:
        """Refuses a batch, and all batches that its sender sends after it."""
        self.outcomes.append(error)
        if sender is not None:
            sender.failed = True

    def write_failed(self, refusal: TidelogError) -> None:
        """Makes the error the outcome of these batches, because nothing of them is in the log."""
        for place, sender in zip(self.places, self.senders, strict=True):
            self.outcomes[place] = refusal
            if sender is not None:
                sender.failed = True


def refusal_of(error: OSError) -> TidelogError:
    """The error for a client after a write that failed and left nothing in the log."""
    if error.errno in FULL_DISK_ERRNOS:
        return DiskFull(f"the broker's disk is full: {error.strerror}", retry_after_ms=1000)
    return StorageFailed(f"the broker could not write: {error.strerror or error}")
