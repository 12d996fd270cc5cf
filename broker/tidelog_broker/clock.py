"""Time, as an argument: nothing else in the broker reads a clock for what it writes down."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

Clock = Callable[[], int]
"""µs: since the Unix epoch, or of time that passed, since any moment."""

_RUNNING: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Goes on while the machine sleeps, so that a laptop that wakes up does not look like a clock that jumped."""


def system_clock() -> int:
    return time.time_ns() // 1000


def elapsed_clock() -> int:
    """Monotonic time, which cannot be set."""
    return time.clock_gettime_ns(_RUNNING) // 1000
