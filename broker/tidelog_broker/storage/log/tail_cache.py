"""Recent batches in memory, so that readers at the end of a log touch no disk (DESIGN 4.7).

There is one bound for all partitions of a broker; the oldest entries are dropped first. A
read looks for a batch that begins exactly at its offset, which is where the batch before
it ended.

Neighbours: `writer` puts in the batches that it wrote, reads look here first, and `segments.reading`
reads from files.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.records import BatchHeader
from tidelog_broker.storage.files.protocol import Bytes
from tidelog_broker.storage.segments.reading import Chunk

TAIL_CACHE_BYTES_MAX = 64 << 20

ENTRY_OVERHEAD_BYTES = 800
"""The memory that Python uses for a batch besides its bytes. It counts; else small batches would be free."""


_histories = itertools.count()


class CachedBatch(NamedTuple):
    next_offset: int
    leader_epoch: int
    length: int
    parts: tuple[Bytes, ...]
    """The bytes of the batch, in pieces."""


class TailCache:
    """Batches by (history of a log, base offset); many threads may use it."""

    def __init__(self, bytes_max: int = TAIL_CACHE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._batches: OrderedDict[tuple[int, int], CachedBatch] = OrderedDict()
        self.bytes = 0
        """The size of all batches, with the overhead."""

    def put(self, history: int, base_offset: int, batch: CachedBatch) -> None:
        cost = batch.length + ENTRY_OVERHEAD_BYTES
        if cost > self._bytes_max:
            return
        with self._lock:
            batches = self._batches
            replaced = batches.pop((history, base_offset), None)
            if replaced is not None:
                self.bytes -= replaced.length + ENTRY_OVERHEAD_BYTES
            batches[history, base_offset] = batch
            self.bytes += cost
            while self.bytes > self._bytes_max:
                _, dropped = batches.popitem(last=False)
                self.bytes -= dropped.length + ENTRY_OVERHEAD_BYTES

    def get(self, history: int, base_offset: int) -> CachedBatch | None:
        return self._batches.get((history, base_offset))


class LogTail:
    """One log's part of the cache.

    When a log is cut, it begins another history, because its offsets are used again. Batches that were
    cached in the earlier history are no longer found.
    """

    __slots__ = ("_cache", "history")

    def __init__(self, cache: TailCache) -> None:
        self._cache = cache
        self.history = next(_histories)
        """The number of the current history; no two logs of a process have the same number."""

    def begin_history(self) -> None:
        self.history = next(_histories)

    def put(self, headers: Sequence[BatchHeader], buffers: Sequence[Bytes]) -> None:
        """Caches batches that were written; `buffers` has two buffers for each: its header and the rest."""
        for number, header in enumerate(headers):
            parts = (buffers[2 * number], buffers[2 * number + 1])
            batch = CachedBatch(header.next_offset, header.leader_epoch, header.length, parts)
            self._cache.put(self.history, header.base_offset, batch)

    def holds(self, offset: int) -> bool:
        """Whether a batch that begins at `offset` is in memory."""
        return self._cache.get(self.history, offset) is not None

    def read(self, offset: int, bytes_max: int, limit: int) -> Chunk | None:
        """Cached batches below `limit`; the first begins at `offset`. None: not cached."""
        parts: list[Bytes] = []
        size, epoch, history = 0, 0, self.history
        while offset < limit:
            batch = self._cache.get(history, offset)
            if batch is None or batch.next_offset > limit or (size and size + batch.length > bytes_max):
                break
            parts += batch.parts
            size += batch.length
            offset, epoch = batch.next_offset, batch.leader_epoch
        return Chunk(parts, size, offset, epoch, (-1, -1)) if parts else None
