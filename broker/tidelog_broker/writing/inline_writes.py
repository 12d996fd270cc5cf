"""Decides whether the event loop does a write round: it does small rounds while the disk is fast.

A write to the page cache takes microseconds, less than handing the write to a thread. But the file system
makes a write wait while the disk is behind: for the journal, for a page that is being written to the disk, or
for room among dirty pages. On the event loop everything would wait with that write: heartbeats, elections,
probes, all clients. So while a flush runs, the write thread writes: those bytes must wait for the next flush
anyway. After a slow write, on the loop or in the thread, the thread writes until a write is fast again.

Pure; neighbour: `write_rounds`. docs/decisions/0008 has the measurements.
"""

from __future__ import annotations

from typing import Final

INLINE_WRITE_BYTES_MAX: Final = 32 << 10
"""A round of at most this many bytes may be written on the event loop."""

SLOW_WRITE_SECONDS: Final = 0.02
"""A write that takes longer was held up by a slow disk; a busy interpreter alone delays it less."""


class InlineWrites:
    """Decides for each write round whether the event loop does it."""

    __slots__ = ("_slow", "_slow_seconds")

    def __init__(self, slow_seconds: float = SLOW_WRITE_SECONDS) -> None:
        """`slow_seconds`: a write that takes longer is slow."""
        self._slow_seconds = slow_seconds
        self._slow = False

    def __repr__(self) -> str:
        return f"<InlineWrites {'slow' if self._slow else 'fast'}>"

    def may(self, size: int, *, flushing: bool) -> bool:
        """Whether a round of `size` bytes may be written on the event loop; `flushing`: a flush runs."""
        return size <= INLINE_WRITE_BYTES_MAX and not flushing and not self._slow

    @property
    def slow(self) -> bool:
        """The last write met a slow disk."""
        return self._slow

    def took(self, seconds: float) -> None:
        """Records how long the last round took to write."""
        self._slow = seconds > self._slow_seconds
