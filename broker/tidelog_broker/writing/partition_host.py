"""The interface of the broker that a partition calls.

`hosting.replica_host` implements it; tests have implementations of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from tidelog_broker.replication.host import ReplicaHost
from tidelog_broker.replication.owner import Done
from tidelog_broker.replication.replica import Replica

P = TypeVar("P", contravariant=True)
"""The type of the partition."""


class PartitionHost(ReplicaHost[Replica], Protocol[P]):
    """The broker, as its partitions and their replicas call it. `hosting.replica_host` implements it."""

    def write(self, partition: P, work: Callable[[], object], done: Done, size: int) -> None:
        """Runs `work`, which writes about `size` bytes, in a write round."""

    def flush(self, partition: P) -> None:
        """Makes the log durable in the next flush round; then `flushed` is called."""

    def advance_start(self, partition: P, offset: int) -> None:
        """Moves the log start offset, durably; then `Replica.start_moved` is called."""

    def quarantine(self, partition: P, reason: str) -> None:
        """Sets the log aside, because it contradicts the leader's log (R1, 2c)."""
