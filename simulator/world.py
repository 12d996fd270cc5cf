"""Time, chance and the trace of a run.

All events are in one queue, ordered by time and then by when they were planned, so that the same seed gives
the same run in every process. The trace has a line for each notable event; the digest of all lines is the
fingerprint of the run.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections import deque
from collections.abc import Callable
from typing import Final

MS: Final = 1000
"""Microseconds."""
SECOND: Final = 1000 * MS

T0_US: Final = 1_767_225_600_000_000
"""The right wall-clock time at the beginning of a run, in µs since the epoch."""

LINES_KEPT_MAX: Final = 200_000
"""How many of the newest lines of a trace are kept. The fingerprint covers all lines."""


class Timer:
    """A planned event, which can be cancelled."""

    __slots__ = ("action", "cancelled")

    def __init__(self, action: Callable[[], None]) -> None:
        self.action = action
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class World:
    """The clock, the events and the trace of one run. Times are in µs since the start of the run."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.now = 0
        self.events = 0
        """How many have happened."""
        self.alarmed = False
        """The run must look at a violation, an unhandled error or the end of a process."""
        self.in_thread = False
        """The present event happens in a thread of a process, not on its event loop."""
        self.lines: deque[str] = deque(maxlen=LINES_KEPT_MAX)
        self._planned: list[tuple[int, int, Timer]] = []
        self._count = 0
        self._digest = hashlib.sha256()

    def __repr__(self) -> str:
        return f"<World seed={self.seed} {self.clock} events={self.events}>"

    @property
    def clock(self) -> str:
        return f"{self.now // MS / 1000:.3f} s"

    @property
    def fingerprint(self) -> str:
        """The digest of all lines so far."""
        return self._digest.hexdigest()[:16]

    def rng_of(self, name: str) -> random.Random:
        """A random stream for one purpose. Draws from one stream do not change those from another."""
        return random.Random(f"{self.seed} {name}")

    # --- events

    def after(self, delay_us: int, action: Callable[[], None]) -> Timer:
        """Plans `action` for `delay_us` from now."""
        timer = Timer(action)
        self._count += 1
        heapq.heappush(self._planned, (self.now + delay_us, self._count, timer))
        return timer

    def step(self) -> bool:
        """Performs the next event; False: no event is planned."""
        while self._planned:
            at, _, timer = heapq.heappop(self._planned)
            if timer.cancelled:
                continue
            self.now = at
            self.events += 1
            timer.action()
            return True
        return False

    # --- chance

    @staticmethod
    def between(rng: random.Random, low: int, high: int) -> int:
        """A number from `low` to `high`, both included; four times as fast as `randint`."""
        return low + int(rng.random() * (high - low + 1))

    # --- the trace

    def tell(self, line: str) -> None:
        """Adds a line to the trace."""
        text = f"{self.now:>11} {line}"
        self._digest.update(text.encode())
        self.lines.append(text)
