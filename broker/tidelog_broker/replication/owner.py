"""What a replica tells the partition that it belongs to, and what it asks of it.

`writing.partition` implements it; tests bring owners of their own. Neighbour: `host` is what a replica needs
of its broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Done = Callable[[Exception | None], None]
"""The outcome of a write: None, or the reason why it left nothing (or, of a follower's batches, a part)."""


class ReplicaOwner(Protocol):
    """The partition that a replica belongs to. All calls come on the event loop."""

    def role_began(self) -> None:
        """The replica leads or follows from now on."""

    def role_ended(self, *, led: bool) -> None:
        """The replica no longer leads (`led`) or follows."""

    def committed(self, high_watermark: int) -> None:
        """The high watermark moved, on a leader."""

    def doubt_may_have_changed(self) -> None:
        """`Replica.in_doubt` may have another value now."""

    def write(self, work: Callable[[], object], done: Done, size: int) -> None:
        """Runs `work`, which writes about `size` bytes, in order with all writes of the broker."""

    def flush(self) -> None:
        """Makes what was written durable in the next flush round; `Replica.flushed` follows."""

    def advance_start(self, offset: int) -> None:
        """Moves the log start offset, durably; `Replica.start_moved` follows."""

    def quarantine(self, reason: str) -> None:
        """Sets the log aside: it contradicts its leader's (R1, 2c)."""
