"""Checks of what publishers to NATS subjects are told by the brokers that record them (N5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.checks.commits import CommitChecks
from simulator.checks.truth import require

if TYPE_CHECKING:
    from simulator.watch.replicas import Key


class RecordingChecks(CommitChecks):
    """See the module."""

    def told_publisher(self, broker: int, key: Key, leader_epoch: int, offset: int) -> None:
        """A broker says on a reply subject that a record is committed."""
        truth = self.truth(key)
        said = (
            f"partition {key[1]}: broker {broker} tells a publisher of offset {offset} "
            f"in epoch {leader_epoch}"
        )
        led = truth.leaders.get(leader_epoch)
        require(led is not None and led.broker == broker, "N5", f"{said}; that is the epoch of {led}")
        self.mark("N5 answered")
        if leader_epoch < truth.kept_from:
            return  # What was committed then may be gone, and the answer waited for a connection.
        require(offset < truth.committed.end, "N5", f"{said}; committed is {truth.committed.end}")
        truth.acknowledged = max(truth.acknowledged, offset + 1)
