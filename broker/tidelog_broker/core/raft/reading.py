"""ReadIndex (thesis 6.4): when a linearizable read may be answered from the image, and as of which index.

A leader that was deposed without knowing it must not answer. So a read is bound to the
commit index of the moment when it arrives, and waits until a majority has answered a heartbeat that was
sent later: that proves that no other node led when the read arrived. A leader does not know
the commit index before an entry of its own term is committed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from tidelog_broker.core.raft.errors import Busy
from tidelog_broker.core.raft.ready import Read

READS_MAX = 10_000
"""Reads that wait in one leadership."""


@dataclass(frozen=True, slots=True)
class _PendingRead:
    token: int
    index: int
    round: int
    """The heartbeat round whose answers prove that this node led when the read arrived."""


class PendingReads:
    """The reads of one leadership, in the order in which they came."""

    __slots__ = ("_early", "_waiting")

    def __init__(self) -> None:
        self._early: list[int] = []
        """Tokens of reads that came before an entry of this term was committed."""
        self._waiting: deque[_PendingRead] = deque()

    def __repr__(self) -> str:
        return f"<PendingReads early={len(self._early)} waiting={len(self._waiting)}>"

    def add(self, token: int, *, commit: int | None, next_round: int) -> None:
        """`commit` None: no entry of this term is committed yet. Raises `Busy`."""
        if len(self._early) + len(self._waiting) >= READS_MAX:
            raise Busy(f"{READS_MAX} reads of the metadata wait for a majority; retry when some are answered")
        if commit is None:
            self._early.append(token)
        else:
            self._waiting.append(_PendingRead(token, commit, next_round))

    def term_committed(self, commit: int, next_round: int) -> None:
        """An entry of this term is committed: the early reads are bound to it."""
        self._waiting.extend(_PendingRead(token, commit, next_round) for token in self._early)
        self._early.clear()

    def needs(self, next_round: int) -> bool:
        """Whether a read waits for a heartbeat round that has not begun."""
        return bool(self._waiting) and self._waiting[-1].round >= next_round

    def answered(self, proven_round: int) -> list[Read]:
        """A majority has answered `proven_round`; returns the reads that may be answered now."""
        found = []
        while self._waiting and self._waiting[0].round <= proven_round:
            read = self._waiting.popleft()
            found.append(Read(read.token, read.index))
        return found

    def end(self) -> list[int]:
        """The leadership is over; returns the tokens of all waiting reads, which cannot be answered here."""
        tokens = [*self._early, *(read.token for read in self._waiting)]
        self._early.clear()
        self._waiting.clear()
        return tokens
