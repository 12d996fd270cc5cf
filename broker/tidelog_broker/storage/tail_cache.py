"""Recent batches in memory, so that readers at the end of a log touch no disk (DESIGN 4.7).

One bound for all partitions of a broker, first in, first out. A reader asks for the
batch that begins exactly at its offset, which is where the batch before it ended.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from tidelog_broker.storage.files import Bytes

TAIL_CACHE_BYTES_MAX = 64 << 20


class CachedBatch(NamedTuple):
    next_offset: int
    leader_epoch: int
    length: int
    parts: tuple[Bytes, ...]
    """The batch's bytes, in pieces."""


class TailCache:
    """Batches by (log, base offset). Used from several threads: each step is one atomic operation."""

    def __init__(self, bytes_max: int = TAIL_CACHE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._batches: OrderedDict[tuple[int, int], CachedBatch] = OrderedDict()
        self.bytes = 0

    def put(self, log: int, base_offset: int, batch: CachedBatch) -> None:
        if batch.length > self._bytes_max:
            return
        self._batches[log, base_offset] = batch
        self.bytes += batch.length
        while self.bytes > self._bytes_max:
            _, dropped = self._batches.popitem(last=False)
            self.bytes -= dropped.length

    def get(self, log: int, base_offset: int) -> CachedBatch | None:
        return self._batches.get((log, base_offset))
