"""Keeps Python's garbage collector from visiting objects that stay.

A full collection visits every object that can be part of a cycle, and nothing else runs meanwhile: 50 ms
for the modules of an idle broker, 0.1 s more for 2,500 calls. Most of these objects live until the process
ends, or until nothing refers to them, which needs no collector. So objects that exist at the start, and
objects that survive a full collection, are not visited again (`gc.freeze`).

Such an object stays even if it becomes part of a garbage cycle. So when very many objects are spared, the
next collection visits all of them again.
"""

from __future__ import annotations

import gc
from typing import Final

SPARED_MORE_MAX: Final = 500_000
"""Objects that may be spared since all were visited, in addition to as many as there were then."""

THRESHOLDS: Final = (700, 5, 1)
"""New objects before a collection, and collections of one generation before the next: a full one comes after
some 7,000 new objects. It takes little time, because only what is new since the last one is looked at."""

COUNTED_AFTER: Final = 50
"""Full collections between two counts of the spared objects; a count takes some milliseconds."""


class Collector:
    """Spares long-lived objects. There is one collector in a process."""

    def __init__(self, spared_more_max: int = SPARED_MORE_MAX, counted_after: int = COUNTED_AFTER) -> None:
        self._spared_more_max = spared_more_max
        self._counted_after = counted_after
        self._uncounted = 0
        self._lasting = 0
        """The number of objects when all of them were visited last."""
        self._looks_at_all = False
        self._thresholds = gc.get_threshold()

    def start(self) -> None:
        """Spares all objects, garbage included: a search for it would take the time that this saves."""
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
