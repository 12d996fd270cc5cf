"""R18: the cluster's clock, of the clocks of its brokers.

No single clock is believed. Each broker says with its heartbeats what its clock shows, the controller's own
broker as well, and the cluster's clock is the one in the middle: with three brokers one may be wrong
by years. Of an even number it is the earlier of the two in the middle, because what a late clock
does cannot be undone (`storage.directory.retention`). With one broker there is no second word; the
controller then knows its own clock only.

This is the controller's memory, like `liveness`. A new controller says nothing until it has heard most of the
brokers that are there and, while those disagree, all of them: each is heard or fenced within a session.
Clocks are kept as their distance from the time that passed on the controller, which nobody sets, so a jump of
the controller's own clock makes no other one look wrong.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from tidelog_broker.core.metadata.image import ClusterImage

HEARTBEATS_KEPT: Final = 8
"""Of each broker. A heartbeat that took long makes a clock look late, so the latest look counts."""


JOURNEY_US_MAX: Final = 10_000_000
"""A journey takes less. A clock that falls back by more was set: what it showed before does not count."""

AGREE_US: Final = 1_000_000
"""Clocks this close together need no other one to say which is right. A heartbeat's journey is part of it."""


class ClusterTime(NamedTuple):
    us: int
    """µs since the epoch."""
    clocks: int
    """So many brokers' clocks were compared."""


class Clocks:
    """See the module."""

    def __init__(self) -> None:
        self._heard: dict[int, deque[int | None]] = {}
        """By broker: what its clock showed, less the time that had passed here; None: it did not say."""

    def __repr__(self) -> str:
        return f"<Clocks of {sorted(self._heard)}>"

    def heard(self, broker: int, clock_us: int, elapsed_us: int) -> None:
        """A heartbeat of `broker` came; `clock_us` 0: an earlier version, which does not say."""
        kept = self._heard.setdefault(broker, deque(maxlen=HEARTBEATS_KEPT))
        distance = clock_us - elapsed_us if clock_us else None
        if distance is not None and any(one is not None and one - distance > JOURNEY_US_MAX for one in kept):
            kept.clear()
        kept.append(distance)

    def now(self, image: ClusterImage, elapsed_us: int) -> ClusterTime | None:
        """None: not enough brokers were heard yet.

        A broker that is fenced by now counts with what it said last; one that left the image does not.
        """
        for broker in [broker for broker in self._heard if broker not in image.brokers]:
            del self._heard[broker]
        there = [number for number, broker in image.brokers.items() if not broker.fenced]
        if 2 * len(self._heard) <= len(there):
            return None
        said = [[one for one in kept if one is not None] for kept in self._heard.values()]
        offsets = sorted(max(one) for one in said if one)
        if not offsets:
            return None
        if offsets[-1] - offsets[0] > AGREE_US and not self._heard.keys() >= set(there):
            return None
        return ClusterTime(offsets[(len(offsets) - 1) // 2] + elapsed_us, len(offsets))
