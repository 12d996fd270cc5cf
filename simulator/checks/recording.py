"""Checks of what publishers to NATS subjects are told by the brokers that record them (N5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from simulator.checks.commits import CommitChecks
from simulator.checks.truth import Setup, require

if TYPE_CHECKING:
    from simulator.node import Key


class _Asked(NamedTuple):
    """A publisher waits for the answer to a message."""

    key: Key
    at_us: int
    leading: frozenset[int]
    """Brokers that led the partition then, as they knew."""
    epochs: frozenset[int]
    """Leader epochs that somebody had begun by then."""


class RecordingChecks(CommitChecks):
    """See the module."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._asked: dict[bytes, _Asked] = {}
        """By reply subject."""

    def publisher_asks(self, reply: bytes, key: Key) -> None:
        leading = frozenset(
            node.id for node in self.brokers.values() if key in node.replicas and node.replicas[key].leads
        )
        self._asked[reply] = _Asked(key, self.now_us(), leading, frozenset(self.truth(key).leaders))

    def publisher_waits_no_more(self, reply: bytes) -> None:
        del self._asked[reply]

    def is_refusal_definite(self, reply: bytes) -> bool:
        """N5: whether one broker at most took itself for the leader since the message was sent."""
        key, _, leading, epochs = self._asked[reply]
        began = {led.broker for epoch, led in self.truth(key).leaders.items() if epoch not in epochs}
        return len(leading | began) <= 1

    def refused_publisher(self, broker: int, reply: bytes) -> None:
        """A broker says on a reply subject that it did not record a message."""
        asked = self._asked.get(reply)
        if asked is None:
            return
        placed, truth = self.image.partition(*asked.key), self.truth(asked.key)
        if placed is None or truth.returning:
            return
        self.mark("N5 refused")
        require(
            placed.leader == broker or truth.led_until.get(broker, -1) >= asked.at_us,
            "N5",
            f"partition {asked.key[1]}: broker {broker} refuses {reply.decode()}, sent at {asked.at_us}; "
            f"it was the leader until {truth.led_until.get(broker)}",
        )

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
