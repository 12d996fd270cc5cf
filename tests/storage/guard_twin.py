"""The append guard again, slow and plain: lists, no order to keep, nothing incremental (R8, R9)."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.records import BatchHeader
from tidelog_broker.storage.guard.append_guard import PRODUCER_EXPIRY_US, PRODUCER_IDLE_US, GuardLimits

MODULUS = 1 << 32


@dataclass
class Seen:
    """A batch of a producer."""

    epoch: int
    sequence: int
    count: int
    offset: int
    log_time: int

    @property
    def last(self) -> int:
        return (self.sequence + self.count - 1) % MODULUS


@dataclass
class Twin:
    limits: GuardLimits
    end: int = 0
    log_time: int = 0
    last_append: int | None = None
    producers: dict[int, list[Seen]] = field(default_factory=dict)
    ids: list[tuple[str, int, int]] = field(default_factory=list)

    def answer(self, header: BatchHeader, expected: int | None) -> str | int:
        """A word for a refusal, the offset of a repeat, or "append"."""
        if header.producer_id != MODULUS * MODULUS - 1:
            seen = self.producers.get(header.producer_id, [])
            if not seen:
                if header.base_sequence:
                    return "unknown"
                if self._full():
                    return "exhausted"
            else:
                verdict = self._known(seen, header)
                if verdict is not None:
                    return verdict
        return "append" if expected in (None, self.end) else "unexpected"

    def _known(self, seen: list[Seen], header: BatchHeader) -> str | int | None:
        epoch = seen[-1].epoch
        if header.producer_epoch < epoch:
            return "fenced"
        if header.producer_epoch > epoch:
            return "order" if header.base_sequence else None
        window = [one for one in seen if one.epoch == epoch][-5:]
        for one in window:
            if (one.sequence, one.count) == (header.base_sequence, header.record_count):
                return one.offset
        last = seen[-1].last
        if header.base_sequence == (last + 1) % MODULUS:
            return None
        behind = (last - header.base_sequence) % MODULUS
        return "duplicate" if behind < MODULUS // 2 else "order"

    def _idle(self, seen: list[Seen]) -> int:
        return self.log_time - seen[-1].log_time

    def _full(self) -> bool:
        if len(self.producers) < self.limits.producers_max:
            return False
        return max(self._idle(seen) for seen in self.producers.values()) < PRODUCER_IDLE_US

    def record(self, header: BatchHeader, ids: list[tuple[int, str]]) -> None:
        if self.last_append is not None:
            self.log_time += min(header.append_time_us - self.last_append, 60_000_000)
        self.last_append = header.append_time_us
        self.end = header.next_offset
        if header.producer_id != MODULUS * MODULUS - 1:
            if header.producer_id not in self.producers:
                self._forget()
            self.producers.setdefault(header.producer_id, []).append(
                Seen(
                    header.producer_epoch,
                    header.base_sequence,
                    header.record_count,
                    header.base_offset,
                    self.log_time,
                )
            )
        if ids:
            names = {name for _, name in ids}
            self.ids = [entry for entry in self.ids if entry[0] not in names]
            self.ids += [(name, offset, header.append_time_us) for offset, name in ids]
            self.ids = [e for e in self.ids if e[2] >= header.append_time_us - self.limits.dedupe_window_us]
            self.ids = self.ids[-self.limits.dedupe_count_max :]

    def _forget(self) -> None:
        for producer in [p for p, seen in self.producers.items() if self._idle(seen) >= PRODUCER_EXPIRY_US]:
            del self.producers[producer]
        while len(self.producers) >= self.limits.producers_max:
            longest = max(
                self.producers, key=lambda p: (self._idle(self.producers[p]), -self.producers[p][-1].offset)
            )
            if self._idle(self.producers[longest]) < PRODUCER_IDLE_US:
                return
            del self.producers[longest]

    def find(self, name: str, now_us: int) -> int | None:
        for entry, offset, at in self.ids:
            if entry == name and at >= now_us - self.limits.dedupe_window_us:
                return offset
        return None
