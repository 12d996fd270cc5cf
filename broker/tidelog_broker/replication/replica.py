"""The role of a partition's replica on this broker: it leads, follows, or does neither.

A replica passes events to the state machines of `core.replication`, and performs their effects in order
(`effects`). The image decides the role. A role ends at once; the next role begins when all writes of the
last one have ended.

Neighbours: `owner` is the interface of its partition, `host` the interface of its broker, `durability` says
which records count before a flush; `links` carries the messages between replicas. Runs on one event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import structlog

from tidelog_broker.core.metadata.feature_levels import ASSIGNMENTS
from tidelog_broker.core.metadata.image import ClusterImage, PartitionImage, StreamImage
from tidelog_broker.core.replication import effects as do
from tidelog_broker.core.replication.following import FollowerPartition
from tidelog_broker.core.replication.leading import LeaderPartition
from tidelog_broker.core.replication.membership import Placement
from tidelog_broker.core.replication.messages import FromFollower, FromLeader, Position, Refusal, Refused
from tidelog_broker.core.replication.unclean_epochs import epoch_to_mark
from tidelog_broker.replication.durability import Durability
from tidelog_broker.replication.effects import perform_for_follower, perform_for_leader
from tidelog_broker.replication.host import ReplicaHost
from tidelog_broker.replication.owner import Done, ReplicaOwner
from tidelog_broker.replication.placement import placement_of
from tidelog_broker.storage.log.partition_log import PartitionLog

log = structlog.get_logger(__name__)

EPOCH_RETRY_MS: Final = 1_000
"""Delay before the next try, after the entry for the start of an unclean epoch could not be written."""

DOUBT_LAG_MS: Final = 1_000
"""While the controller does not answer, a member that lags for longer than this may follow another leader."""

LARGE: Final = 1 << 40
"""The size for a write that must not run on the event loop, however few bytes it has."""

Key = tuple[bytes, int]
"""Stream id and partition."""

Role = LeaderPartition | FollowerPartition

NO_IMAGE = PartitionImage(replicas=(), isr=())


class Replica:
    """One partition's replica on this broker."""

    __slots__ = (
        "_began",
        "_feature_level",
        "_high_watermark",
        "_operations",
        "_placement",
        "durability",
        "host",
        "key",
        "leader_epoch",
        "log",
        "name",
        "owner",
        "placed",
        "removed",
        "role",
        "role_number",
        "warm",
    )

    def __init__(
        self,
        name: str,
        key: Key,
        log: PartitionLog,
        host: ReplicaHost[Replica],
        owner: ReplicaOwner,
        *,
        fsync: bool,
        high_watermark: int,
    ) -> None:
        self.name = name
        self.key = key
        self.log = log
        self.owner = owner
        self.durability = Durability(self, fsync=fsync)
        self.placed = NO_IMAGE
        """The partition's entry in the image."""
        self.role: Role | None = None
        self.role_number = 0
        """Number of the newest role; messages to an earlier role are ignored."""
        self.leader_epoch = 0
        """Leader epoch of the newest role."""
        self.removed = False
        """The replica was deleted, moved away, or set aside: its files are being removed."""
        self.warm = False
        """The replica has written since the start, so the append guard is in memory."""
        self.host = host
        self._high_watermark = max(min(high_watermark, log.end_offset), log.start_offset)
        """The value at the end of the last role; while there is a role, the role has the current value."""
        self._placement: Placement | None = None
        self._began: tuple[int, int] | None = None
        """Leader and epoch of the role that runs or is about to begin; None: there is no such role."""
        self._operations = 0
        """Number of writes that have not ended yet."""
        self._feature_level = 0
        """The feature level of the image."""

    def __repr__(self) -> str:
        role = "leader" if self.leads else "follower" if self.role is not None else "idle"
        return (
            f"<Replica {self.name}/{self.key[1]} {role} epoch={self.leader_epoch} leo={self.log.end_offset} "
            f"hw={self.high_watermark} lso={self.log.start_offset} isr={list(self.placed.isr)}>"
        )

    @property
    def high_watermark(self) -> int:
        """All records below this offset are committed."""
        return self._high_watermark if self.role is None else self.role.high_watermark

    @property
    def leads(self) -> bool:
        return isinstance(self.role, LeaderPartition)

    @property
    def isr_size(self) -> int:
        return len(self.placed.isr)

    @property
    def may_answer_latest(self) -> bool:
        """Whether this replica leads and may answer requests for the latest offset (R15)."""
        return isinstance(self.role, LeaderPartition) and self.role.may_answer_latest

    @property
    def start_acknowledged(self) -> int:
        """The log start offset that every member of the ISR has on disk (R11)."""
        return self.role.start_acknowledged if isinstance(self.role, LeaderPartition) else 0

    @property
    def in_doubt(self) -> bool:
        """Another broker may lead, and no record is committed here: a member of the ISR is gone or lags."""
        role = self.role
        if not self.host.unsure or not isinstance(role, LeaderPartition):
            return False
        behind_since = self.host.now_ms() - DOUBT_LAG_MS
        for member in self.placed.isr:
            follower = role.followers.get(member)
            if follower is None:
                continue
            behind = follower.durable < self.log.end_offset and follower.caught_up_at <= behind_since
            if follower.lost_since is not None or behind:
                return True
        return False

    # --- the image

    def imaged(self, image: ClusterImage, stream: StreamImage) -> None:
        """Takes the partition's entry from an image; it may be unchanged."""
        if self.removed:
            return
        self._feature_level = image.feature_level
        placed = self.placed = stream.partitions[self.key[1]]
        mine = image.brokers.get(self.host.broker_id)
        begins = placed.leader is not None and (mine is None or self.host.is_this_run(mine.incarnation))
        wanted = (placed.leader, placed.leader_epoch) if begins and placed.leader is not None else None
        leads = wanted is not None and placed.leader == self.host.broker_id
        self._placement = placement_of(image, stream, placed) if leads else None
        if wanted == self._began:
            if isinstance(self.role, LeaderPartition):
                assert self._placement is not None
                self._perform_as_leader(self.role, self.role.placed(self._placement, self.host.now_ms()))
            return
        self.end_role()
        self._began = wanted
        self.begin_when_idle()

    def set_durability(self, *, fsync: bool) -> None:
        """Sets the stream's new durability (R17)."""
        self.durability.set(fsync=fsync)

    @property
    def fsync(self) -> bool:
        """True: records count when they are on disk. False: when they are written (`page-cache`)."""
        return self.durability.fsync

    def durability_changed(self) -> None:
        """`fsync` changed: passes the new value to the role."""
        if isinstance(self.role, LeaderPartition):
            self._perform_as_leader(self.role, self.role.configured(self.fsync, self.host.now_ms()))
        elif self.role is not None:
            self._perform_as_follower(self.role, self.role.configured(self.fsync))

    def end_role(self) -> None:
        """Ends leading or following; writes that have begun still reach the disk."""
        role, self.role, self._began = self.role, None, None
        if role is None:
            return
        self._high_watermark = role.high_watermark
        if isinstance(role, FollowerPartition):
            self.host.unfollow(self, role.leader)
        self.owner.role_ended(led=isinstance(role, LeaderPartition))

    def begin_when_idle(self) -> None:
        """Begins the role that the image asks for, if no write is running."""
        if self._operations or self.role is not None or self._began is None or self.removed:
            return
        leader, epoch = self._began
        self.role_number = self.host.next_role_number()
        self.leader_epoch = epoch
        if leader != self.host.broker_id:
            self._follow(leader, epoch)
            return
        if self._feature_level >= ASSIGNMENTS and self.host.awaits_time(self):
            return
        unclean = epoch_to_mark(self.log, self.placed.unclean_epoch)
        if unclean is None:
            self._lead(epoch)
        else:
            # The entry for the unclean start is in the log's history before any record of the epoch (R5).
            self.write(lambda: self.log.writer.begin_unclean_epoch(unclean), self._unclean_begun)

    def time_known(self) -> None:
        """The cluster's clock is known (R18)."""
        self.begin_when_idle()

    def _unclean_begun(self, error: Exception | None) -> None:
        if error is None:
            # The epoch begins as soon as this write has ended.
            self.owner.flush()
            return
        log.warning(
            "an unclean epoch could not begin; the broker tries again", partition=repr(self), error=str(error)
        )
        self._operations += 1
        self.host.later(EPOCH_RETRY_MS, self._retry_begin)

    def _retry_begin(self) -> None:
        self._operations -= 1
        self.begin_when_idle()

    def _lead(self, epoch: int) -> None:
        assert self._placement is not None
        role = self.role = LeaderPartition(
            self.host.broker_id,
            epoch,
            self.log,
            fsync=self.fsync,
            high_watermark=self._high_watermark,
            placement=self._placement,
            now_ms=self.host.now_ms(),
        )
        self.owner.role_began()
        self._perform_as_leader(role, role.begin(self.host.now_ms()))
        self.host.leads(self)

    def _follow(self, leader: int, epoch: int) -> None:
        self.role = FollowerPartition(
            self.host.broker_id,
            leader,
            epoch,
            self.log,
            fsync=self.fsync,
            high_watermark=self._high_watermark,
            assignment=self.log.assignment,
        )
        self.owner.role_began()
        self.host.follow(self, leader)

    # --- events on this broker

    def appended(self) -> None:
        """A leader's log has more records."""
        role = self.role
        if isinstance(role, LeaderPartition):
            self._perform_as_leader(role, role.appended(self.host.now_ms()))

    def flushed(self) -> None:
        """More of the log or of its epoch history is durable."""
        role = self.role
        if isinstance(role, LeaderPartition):
            self._perform_as_leader(role, role.flushed(self.host.now_ms()))
        elif role is not None:
            self._perform_as_follower(role, role.flushed())
        self.durability.flushed()

    def start_moved(self) -> None:
        """The log start offset moved, durably."""
        role = self.role
        if isinstance(role, LeaderPartition):
            self._perform_as_leader(role, role.start_moved(self.host.now_ms()))
        elif role is not None:
            self._perform_as_follower(role, role.start_saved())

    def tick(self) -> bool:
        """Lets the leader act on the time that passed; returns whether the replica needs further ticks."""
        role = self.role
        if not isinstance(role, LeaderPartition) or not role.needs_ticks:
            return False
        for effect in role.tick(self.host.now_ms()):
            if self.role is not role:
                break
            perform_for_leader(self, effect)
        self.owner.doubt_may_have_changed()
        return self.role is role and role.needs_ticks

    # --- events from others

    def asked(self, broker: int, incarnation: bytes, message: FromFollower) -> None:
        """A follower sent its position or its durable offset."""
        role = self.role
        if isinstance(role, LeaderPartition):
            now_ms = self.host.now_ms()
            if self._feature_level < ASSIGNMENTS and not self.fsync:
                # At this level the follower does not send its durability: the stream's setting holds (R17).
                message = message._replace(fsync=False)
            if isinstance(message, Position):
                self._perform_as_leader(role, role.position(broker, incarnation, message, now_ms))
            else:
                self._perform_as_leader(role, role.durable(broker, incarnation, message, now_ms))
        elif isinstance(message, Position):
            self.host.answer(self, broker, Refused(Refusal.NOT_LEADER, self.leader_epoch))

    def follower_connected(self, broker: int, incarnation: bytes) -> None:
        role = self.role
        if isinstance(role, LeaderPartition) and broker in role.followers:
            self._perform_as_leader(role, role.connected(broker, incarnation, self.host.now_ms()))
            self.owner.doubt_may_have_changed()

    def follower_gone(self, broker: int, *, refused: bool) -> None:
        role = self.role
        if isinstance(role, LeaderPartition) and broker in role.followers:
            self._perform_as_leader(role, role.disconnected(broker, refused, self.host.now_ms()))
            self.owner.doubt_may_have_changed()

    def received(self, message: FromLeader) -> None:
        """The leader sent a message."""
        if isinstance(self.role, FollowerPartition):
            self._perform_as_follower(self.role, self.role.received(message))

    def leader_connected(self) -> None:
        if isinstance(self.role, FollowerPartition):
            self._perform_as_follower(self.role, self.role.begin())

    def leader_gone(self) -> None:
        if isinstance(self.role, FollowerPartition):
            self.role.lost()

    # --- effects

    def _perform_as_leader(self, role: LeaderPartition, effects: Sequence[do.LeaderEffect]) -> None:
        for effect in effects:
            if self.role is not role:
                return
            perform_for_leader(self, effect)
        if role.followers and self.role is role:
            self.host.needs_ticks(self)

    def _perform_as_follower(self, role: FollowerPartition, effects: Sequence[do.FollowerEffect]) -> None:
        for effect in effects:
            if self.role is not role:
                return
            perform_for_follower(self, role, effect)

    def event_of(self, role: FollowerPartition, event: Callable[[], list[do.FollowerEffect]]) -> None:
        """Passes an event to a role, if it is still the replica's role."""
        if self.role is role:
            self._perform_as_follower(role, event())

    def write(self, work: Callable[[], object], done: Done, size: int | None = None) -> None:
        """Runs a write in order with all writes of the broker; `size` None: the write may take long."""
        self.write_began()

        def ended(error: Exception | None) -> None:
            self.write_ended()
            if not self.removed:
                done(error)
            self.begin_when_idle()

        self.owner.write(work, ended, LARGE if size is None or not self.warm else size)

    def write_began(self) -> None:
        """A write of this replica began: no role begins before it ends."""
        self._operations += 1

    def write_ended(self) -> None:
        self._operations -= 1
