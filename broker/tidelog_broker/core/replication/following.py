"""A partition on a broker that follows, in one leader epoch: it fetches, appends, truncates, acknowledges.

One position is outstanding at a time, and one operation on the log; an answer without an outstanding
position is ignored. Once its log matches the leader's, a follower never truncates it in
that epoch, whatever arrives: a leader only appends. `leading` is the other end;
`reconciliation` decides what to truncate. There is no clock here: `Wait` asks for one.
"""

from __future__ import annotations

from typing import assert_never

from tidelog_broker.core.replication.effects import (
    AdvanceStart,
    Append,
    BeginUnclean,
    FollowerEffect,
    Quarantine,
    SendDurable,
    SendPosition,
    SwitchLane,
    Wait,
)
from tidelog_broker.core.replication.log_view import LogView, last_epoch
from tidelog_broker.core.replication.messages import (
    Batches,
    Diverged,
    Durable,
    FromLeader,
    LeaderOffsets,
    Position,
    Refusal,
    Refused,
    StartOver,
)
from tidelog_broker.core.replication.reconciliation import resolve_divergence
from tidelog_broker.core.replication.times import RETRY_FAILED_MS, RETRY_MS


class FollowerPartition:
    """A follower's role."""

    __slots__ = (
        "_connected",
        "_durable_start",
        "_fetching",
        "_leader_high_watermark",
        "_leader_start",
        "_moving_start",
        "_reported",
        "_writing",
        "assignment",
        "broker_id",
        "fsync",
        "high_watermark",
        "leader",
        "leader_epoch",
        "log",
        "matching",
        "quarantined",
    )

    def __init__(
        self,
        broker_id: int,
        leader: int,
        leader_epoch: int,
        log: LogView,
        *,
        fsync: bool,
        high_watermark: int,
        assignment: int = 0,
    ) -> None:
        """The start offset of `log` is durable."""
        self.broker_id = broker_id
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.log = log
        self.assignment = assignment
        """Of this replica, as its folder says (R16)."""
        self.fsync = fsync
        """Durable means on disk; otherwise it means written (`page-cache`)."""
        self.high_watermark = max(min(high_watermark, log.end_offset), log.start_offset)
        """Everything below is committed. Never above the end of this log."""
        self.matching = False
        """The leader said, in this epoch, that this log matches its own."""
        self.quarantined = False
        """The role has ended: it fetches nothing and returns no effects."""
        self._leader_high_watermark = 0
        """The leader's high watermark."""
        self._leader_start = 0
        """The leader's log start offset."""
        self._connected = False
        self._fetching = False
        """A position is outstanding."""
        self._writing = False
        """An append, truncation or restart is outstanding."""
        self._reported = 0
        """The durable end that the leader knows."""
        self._durable_start = log.start_offset
        """LSO, as it is on disk."""
        self._moving_start = False
        """An `AdvanceStart` is outstanding."""

    def __repr__(self) -> str:
        doing = "fetching" if self._fetching else "writing" if self._writing else "idle"
        matching = "matching" if self.matching else "not matching"
        return (
            f"<FollowerPartition broker={self.broker_id} of {self.leader} epoch={self.leader_epoch} "
            f"leo={self.log.end_offset} hw={self.high_watermark} {matching} {doing}>"
        )

    @property
    def _durable(self) -> int:
        """The end offset that counts: on disk, or, of a `page-cache` stream, written."""
        return self.log.durable_offset if self.fsync else self.log.end_offset

    @property
    def caught_up(self) -> bool:
        """It has everything up to the last high watermark that the leader sent."""
        return self.matching and self._durable >= self._leader_high_watermark

    # --- the connection

    def begin(self) -> list[FollowerEffect]:
        """There is a connection to the leader: fetching begins."""
        self._connected = True
        return self._fetch()

    def lost(self) -> None:
        """The connection is lost: the outstanding position will not be answered."""
        self._connected = self._fetching = False

    def waited(self) -> list[FollowerEffect]:
        """The time of a `Wait` is over."""
        return self._fetch()

    def _fetch(self) -> list[FollowerEffect]:
        if not self._connected or self._fetching or self._writing or self.quarantined:
            return []
        if (self.log.epochs.latest or 0) > self.leader_epoch:
            # The log has a later epoch than the image that began this role: a newer image is on its way.
            return []
        self._fetching = True
        self._reported = self._durable
        return [
            SendPosition(
                Position(
                    self.leader_epoch,
                    self.log.end_offset,
                    last_epoch(self.log),
                    self._reported,
                    self._durable_start,
                    self.assignment,
                    self.fsync,
                )
            )
        ]

    # --- messages from the leader

    def received(self, message: FromLeader) -> list[FollowerEffect]:
        """A message arrived over the connection."""
        if self.quarantined:
            return []
        if isinstance(message, Refused):
            return self._refused(message)
        if message.leader_epoch != self.leader_epoch:
            return []  # R2: from an earlier leader, or for an earlier role of this replica.
        match message:
            case Batches():
                return self._batches(message)
            case LeaderOffsets():
                return self._offsets(message)
            case Diverged() | StartOver():
                return self._cut(message)
            case _:
                assert_never(message)

    def _refused(self, message: Refused) -> list[FollowerEffect]:
        if not self._fetching:
            return []
        self._fetching = False
        match message.refusal:
            case Refusal.FENCED_LEADER_EPOCH:
                return []  # The next image names another leader, and another role begins.
            case Refusal.OTHER_LANE:
                return [SwitchLane()]
            case Refusal.DAMAGED:
                return [Wait(RETRY_FAILED_MS)]
            case Refusal.UNKNOWN_LEADER_EPOCH | Refusal.UNKNOWN_INCARNATION | Refusal.NOT_LEADER:
                return [Wait(RETRY_MS)]
            case _:
                assert_never(message.refusal)

    def _batches(self, message: Batches) -> list[FollowerEffect]:
        if not self._fetching or message.offset != self.log.end_offset:
            return []
        self._fetching = False
        self._writing = True
        self.matching = True
        self._leader_high_watermark = max(self._leader_high_watermark, message.high_watermark)
        self._leader_start = max(self._leader_start, message.start_offset)
        # All batches are taken: their epochs replace a later epoch in this log's history.
        return [Append(message.data, message.unclean)]

    def _offsets(self, message: LeaderOffsets) -> list[FollowerEffect]:
        self.matching = True
        self._leader_high_watermark = max(self._leader_high_watermark, message.high_watermark)
        self._leader_start = max(self._leader_start, message.start_offset)
        self._commit()
        known = self.log.epochs.latest or 0
        begun: list[FollowerEffect] = [
            BeginUnclean(epoch)
            for epoch, start in message.unclean
            if epoch > known and start == self.log.end_offset and not self._writing
        ]
        return [*begun, *self._report(), *self._move_start()]

    def _move_start(self) -> list[FollowerEffect]:
        """R11: follows the leader's log start offset, at most up to the high watermark."""
        wanted = min(self._leader_start, self.high_watermark)
        if wanted <= self.log.start_offset or self._moving_start:
            return []
        self._moving_start = True
        return [AdvanceStart(wanted)]

    def _cut(self, message: Diverged | StartOver) -> list[FollowerEffect]:
        if not self._fetching:
            return []
        if self.matching and not (
            isinstance(message, StartOver) and message.start_offset >= self.log.end_offset
        ):
            # Retention on the leader may pass a log that matches; nothing else truncates it.
            return []
        what = resolve_divergence(message, self.log, self.high_watermark)
        if what is None:
            return []
        self._fetching = False
        if isinstance(what, Quarantine):
            self.quarantined = True
        else:
            self._writing = True
        return [what]

    # --- outcomes of effects

    def appended(self) -> list[FollowerEffect]:
        """The batches of an `Append` are in the log."""
        self._writing = False
        self._commit()
        # The position comes first: it names the old start; after the new start it would take that back.
        return [*self._fetch(), *self._move_start()]

    def not_appended(self) -> list[FollowerEffect]:
        """The disk, or the checks of the log, refused the batches of an `Append`."""
        self._writing = False
        return [Wait(RETRY_FAILED_MS)]

    def truncated(self) -> list[FollowerEffect]:
        """A `Truncate` is done, durably."""
        self._writing = False
        self.high_watermark = min(self.high_watermark, self.log.end_offset)
        return self._fetch()

    def restarted(self) -> list[FollowerEffect]:
        """A `Restart` is done, durably."""
        self._writing = False
        self.high_watermark = self._durable_start = self.log.start_offset
        return self._fetch()

    def flushed(self) -> list[FollowerEffect]:
        """More of the log is durable."""
        return self._report()

    def start_saved(self) -> list[FollowerEffect]:
        """An `AdvanceStart` is done, durably."""
        self._moving_start = False
        self._durable_start = self.log.start_offset
        self._reported = -1  # The leader waits for this report (R11).
        return [*self._report(), *self._move_start()]

    def configured(self, fsync: bool) -> list[FollowerEffect]:
        """The stream's durability changed, and so does what counts as durable."""
        if fsync == self.fsync:
            return []
        self.fsync = fsync
        self._reported = -1
        return self._report()

    def _report(self) -> list[FollowerEffect]:
        """Reports the durable end if the leader does not know it. It counts once the log matches (R3)."""
        if not self.matching or not self._connected or self._durable == self._reported:
            return []
        self._reported = self._durable
        return [
            SendDurable(
                Durable(self.leader_epoch, self._reported, self._durable_start, self.assignment, self.fsync)
            )
        ]

    def _commit(self) -> None:
        self.high_watermark = max(self.high_watermark, min(self._leader_high_watermark, self.log.end_offset))
