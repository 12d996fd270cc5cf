"""What must be true of a log after a crash, kept beside a scripted run.

`Model` is told of every step before and after it happens. `check` compares a recovered
log with it: everything acknowledged is there byte for byte, nothing else than what was
written (or was being written), and everything beside the batches fits them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from storage.batches import headers_of, read_all
from tidelog.records import HEADER_BYTES, BatchHeader, stamp
from tidelog_broker.storage.guard.append_guard import AppendGuard, GuardLimits
from tidelog_broker.storage.log.partition_log import PartitionLog
from tidelog_broker.storage.log.write_batch import AppendItem


@dataclass(frozen=True, slots=True)
class Written:
    """A batch as it stands, or is about to stand, in the log."""

    raw: bytes
    header: BatchHeader
    ids: tuple[tuple[int, str], ...]

    @classmethod
    def of(cls, item: AppendItem, log: PartitionLog, base: int, epoch: int, now_us: int) -> Written:
        head = stamp(
            item.batch,
            stream_id=log.stream_id,
            partition=log.partition,
            base_offset=base,
            append_time_us=now_us,
            leader_epoch=epoch,
        )
        raw = head + item.batch[HEADER_BYTES:]
        ids = tuple((base + index, name) for index, name in item.message_ids)
        return cls(raw, BatchHeader.unpack(raw), ids)


GuardState = tuple[object, ...]


def guard_state(guard: AppendGuard) -> GuardState:
    """What of a guard's state has consequences; log time counts only as the time since."""
    return (
        guard.offset,
        [
            (
                producer,
                state.epoch,
                state.last_sequence,
                guard._log_time_us - state.last_log_time_us,
                state.window,
            )
            for producer, state in guard.producers.items()
        ],
        [entry for entry in guard._ids_order if guard._ids.get(entry.name) is entry],
    )


@dataclass(slots=True)
class Model:
    """One partition."""

    limits: GuardLimits
    written: tuple[Written, ...] = ()
    """All batches since the beginning, whether retention removed them or not."""
    uncertain: tuple[Written, ...] = ()
    """Being written: some of these, from the first on, may be there."""
    acknowledged: int = 0
    """The log does not end below."""
    start_min: int = 0
    start_max: int = 0
    epochs: list[int] = field(default_factory=list)

    def copy(self) -> Model:
        return replace(self)

    @property
    def end(self) -> int:
        return self.written[-1].header.next_offset if self.written else 0

    def cut(self, end: int) -> None:
        self.written = tuple(batch for batch in self.written if batch.header.next_offset <= end)

    def guard_at(self, end: int) -> GuardState:
        guard = AppendGuard(self.limits)
        for batch in (*self.written, *self.uncertain):
            if batch.header.next_offset <= end:
                guard.record(batch.header, batch.ids)
        guard.offset = end
        return guard_state(guard)

    def check(self, log: PartitionLog) -> None:
        possible = (*self.written, *self.uncertain)
        end, start = log.end_offset, log.start_offset
        assert self.start_min <= start <= self.start_max, (start, self.start_min, self.start_max)
        assert end >= max(self.acknowledged, start), (end, self.acknowledged, start)
        assert log.durable_offset == end
        ends = {0, *(batch.header.next_offset for batch in possible)}
        assert end in ends or end == start, (end, sorted(ends))
        expected = [b for b in possible if start < b.header.next_offset <= end]
        data = read_all(log)
        assert data == b"".join(batch.raw for batch in expected)
        for header in headers_of(data):
            assert log.epochs.knows(header.leader_epoch, header.base_offset), (header, list(log.epochs))
        starts = [entry.start_offset for entry in log.epochs]
        assert all(offset < max(end, 1) for offset in starts), (starts, end)
        assert not log.damaged
        if end in ends:
            assert guard_state(log.guard) == self.guard_at(end)
