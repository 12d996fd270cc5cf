"""Time, chance and the story of a run: everything that happens does so at a moment of this clock.

One queue of events, ordered by time and then by when they were planned, so that the same seed gives
the same run in every process. What happens is told in lines; their digest is the run's fingerprint.
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
"""What a clock that is right shows when a run begins, µs since the epoch."""

LINES_KEPT_MAX: Final = 200_000
"""The newest lines of a story; the fingerprint is of all."""


class Timer:
    """Something that will happen, unless it is cancelled."""

    __slots__ = ("action", "cancelled")

    def __init__(self, action: Callable[[], None]) -> None:
        self.action = action
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class World:
    """See the module. Times are µs from the start of the run."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.now = 0
        self.events = 0
        """How many have happened."""
        self.alarmed = False
        """Something happened that the run has to see to: a violation, an error, an end."""
        self.in_thread = False
        """What happens now does so in a thread of some process, not on its event loop."""
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
        """Of everything that was told so far."""
        return self._digest.hexdigest()[:16]

    def rng_of(self, name: str) -> random.Random:
        """Chance of somebody's own, so that what one draws does not change what another one does."""
        return random.Random(f"{self.seed} {name}")

    # --- events

    def after(self, delay_us: int, action: Callable[[], None]) -> Timer:
        """Has `action` happen so much later."""
        timer = Timer(action)
        self._count += 1
        heapq.heappush(self._planned, (self.now + delay_us, self._count, timer))
        return timer

    def step(self) -> bool:
        """Has the next thing happen; False: nothing is planned."""
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
        """As `randint`, which takes four times as long."""
        return low + int(rng.random() * (high - low + 1))

    # --- the story

    def tell(self, line: str) -> None:
        text = f"{self.now:>11} {line}"
        self._digest.update(text.encode())
        self.lines.append(text)
