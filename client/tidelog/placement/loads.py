"""The load of brokers, on which the other modules base their decisions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """A broker that may get replicas, and its load now."""

    broker_id: int
    rack: str = ""
    """Brokers of one rack fail together. The empty name is a rack, too."""
    replicas: int = 0
    leaders: int = 0
    """The partitions of which the broker is the preferred leader."""
    bytes: int = 0
    """The bytes of all its replicas. 0 for every broker: not known; then only numbers count."""


class Tally:
    """The loads during a decision, including the replicas that it has placed so far."""

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
        """The load of a broker as one number: its replicas and its bytes, each relative to the total at the
        start. Brokers that are not counted have weight 0."""
        copies = self.copies.get(broker, 0)
        if not self._all_bytes:
            return copies
        of_bytes = self.bytes.get(broker, 0) * self._all_copies
        return (copies + self._unsized.get(broker, 0)) * self._all_bytes + of_bytes

    def add(self, broker: int, size: int | None) -> None:
        """Adds a replica of `size` bytes (None: the average). Brokers outside the tally are ignored."""
        if broker in self.copies:
            self.copies[broker] += 1
            if size is None:
                self._unsized[broker] += 1
            else:
                self.bytes[broker] += size

    def remove(self, broker: int, size: int | None) -> None:
        """Removes a replica that `add` added, or that was there at the start."""
        if broker in self.copies:
            self.copies[broker] -= 1
            if size is None:
                self._unsized[broker] -= 1
            else:
                self.bytes[broker] -= size
