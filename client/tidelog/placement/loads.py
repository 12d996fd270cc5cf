"""A broker as placement sees it, and who of several carries least; the other modules decide with it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """A broker that may get replicas, and what it carries already."""

    broker_id: int
    rack: str = ""
    """Brokers of one rack fail together; empty is a rack like any other."""
    replicas: int = 0
    leaders: int = 0
    """Partitions of which it is the preferred leader."""
    bytes: int = 0
    """Of all its replicas; 0 for every broker: not known, and then only their number counts."""


class Tally:
    """What brokers carry while a decision is made: what it has placed so far counts."""

    def __init__(self, brokers: Iterable[BrokerLoad]) -> None:
        loads = sorted(brokers, key=lambda broker: broker.broker_id)
        self.copies = {broker.broker_id: broker.replicas for broker in loads}
        self.bytes = {broker.broker_id: broker.bytes for broker in loads}
        self._unsized = dict.fromkeys(self.copies, 0)
        self._all_copies = max(1, sum(self.copies.values()))
        self._all_bytes = sum(self.bytes.values())

    def __repr__(self) -> str:
        return f"<Tally copies={self.copies} bytes={self.bytes}>"

    def weight(self, broker: int) -> int:
        """The smaller, the less it carries: copies and bytes, each as a part of all there were, times
        both. Strangers weigh nothing."""
        copies = self.copies.get(broker, 0)
        if not self._all_bytes:
            return copies
        of_bytes = self.bytes.get(broker, 0) * self._all_copies
        return (copies + self._unsized.get(broker, 0)) * self._all_bytes + of_bytes

    def add(self, broker: int, size: int | None) -> None:
        """A copy of `size` bytes; None: of as many as there are on average. Strangers are not counted."""
        if broker in self.copies:
            self.copies[broker] += 1
            if size is None:
                self._unsized[broker] += 1
            else:
                self.bytes[broker] += size

    def remove(self, broker: int, size: int | None) -> None:
        """The opposite of `add`."""
        if broker in self.copies:
            self.copies[broker] -= 1
            if size is None:
                self._unsized[broker] -= 1
            else:
                self.bytes[broker] -= size
