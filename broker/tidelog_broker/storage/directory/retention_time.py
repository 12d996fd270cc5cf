"""R18: the time that retention by age uses. Pure.

Neighbours: `checkpoint` saves this time, `upkeep.age_retention` reads it.

A clock that is wrong by a month makes every record a month older, and records that retention deletes
are gone on all replicas. So the time of retention moves forward by at most a day at once. If the clock is
further ahead, then either the clock was wrong or the broker was stopped for a long time; the broker cannot
tell which. The time then moves one more day after each hour that the broker runs. The reached time is saved,
so a restart does not avoid this limit. The time never goes back. If the clock was behind
and is then corrected, the broker accepts the correct clock.
"""

from __future__ import annotations

from typing import Final, NamedTuple

RETENTION_STEP_US_MAX: Final = 86_400_000_000
"""The time follows the clock if the clock is ahead of the reached time by at most this."""

RETENTION_STEP_PAUSE_US: Final = 3_600_000_000
"""If the clock is further ahead, the time moves by one step after each such period."""

RETENTION_SAVE_US: Final = 3_600_000_000
"""The time is saved when it has moved by this much since the last save."""


class RetentionNow(NamedTuple):
    """The times that a retention sweep uses."""

    clock_us: int
    """The earlier of the broker's clock and the cluster's clock, µs."""
    reached_us: int
    """The part of that time that may be trusted; never later than `clock_us`. µs."""

    @property
    def behind_us(self) -> int:
        return self.clock_us - self.reached_us


class RetentionTime:
    """The time of retention of one broker."""

    def __init__(self, saved_us: int | None) -> None:
        """`saved_us`: the time that an earlier run reached and saved; None: no run has saved a time."""
        self.reached_us = saved_us
        self._saved_us = saved_us
        self._jumped_at_us: int | None = None
        """When the clock was found too far ahead, or the last step was made, as `elapsed_us` of `now`."""

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
        """Begins at the newest append in the logs if no time was saved; 0: there is no append."""
        if self.reached_us is None and newest_append_us:
            self.reached_us = newest_append_us

    def now(self, clock_us: int, elapsed_us: int) -> RetentionNow:
        """The times that a sweep uses when the clock shows `clock_us`.

        `elapsed_us` is the time since any fixed moment, by a monotonic clock.
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
