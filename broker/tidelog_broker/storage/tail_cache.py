"""Recent batches in memory, so that readers at the end of a log touch no disk (DESIGN 4.7).

One bound for all partitions of a broker, first in, first out. A reader asks for the
batch that begins exactly at its offset, which is where the batch before it ended.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

from tidelog_broker.storage.files import Bytes

TAIL_CACHE_BYTES_MAX = 64 << 20

ENTRY_OVERHEAD_BYTES = 800
"""What Python keeps for one batch besides its bytes; it counts, or small batches would be free."""


class CachedBatch(NamedTuple):
    next_offset: int
    leader_epoch: int
    length: int
    parts: tuple[Bytes, ...]
    """The batch's bytes, in pieces."""


class TailCache:
    """Batches by (log, base offset), for many threads."""

    def __init__(self, bytes_max: int = TAIL_CACHE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._batches: OrderedDict[tuple[int, int], CachedBatch] = OrderedDict()
        self.bytes = 0
        """Of all batches, overhead included."""

    def put(self, log: int, base_offset: int, batch: CachedBatch) -> None:
        cost = batch.length + ENTRY_OVERHEAD_BYTES
        if cost > self._bytes_max:
            return
        with self._lock:
            batches = self._batches
            replaced = batches.pop((log, base_offset), None)
            if replaced is not None:
                self.bytes -= replaced.length + ENTRY_OVERHEAD_BYTES
            batches[log, base_offset] = batch
            self.bytes += cost
            while self.bytes > self._bytes_max:
                _, dropped = batches.popitem(last=False)
                self.bytes -= dropped.length + ENTRY_OVERHEAD_BYTES

    def get(self, log: int, base_offset: int) -> CachedBatch | None:
        return self._batches.get((log, base_offset))
