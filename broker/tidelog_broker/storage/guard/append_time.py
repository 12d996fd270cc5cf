"""F7: the append time of a log's next batch. Pure.

Append time never goes back within a partition. A log can still be dated ahead of the clock: an earlier
version believed a clock that was wrong for a moment, or the leader's clock is behind. Such a log must not
stand still until the clock has caught up, which may take years: message ids, producers and rolls by age
go by append time. So it goes on at half the clock's pace until the clock is there.
"""

from __future__ import annotations

AHEAD_US_MAX = 60_000_000
"""A log that is ahead by no more waits for the clock."""

AHEAD_PACE = 2
"""A log that is further ahead goes on by one µs in so many."""


class AppendTime:
    """Of one log, in one run of its broker."""

    __slots__ = ("_ahead_from", "_ahead_since_us", "last_us")

    def __init__(self) -> None:
        self.last_us = 0
        """Append time of the last batch; 0: there is none, or it was not read yet. µs."""
        self._ahead_from = 0
        """Append time of the log when it was found to be ahead. µs."""
        self._ahead_since_us = 0
        """What the clock showed then; 0: it is not ahead. µs."""

    def __repr__(self) -> str:
        return f"<AppendTime last={self.last_us}{' ahead' if self._ahead_since_us else ''}>"

    def appended(self, append_time_us: int) -> None:
        self.last_us = max(self.last_us, append_time_us)

    def at(self, now_us: int) -> int:
        """What a batch gets that is appended now."""
        if self.last_us - now_us <= AHEAD_US_MAX:
            self._ahead_since_us = 0
            return max(self.last_us, now_us)
        if not 0 < self._ahead_since_us <= now_us:
            # Found now, or the clock has gone back.
            self._ahead_from, self._ahead_since_us = self.last_us, now_us
        return max(self.last_us, self._ahead_from + (now_us - self._ahead_since_us) // AHEAD_PACE)
