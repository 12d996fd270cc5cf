"""Whether a write round is done on the event loop: a small one, while nothing says that the disk is slow.

A write goes to the page cache and takes microseconds, less than a thread takes to hear of it. But a file
system makes it wait while the disk is behind: for the journal, for a page that is on its way, for room among
dirty pages. On the event loop everything would wait with it: heartbeats, elections, probes, all clients.
So what is written while a flush runs is written in the thread, where it has to wait for the next flush
anyway; and after a write that was slow, wherever it was done, threads write until one is fast again.

Pure; neighbour: `write_rounds`. docs/decisions/0008 has the measurements.
"""

from __future__ import annotations

from typing import Final

INLINE_WRITE_BYTES_MAX: Final = 32 << 10
"""A round of at most this many bytes may be written on the event loop."""

SLOW_WRITE_SECONDS: Final = 0.02
"""A write that takes longer has met a disk that is behind; a busy interpreter alone takes less."""


class InlineWrites:
    """Decides for each write round whether the event loop does it."""

    __slots__ = ("_slow", "_slow_seconds")

    def __init__(self, slow_seconds: float = SLOW_WRITE_SECONDS) -> None:
        """`slow_seconds`: what takes longer is slow."""
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
        """A round was written in so much time."""
        self._slow = seconds > self._slow_seconds
