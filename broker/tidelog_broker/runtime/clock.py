"""Time, as an argument: nothing else in the broker reads a clock for what it writes down."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""µs since the Unix epoch."""


def system_clock() -> int:
    return time.time_ns() // 1000


def skew_us(sent: int, theirs: int, came: int) -> int:
    """How far another clock is certainly ahead of ours (µs; below 0: behind).

    `theirs` was read between our `sent` and `came`; whatever lies between the two is no skew.
    """
    if theirs < sent:
        return theirs - sent
    return max(0, theirs - came)
