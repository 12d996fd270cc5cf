"""F7: the append time of a log's next batch. Pure.

Append time never goes back within a partition. Still, a log's last append time can be ahead of the clock:
an earlier version trusted a clock that was wrong for a moment, or the leader's clock is behind. Append time
must not stop until the clock has caught up, which may take years, because message ids, producers and rolls by
age depend on it. So it advances at half the clock's pace until the clock has caught up.
"""

from __future__ import annotations

AHEAD_US_MAX = 60_000_000
"""If append time is ahead of the clock by at most this, it waits for the clock."""

AHEAD_PACE = 2
"""If append time is further ahead, it advances by 1 µs in this many µs of the clock."""


class AppendTime:
    """The append time of one log, in one run of its broker."""

    __slots__ = ("_ahead_from", "_ahead_since_us", "last_us")

    def __init__(self) -> None:
        self.last_us = 0
        """Append time of the last batch; 0: there is no batch, or it was not read yet. µs."""
        self._ahead_from = 0
        """The log's append time when it was found to be ahead of the clock. µs."""
        self._ahead_since_us = 0
        """The clock's time at that moment; 0: append time is not ahead. µs."""

    def __repr__(self) -> str:
        return f"<AppendTime last={self.last_us}{' ahead' if self._ahead_since_us else ''}>"

    def appended(self, append_time_us: int) -> None:
        self.last_us = max(self.last_us, append_time_us)

    def at(self, now_us: int) -> int:
        """The append time of a batch that is appended now. µs."""
        if self.last_us - now_us <= AHEAD_US_MAX:
            self._ahead_since_us = 0
            return max(self.last_us, now_us)
        if not 0 < self._ahead_since_us <= now_us:
            # Append time was found to be ahead just now, or the clock went back.
            self._ahead_from, self._ahead_since_us = self.last_us, now_us
        return max(self.last_us, self._ahead_from + (now_us - self._ahead_since_us) // AHEAD_PACE)
