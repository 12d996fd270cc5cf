"""What goes into an append and what comes out; batches collected for one write.

Neighbours: `partition_log` writes them, `append_guard` decides about each of them.
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
    """The settings of a stream that its logs need."""

    segment_bytes: int = 1 << 30
    segment_age_us: int | None = None
    guard: GuardLimits = DEFAULT_GUARD_LIMITS


class AppendItem(NamedTuple):
    """A validated batch that waits to be appended."""

    batch: bytes | memoryview
    """As the client sent it: the leader's fields are zero."""
    header: BatchHeader
    expected_offset: int | None = None
    message_ids: tuple[tuple[int, str], ...] = ()
    """(index of the record, id) of those records that are to be deduplicated."""
    sender: PipelineOrder | None = None
    """Whose order must hold; None: nobody's."""
    reset: bool = False
    """The sender begins again after a refusal."""


class Appended(NamedTuple):
    """Where a batch stands in the log."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    append_time_us: int
    duplicate: bool


class Staged:
    """Batches of one write, and the outcomes of the append that they are part of."""

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
        """One for each batch of the append, in order, over all its writes."""
        self.clear()

    def clear(self) -> None:
        """Begins the next write of the same append."""
        self.buffers: list[Bytes] = []
        """Two for each batch: its header and the rest."""
        self.headers: list[BatchHeader] = []
        self.ids: list[list[tuple[int, str]]] = []
        self.places: list[int] = []
        """Indexes of the outcomes that fail with the write: those of the batches and of their repeats."""
        self.senders: list[PipelineOrder | None] = []
        """One for each place."""
        self.bytes = 0
        self.end = 0
        """The offset behind the last batch."""

    def fits(self, header: BatchHeader, active: Segment, segment_bytes: int) -> bool:
        """Whether a batch may come behind these in the active segment; the first of a segment always may."""
        size = active.size + self.bytes
        if size == 0:
            return True
        if size + header.length > segment_bytes:
            return False
        # The leader's batches have their offset already, and may leave a gap (R12).
        end = max(self.end if self.headers else active.next_offset, header.base_offset)
        return end + header.last_offset_delta - active.base_offset <= RELATIVE_OFFSET_MAX

    def add(self, item: AppendItem, stream_id: bytes, partition: int, base_offset: int) -> None:
        """Stamps a batch with its place in the log (F2)."""
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
        """Adds a batch that is written as it is: a leader stored it so."""
        self.buffers += (one.batch[:HEADER_BYTES], one.batch[HEADER_BYTES:])
        self.headers.append(one.header)
        self.ids.append(list(one.message_ids))
        self.bytes += one.header.length
        self.end = one.header.next_offset

    def repeat(self, ref: BatchRef, epochs: LeaderEpochs, sender: PipelineOrder | None) -> None:
        """The outcome of a repeat is where its first copy stands, which may be staged itself."""
        epoch: int | None = self.leader_epoch
        if self.headers and ref.base_offset >= self.headers[0].base_offset:
            self.places.append(len(self.outcomes))
            self.senders.append(sender)
        else:
            epoch = epochs.epoch_at(ref.base_offset)
        last = ref.base_offset + ref.records - 1
        self.outcomes.append(Appended(ref.base_offset, last, epoch or 0, ref.append_time_us, duplicate=True))

    def refuse(self, error: TidelogError, sender: PipelineOrder | None) -> None:
        """A batch is not written; nor is what its sender sends behind it."""
        self.outcomes.append(error)
        if sender is not None:
            sender.failed = True

    def write_failed(self, refusal: TidelogError) -> None:
        """Nothing of these batches is in the log, so their outcomes are the error."""
        for place, sender in zip(self.places, self.senders, strict=True):
            self.outcomes[place] = refusal
            if sender is not None:
                sender.failed = True


def refusal_of(error: OSError) -> TidelogError:
    """What a client hears about a write that failed and left nothing."""
    if error.errno in FULL_DISK_ERRNOS:
        return DiskFull(f"the broker's disk is full: {error.strerror}", retry_after_ms=1000)
    return StorageFailed(f"the broker could not write: {error.strerror or error}")
