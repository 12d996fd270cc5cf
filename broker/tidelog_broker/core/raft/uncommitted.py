"""The bound on what a leader accepts: bytes of commands that are not committed yet.

Without it, a leader that is cut off from its majority would fill its memory and its disk with
commands that may never be committed.
"""

from __future__ import annotations

from collections import deque

from tidelog_broker.core.raft.errors import Busy

UNCOMMITTED_BYTES_MAX = 64 << 20
"""Of one leadership; a single command may exceed it if no other command waits."""

ENTRY_BYTES = 64
"""What an entry takes besides its payload, about."""


class Uncommitted:
    """The commands of one leadership that wait to be committed, counted in bytes."""

    __slots__ = ("_bytes", "_groups")

    def __init__(self) -> None:
        self._groups: deque[tuple[int, int]] = deque()
        """Last index and bytes of the commands that were proposed together."""
        self._bytes = 0

    def __repr__(self) -> str:
        return f"<Uncommitted bytes={self._bytes} groups={len(self._groups)}>"

    def admit(self, payload_bytes: int, entries: int) -> int:
        """The bytes to count for a proposal; raises `Busy` if there is no room."""
        count = payload_bytes + entries * ENTRY_BYTES
        if self._bytes and self._bytes + count > UNCOMMITTED_BYTES_MAX:
            raise Busy(
                f"{self._bytes} bytes of metadata commands wait for a majority of the voters; "
                f"retry when they are committed"
            )
        return count

    def add(self, last_index: int, count: int) -> None:
        self._groups.append((last_index, count))
        self._bytes += count

    def committed(self, index: int) -> None:
        while self._groups and self._groups[0][0] <= index:
            _, count = self._groups.popleft()
            self._bytes -= count
