"""`minOffsetsPerTrigger` with `maxTriggerDelay`: a micro-batch waits for enough unread offsets. Pure.

Spark's admission control has a smallest size, but not together with a largest one, and with it
Trigger.AvailableNow may wait without end. So the streaming reader decides here, and never while it reads up
to a fixed end.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class TriggerGate:
    """Decides whether a micro-batch begins now. Its clock is an argument."""

    offsets_min: int | None
    """None: every micro-batch begins at once."""
    delay_s_max: float
    opened_s: float | None = None
    """When the last micro-batch began; None: none did since the start of the query."""

    def opens(self, unread: int, now_s: float) -> bool:
        """Whether `unread` offsets are enough, or have waited long enough.

        The first micro-batch after a start never waits, as in Spark's Kafka connector: a query that starts
        again often would otherwise never read a small number of records.
        """
        if self.offsets_min is None:
            return True
        if unread == 0:
            return False
        late = self.opened_s is None or now_s - self.opened_s >= self.delay_s_max
        if not late and unread < self.offsets_min:
            return False
        self.opened_s = now_s
        return True
