"""A partition on a broker that follows, for one leader epoch: it asks, appends, truncates, acknowledges.

One question is outstanding at a time, and one operation on the log; an answer to no
question is passed over. Once its log fits the leader's, a follower never cuts it back in
that epoch, whatever arrives: a leader only appends. `leading` is the other end,
`reconciliation` decides what to cut. There is no clock here: `Wait` asks for one.
"""

from __future__ import annotations

from tidelog_broker.core.replication.effects import (
    AdvanceStart,
    Append,
    Ask,
    BeginUnclean,
    FollowerEffect,
    Quarantine,
    Say,
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
from tidelog_broker.core.replication.reconciliation import way_back
from tidelog_broker.core.replication.times import RETRY_FAILED_MS, RETRY_MS


class FollowerPartition:
    """See the module."""

    __slots__ = (
        "_advancing",
        "_asking",
        "_connected",
        "_heard",
        "_heard_start",
        "_said",
        "_start",
        "_writing",
        "assignment",
        "broker_id",
        "fit",
        "fsync",
        "high_watermark",
        "leader",
        "leader_epoch",
        "log",
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
        """`log`'s start offset is durable."""
        self.broker_id = broker_id
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.log = log
        self.assignment = assignment
        """Of this replica, as its folder says (R16)."""
        self.fsync = fsync
        """Durable means on disk; else written (`page-cache`)."""
        self.high_watermark = max(min(high_watermark, log.end_offset), log.start_offset)
        """Everything below is committed; never above the end of this log."""
        self.fit = False
        """The leader said, in this epoch, that the log fits its own."""
        self.quarantined = False
        """Nothing is asked or done any more."""
        self._heard = 0
        """The leader's high watermark."""
        self._heard_start = 0
        """The leader's log start offset."""
        self._connected = False
        self._asking = False
        """A question is outstanding."""
        self._writing = False
        """An append, truncation or restart is."""
        self._said = 0
        """The durable end that the leader knows of."""
        self._start = log.start_offset
        """LSO, as it is on disk."""
        self._advancing = False

    def __repr__(self) -> str:
        doing = "asking" if self._asking else "writing" if self._writing else "idle"
        return (
            f"<FollowerPartition broker={self.broker_id} of {self.leader} epoch={self.leader_epoch} "
            f"leo={self.log.end_offset} hw={self.high_watermark} {'fit' if self.fit else 'unfit'} {doing}>"
        )

    @property
    def _durable(self) -> int:
        """What counts."""
        return self.log.durable_offset if self.fsync else self.log.end_offset

    @property
    def caught_up(self) -> bool:
        """It has everything that its leader knows to be committed, as far as it has heard."""
        return self.fit and self._durable >= self._heard

    # --- the connection

    def begin(self) -> list[FollowerEffect]:
        """There is a connection to the leader. Asks."""
        self._connected = True
        return self._ask()

    def lost(self) -> None:
        """There is none any more; what was asked is not answered."""
        self._connected = self._asking = False

    def waited(self) -> list[FollowerEffect]:
        """The time of a `Wait` is over."""
        return self._ask()

    def _ask(self) -> list[FollowerEffect]:
        if not self._connected or self._asking or self._writing or self.quarantined:
            return []
        if (self.log.epochs.latest or 0) > self.leader_epoch:
            # The log knows a later leader than the image that began this: a newer image is on its way.
            return []
        self._asking = True
        self._said = self._durable
        return [
            Ask(
                Position(
                    self.leader_epoch,
                    self.log.end_offset,
                    last_epoch(self.log),
                    self._said,
                    self._start,
                    self.assignment,
                    self.fsync,
                )
            )
        ]

    # --- what the leader says

    def received(self, message: FromLeader) -> list[FollowerEffect]:
        """Anything that came over the connection."""
        if self.quarantined:
            return []
        if isinstance(message, Refused):
            return self._refused(message)
        if message.leader_epoch != self.leader_epoch:
            return []  # R2: of an earlier leader, or for another state of this replica.
        match message:
            case Batches():
                return self._batches(message)
            case LeaderOffsets():
                return self._progress(message)
            case Diverged() | StartOver():
                return self._cut(message)

    def _refused(self, message: Refused) -> list[FollowerEffect]:
        if not self._asking:
            return []
        self._asking = False
        match message.refusal:
            case Refusal.FENCED_LEADER_EPOCH:
                return []  # The next image brings another leader, and another one of these.
            case Refusal.OTHER_LANE:
                return [SwitchLane()]
            case Refusal.DAMAGED:
                return [Wait(RETRY_FAILED_MS)]
            case Refusal.UNKNOWN_LEADER_EPOCH | Refusal.UNKNOWN_INCARNATION | Refusal.NOT_LEADER:
                return [Wait(RETRY_MS)]

    def _batches(self, message: Batches) -> list[FollowerEffect]:
        if not self._asking or message.offset != self.log.end_offset:
            return []
        self._asking = False
        self._writing = True
        self.fit = True
        self._heard = max(self._heard, message.high_watermark)
        self._heard_start = max(self._heard_start, message.start_offset)
        # All of them: a later epoch of this history gives way to those of the batches.
        return [Append(message.data, message.unclean)]

    def _progress(self, message: LeaderOffsets) -> list[FollowerEffect]:
        self.fit = True
        self._heard = max(self._heard, message.high_watermark)
        self._heard_start = max(self._heard_start, message.start_offset)
        self._commit()
        known = self.log.epochs.latest or 0
        begun: list[FollowerEffect] = [
            BeginUnclean(epoch)
            for epoch, start in message.unclean
            if epoch > known and start == self.log.end_offset and not self._writing
        ]
        return [*begun, *self._say(), *self._move_start()]

    def _move_start(self) -> list[FollowerEffect]:
        """R11: the leader's log start offset, as far as this log is committed."""
        wanted = min(self._heard_start, self.high_watermark)
        if wanted <= self.log.start_offset or self._advancing:
            return []
        self._advancing = True
        return [AdvanceStart(wanted)]

    def _cut(self, message: Diverged | StartOver) -> list[FollowerEffect]:
        if not self._asking:
            return []
        if self.fit and not (isinstance(message, StartOver) and message.start_offset >= self.log.end_offset):
            # Retention may pass a log that fits; nothing else cuts it.
            return []
        what = way_back(message, self.log, self.high_watermark)
        if what is None:
            return []
        self._asking = False
        if isinstance(what, Quarantine):
            self.quarantined = True
        else:
            self._writing = True
        return [what]

    # --- what became of it

    def appended(self) -> list[FollowerEffect]:
        """The batches of an `Append` are in the log."""
        self._writing = False
        self._commit()
        # What is said first knows nothing of the new start: said behind it, it would take it back.
        return [*self._ask(), *self._move_start()]

    def not_appended(self) -> list[FollowerEffect]:
        """The batches of an `Append` were not taken, by the disk or by the checks of the log."""
        self._writing = False
        return [Wait(RETRY_FAILED_MS)]

    def truncated(self) -> list[FollowerEffect]:
        """A `Truncate` is done, durably."""
        self._writing = False
        self.high_watermark = min(self.high_watermark, self.log.end_offset)
        return self._ask()

    def restarted(self) -> list[FollowerEffect]:
        """A `Restart` is done, durably."""
        self._writing = False
        self.high_watermark = self._start = self.log.start_offset
        return self._ask()

    def flushed(self) -> list[FollowerEffect]:
        """More of the log is durable."""
        return self._say()

    def start_saved(self) -> list[FollowerEffect]:
        """An `AdvanceStart` is done, durably."""
        self._advancing = False
        self._start = self.log.start_offset
        self._said = -1  # The leader waits to hear of it (R11).
        return [*self._say(), *self._move_start()]

    def configured(self, fsync: bool) -> list[FollowerEffect]:
        """The stream's durability is another one: what is durable means something else."""
        if fsync == self.fsync:
            return []
        self.fsync = fsync
        self._said = -1
        return self._say()

    def _say(self) -> list[FollowerEffect]:
        """Tells the leader of what is durable, if it does not know. It counts once the log fits (R3)."""
        if not self.fit or not self._connected or self._durable == self._said:
            return []
        self._said = self._durable
        return [Say(Durable(self.leader_epoch, self._said, self._start, self.assignment, self.fsync))]

    def _commit(self) -> None:
        self.high_watermark = max(self.high_watermark, min(self._heard, self.log.end_offset))
