"""A rate that may not be exceeded for long: what exceeds it is told how long to wait.

A caller may use what a second allows at once. After that it must wait until the rate has made up for it. The
wait is told after the use, so that a single piece that is larger than a second allows is possible, too.
"""

from __future__ import annotations

from typing import Final

BURST_SECONDS: Final = 1.0
"""So much may be used at once."""


class Rate:
    """How much of one thing was used lately. Pure: the time is a parameter."""

    def __init__(self, per_second: float) -> None:
        """`per_second`: 0: no limit."""
        self.per_second = per_second
        self._even_at = float("-inf")
        """When the use so far would be done at this rate, from the beginning of the burst."""

    def __repr__(self) -> str:
        return f"<Rate {self.per_second:g}/s>"

    def use(self, amount: float, now: float) -> float:
        """Counts `amount`; the answer is how long to wait before the next use. s."""
        if not self.per_second:
            return 0.0
        self._even_at = max(self._even_at, now - BURST_SECONDS) + amount / self.per_second
        return self.wait(now)

    def wait(self, now: float) -> float:
        """How long to wait before the next use. s."""
        return max(0.0, self._even_at - now) if self.per_second else 0.0
