"""Room set aside on the volume, for what must be written even when the disk is full (DESIGN 4.4).

A file of zeros that takes up space until the metadata log or a checkpoint meets a full
disk; then it is emptied, the write is tried once more, and the file is made again when
there is room for it twice over. Records never have it emptied: their writes are refused, and go on being
refused until it is set aside again, whatever room there is meanwhile.
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
    """The reserve of one data directory; `size` 0: none. Safe for threads."""

    def __init__(self, files: Files, folder: str, size: int = RESERVE_BYTES) -> None:
        self._files = files
        self._folder = folder
        self._path = f"{folder}/reserve"
        self._lock = threading.Lock()
        self.size = size
        self.held = False
        """Whether the room is set aside now."""
        self.released = False
        """It was needed, and has not been set aside since: the room is not for records."""

    def __repr__(self) -> str:
        return (
            f"<Reserve {'held' if self.held else 'released' if self.released else 'empty'} bytes={self.size}>"
        )

    def check_records(self) -> None:
        """Raises `DiskFull` while what room there is belongs to metadata and checkpoints."""
        if self.released:
            raise DiskFull(
                f"the broker's disk is full: what was set aside is in use for metadata; records are taken "
                f"again when twice {self.size} bytes are free (disk_reserve_bytes)",
                retry_after_ms=1000,
            )

    def restore(self) -> bool:
        """Sets the room aside if it is not and the volume has it twice; whether it is held then.

        Worth a call now and then: it costs one look while the reserve is held.
        """
        with self._lock:
            if self.held or not self.size:
                return self.held
            with contextlib.suppress(OSError):
                self._fill()
            return self.held

    def run(self, operation: Callable[[], T]) -> T:
        """`operation()`, and once more with the reserve released if the disk is full.

        The operation must be one that can be repeated. Raises what it raises.
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
                # Some file systems give the room back only when the truncation is on disk.
                with contextlib.suppress(OSError):
                    file.datasync()
            finally:
                file.close()
            log.warning("disk full: the reserve is released for metadata and checkpoints", bytes=self.size)
            return True
