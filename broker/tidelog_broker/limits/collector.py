"""Python's garbage collector, kept from looking at what stays.

A full collection looks at every object that can be part of a cycle, and nothing else runs meanwhile: 50 ms
for the modules of an idle broker, 0.1 s more for 2,500 calls. Most of these objects live until the process
ends, or until nothing refers to them, for which no collector is needed. So what is there at the start, and
what a full collection has let live, is not looked at again (`gc.freeze`).

A cycle that becomes garbage later is then kept. So when very many objects have been spared, the next
collection looks at all of them again.
"""

from __future__ import annotations

import gc
from typing import Final

SPARED_MORE_MAX: Final = 500_000
"""Objects spared since all were looked at, beside as many as there were then."""

THRESHOLDS: Final = (700, 5, 1)
"""New objects before a collection, and collections of one generation before the next: a full one comes after
some 7,000 new objects. It takes little time, because only what is new since the last one is looked at."""

COUNTED_AFTER: Final = 50
"""Full collections before the spared objects are counted, which takes some milliseconds."""


class Collector:
    """See the module. There is one collector for the process."""

    def __init__(self, spared_more_max: int = SPARED_MORE_MAX, counted_after: int = COUNTED_AFTER) -> None:
        self._spared_more_max = spared_more_max
        self._counted_after = counted_after
        self._uncounted = 0
        self._lasting = 0
        """How many objects there were when all of them were looked at."""
        self._looks_at_all = False
        self._thresholds = gc.get_threshold()

    def start(self) -> None:
        """Spares what is there, garbage included: looking for that would take the time to be saved."""
        gc.freeze()
        self._lasting = gc.get_freeze_count()
        gc.set_threshold(*THRESHOLDS)
        gc.callbacks.append(self._collected)

    def stop(self) -> None:
        gc.callbacks.remove(self._collected)
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()

    def _collected(self, phase: str, facts: dict[str, int]) -> None:
        if phase != "stop" or facts["generation"] != 2:
            return
        gc.freeze()
        self._uncounted += 1
        if self._looks_at_all:
            self._looks_at_all = False
            self._lasting = gc.get_freeze_count()
        elif self._uncounted >= self._counted_after:
            self._uncounted = 0
            if gc.get_freeze_count() > 2 * self._lasting + self._spared_more_max:
                gc.unfreeze()
                self._looks_at_all = True
