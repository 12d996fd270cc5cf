"""Time, as an argument: nothing else in the broker reads a clock for what it writes down."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""µs since the Unix epoch."""


def system_clock() -> int:
    return time.time_ns() // 1000
