"""What a leader knows of one follower.

Another incarnation, connection or assignment starts from nothing (R2, R3, R16). What a follower only wrote is
kept apart from what it flushed, because the stream's durability may change (R17).
"""

from __future__ import annotations

from tidelog_broker.core.replication.messages import Durable, Position


class FollowerState:
    """Of one follower, in one leader epoch."""

    __slots__ = (
        "_flushed",
        "_fsync",
        "_goal",
        "_written",
        "assignment",
        "caught_up_at",
        "durable",
        "end",
        "fit",
        "held_since",
        "incarnation",
        "lost_since",
        "not_held_before",
        "parked",
        "refused",
        "start_offset",
        "told",
    )

    def __init__(self, now_ms: int, assignment: int = 0, *, fsync: bool = True) -> None:
        """`fsync`: durable means on disk; else written."""
        self.assignment = assignment
        """Of the replica that said all this (R16)."""
        self._fsync = fsync
        self.caught_up_at = now_ms
        """When it last had all that the leader had. ms."""
        self._goal = (0, now_ms)
        """The leader's end and when it stood there: who reaches it was caught up then."""
        self.held_since: int | None = None
        """Since when the high watermark waits for it, though it is no member (R4). ms."""
        self.not_held_before = now_ms
        self.lose(now_ms, refused=False)

    def __repr__(self) -> str:
        state = "lost" if self.lost_since is not None else "fit" if self.fit else "unfit"
        return (
            f"<FollowerState {state} end={self.end} durable={self.durable}{' parked' if self.parked else ''}>"
        )

    def lose(self, now_ms: int, *, refused: bool) -> None:
        """There is no connection, or another process at its end: nothing that was said counts any more."""
        self.incarnation: bytes | None = None
        """Of the run that said all this; None: nothing was said."""
        self.fit = False
        """Its last position agreed with the leader's history: what it says counts (R1, R3)."""
        self.end = 0
        self.durable = 0
        """What counts: flushed, or of a `page-cache` stream written, once the follower says so."""
        self._flushed = 0
        self._written = 0
        """What it said to count without a flush: a mark on its disk tells of that."""
        self.start_offset = 0
        """LSO, as it is on its disk."""
        self.parked = False
        """Its position waits for something to answer."""
        self.told: tuple[int, int] | None = None
        """High watermark and LSO that it knows; None: not even that it fits."""
        self.lost_since: int | None = now_ms
        """None: it is connected. ms."""
        self.refused = refused
        """Its machine refuses connections."""

    def connect(self, incarnation: bytes) -> None:
        if self.incarnation != incarnation:
            self.lose(0, refused=False)
            self.incarnation = incarnation
        self.lost_since = None
        self.refused = False

    def unfit(self) -> None:
        """Its log is no part of the leader's: it is cut first, and counts with nothing meanwhile."""
        self.fit = self.parked = False
        self.durable = self._flushed = self._written = 0
        self.told = None

    def configured(self, fsync: bool) -> None:
        """Durable means something else from now on (R17)."""
        self._fsync = fsync
        self.durable = self._counting()

    def _counting(self) -> int:
        """R17: a follower without the mark would not be suspect after a loss of power, so what it only wrote
        does not count before it says so."""
        return self._flushed if self._fsync or not self.fit else max(self._flushed, self._written)

    def fits(self, position: Position, leader_end: int, now_ms: int) -> None:
        """Its log is the beginning of the leader's."""
        self.fit = self.parked = True
        self.end = position.end_offset
        self.start_offset = position.start_offset
        flushed = position.durable_offset if position.fsync else self._flushed
        self._flushed = min(flushed, position.end_offset)
        self._written = 0 if position.fsync else position.end_offset
        self.durable = self._counting()
        self._acknowledged(leader_end, now_ms)

    def made_durable(self, said: Durable, leader_end: int, now_ms: int) -> None:
        if said.fsync:
            self._flushed = max(self._flushed, said.durable_offset)
        else:
            self._written = max(self._written, said.durable_offset)
        if said.fsync or not self._fsync:
            self.durable = max(self.durable, said.durable_offset)
        self.start_offset = max(self.start_offset, said.start_offset)
        self._acknowledged(leader_end, now_ms)

    def _acknowledged(self, leader_end: int, now_ms: int) -> None:
        goal, goal_at = self._goal
        if self.durable >= goal:
            self.caught_up_at = max(self.caught_up_at, goal_at)
            self._goal = (leader_end, now_ms)
        if self.durable >= leader_end:
            self.caught_up_at = now_ms

    def leader_appended(self, before: int, end: int, now_ms: int) -> None:
        """The leader's end moved: whoever had everything, had it until now."""
        if self.fit and self.durable >= before:
            self.caught_up_at = now_ms
            self._goal = (end, now_ms)
