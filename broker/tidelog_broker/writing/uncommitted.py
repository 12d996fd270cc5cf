"""Appends of one partition that are written and wait for their commit. Pure.

Most wait for the high watermark (acks=all). Appends with acks=leader wait for this broker's disk only.
Neighbours: `partition` passes the high watermark and the durable offset, `core.replication.commit_queue`
keeps the order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import structlog

from tidelog.errors import TidelogError
from tidelog_broker.core.replication.commit_queue import CommitQueue
from tidelog_broker.storage.log.write_batch import Appended
from tidelog_broker.writing.append_requests import Acks, Append, RecordsAppended

log = structlog.get_logger(__name__)


class _Waiting(NamedTuple):
    """A written append that waits for its commit; its bytes are no longer in memory."""

    done: Callable[[Any], None]
    outcome: Appended | RecordsAppended


class Uncommitted:
    """The written appends of one partition without an answer, in the order of their offsets."""

    __slots__ = ("_all", "_leader")

    def __init__(self) -> None:
        self._all: CommitQueue[_Waiting] = CommitQueue()
        self._leader: CommitQueue[_Waiting] | None = None
        """Appends with acks=leader; None: no append had it yet."""

    def __len__(self) -> int:
        return len(self._all) + (0 if self._leader is None else len(self._leader))

    @property
    def waits_for_disk(self) -> bool:
        """Whether an append waits for this broker's disk only."""
        return bool(self._leader)

    def add(self, append: Append, outcome: Appended | RecordsAppended) -> None:
        end = outcome.last_offset + 1 if isinstance(outcome, Appended) else outcome.end
        if append.acks is Acks.ALL:
            queue = self._all
        else:
            if self._leader is None:
                self._leader = CommitQueue()
            queue = self._leader
        queue.add(end, _Waiting(append.done, outcome), append.deadline)

    def answer_below(self, high_watermark: int, here: int) -> None:
        """Answers acks=all below the high watermark, and acks=leader below the durable offset `here`."""
        if self._all:
            for entry in self._all.advance(high_watermark):
                answer(entry.done, entry.outcome)
        if self._leader:
            for entry in self._leader.advance(here):
                answer(entry.done, entry.outcome)

    def expire(self, now: float, error: TidelogError) -> None:
        """Answers appends whose deadline passed; they may still be committed."""
        late = self._all.expire(now)
        if self._leader is not None:
            late += self._leader.expire(now)
        for entry in late:
            answer(entry.done, error)

    def give_up(self, error: TidelogError) -> None:
        """Answers all appends with `error`."""
        left = self._all.give_up()
        if self._leader is not None:
            left += self._leader.give_up()
        for entry in left:
            answer(entry.done, error)


def answer(done: Callable[[Any], None], outcome: Appended | RecordsAppended | TidelogError) -> None:
    """Answers one append. An error in its callback must not prevent the answers to the others."""
    try:
        done(outcome)
    except Exception:
        log.exception("an answer could not be given")
