"""R18: the cluster's clock, computed from the clocks of its brokers.

No single clock is trusted. Each broker sends its clock with its heartbeats, the controller's own
broker as well, and the cluster's clock is the median: with three brokers one clock may be wrong
by years. Of an even number it is the earlier of the two in the middle, because the effects of a late clock
cannot be undone (`storage.directory.retention`). With one broker there is no second clock; the
controller then knows only its own clock.

This is the controller's memory, like `liveness`. A new controller gives no time until it has heard most of
the registered brokers and, while those disagree, all of them: each is heard or fenced within a session.
A clock is kept as its difference from the time that passed on the controller, which no administrator can set.
So a jump of the controller's own clock does not make another clock look wrong.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from tidelog_broker.core.metadata.image import ClusterImage

HEARTBEATS_KEPT: Final = 8
"""Of each broker. A slow heartbeat makes a clock look late, so the latest clock of these counts."""


JOURNEY_US_MAX: Final = 10_000_000
"""No heartbeat takes longer. A clock that falls back by more was set: its earlier values do not count."""

AGREE_US: Final = 1_000_000
"""Clocks that differ by at most this much agree: no third clock is needed. It includes a heartbeat's time."""


class ClusterTime(NamedTuple):
    """The cluster's clock at one moment."""

    us: int
    """µs since the epoch."""
    clocks: int
    """The number of brokers whose clocks were compared."""


class Clocks:
    """The clocks of the brokers, as one controller knows them."""

    def __init__(self) -> None:
        self._heard: dict[int, deque[int | None]] = {}
        """By broker: its clock minus the time that passed on the controller; None: it sent no clock."""

    def __repr__(self) -> str:
        return f"<Clocks of {sorted(self._heard)}>"

    def heard(self, broker: int, clock_us: int, elapsed_us: int) -> None:
        """A heartbeat of `broker` arrived; `clock_us` 0: an earlier version, which sends no clock."""
        kept = self._heard.setdefault(broker, deque(maxlen=HEARTBEATS_KEPT))
        distance = clock_us - elapsed_us if clock_us else None
        if distance is not None and any(one is not None and one - distance > JOURNEY_US_MAX for one in kept):
            kept.clear()
        kept.append(distance)

    def now(self, image: ClusterImage, elapsed_us: int) -> ClusterTime | None:
        """The cluster's clock; None: not enough brokers were heard yet.

        A broker that was fenced counts with its last heartbeat; a broker that left the image does not count.
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
