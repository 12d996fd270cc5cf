"""R3: appends that wait for the high watermark, in the order in which they were written.

Pure: the caller adds an append as a value and gets the value back once: when the append
is committed, when its deadline passes, or when the leadership ends. The last two are
indefinite errors: the records are in the log and may still be committed.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

NEVER = float("inf")


class _Waiting(NamedTuple, Generic[T]):
    end: int
    deadline: float
    append: T


class CommitQueue(Generic[T]):
    """Appends that wait, answered in order: a repeat of a committed batch waits for the appends before it."""

    __slots__ = ("_earliest", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[_Waiting[T]] = deque()
        self._earliest = NEVER
        """The earliest deadline, or an earlier time."""

    def __len__(self) -> int:
        return len(self._waiting)

    def __repr__(self) -> str:
        first = self._waiting[0].end if self._waiting else None
        return f"<CommitQueue waiting={len(self._waiting)} first end={first}>"

    def add(self, end: int, append: T, deadline: float = NEVER) -> None:
        """`end`: committed once the high watermark reaches it; `deadline` is on the clock of `expire`."""
        self._waiting.append(_Waiting(end, deadline, append))
        self._earliest = min(self._earliest, deadline)

    def advance(self, high_watermark: int) -> list[T]:
        """Removes and returns the appends that are committed."""
        waiting, done = self._waiting, []
        while waiting and waiting[0].end <= high_watermark:
            done.append(waiting.popleft().append)
        return done

    def expire(self, now: float) -> list[T]:
        """Removes and returns the appends whose deadline has passed."""
        if now < self._earliest:
            return []
        late = [entry.append for entry in self._waiting if entry.deadline <= now]
        self._waiting = deque(entry for entry in self._waiting if entry.deadline > now)
        self._earliest = min((entry.deadline for entry in self._waiting), default=NEVER)
        return late

    def give_up(self) -> list[T]:
        """Removes and returns all appends: this broker does not commit them any more."""
        given_up = [entry.append for entry in self._waiting]
        self._waiting.clear()
        self._earliest = NEVER
        return given_up
