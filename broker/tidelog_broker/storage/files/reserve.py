"""Disk space kept free for the writes that must succeed even on a full disk (DESIGN 4.4).

The reserve is a file of zeros. When a write of the metadata log or of a checkpoint fails because the disk
is full, the broker empties the file and repeats the write once. It fills the file again when twice
its size is free. Writes of records never empty the reserve: on a full disk they are refused. While the
reserve is empty, records stay refused, no matter how much space becomes free.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Callable
from typing import TypeVar

import structlog

from tidelog.errors import DiskFull
from tidelog_broker.storage.files.protocol import Files
from tidelog_broker.storage.files.whole_files import write_all

T = TypeVar("T")

log = structlog.get_logger(__name__)

RESERVE_BYTES = 16 << 20
FULL = (errno.ENOSPC, errno.EDQUOT)
_CHUNK = bytes(1 << 20)


class Reserve:
    """The reserve of one data directory; `size` 0: there is no reserve. Safe for many threads."""

    def __init__(self, files: Files, folder: str, size: int = RESERVE_BYTES) -> None:
        self._files = files
        self._folder = folder
        self._path = f"{folder}/reserve"
        self._lock = threading.Lock()
        self.size = size
        self.held = False
        """Whether the file has its full size now."""
        self.released = False
        """The reserve was emptied and not filled since: the free space is not for records."""

    def __repr__(self) -> str:
        return (
            f"<Reserve {'held' if self.held else 'released' if self.released else 'empty'} bytes={self.size}>"
        )

    def check_records(self) -> None:
        """Raises `DiskFull` while the free space is kept for metadata and checkpoints."""
        if self.released:
            raise DiskFull(
                f"the broker's disk is full: the space set aside is in use for metadata; records are "
                f"accepted again when twice {self.size} bytes are free (disk_reserve_bytes)",
                retry_after_ms=1000,
            )

    def restore(self) -> bool:
        """Fills the reserve if twice its size is free on the volume; returns whether it is held.

        To be called periodically: while the reserve is held, a call costs next to nothing.
        """
        with self._lock:
            if self.held or not self.size:
                return self.held
            with contextlib.suppress(OSError):
                self._fill()
            return self.held

    def run(self, operation: Callable[[], T]) -> T:
        """Calls `operation`; if the disk is full, releases the reserve and calls it once more.

        The operation must be repeatable. Its errors pass through.
        """
        try:
            return operation()
        except OSError as error:
            if error.errno not in FULL or not self._release():
                raise
        return operation()

    def _fill(self) -> None:
        file = self._files.open(self._path, create=True)
        try:
            at = file.size()
            if at < self.size and self._files.free_bytes(self._folder) < 2 * self.size - at:
                return
            try:
                while at < self.size:
                    at += write_all(file, [_CHUNK[: self.size - at]], at)
            except OSError:
                file.truncate(0)
                raise
            if at > self.size:
                file.truncate(self.size)
            self.held = True
            self.released = False
        finally:
            file.close()

    def _release(self) -> bool:
        with self._lock:
            if not self.held:
                return False
            self.held = False
            self.released = True
            file = self._files.open(self._path)
            try:
                file.truncate(0)
                # Some file systems free the space only when the truncation is on disk.
                with contextlib.suppress(OSError):
                    file.datasync()
            finally:
                file.close()
            log.warning("disk full: the reserve is released for metadata and checkpoints", bytes=self.size)
            return True
