"""The append guard: makes appends conditional and idempotent (R8, R9, N3).

Its state is a function of the log. `replay` gives it every batch in order, from a snapshot or from the
log's start on, and reaches the same state as the appends did. So the state can always be rebuilt. Time
enters only as the batches' own append times.

The order of the checks is given by R8: producer epoch, duplicate, sequence, expected offset. (The
minimum ISR is checked last, and not by the guard.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import msgspec

from tidelog.errors import (
    DuplicateSequence,
    FencedProducer,
    OutOfOrderSequence,
    ResourceExhausted,
    UnexpectedOffset,
    UnknownProducer,
)
from tidelog.records import NO_PRODUCER_ID, BatchHeader
from tidelog.records.checksum import crc32c
from tidelog.records.layout import SEQUENCE_MODULUS
from tidelog_broker.storage.guard.sink_batches import SinkBatch, SinkBatches

PRODUCER_WINDOW_BATCHES = 5
"""Batches remembered, and allowed in flight, per producer and partition (R8)."""

LOG_TIME_STEP_US_MAX = 60_000_000
"""One batch advances log time by at most this, so that no producer expires because the clock jumped."""

PRODUCER_EXPIRY_US = 7 * 86_400_000_000
"""A producer that has not written for this much log time is forgotten."""

PRODUCER_IDLE_US = 15 * 60_000_000
"""At the count limit, only producers idle for this much log time are dropped."""

PRODUCERS_MAX = 10_000
"""Producers remembered per partition."""

_SNAPSHOT_VERSION = 1
_SNAPSHOT_VERSION_WITH_SINKS = 2


@dataclass(frozen=True, slots=True)
class GuardLimits:
    """Bounds of the guard's memory, per partition."""

    producers_max: int = PRODUCERS_MAX
    dedupe_window_us: int = 120_000_000
    """Message ids are remembered for this long, by append time. µs."""
    dedupe_count_max: int = 100_000
    """… and at most this many of them."""


class BatchRef(NamedTuple):
    """A batch in a producer's window."""

    base_sequence: int
    records: int
    base_offset: int
    append_time_us: int


class ProducerState(NamedTuple):
    epoch: int
    last_sequence: int
    """Sequence of the last record."""
    last_log_time_us: int
    window: tuple[BatchRef, ...]
    """The newest batches, oldest first."""


class _MessageId(NamedTuple):
    """A record that is remembered by its message id."""

    name: str
    offset: int
    append_time_us: int


class _Snapshot(msgspec.Struct, array_like=True):
    version: int
    offset: int
    log_time_us: int
    last_append_us: int | None
    producers: list[tuple[int, ProducerState]]
    message_ids: list[tuple[bytes, int, int]]
    """The ids are bytes, because not every id that NATS delivers is UTF-8."""
    sinks: list[tuple[int, SinkBatch]] = []


