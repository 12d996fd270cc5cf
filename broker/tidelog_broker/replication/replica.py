"""The role of a partition's replica on this broker: it leads, follows, or does neither.

A replica tells the state machines of `core.replication` what happens, and performs their effects in order
(`effects`). The image decides the role. A role ends at once; the next one begins when nothing of the last
one is on its way to the disk any more.

Neighbours: `owner` is what a replica needs of its partition, `host` what it needs of its broker, `durability`
says which records count before a flush; `links` carries the messages between replicas. Of one event loop.
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
"""After the disk did not take the entry with which an unclean epoch begins."""

DOUBT_LAG_MS: Final = 1_000
"""A member that was not caught up for so long, while the controller does not answer, may follow another."""

LARGE: Final = 1 << 40
"""The size of a write that is not done on the event loop, however few bytes it is."""

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
        """What the image says of the partition."""
        self.role: Role | None = None
        self.role_number = 0
        """Of the newest role; what was said to an earlier one is passed over."""
        self.leader_epoch = 0
        """Of the newest role."""
        self.removed = False
        """The replica was deleted, or left, or was set aside: its files are being removed."""
        self.warm = False
        """It has written since the start, so the append guard is in memory."""
        self.host = host
        self._high_watermark = max(min(high_watermark, log.end_offset), log.start_offset)
        """As of the last role; the role of now knows better."""
        self._placement: Placement | None = None
        self._began: tuple[int, int] | None = None
        """Leader and epoch of the role that began last or is about to; None: of none."""
        self._operations = 0
        """On their way to the disk."""
        self._feature_level = 0
        """The image's."""

    def __repr__(self) -> str:
        role = "leader" if self.leads else "follower" if self.role is not None else "idle"
        return (
            f"<Replica {self.name}/{self.key[1]} {role} epoch={self.leader_epoch} leo={self.log.end_offset} "
            f"hw={self.high_watermark} lso={self.log.start_offset} isr={list(self.placed.isr)}>"
        )

    @property
    def high_watermark(self) -> int:
        """Everything below is committed."""
        return self._high_watermark if self.role is None else self.role.high_watermark

    @property
    def leads(self) -> bool:
        return isinstance(self.role, LeaderPartition)

    @property
    def isr_size(self) -> int:
        return len(self.placed.isr)

    @property
    def may_answer_latest(self) -> bool:
        """R15."""
        return isinstance(self.role, LeaderPartition) and self.role.may_answer_latest

    @property
    def start_acknowledged(self) -> int:
        """The log start offset that every member of the ISR has on disk (R11)."""
        return self.role.start_acknowledged if isinstance(self.role, LeaderPartition) else 0

    @property
    def in_doubt(self) -> bool:
        """Another broker may lead, and nothing is committed here: a member of the ISR is gone or silent."""
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
        """The image says something, perhaps something new, of this partition."""
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
        """The stream's setting from now on (R17)."""
        self.durability.set(fsync=fsync)

    @property
    def fsync(self) -> bool:
        """Records count when they are on disk; else when they are written (`page-cache`)."""
        return self.durability.fsync

    def durability_changed(self) -> None:
        """`fsync` has another value."""
        if isinstance(self.role, LeaderPartition):
            self._perform_as_leader(self.role, self.role.configured(self.fsync, self.host.now_ms()))
        elif self.role is not None:
            self._perform_as_follower(self.role, self.role.configured(self.fsync))

    def end_role(self) -> None:
        """It leads or follows no more; what is on its way to the disk still gets there."""
        role, self.role, self._began = self.role, None, None
        if role is None:
            return
        self._high_watermark = role.high_watermark
        if isinstance(role, FollowerPartition):
            self.host.unfollow(self, role.leader)
        self.owner.role_ended(led=isinstance(role, LeaderPartition))

    def begin_when_idle(self) -> None:
        """Begins the role that the image wants, once nothing is on its way to the disk."""
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
            # The entry that says so is in the log's history before anything else of the epoch (R5).
            self.write(lambda: self.log.writer.begin_unclean_epoch(unclean), self._unclean_begun)

    def time_known(self) -> None:
        """The cluster's clock is known (R18)."""
        self.begin_when_idle()

    def _unclean_begun(self, error: Exception | None) -> None:
        if error is None:
            # The epoch begins as soon as this operation has ended.
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
        """The log has more records, as a leader's."""
        role = self.role
        if isinstance(role, LeaderPartition):
            self._perform_as_leader(role, role.appended(self.host.now_ms()))

    def flushed(self) -> None:
        """More of the log, or of its history, is durable."""
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
        """Time passed; False: that makes no difference any more."""
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
        """A follower says something."""
        role = self.role
        if isinstance(role, LeaderPartition):
            now_ms = self.host.now_ms()
            if self._feature_level < ASSIGNMENTS and not self.fsync:
                # It says nothing of the kind, so it is that of the stream (R17).
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
        """The leader says something."""
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
        """An event of a role, if it is still the one."""
        if self.role is role:
            self._perform_as_follower(role, event())

    def write(self, work: Callable[[], object], done: Done, size: int | None = None) -> None:
        """Writes in order with all writes of the broker; `size` None: the write takes long."""
        self.write_began()

        def ended(error: Exception | None) -> None:
            self.write_ended()
            if not self.removed:
                done(error)
            self.begin_when_idle()

        self.owner.write(work, ended, LARGE if size is None or not self.warm else size)

    def write_began(self) -> None:
        """Something of this replica is on its way to the disk: no role begins meanwhile."""
        self._operations += 1

    def write_ended(self) -> None:
        self._operations -= 1
