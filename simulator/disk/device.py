"""The common part of a simulated disk and its open files: room, the count of operations, planned failures.

Neighbours: `disk` adds folders and files to it, `files` are the open files.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable

from simulator.disk.content import Inode
from simulator.disk.operations import CrashPoint, Fault, Operation, os_error


class Device:
    """Counts operations, limits the bytes, and raises the failures that a test or a run planned.
    Thread-safe."""

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = capacity
        """Bytes that all files may hold together; None: no bound."""
        self.operations = 0
        """How many have happened."""
        self.log: list[Operation] | None = None
        """The operations that happened, if a test sets it to a list."""
        self.died: Callable[[], None] = lambda: None
        """Is called at the crash point. The owner of the disk sets it."""
        self.before: Callable[[Operation], None] | None = None
        """Is called before each operation; it may look, `crash()`, or raise. The owner of the disk sets
        it."""
        self.crash_at: int | None = None
        """The operation with this number, and every later one, raises CrashPoint; None: no operation does."""
        self.faults: list[Fault] = []
        self.dead = False
        """The crash point was reached: every call raises CrashPoint."""
        self._lock = threading.RLock()
        self._used = 0
        """Bytes that all files hold."""

    def fail(
        self, operation: str, code: int = errno.EIO, *, path: str = "", skip: int = 0, times: int = 1
    ) -> None:
        """Makes `operation` on paths that contain `path` raise `times` times, after `skip` that succeed."""
        self.faults.append(Fault(operation, code, path, skip, times))

    def fill(self, room: int | None) -> None:
        """From now on only `room` more bytes fit; None: there is no bound."""
        with self._lock:
            self.capacity = None if room is None else self._used + room

    # --- for disks and files

    def _die(self) -> None:
        self.dead = True
        self.died()

    def _alive(self) -> None:
        if self.dead:
            raise CrashPoint

    def _count(self, name: str, path: str, position: int = 0, length: int = 0) -> None:
        operation = Operation(self.operations, name, path, position, length)
        if self.crash_at is not None and operation.number >= self.crash_at:
            self._die()
            raise CrashPoint(f"before {operation}")
        if self.before is not None:
            try:
                self.before(operation)
            except CrashPoint:
                self._die()
                raise
        if self.faults:
            self._maybe_fail(name, path)
        self.operations += 1
        if self.log is not None:
            self.log.append(operation)

    def _maybe_fail(self, name: str, path: str) -> None:
        for fault in self.faults:
            if fault.operation != name or fault.path not in path or not fault.times:
                continue
            if fault.skip:
                fault.skip -= 1
                continue
            fault.times -= 1
            raise os_error(fault.errno, path)

    def _close(self, node: Inode) -> None:
        with self._lock:
            node.handles -= 1
            if not node.handles and not node.linked:
                self._used -= len(node.content)
