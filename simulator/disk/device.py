"""What all calls of a simulated disk share: its room, the count of its operations, and the ways they fail.

Neighbours: `disk` adds folders and files to it, `files` are the open files.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable

from simulator.disk.content import Inode
from simulator.disk.operations import CrashPoint, Fault, Operation, os_error


class Device:
    """Counts operations, limits bytes, and raises what a test or a run planned. Safe for threads."""

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = capacity
        """Bytes that all files may hold together; None: no bound."""
        self.operations = 0
        """How many have happened."""
        self.log: list[Operation] | None = None
        """Set it to a list to keep what happens."""
        self.died: Callable[[], None] = lambda: None
        """Called when a crash point is met."""
        self.before: Callable[[Operation], None] | None = None
        """Called before each operation; may look, `crash()`, or raise."""
        self.crash_at: int | None = None
        """The operation with this number, and every later one, raises CrashPoint; None: no operation does."""
        self.faults: list[Fault] = []
        self.dead = False
        """A crash point was met: every call raises CrashPoint."""
        self._lock = threading.RLock()
        self._used = 0
        """Bytes that all files hold."""

    def fail(
        self, operation: str, code: int = errno.EIO, *, path: str = "", skip: int = 0, times: int = 1
    ) -> None:
        """Makes `operation` on paths that hold `path` raise, `times` times after `skip` that pass."""
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
