"""The cluster's clock as this broker knows it, and the time that its appends get (F7, R18).

The controller answers each heartbeat with the cluster's clock (see `core.metadata.controller.clocks`).
Between two answers it advances with the monotonic time, which cannot be set. The broker's own clock is used
within a bound: an append is dated at most `skew_us_max` ahead of the cluster's clock or behind it. So a
broker whose clock is wrong continues, and its records do not carry the wrong time. Ahead, a record would be
kept for too long; behind, it would be old for the next leader, whose clock is right. Retention uses a clock
that is behind: it makes no record older than it is.

A broker that shares its cluster with others leads only once it knows the cluster's clock (`known`;
`replica_host`).

`SteadyClock` is for a controller that has no other clock to compare with.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import structlog

from tidelog_broker.clock import Clock, elapsed_clock, system_clock

log = structlog.get_logger(__name__)

SKEW_US_MAX: Final = 500_000

HEARD_US_MAX: Final = 60_000_000
"""Retention by age needs an answer of the controller that is at most so old."""

YIELD_US: Final = 5_000_000
"""If a broker's clock is off for so long, other brokers take over what it leads."""

JUMP_HOLD_US: Final = 3_600_000_000
"""A clock that jumped ahead, without another clock to compare with, is accepted after so long."""


class _Reading(NamedTuple):
    """The time of a clock at a moment."""

    us: int
    elapsed_us: int

    def at(self, elapsed_us: int) -> int:
        return self.us + elapsed_us - self.elapsed_us


def ahead_us(theirs: int, round_trip: int, ours: int) -> int:
    """How far another clock is certainly ahead of ours (µs; below 0: behind).

    It showed `theirs` at some moment of the round trip that ends now; the uncertainty of the moment is no
    skew.
    """
    if ours < theirs:
        return theirs - ours
    return min(0, theirs + round_trip - ours)


class ClusterClock:
    """The cluster's clock and this broker's. Belongs to one event loop."""

    def __init__(
        self,
        wall: Clock = system_clock,
        elapsed: Clock = elapsed_clock,
        *,
        skew_us_max: int = SKEW_US_MAX,
    ) -> None:
        self.wall = wall
        """This broker's clock."""
        self.elapsed = elapsed
        """Monotonic time."""
        self.skew_us_max = skew_us_max
        self._cluster: _Reading | None = None
        """None: it is not known in this run yet."""
        self.ahead_us = 0
        """How far the cluster's clock is certainly ahead of this broker's. µs."""
        self._off_since_us: int | None = None

    def __repr__(self) -> str:
        return f"<ClusterClock ahead_us={self.ahead_us}{' off' if self.off else ''}>"

    @property
    def known(self) -> bool:
        """The cluster's clock is known in this run."""
        return self._cluster is not None

    @property
    def off(self) -> bool:
        """This broker's clock is further from the cluster's clock than allowed."""
        return self._off_since_us is not None

    @property
    def yields(self) -> bool:
        """It is off for so long that others should lead what this broker leads."""
        return self._off_since_us is not None and self.elapsed() - self._off_since_us >= YIELD_US

    @property
    def held_us(self) -> int:
        """How far this broker's clock is ahead of the time that appends get. µs."""
        return max(0, self.wall() - self.append_us())

    def heard(self, theirs_us: int, asked_us: int) -> None:
        """The cluster's clock is `theirs_us`: the answer to a request of when `elapsed` was `asked_us`."""
        ours, now = self.wall(), self.elapsed()
        self.ahead_us = ahead_us(theirs_us, now - asked_us, ours)
        # Within the round trip this broker's own clock is as good as the answer.
        self._cluster = _Reading(ours + self.ahead_us, now)
        if abs(self.ahead_us) <= self.skew_us_max:
            if self._off_since_us is not None:
                log.info("the clock of this broker agrees with the cluster's clock again")
            self._off_since_us = None
        elif self._off_since_us is None:
            self._off_since_us = now
            log.warning(
                "the clock of this broker is off; appends are dated by the cluster's clock, and other "
                "brokers lead where they can. Set the clock by NTP",
                clusters_clock_ahead_s=self.ahead_us / 1e6,
            )

    def cluster_us(self) -> int | None:
        """The cluster's clock now; None: it is not known in this run yet."""
        return None if self._cluster is None else self._cluster.at(self.elapsed())

    def append_us(self) -> int:
        """The time of an append now: the broker's clock, within the bound around the cluster's (R18)."""
        wall, cluster = self.wall(), self.cluster_us()
        if cluster is None:
            return wall
        return max(cluster - self.skew_us_max, min(wall, cluster + self.skew_us_max))

    def retention_us(self) -> int | None:
        """The earlier of the two clocks; None: no controller has answered lately (R18)."""
        now = self.elapsed()
        if self._cluster is None or now - self._cluster.elapsed_us > HEARD_US_MAX:
            return None
        return min(self.wall(), self._cluster.at(now))


class SteadyClock:
    """A clock that does not jump, for a controller that has no other clock to compare with.

    If the clock and the monotonic time disagree, the earlier of the two counts until they agree again,
    or until the clock has kept its new pace for `JUMP_HOLD_US`. The clock counts as right at the start.
    """

    def __init__(self, wall: Clock, elapsed: Clock, *, skew_us_max: int = SKEW_US_MAX) -> None:
        self._wall = wall
        self._elapsed = elapsed
        self._skew_us_max = skew_us_max
        self._good = _Reading(wall(), elapsed())
        self._jumped: _Reading | None = None

    def __repr__(self) -> str:
        return f"<SteadyClock{' jumped' if self._jumped else ''}>"

    def now(self) -> int:
        """To be called often: a jump between two calls is noticed at the second one."""
        seen = _Reading(self._wall(), self._elapsed())
        expected = self._good.at(seen.elapsed_us)
        if abs(seen.us - expected) <= self._skew_us_max:
            if self._jumped is not None:
                log.info("the clock agrees with the monotonic time again")
        elif self._jumped is None or abs(seen.us - self._jumped.at(seen.elapsed_us)) > self._skew_us_max:
            self._jumped = seen
            log.warning(
                "the clock jumped; the cluster's clock ignores the jump until the clock is back, or for "
                "an hour. Set the clock by NTP, or restart the broker if the clock is right now",
                seconds=(seen.us - expected) / 1e6,
            )
            return min(seen.us, expected)
        elif seen.elapsed_us - self._jumped.elapsed_us < JUMP_HOLD_US:
            return min(seen.us, expected)
        else:
            log.warning(
                "the clock kept its new time for an hour, so the broker accepts it",
                seconds=(seen.us - expected) / 1e6,
            )
        self._good, self._jumped = seen, None
        return seen.us
