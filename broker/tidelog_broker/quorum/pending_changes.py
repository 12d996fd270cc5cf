"""Keeps the callers that wait for entries of the metadata log, and answers them.

An entry is identified by its index and the term in which it was proposed: when an entry of another term
is applied at its index, it never will be. So a caller gets a certain answer even if the
leadership is lost meanwhile, unless a snapshot of a leader jumps over the index.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterable
from typing import NamedTuple

from tidelog.errors import DiskFull, TidelogError, TimedOut, Unavailable
from tidelog_broker.core.metadata.image import ClusterImage


class _Waiting(NamedTuple):
    term: int
    done: asyncio.Future[ClusterImage]


class WaitingChanges:
    """The callers that wait, by the index of their entry. Belongs to one event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, list[_Waiting]] = {}
        self._count = 0
        self._due: list[tuple[_Waiting, int, ClusterImage]] = []

    def __repr__(self) -> str:
        return f"<WaitingChanges {self._count}>"

    def __len__(self) -> int:
        return self._count

    def wait(self, index: int, term: int) -> asyncio.Future[ClusterImage]:
        """Done with the image right after the entry. A caller that stops waiting does not stop the change."""
        done: asyncio.Future[ClusterImage] = self._loop.create_future()
        self._waiting.setdefault(index, []).append(_Waiting(term, done))
        self._count += 1
        return done

    def applied(self, index: int, term: int, image: ClusterImage) -> None:
        """The entry at `index` was applied; `answer` answers its callers."""
        for waiting in self._waiting.pop(index, ()):
            self._due.append((waiting, term, image))

    def answer(self) -> None:
        """All watchers know the new image; now the callers are answered."""
        due, self._due = self._due, []
        self._count -= len(due)
        for waiting, term, image in due:
            if waiting.done.done():
                continue
            if term == waiting.term:
                waiting.done.set_result(image)
            else:
                _refuse(
                    waiting,
                    Unavailable(
                        "another controller took over; nothing was changed, try again", retry_after_ms=100
                    ),
                )

    def jumped(self, index: int) -> None:
        """A leader's snapshot reaches to `index`: it is not known what became of the entries up to there."""
        error = TimedOut("the controller changed meanwhile; the change may have been made")
        self._refuse((at for at in self._waiting if at <= index), error)

    def refuse_behind(self, index: int, error: TidelogError) -> None:
        """No broker has the entries behind `index`."""
        self._refuse((at for at in self._waiting if at > index), error)

    async def drained(self, seconds: float) -> None:
        """Waits until all callers have an answer, at most so many seconds."""
        waiting = [one.done for group in self._waiting.values() for one in group if not one.done.done()]
        if waiting:
            await asyncio.wait(waiting, timeout=seconds)

    def _refuse(self, indexes: Iterable[int], error: TidelogError) -> None:
        for index in list(indexes):
            group = self._waiting.pop(index)
            self._count -= len(group)
            for waiting in group:
                if not waiting.done.done():
                    _refuse(waiting, error)


def _refuse(waiting: _Waiting, error: TidelogError) -> None:
    waiting.done.set_exception(error)
    waiting.done.exception()  # it counts as seen, whether or not a caller still waits


def refused_by_disk(error: OSError) -> TidelogError:
    """The error for a client when nothing was written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(
            "the volume of the broker is full, so nothing was changed. Free some space on it",
            retry_after_ms=1000,
        )
    return Unavailable(
        f"the metadata could not be written, so nothing was changed: {error.strerror or error}"
    )
