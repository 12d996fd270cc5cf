"""The log of one partition in memory: the rules of a log, without files or replicas.

Appends are checked as in rules R8 and R9. Positions are compared with the history of leader epochs (R13).
The state of producers is computed from the log, so truncation also truncates it. `_state` has the leaders.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.errors import (
    DuplicateSequence,
    FencedProducer,
    InvalidRequest,
    LogTruncated,
    OffsetOutOfRange,
    OutOfOrderSequence,
    UnexpectedOffset,
    UnknownProducer,
)
from tidelog.model import Position, Receipt
from tidelog.records import HEADER_BYTES, NO_PRODUCER_ID, BatchHeader, decode_batch, stamp
from tidelog.records.layout import SEQUENCE_MODULUS

WINDOW_BATCHES: Final = 5
"""The batches that are remembered per producer (R8), and the most in flight."""


PRODUCER_IDS_END: Final = 1 << 63
"""Ids from here on are reserved."""


def check_producer_id(producer_id: int, next_producer_id: int) -> None:
    """Raises `InvalidRequest` for an impossible id, `UnknownProducer` for one that was not given out (R8)."""
    if producer_id == NO_PRODUCER_ID:
        return
    if not 0 < producer_id < PRODUCER_IDS_END:
        raise InvalidRequest(
            f"producer id {producer_id} is not an id of InitProducer; request one from InitProducer"
        )
    if producer_id >= next_producer_id:
        raise UnknownProducer(
            f"producer id {producer_id} was never given out in this cluster; request one from InitProducer"
        )


class Stored(NamedTuple):
    """A batch in the log."""

    header: BatchHeader
    data: bytes


class _ProducerState(NamedTuple):
    epoch: int
    next_sequence: int
    window: tuple[BatchHeader, ...]
    """The newest batches, oldest first."""


class MemoryLog:
    """The batches of one partition, from `start` to `end`."""

    def __init__(self, stream_id: bytes, partition: int) -> None:
        self.stream_id = stream_id
        self.partition = partition
        self.batches: list[Stored] = []
        self.start = 0
        self.end = 0
        """Also the high watermark: an appended batch is committed at once."""
        self._epochs: list[tuple[int, int]] = []
        """(leader epoch, its first offset), in order."""
        self._producers: dict[int, _ProducerState] = {}
        self._last_append_us = 0

    def __repr__(self) -> str:
        return f"<MemoryLog partition={self.partition} start={self.start} end={self.end}>"

    # --- writing

    def check(self, header: BatchHeader, expected_offset: int | None) -> Receipt | None:
        """None: the batch may be appended. A receipt: the batch is a repeat, and this is the receipt of the
        first copy."""
        if header.producer_id != NO_PRODUCER_ID:
            first_copy = self._first_copy(header)
            if first_copy is not None:
                return self._receipt(first_copy, duplicate=True)
        if expected_offset is not None and expected_offset != self.end:
            raise UnexpectedOffset(
                f"the append expects offset {expected_offset}, but the log ends at {self.end}",
                expected_offset=expected_offset,
                log_end_offset=self.end,
            )
        return None

    def append(self, batch: bytes, *, leader_epoch: int, now_us: int) -> Receipt:
        """Appends a checked batch."""
        self._last_append_us = max(self._last_append_us, now_us)
        head = stamp(
            batch,
            stream_id=self.stream_id,
            partition=self.partition,
            base_offset=self.end,
            append_time_us=self._last_append_us,
            leader_epoch=leader_epoch,
        )
        data = head + batch[HEADER_BYTES:]
        header = BatchHeader.unpack(data)
        if not self._epochs or self._epochs[-1][0] != leader_epoch:
            self._epochs.append((leader_epoch, self.end))
        self.batches.append(Stored(header, data))
        self.end = header.next_offset
        self._remember(header)
        return self._receipt(header)

    def _first_copy(self, header: BatchHeader) -> BatchHeader | None:
        known = self._producers.get(header.producer_id)
        sequence = header.base_sequence
        if known is None:
            if sequence:
                raise UnknownProducer(
                    f"producer {header.producer_id} is unknown here and begins at sequence {sequence}; a new "
                    "producer begins at 0"
                )
            return None
        if header.producer_epoch < known.epoch:
            raise FencedProducer(
                f"producer {header.producer_id} epoch {header.producer_epoch} is fenced by {known.epoch}"
            )
        if header.producer_epoch > known.epoch:
            if sequence:
                raise OutOfOrderSequence(f"an epoch begins at sequence 0, not at {sequence}")
            return None
        for earlier in known.window:
            if (earlier.base_sequence, earlier.record_count) == (sequence, header.record_count):
                return earlier
        if sequence == known.next_sequence:
            return None
        if (known.next_sequence - 1 - sequence) % SEQUENCE_MODULUS < SEQUENCE_MODULUS // 2:
            raise DuplicateSequence(f"sequence {sequence} was appended too long ago to know where")
        raise OutOfOrderSequence(
            f"producer {header.producer_id} sends sequence {sequence}, {known.next_sequence} is next",
            expected=known.next_sequence,
        )

    def _remember(self, header: BatchHeader) -> None:
        if header.producer_id == NO_PRODUCER_ID:
            return
        known = self._producers.get(header.producer_id)
        same = known is not None and known.epoch == header.producer_epoch
        window = (*(known.window if known is not None and same else ()), header)[-WINDOW_BATCHES:]
        following = (header.base_sequence + header.record_count) % SEQUENCE_MODULUS
        self._producers[header.producer_id] = _ProducerState(header.producer_epoch, following, window)

    @staticmethod
    def _receipt(header: BatchHeader, *, duplicate: bool = False) -> Receipt:
        return Receipt(
            partition=0,
            offset=header.base_offset,
            last_offset=header.last_offset,
            leader_epoch=header.leader_epoch,
            append_time_us=header.append_time_us,
            duplicate=duplicate,
        )

    # --- losing records

    def truncate(self, offset: int) -> None:
        """Drops the batches that reach beyond `offset`, as an unclean election does."""
        self.batches = [stored for stored in self.batches if stored.header.next_offset <= offset]
        self.end = self.batches[-1].header.next_offset if self.batches else min(self.start, offset)
        self.start = min(self.start, self.end)
        self._epochs = [(epoch, first) for epoch, first in self._epochs if first < self.end]
        self.forget_producers()
        for stored in self.batches:
            self._remember(stored.header)

    def forget_below(self, offset: int) -> None:
        """Moves the log start offset forward, never back (R11)."""
        self.start = max(self.start, offset)
        self.batches = [stored for stored in self.batches if stored.header.next_offset > self.start]

    def forget_producers(self) -> None:
        self._producers.clear()

    # --- reading

    def read(self, offset: int, end: int | None, bytes_max: int) -> list[Stored]:
        """Whole batches from the one with `offset` on, up to `bytes_max`, at least one if there is one."""
        found: list[Stored] = []
        size = 0
        for stored in self.batches:
            if stored.header.next_offset <= offset:
                continue
            if end is not None and stored.header.base_offset >= end:
                break
            size += len(stored.data)
            if found and size > bytes_max:
                break
            found.append(stored)
        return found

    def check_position(self, position: Position) -> None:
        """Raises `OffsetOutOfRange`, or `LogTruncated` with the point of divergence (R13)."""
        offset, epoch = position
        if offset < self.start or (epoch is None and offset > self.end):
            raise OffsetOutOfRange(
                f"offset {offset} is not in the log, which holds {self.start}–{self.end}",
                log_start_offset=self.start,
                log_end_offset=self.end,
            )
        if epoch is None:
            return
        known, end = None, self._epochs[0][1] if self._epochs else self.end
        for (one, _), (_, following) in pairwise([*self._epochs, (0, self.end)]):
            if one <= epoch:
                known, end = one, following
        if (known is not None and known != epoch) or offset > end:
            divergence = min(end, offset)
            facts = {"divergence_offset": str(divergence)}
            if known is not None:
                facts["divergence_epoch"] = str(known)
            error = LogTruncated(
                f"the log has no record before offset {offset} of leader epoch {epoch}; it agrees with the "
                f"position up to offset {divergence}"
            )
            error.details.update(facts)
            raise error

    def epoch_before(self, offset: int) -> int | None:
        """The epoch of the last record below `offset`; None: there is none."""
        if offset <= self.start:
            return None
        return max((epoch for epoch, first in self._epochs if first < offset), default=None)

    def find_time(self, timestamp_us: int) -> int:
        """The first record with this timestamp or a later one; the end if there is none."""
        for header, data in self.batches:
            if header.timestamp_max_us >= timestamp_us:
                times = decode_batch(data, header).column("timestamp").view(pa.int64())
                row = pc.index(pc.greater_equal(times, timestamp_us), True).as_py()
                return max(header.base_offset + int(row), self.start)
        return self.end

    def after_bytes(self, offset: int, bytes_max: int) -> int:
        """The end of the whole batches that fit into `bytes_max`, at least one; the end if all do."""
        left = bytes_max
        for header, data in self.batches:
            if header.next_offset <= offset:
                continue
            if left < len(data):
                return header.next_offset if left == bytes_max else header.base_offset
            left -= len(data)
        return self.end
