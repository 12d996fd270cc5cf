"""Appends of one partition that wait to be written, in the order of their arrival.

Pure. Neighbours: `partition` answers the appends, `write_rounds` decides when they are written.
"""

from __future__ import annotations

from collections import deque

from tidelog_broker.writing.append_requests import Append


class AppendQueue:
    """The appends of one partition that are not written yet, in order."""

    __slots__ = ("_appends", "bytes")

    def __init__(self) -> None:
        self._appends: deque[Append] = deque()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._appends)

    def __repr__(self) -> str:
        return f"<AppendQueue appends={len(self._appends)} bytes={self.bytes}>"

    def put(self, append: Append) -> None:
        self._appends.append(append)
        self.bytes += append.bytes

    def take(self, bytes_max: int) -> list[Append]:
        """Removes and returns the first appends: about `bytes_max` bytes, at least one if there is any."""
        taken: list[Append] = []
        size = 0
        while self._appends and size < bytes_max:
            append = self._appends.popleft()
            taken.append(append)
            size += append.bytes
        self.bytes -= size
        return taken

    def expire(self, now: float) -> list[Append]:
        """Removes and returns the appends whose deadline has passed."""
        overdue = [append for append in self._appends if append.deadline <= now]
        if overdue:
            self._appends = deque(append for append in self._appends if append.deadline > now)
            self.bytes = sum(append.bytes for append in self._appends)
        return overdue

    def give_up(self) -> list[Append]:
        """Removes and returns all appends."""
        given_up = list(self._appends)
        self._appends.clear()
        self.bytes = 0
        return given_up
