"""M3: which brokers are alive, by heartbeats. Heartbeats are not entries; fencing and unfencing are.

This is the controller's memory, not the cluster's: a new controller begins without it and
grants every broker a whole session. `upkeep` makes the entries from it; `reports` checks
whether heartbeats are missing as well (R14).
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog_broker.core.metadata.image import BrokerImage, ClusterImage

HEARTBEAT_MS = 250
"""The interval between two heartbeats of a broker."""

SESSION_MS = 2000
"""A broker without a heartbeat for this time is fenced."""

MISSED_HEARTBEATS = 2
"""After this number of missing heartbeats a broker is silent for the controller as well (R14)."""


class _Heard(NamedTuple):
    incarnation: bytes
    at_ms: int
    granted: bool
    """The session was granted, not earned by a heartbeat."""


class Sessions:
    """The sessions of all brokers, as one controller sees them."""

    def __init__(self) -> None:
        self._heard: dict[int, _Heard] = {}
        self._looked_ms: int | None = None

    def __repr__(self) -> str:
        return f"<Sessions of {sorted(self._heard)}>"

    def heard(self, image: ClusterImage, broker: int, incarnation: bytes, now_ms: int) -> bool:
        """A heartbeat arrived. False: that run is not the registered one; the broker must register."""
        known = image.brokers.get(broker)
        if known is None or known.incarnation != incarnation:
            return False
        self._heard[broker] = _Heard(incarnation, now_ms, False)
        return True

    def look(self, image: ClusterImage, now_ms: int) -> None:
        """Must be called at every tick, before the queries below.

        A broker without a session (under a new controller, or in a new run) gets a whole one. A
        controller that did not call this for a while did not run (stopped, swapped out) and
        cannot know which brokers were silent: it adds that time to every session.
        """
        away = 0 if self._looked_ms is None else now_ms - self._looked_ms
        self._looked_ms = now_ms
        if away > HEARTBEAT_MS * MISSED_HEARTBEATS:
            self._heard = {
                broker: heard._replace(at_ms=min(now_ms, heard.at_ms + away))
                for broker, heard in self._heard.items()
            }
        for broker in [broker for broker in self._heard if broker not in image.brokers]:
            del self._heard[broker]
        for known in image.brokers.values():
            heard = self._heard.get(known.id)
            if heard is None or heard.incarnation != known.incarnation:
                if known.fenced:
                    # A fenced broker has no session to lose, and needs none to return.
                    self._heard.pop(known.id, None)
                else:
                    self._heard[known.id] = _Heard(known.incarnation, now_ms, True)

    def is_alive(self, broker: BrokerImage, now_ms: int) -> bool:
        """Whether its session is valid: earned or granted within the last `SESSION_MS`."""
        heard = self._of(broker)
        return heard is not None and now_ms - heard.at_ms < SESSION_MS

    def expired(self, image: ClusterImage, now_ms: int) -> list[int]:
        """The brokers that must be fenced, the longest silent first."""
        over = [
            (heard.at_ms, broker.id)
            for broker in image.brokers.values()
            if not broker.fenced
            and (heard := self._of(broker)) is not None
            and now_ms - heard.at_ms >= SESSION_MS
        ]
        return [broker for _, broker in sorted(over)]

    def returned(self, image: ClusterImage, now_ms: int) -> list[int]:
        """The fenced brokers whose registered run sends heartbeats again."""
        return [
            broker.id
            for broker in image.brokers.values()
            if broker.fenced
            and (heard := self._of(broker)) is not None
            and not heard.granted
            and now_ms - heard.at_ms < HEARTBEAT_MS * MISSED_HEARTBEATS
        ]

    def is_silent(self, broker: BrokerImage, now_ms: int) -> bool:
        """Whether two of its heartbeats are missing. In a granted session: whether none has arrived since."""
        heard = self._of(broker)
        return heard is not None and now_ms - heard.at_ms > HEARTBEAT_MS * MISSED_HEARTBEATS

    def _of(self, broker: BrokerImage) -> _Heard | None:
        heard = self._heard.get(broker.id)
        return heard if heard is not None and heard.incarnation == broker.incarnation else None
