"""A bound on the memory for the indexes of closed segments, which are read but not written."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Protocol

LOADED_BYTES_MAX = 32 << 20
"""Size limit of the closed segments' indexes in memory, for all logs together."""


class Unloadable(Protocol):
    """An object with an index in memory that can be unloaded and loaded again."""

    def unload_index(self) -> None: ...


class LoadedIndexes:
    """The indexes of closed segments in memory, up to a bound; the index loaded first is unloaded first."""

    def __init__(self, bytes_max: int = LOADED_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._sizes: OrderedDict[int, tuple[Unloadable, int]] = OrderedDict()
        self.held_bytes = 0

    def loaded(self, owner: Unloadable, size: int) -> None:
        """Registers a loaded index, and unloads older indexes while the total size exceeds the bound."""
        dropped: list[Unloadable] = []
        with self._lock:
            self.held_bytes += size - self._sizes.pop(id(owner), (owner, 0))[1]
            self._sizes[id(owner)] = (owner, size)
            while self.held_bytes > self._bytes_max and len(self._sizes) > 1:
                other, freed = self._sizes.popitem(last=False)[1]
                self.held_bytes -= freed
                dropped.append(other)
        for other in dropped:
            other.unload_index()

    def forget(self, owner: Unloadable) -> None:
        with self._lock:
            self.held_bytes -= self._sizes.pop(id(owner), (owner, 0))[1]
