"""Keeps a log readable when the same thing goes wrong a million times.

What cannot be stored, from wherever it comes, is logged at most once a minute (N1). Who would
log asks here first, and logs how many times it did not.
"""

from collections.abc import Callable

LOG_INTERVAL_SECONDS = 60.0
"""Least time between two lines about the same thing."""

KEYS_MAX = 1000
"""Things told apart; beyond it all are forgotten and may be logged again."""


class LogLimit:
    """Decides whether a line may be logged now."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[float, int]] = {}
        """By key: when it was last logged, and how many were left out since."""

    def left_out(self, key: str) -> int | None:
        """Return None if this must not be logged now, else how many were left out before it."""
        now = self._clock()
        last, count = self._seen.get(key, (None, 0))
        if last is not None and now - last < LOG_INTERVAL_SECONDS:
            self._seen[key] = (last, count + 1)
            return None
        if len(self._seen) >= KEYS_MAX:
            self._seen.clear()
        self._seen[key] = (now, 0)
        return count
