"""The interface of the partition that its replica calls: events of the replica, and requests for writes.

`writing.partition` implements it; tests have owners of their own. Neighbour: `host` is the interface of the
broker that a replica calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Done = Callable[[Exception | None], None]
"""Takes the outcome of a write: None, or the error. After an error nothing is written, except that a part of
a follower's batches may be."""


class ReplicaOwner(Protocol):
    """The partition that a replica belongs to. All calls are made on the event loop."""

    def role_began(self) -> None:
        """The replica leads or follows from now on."""

    def role_ended(self, *, led: bool) -> None:
        """The replica no longer leads (`led`) or follows."""

    def committed(self, high_watermark: int) -> None:
        """The high watermark of a leader moved."""

    def doubt_may_have_changed(self) -> None:
        """`Replica.in_doubt` may have another value now."""

    def write(self, work: Callable[[], object], done: Done, size: int) -> None:
        """Runs `work`, which writes about `size` bytes, in order with all writes of the broker."""

    def flush(self) -> None:
        """Makes written bytes durable in the next flush round; then `Replica.flushed` is called."""

    def advance_start(self, offset: int) -> None:
        """Moves the log start offset, durably; then `Replica.start_moved` is called."""

    def quarantine(self, reason: str) -> None:
        """Sets the log aside, because it contradicts the leader's log (R1, 2c)."""
