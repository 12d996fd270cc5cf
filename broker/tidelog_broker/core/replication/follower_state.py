"""What a leader knows of one follower.

It begins empty for another incarnation, connection or assignment (R2, R3, R16). What a follower only wrote is
kept apart from what it flushed, because the stream's durability may change (R17).
"""

from __future__ import annotations

from tidelog_broker.core.replication.messages import Durable, Position


class FollowerState:
    """One follower in one leader epoch, as the leader knows it."""

    __slots__ = (
        "_flushed",
        "_fsync",
        "_goal",
        "_written",
        "assignment",
        "caught_up_at",
        "durable",
        "end",
        "held_since",
        "incarnation",
        "lost_since",
        "matching",
        "not_held_before",
        "parked",
        "refused",
        "sent_offsets",
        "start_offset",
    )

    def __init__(self, now_ms: int, assignment: int = 0, *, fsync: bool = True) -> None:
        """`fsync`: durable means on disk; otherwise it means written."""
        self.assignment = assignment
        """Of the replica that reported all this (R16)."""
        self._fsync = fsync
        self.caught_up_at = now_ms
        """When the follower last had everything that the leader had. ms."""
        self._goal = (0, now_ms)
        """An end of the leader's log and its time: a follower that reaches this end was caught up then."""
        self.held_since: int | None = None
        """Since when the high watermark waits for it although it is no member (R4). ms."""
        self.not_held_before = now_ms
        self.disconnect(now_ms, refused=False)

    def __repr__(self) -> str:
        state = "lost" if self.lost_since is not None else "matching" if self.matching else "not matching"
        parked = " parked" if self.parked else ""
        return f"<FollowerState {state} end={self.end} durable={self.durable}{parked}>"

    def disconnect(self, now_ms: int, *, refused: bool) -> None:
        """The connection is lost, or another process is at its end: earlier reports do not count any more."""
        self.incarnation: bytes | None = None
        """Of the run that reported all this; None: no report."""
        self.matching = False
        """Its last position matched the leader's history: its acknowledgements count (R1, R3)."""
        self.end = 0
        self.durable = 0
        """What counts: flushed, or, of a `page-cache` stream, written, once the follower reports that."""
        self._flushed = 0
        self._written = 0
        """What it reported as counting without a flush; a mark on its disk says so."""
        self.start_offset = 0
        """LSO, as it is on the follower's disk."""
        self.parked = False
        """Its position waits for an answer."""
        self.sent_offsets: tuple[int, int] | None = None
        """High watermark and LSO that were sent to it; None: it does not even know that its log matches."""
        self.lost_since: int | None = now_ms
        """None: it is connected. ms."""
        self.refused = refused
        """Its machine refuses connections."""

    def connect(self, incarnation: bytes) -> None:
        if self.incarnation != incarnation:
            self.disconnect(0, refused=False)
            self.incarnation = incarnation
        self.lost_since = None
        self.refused = False

    def diverged(self) -> None:
        """Its log is not the beginning of the leader's: it must truncate first, and counts as 0 meanwhile."""
        self.matching = self.parked = False
        self.durable = self._flushed = self._written = 0
        self.sent_offsets = None

    def configured(self, fsync: bool) -> None:
        """The stream's durability changed, and so does what counts (R17)."""
        self._fsync = fsync
        self.durable = self._counting()

    def _counting(self) -> int:
        """R17: what a follower only wrote counts once the follower reports it so. Before, its disk may lack
        the mark, and without the mark it would not be suspect after a loss of power."""
        return self._flushed if self._fsync or not self.matching else max(self._flushed, self._written)

    def matched(self, position: Position, leader_end: int, now_ms: int) -> None:
        """Its log is the beginning of the leader's."""
        self.matching = self.parked = True
        self.end = position.end_offset
        self.start_offset = position.start_offset
        flushed = position.durable_offset if position.fsync else self._flushed
        self._flushed = min(flushed, position.end_offset)
        self._written = 0 if position.fsync else position.end_offset
        self.durable = self._counting()
        self._acknowledged(leader_end, now_ms)

    def made_durable(self, durable: Durable, leader_end: int, now_ms: int) -> None:
        if durable.fsync:
            self._flushed = max(self._flushed, durable.durable_offset)
        else:
            self._written = max(self._written, durable.durable_offset)
        if durable.fsync or not self._fsync:
            self.durable = max(self.durable, durable.durable_offset)
        self.start_offset = max(self.start_offset, durable.start_offset)
        self._acknowledged(leader_end, now_ms)

    def _acknowledged(self, leader_end: int, now_ms: int) -> None:
        goal, goal_at = self._goal
        if self.durable >= goal:
            self.caught_up_at = max(self.caught_up_at, goal_at)
            self._goal = (leader_end, now_ms)
        if self.durable >= leader_end:
            self.caught_up_at = now_ms

    def leader_appended(self, before: int, end: int, now_ms: int) -> None:
        """The end of the leader's log moved: a follower that had everything was caught up until now."""
        if self.matching and self.durable >= before:
            self.caught_up_at = now_ms
            self._goal = (end, now_ms)
