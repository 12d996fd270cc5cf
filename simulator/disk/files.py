"""An open file of a simulated disk.

Neighbours: `disk` opens it, `device` counts its operations, `content` has its bytes.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import TypeAlias

import pyarrow as pa

from simulator.disk.content import Inode
from simulator.disk.device import Device
from simulator.disk.operations import os_error

Bytes: TypeAlias = bytes | memoryview | pa.Buffer


class FakeFile:
    """An open file of a `FakeDisk`. It still works after its name is removed."""

    __slots__ = ("_closed", "_disk", "_node", "path")

    def __init__(self, disk: Device, node: Inode, path: str) -> None:
        self._disk = disk
        self._node = node
        self._closed = False
        self.path = path

    def pread(self, length: int, position: int) -> bytes:
        with self._disk._lock:
            self._check()
            if self._disk.faults:
                self._disk._maybe_fail("pread", self.path)
            return bytes(memoryview(self._node.content)[position : position + length])

    def pwrite(self, buffers: Sequence[Bytes], position: int) -> int:
        data = b"".join([bytes(buffer) for buffer in buffers])
        disk, node = self._disk, self._node
        with disk._lock:
            self._check()
            disk._count("pwrite", self.path, position, len(data))
            if not data:
                return 0
            growth = position + len(data) - len(node.content)
            if disk.capacity is not None and growth > 0:
                missing = growth - (disk.capacity - disk._used)
                if missing > 0:
                    data = data[: max(0, len(data) - missing)]
                    if not data:
                        raise os_error(errno.ENOSPC, self.path)
                    growth = position + len(data) - len(node.content)
            node.write(data, position)
            disk._used += max(0, growth)
            return len(data)

    def size(self) -> int:
        with self._disk._lock:
            self._check()
            return len(self._node.content)

    def truncate(self, size: int) -> None:
        with self._disk._lock:
            self._check()
            self._disk._count("truncate", self.path, size)
            self._disk._used += size - len(self._node.content)
            self._node.truncate(size)

    def datasync(self) -> None:
        with self._disk._lock:
            self._check()
            try:
                self._disk._count("datasync", self.path)
            except OSError:
                self._node.forsake()
                raise
            self._node.datasync()

    @property
    def steps(self) -> int:
        """Writes and truncations of the file so far."""
        with self._disk._lock:
            return self._node.synced + len(self._node.unsynced)

    def datasync_until(self, steps: int) -> None:
        """Ends a flush that began when the file had seen so many `steps`. Later steps are not flushed."""
        with self._disk._lock:
            self._check()
            self._disk._count("datasync", self.path)
            self._node.datasync(steps)

    def drop_cache(self, position: int, length: int) -> None:
        with self._disk._lock:
            self._check()
            self._node.drop_cache(position, length)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._disk._close(self._node)

    def _check(self) -> None:
        self._disk._alive()
        if self._closed:
            raise os_error(errno.EBADF, self.path)
