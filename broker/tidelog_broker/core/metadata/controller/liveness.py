"""M3: who is alive, by heartbeats, which are not entries; fencing and its end are.

This is the controller's memory, not the cluster's: another controller begins with none and
grants everybody a whole session. `upkeep` asks it and makes the entries; `reports` asks
whether heartbeats are missing, too (R14).
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog_broker.core.metadata.image import BrokerImage, ClusterImage

HEARTBEAT_MS = 250
"""Brokers send one so often."""

SESSION_MS = 2000
"""Without a heartbeat for so long a broker is fenced."""

MISSED_HEARTBEATS = 2
"""So many that did not come make a broker silent for the controller, too (R14)."""


class _Heard(NamedTuple):
    incarnation: bytes
    at_ms: int
    granted: bool
    """The session was granted, not earned by a heartbeat."""


class Sessions:
    """The sessions of all brokers, as one controller sees them."""

    def __init__(self, *, session_ms: int = SESSION_MS, heartbeat_ms: int = HEARTBEAT_MS) -> None:
        self.session_ms = session_ms
        self.heartbeat_ms = heartbeat_ms
        self._heard: dict[int, _Heard] = {}
        self._looked_ms: int | None = None

    def __repr__(self) -> str:
        return f"<Sessions of {sorted(self._heard)} session_ms={self.session_ms}>"

    def heard(self, image: ClusterImage, broker: int, incarnation: bytes, now_ms: int) -> bool:
        """A heartbeat came. False: that run is not the registered one; it has to register."""
        known = image.brokers.get(broker)
        if known is None or known.incarnation != incarnation:
            return False
        self._heard[broker] = _Heard(incarnation, now_ms, False)
        return True

    def look(self, image: ClusterImage, now_ms: int) -> None:
        """To be called at every tick, before the questions below.

        Whoever has no session yet (a new controller, a new run) gets a whole one. A
        controller that did not look for a while was away itself (stopped, swapped out) and
        cannot know who was silent: it adds that while to every session.
        """
        away = 0 if self._looked_ms is None else now_ms - self._looked_ms
        self._looked_ms = now_ms
        if away > self.heartbeat_ms * MISSED_HEARTBEATS:
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
                    # It has no session to lose, and none is needed to be heard again.
                    self._heard.pop(known.id, None)
                else:
                    self._heard[known.id] = _Heard(known.incarnation, now_ms, True)

    def is_alive(self, broker: BrokerImage, now_ms: int) -> bool:
        """Its session is good: earned or granted within the last `session_ms`."""
        heard = self._of(broker)
        return heard is not None and now_ms - heard.at_ms < self.session_ms

    def expired(self, image: ClusterImage, now_ms: int) -> list[int]:
        """Who is to be fenced, those first that were silent longest."""
        over = [
            (heard.at_ms, broker.id)
            for broker in image.brokers.values()
            if not broker.fenced
            and (heard := self._of(broker)) is not None
            and now_ms - heard.at_ms >= self.session_ms
        ]
        return [broker for _, broker in sorted(over)]

    def returned(self, image: ClusterImage, now_ms: int) -> list[int]:
        """Who is fenced and heard of again, in the run that is registered."""
        return [
            broker.id
            for broker in image.brokers.values()
            if broker.fenced
            and (heard := self._of(broker)) is not None
            and not heard.granted
            and now_ms - heard.at_ms < self.heartbeat_ms * MISSED_HEARTBEATS
        ]

    def is_silent(self, broker: BrokerImage, now_ms: int) -> bool:
        """Two of its heartbeats did not come. Of a granted session: no heartbeat came since."""
        heard = self._of(broker)
        return heard is not None and now_ms - heard.at_ms > self.heartbeat_ms * MISSED_HEARTBEATS

    def _of(self, broker: BrokerImage) -> _Heard | None:
        heard = self._heard.get(broker.id)
        return heard if heard is not None and heard.incarnation == broker.incarnation else None