class AppendGuard:
    """The state after all batches below `offset`.

    Batches that will be written next are only staged: `check` takes them into account, and nothing
    else changes until `record`. After a failed write, `unstage` drops them.
    """

    __slots__ = (
        "_ids",
        "_ids_order",
        "_last_append_us",
        "_limits",
        "_log_time_us",
        "_producers",
        "_staged",
        "_staged_end",
        "offset",
        "sinks",
    )

    def __init__(self, limits: GuardLimits, offset: int = 0) -> None:
        self._limits = limits
        self.offset = offset
        """The log end offset that this state belongs to."""
        self._log_time_us = 0
        self._last_append_us: int | None = None
        self._producers: dict[int, ProducerState] = {}
        """The longest idle first."""
        self._ids: dict[str, _MessageId] = {}
        self._ids_order: deque[_MessageId] = deque()
        """Oldest first. It may hold entries whose name was seen again since."""
        self.sinks = SinkBatches()
        self._staged: dict[int, ProducerState] = {}
        self._staged_end: int | None = None

    def __repr__(self) -> str:
        return f"<AppendGuard at {self.offset} producers={len(self._producers)} ids={len(self._ids)}>"

    @property
    def empty(self) -> bool:
        return not self._producers and not self._ids and not self.sinks.known

    @property
    def producers(self) -> dict[int, ProducerState]:
        return self._producers

    @property
    def last_append_us(self) -> int | None:
        """Append time of the last batch; None: there was no batch. µs."""
        return self._last_append_us

    def set_limits(self, limits: GuardLimits) -> None:
        self._limits = limits

    # --- before an append

    def check(self, header: BatchHeader, expected_offset: int | None) -> BatchRef | None:
        """Returns None if the batch may be appended, or the `BatchRef` of the batch that it repeats.

        Raises the definite errors of R8 and R9.
        """
        if header.of_sink:
            written = self.sinks.check(header)
            if written is not None:
                return BatchRef(
                    written.base_sequence, written.records, written.base_offset, written.append_time_us
                )
        elif header.producer_id != NO_PRODUCER_ID:
            repeat = self._check_producer(header)
            if repeat is not None:
                return repeat
        if expected_offset is not None:
            end = self.offset if self._staged_end is None else self._staged_end
            if expected_offset != end:
                raise UnexpectedOffset(
                    f"the append expects offset {expected_offset}, the log ends at {end}",
                    expected_offset=expected_offset,
                    log_end_offset=end,
                )
        return None

    def _check_producer(self, header: BatchHeader) -> BatchRef | None:
        known = self._staged.get(header.producer_id) or self._producers.get(header.producer_id)
        sequence = header.base_sequence
        if known is None:
            if sequence != 0:
                raise UnknownProducer(
                    f"producer {header.producer_id} is unknown here and begins at sequence {sequence}; a new "
                    f"producer begins at 0"
                )
            self._make_room()
            return None
        if header.producer_epoch < known.epoch:
            raise FencedProducer(
                f"producer {header.producer_id} epoch {header.producer_epoch} is fenced by epoch "
                f"{known.epoch}",
                producer_epoch=known.epoch,
            )
        if header.producer_epoch > known.epoch:
            if sequence != 0:
                raise OutOfOrderSequence(
                    f"producer {header.producer_id} begins epoch {header.producer_epoch} at sequence "
                    f"{sequence}; an epoch begins at 0"
                )
            return None
        for ref in known.window:
            if ref.base_sequence == sequence and ref.records == header.record_count:
                return ref
        expected = (known.last_sequence + 1) % SEQUENCE_MODULUS
        if sequence == expected:
            return None
        if (known.last_sequence - sequence) % SEQUENCE_MODULUS < SEQUENCE_MODULUS // 2:
            raise DuplicateSequence(
                f"producer {header.producer_id} sequence {sequence} was appended earlier, before the last "
                f"{PRODUCER_WINDOW_BATCHES} batches; its offset is no longer known"
            )
        raise OutOfOrderSequence(
            f"producer {header.producer_id} sends sequence {sequence}, {expected} is next", expected=expected
        )

    def _make_room(self) -> None:
        new = sum(producer_id not in self._producers for producer_id in self._staged)
        if len(self._producers) + new < self._limits.producers_max:
            return
        # The producers idle the longest come first. Each new producer takes the place of an idle one.
        oldest = next(islice(self._producers.values(), new, None), None)
        if oldest is not None and self._idle_us(oldest) >= PRODUCER_IDLE_US:
            return
        raise ResourceExhausted(
            f"{len(self._producers)} producers wrote to this partition recently, and no more may; try later",
            retry_after_ms=60_000,
        )

    def find_message(self, message_id: str, now_us: int) -> int | None:
        """The offset of the record with this id, if it lies within the window at `now_us`."""
        found = self._ids.get(message_id)
        if found is None or found.append_time_us < now_us - self._limits.dedupe_window_us:
            return None
        return found.offset

    def stage(self, header: BatchHeader) -> None:
        """Stages a batch that will be written next, so that the next `check` takes it into account."""
        self._staged_end = header.next_offset
        if header.of_sink:
            self.sinks.stage(header)
        elif header.producer_id != NO_PRODUCER_ID:
            known = self._staged.get(header.producer_id) or self._producers.get(header.producer_id)
            self._staged[header.producer_id] = self._after(known, header)

    def unstage(self) -> None:
        """Drops the staged batches: they were recorded, or never written."""
        self._staged_end = None
        if self._staged:
            self._staged = {}
        self.sinks.unstage()

    # --- with each append

    def record(self, header: BatchHeader, message_ids: Sequence[tuple[int, str]] = ()) -> None:
        """Takes an appended batch into account.

        `message_ids`: (offset, id) of its records to be deduplicated.
        """
        at, before = header.append_time_us, self._last_append_us
        if before is not None and at > before:
            self._log_time_us += min(at - before, LOG_TIME_STEP_US_MAX)
        self._last_append_us = at
        self.offset = header.next_offset
        producer_id = header.producer_id
        if header.of_sink:
            self.sinks.record(header)
        elif producer_id != NO_PRODUCER_ID:
            known = self._producers.pop(producer_id, None)
            if known is None:
                self._forget_idle()
            # Popped and set again, so that the dict is ordered by the last write.
            self._producers[producer_id] = self._after(known, header)
        if message_ids:
            self._record_ids(message_ids, at)

    def _after(self, known: ProducerState | None, header: BatchHeader) -> ProducerState:
        window: tuple[BatchRef, ...] = ()
        if known is not None and known.epoch == header.producer_epoch:
            window = known.window[-(PRODUCER_WINDOW_BATCHES - 1) :]
        ref = BatchRef(header.base_sequence, header.record_count, header.base_offset, header.append_time_us)
        last = (header.base_sequence + header.record_count - 1) % SEQUENCE_MODULUS
        return ProducerState(header.producer_epoch, last, self._log_time_us, (*window, ref))

    def _forget_idle(self) -> None:
        """Drops expired producers and, at the count limit, also idle producers, the longest idle first."""
        while self._producers:
            oldest_id = next(iter(self._producers))
            idle = self._idle_us(self._producers[oldest_id])
            full = len(self._producers) >= self._limits.producers_max
            if idle < PRODUCER_EXPIRY_US and not (full and idle >= PRODUCER_IDLE_US):
                return
            del self._producers[oldest_id]

    def _idle_us(self, state: ProducerState) -> int:
        return self._log_time_us - state.last_log_time_us

    def _record_ids(self, message_ids: Sequence[tuple[int, str]], at: int) -> None:
        ids, order = self._ids, self._ids_order
        for offset, name in message_ids:
            ids[name] = entry = _MessageId(name, offset, at)
            order.append(entry)
        floor = at - self._limits.dedupe_window_us
        while order:
            oldest = order[0]
            if ids.get(oldest.name) is oldest:
                if oldest.append_time_us >= floor and len(ids) <= self._limits.dedupe_count_max:
                    break
                del ids[oldest.name]
            order.popleft()

    # --- snapshots

    def snapshot(self) -> bytes:
        """The state as bytes, after a checksum."""
        body = msgspec.msgpack.encode(
            _Snapshot(
                version=_SNAPSHOT_VERSION_WITH_SINKS if self.sinks.known else _SNAPSHOT_VERSION,
                offset=self.offset,
                log_time_us=self._log_time_us,
                last_append_us=self._last_append_us,
                producers=list(self._producers.items()),
                message_ids=[
                    (entry.name.encode("utf-8", "surrogateescape"), entry.offset, entry.append_time_us)
                    for entry in self._ids_order
                    if self._ids.get(entry.name) is entry
                ],
                sinks=list(self.sinks.known.items()),
            )
        )
        return crc32c(body).to_bytes(4, "little") + body

    @classmethod
    def restore(cls, data: bytes, limits: GuardLimits) -> AppendGuard | None:
        """The guard that a snapshot holds; None if the bytes are not a sound snapshot."""
        body = data[4:]
        if len(data) < 4 or crc32c(body) != int.from_bytes(data[:4], "little"):
            return None
        try:
            found = msgspec.msgpack.decode(body, type=_Snapshot)
        except msgspec.MsgspecError:
            return None
        if found.version not in (_SNAPSHOT_VERSION, _SNAPSHOT_VERSION_WITH_SINKS):
            return None
        guard = cls(limits, found.offset)
        guard._log_time_us = found.log_time_us
        guard._last_append_us = found.last_append_us
        guard._producers = dict(found.producers)
        guard.sinks = SinkBatches(dict(found.sinks))
        guard._ids_order = deque(
            _MessageId(name.decode("utf-8", "surrogateescape"), offset, at)
            for name, offset, at in found.message_ids
        )
        guard._ids = {entry.name: entry for entry in guard._ids_order}
        return guard
