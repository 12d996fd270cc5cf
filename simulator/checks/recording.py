"""Checks of the brokers' answers to publishers (N5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from simulator.checks.commits import CommitChecks
from simulator.checks.truth import Setup, require

if TYPE_CHECKING:
    from simulator.node import Key


class _Asked(NamedTuple):
    """A message whose publisher waits for an answer."""

    key: Key
    at_us: int
    leading: frozenset[int]
    """Brokers that led the partition when it was sent, as they believed."""
    epochs: frozenset[int]
    """Leader epochs that had begun when it was sent."""


class RecordingChecks(CommitChecks):
    """Compares answers to publishers with leaderships and committed records."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._asked: dict[bytes, _Asked] = {}
        """By reply subject: the messages without an answer."""

    def publisher_asks(self, reply: bytes, key: Key) -> None:
        leading = frozenset(
            node.id for node in self.brokers.values() if key in node.replicas and node.replicas[key].leads
        )
        self._asked[reply] = _Asked(key, self.now_us(), leading, frozenset(self.truth(key).leaders))

    def publisher_waits_no_more(self, reply: bytes) -> None:
        del self._asked[reply]

    def is_refusal_definite(self, reply: bytes) -> bool:
        """N5: whether at most one broker believed that it leads since the message was sent."""
        key, _, leading, epochs = self._asked[reply]
        began = {led.broker for epoch, led in self.truth(key).leaders.items() if epoch not in epochs}
        return len(leading | began) <= 1

    def refused_publisher(self, broker: int, reply: bytes) -> None:
        """A broker answers on a reply subject that it did not record a message."""
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
            f"partition {asked.key[1]}: broker {broker} refuses the message with reply subject "
            f"{reply.decode()}, sent at {asked.at_us} µs; the broker was the leader only until "
            f"{truth.led_until.get(broker)} µs",
        )

    def told_publisher(self, broker: int, key: Key, leader_epoch: int, offset: int) -> None:
        """A broker answers on a reply subject that a record is committed."""
        truth = self.truth(key)
        said = (
            f"partition {key[1]}: broker {broker} tells a publisher that its record is committed at offset "
            f"{offset} in epoch {leader_epoch}"
        )
        led = truth.leaders.get(leader_epoch)
        require(led is not None and led.broker == broker, "N5", f"{said}; the leader of the epoch is {led}")
        self.mark("N5 answered")
        if leader_epoch < truth.kept_from:
            return  # Records of then may be lost since, while the answer waited for a connection.
        require(
            offset < truth.committed.end,
            "N5",
            f"{said}; only records below {truth.committed.end} are committed",
        )
        truth.acknowledged = max(truth.acknowledged, offset + 1)
