"""ReadIndex (thesis 6.4): when a question may be answered from the image, and as of which index.

A leader that was deposed without knowing it must not answer. So a question is bound to
what is committed now, and waits until a majority has answered a heartbeat that was sent
after it came: then nobody else led when it came. Before anything of its own term is
committed, a leader does not know what is.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from tidelog_broker.core.raft.errors import Busy
from tidelog_broker.core.raft.ready import Read

READS_MAX = 10_000
"""Questions that wait."""


@dataclass(frozen=True, slots=True)
class _Question:
    token: int
    index: int
    round: int
    """The heartbeat round whose answers prove that this node led when it was asked."""


class Questions:
    """Those of one leadership, in the order in which they came."""

    __slots__ = ("_early", "_waiting")

    def __init__(self) -> None:
        self._early: list[int] = []
        """Came before anything of this term was committed."""
        self._waiting: deque[_Question] = deque()

    def ask(self, token: int, *, commit: int | None, next_round: int) -> None:
        """`commit` None: nothing of this term is committed. Raises `Busy`."""
        if len(self._early) + len(self._waiting) >= READS_MAX:
            raise Busy(f"{READS_MAX} questions wait for a majority; ask again when some are answered")
        if commit is None:
            self._early.append(token)
        else:
            self._waiting.append(_Question(token, commit, next_round))

    def term_committed(self, commit: int, next_round: int) -> None:
        """Something of this term is committed: the early ones are asked now."""
        self._waiting.extend(_Question(token, commit, next_round) for token in self._early)
        self._early.clear()

    def needs(self, next_round: int) -> bool:
        """Whether somebody waits for a round that was not begun."""
        return bool(self._waiting) and self._waiting[-1].round >= next_round

    def answered(self, proven_round: int) -> list[Read]:
        """A majority has answered `proven_round`: what may be answered now."""
        found = []
        while self._waiting and self._waiting[0].round <= proven_round:
            question = self._waiting.popleft()
            found.append(Read(question.token, question.index))
        return found

    def end(self) -> list[int]:
        """The leadership is over: the tokens of all that wait, which nobody here can answer."""
        tokens = [*self._early, *(question.token for question in self._waiting)]
        self._early.clear()
        self._waiting.clear()
        return tokens
