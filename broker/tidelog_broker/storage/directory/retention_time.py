"""R18: the time that retention by age goes by. Pure; `store` saves it, `maintenance` asks.

A clock that is wrong by a month makes every record a month older, and what retention deletes is gone
on all replicas. So the time of retention follows the clock by at most a day at once. When the clock is
further ahead, it was wrong or the broker was stopped for long, and nobody here can tell which: a day
more is believed after each hour that the broker runs. The time that was reached is saved, so that a
restart is no way around that. It never goes back: after a clock that was behind the right one is believed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

RETENTION_STEP_US_MAX: Final = 86_400_000_000
"""The clock may be ahead of the time that was reached by so much, and is believed."""

RETENTION_STEP_PAUSE_US: Final = 3_600_000_000
"""A clock that is further ahead moves the time by one step after each such while."""

RETENTION_SAVE_US: Final = 3_600_000_000
"""The time is saved when it has moved by so much."""


class RetentionNow(NamedTuple):
    """What a sweep goes by."""

    clock_us: int
    """The earlier of the broker's clock and the cluster's. µs."""
    reached_us: int
    """What of it may be believed; never later. µs."""

    @property
    def behind_us(self) -> int:
        return self.clock_us - self.reached_us


class RetentionTime:
    """Of one broker."""

    def __init__(self, saved_us: int | None) -> None:
        """`saved_us`: the time that an earlier run reached; None: none has saved any."""
        self.reached_us = saved_us
        self._saved_us = saved_us
        self._jumped_at_us: int | None = None
        """When the clock was found too far ahead, or the last step was made; on the clock of running time."""

    def __repr__(self) -> str:
        return f"<RetentionTime {self.reached_us}{' jumped' if self.jumped else ''}>"

    @property
    def jumped(self) -> bool:
        return self._jumped_at_us is not None

    @property
    def unsaved(self) -> bool:
        if self.reached_us is None:
            return False
        return self._saved_us is None or self.reached_us - self._saved_us >= RETENTION_SAVE_US

    def begin(self, newest_append_us: int) -> None:
        """Without a saved time the newest append in the logs stands for it; 0: there is none."""
        if self.reached_us is None and newest_append_us:
            self.reached_us = newest_append_us

    def now(self, clock_us: int, elapsed_us: int) -> RetentionNow:
        """What a sweep goes by when the clock shows `clock_us`.

        `elapsed_us` is time that passed, since any moment, by a clock that nobody sets.
        """
        reached = clock_us if self.reached_us is None else self.reached_us
        if clock_us - reached <= RETENTION_STEP_US_MAX:
            self._jumped_at_us = None
            reached = max(reached, clock_us)
        elif self._jumped_at_us is None:
            self._jumped_at_us = elapsed_us
        elif elapsed_us - self._jumped_at_us >= RETENTION_STEP_PAUSE_US:
            self._jumped_at_us = elapsed_us
            reached += RETENTION_STEP_US_MAX
        self.reached_us = reached
        return RetentionNow(clock_us, min(clock_us, reached))

    def saved(self) -> None:
        self._saved_us = self.reached_us
