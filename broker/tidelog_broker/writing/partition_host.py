"""What a partition needs of its broker. `hosting.replica_host` implements it; tests bring their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from tidelog_broker.replication.host import ReplicaHost
from tidelog_broker.replication.owner import Done
from tidelog_broker.replication.replica import Replica

P = TypeVar("P", contravariant=True)
"""The partition."""


class PartitionHost(ReplicaHost[Replica], Protocol[P]):
    """What a partition and its replica need of their broker. `hosting.replica_host` implements it."""

    def write(self, partition: P, work: Callable[[], object], done: Done, size: int) -> None:
        """Runs `work`, which writes about `size` bytes, in a write round."""

    def flush(self, partition: P) -> None:
        """Makes the log durable in the next flush round; `flushed` follows."""

    def advance_start(self, partition: P, offset: int) -> None:
        """Moves the log start offset, durably; `Replica.start_moved` follows."""

    def quarantine(self, partition: P, reason: str) -> None:
        """Sets the log aside: it contradicts its leader's (R1, 2c)."""
