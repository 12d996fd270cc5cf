"""The role of a partition's replica on this broker: it leads, follows, or does neither.

Performs what the state machines of `core.replication` want done, in their order, and tells
them what became of it. The image says which role it is; a role ends at once, and the next
begins when nothing of the last one is on its way to the disk any more.

Neighbours: `partition` is a replica with appends and readers; `replica_host` is what a role
needs of its broker; `replica_links` carries what replicas say to each other. `simulator.replica`
performs the same effects on a simulated disk and network. Of one event loop.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import structlog

from tidelog_broker.core.metadata.image import ClusterImage, PartitionImage, StreamImage
from tidelog_broker.core.replication import effects as do
from tidelog_broker.core.replication.following import FollowerPartition
from tidelog_broker.core.replication.leading import LeaderPartition
from tidelog_broker.core.replication.membership import Broker as PlacedBroker
from tidelog_broker.core.replication.membership import Placement
from tidelog_broker.core.replication.messages import FromFollower, FromLeader, Position, Refusal, Refused
from tidelog_broker.core.replication.unclean_epochs import epoch_to_mark
from tidelog_broker.storage.log import PartitionLog

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

_role_numbers = itertools.count(1)
"""Of all roles of this process: a replica that was removed and made anew may follow over the connection
on which an answer for the one before is on its way (R2)."""

Done = Callable[[Exception | None], None]
"""What became of a write: None, or why it left nothing (or, of a follower's batches, a part)."""

NO_IMAGE = PartitionImage(replicas=(), isr=())


class ReplicaHost(Protocol):
    """What a replica's role needs of its broker."""

    broker_id: int
    unsure: bool
    """The controller has not answered for a session: another leader may have been elected."""

    def is_this_run(self, incarnation: bytes) -> bool:
        """Whether the image speaks of this run of the broker (R10)."""

    def now_ms(self) -> int: ...

    def later(self, ms: int, call: Callable[[], None]) -> None: ...

    def write(self, replica: Replica, work: Callable[[], object], done: Done, size: int) -> None:
        """Does `work`, which brings about `size` bytes, in the lane of all writes."""

    def flush(self, replica: Replica) -> None: ...

    def receive(self, replica: Replica, batches: do.Append, leader_epoch: int) -> int:
        """Blocking; in the lane."""

    def truncate(self, replica: Replica, offset: int) -> None:
        """Blocking; in the lane."""

    def restart(self, replica: Replica, offset: int) -> None:
        """Blocking; in the lane."""

    def advance_start(self, replica: Replica, offset: int) -> None:
        """Has the log start offset moved; `start_moved` is called then."""

    def quarantine(self, replica: Replica, reason: str) -> None: ...

    def propose(self, replica: Replica, proposal: do.Propose) -> None: ...

    def needs_ticks(self, replica: Replica) -> None:
        """Has `tick` called now and then, as long as it returns True."""

    def leads(self, replica: Replica) -> None:
        """It leads from now on: it is to hear which followers' brokers are connected."""

    def follow(self, replica: Replica, leader: int) -> None: ...

    def unfollow(self, replica: Replica, leader: int) -> None: ...

    def switch_lane(self, replica: Replica, leader: int) -> None: ...

    def say(self, replica: Replica, leader: int, message: FromFollower) -> None: ...

    def answer(self, replica: Replica, broker: int, message: FromLeader) -> None: ...

    def send_batches(self, replica: Replica, wanted: do.SendBatches) -> None: ...


class Replica:
    """See the module."""

    __slots__ = (
        "_began",
        "_high_watermark",
        "_host",
        "_operations",
        "_placement",
        "fsync",
        "key",
        "leader_epoch",
        "log",
        "name",
        "placed",
        "removed",
        "role",
        "role_number",
        "warm",
    )

    def __init__(
        self, name: str, key: Key, log: PartitionLog, host: ReplicaHost, *, fsync: bool, high_watermark: int
    ) -> None:
        self.name = name
        self.key = key
        self.log = log
        self.fsync = fsync
        """Durable means on disk; else written (`page-cache`)."""
        self.placed = NO_IMAGE
        """What the image says of the partition."""
        self.role: Role | None = None
        self.role_number = 0
        """Of the newest role; what was said to an earlier one is passed over."""
        self.leader_epoch = 0
        """Of the newest role."""
        self.removed = False
        """It was deleted, or left, or was set aside: its files go."""
        self.warm = False
        """It has written since the start, so the append guard is in memory."""
        self._host = host
        self._high_watermark = max(min(high_watermark, log.end_offset), log.start_offset)
        """As of the last role; the role of now knows better."""
        self._placement: Placement | None = None
        self._began: tuple[int, int] | None = None
        """Leader and epoch of the role that began last or is about to; None: of none."""
        self._operations = 0
        """On their way to the disk."""

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
        """Another broker may lead, and nothing can be committed here: a member of the ISR is gone or mute."""
        role = self.role
        if not self._host.unsure or not isinstance(role, LeaderPartition):
            return False
        behind_since = self._host.now_ms() - DOUBT_LAG_MS
        for member in self.placed.isr:
            follower = role.followers.get(member)
            if follower is None:
                continue
            behind = follower.durable < self.log.end_offset and follower.caught_up_at <= behind_since
            if follower.lost_since is not None or behind:
                return True
        return False

    # --- what a partition does about it

    def weigh(self) -> None:
        """Whether it is in doubt may have changed."""

    def role_began(self) -> None:
        """It leads or follows from now on."""

    def role_ended(self, *, led: bool) -> None:
        """It does no more."""

    def committed(self, high_watermark: int) -> None:
        """The high watermark moved, on a leader."""

    # --- the image

    def imaged(self, image: ClusterImage, stream: StreamImage) -> None:
        """The image says something, perhaps something new, of this partition."""
        if self.removed:
            return
        placed = self.placed = stream.partitions[self.key[1]]
        mine = image.brokers.get(self._host.broker_id)
        begins = placed.leader is not None and (mine is None or self._host.is_this_run(mine.incarnation))
        wanted = (placed.leader, placed.leader_epoch) if begins and placed.leader is not None else None
        leads = wanted is not None and placed.leader == self._host.broker_id
        self._placement = _placement(image, stream, placed) if leads else None
        if wanted == self._began:
            if isinstance(self.role, LeaderPartition):
                assert self._placement is not None
                self._perform(self.role, self.role.placed(self._placement, self._host.now_ms()))
            return
        self.end_role()
        self._began = wanted
        self._begin_when_idle()

    def set_durability(self, *, fsync: bool) -> None:
        if fsync == self.fsync:
            return
        self.fsync = fsync
        if isinstance(self.role, LeaderPartition):
            self._perform(self.role, self.role.configured(fsync, self._host.now_ms()))
        elif self.role is not None:
            self._perform(self.role, self.role.configured(fsync))

    def end_role(self) -> None:
        """It leads or follows no more; what is on its way to the disk still gets there."""
        role, self.role, self._began = self.role, None, None
        if role is None:
            return
        self._high_watermark = role.high_watermark
        if isinstance(role, FollowerPartition):
            self._host.unfollow(self, role.leader)
        self.role_ended(led=isinstance(role, LeaderPartition))

    def _begin_when_idle(self) -> None:
        if self._operations or self.role is not None or self._began is None or self.removed:
            return
        leader, epoch = self._began
        self.role_number = next(_role_numbers)
        self.leader_epoch = epoch
        if leader != self._host.broker_id:
            self._follow(leader, epoch)
            return
        unclean = epoch_to_mark(self.log, epoch, self.placed.unclean_epoch)
        if unclean is None:
            self._lead(epoch)
        else:
            # The entry that says so is in the log's history before anything else of the epoch (R5).
            self._write(lambda: self.log.begin_unclean_epoch(unclean), self._unclean_begun)

    def _unclean_begun(self, error: Exception | None) -> None:
        if error is None:
            # The epoch begins as soon as this operation has ended.
            self._host.flush(self)
            return
        log.warning(
            "an unclean epoch could not begin; it tries again", partition=repr(self), error=str(error)
        )
        self._operations += 1
        self._host.later(EPOCH_RETRY_MS, self._retry_begin)

    def _retry_begin(self) -> None:
        self._operations -= 1
        self._begin_when_idle()

    def _lead(self, epoch: int) -> None:
        assert self._placement is not None
        role = self.role = LeaderPartition(
            self._host.broker_id,
            epoch,
            self.log,
            fsync=self.fsync,
            high_watermark=self._high_watermark,
            placement=self._placement,
            now_ms=self._host.now_ms(),
        )
        self.role_began()
        self._perform(role, role.begin(self._host.now_ms()))
        self._host.leads(self)

    def _follow(self, leader: int, epoch: int) -> None:
        self.role = FollowerPartition(
            self._host.broker_id,
            leader,
            epoch,
            self.log,
            fsync=self.fsync,
            high_watermark=self._high_watermark,
        )
        self.role_began()
        self._host.follow(self, leader)

    # --- events on this broker

    def appended(self) -> None:
        """The log has more records, as a leader's."""
        role = self.role
        if isinstance(role, LeaderPartition):
            self._perform(role, role.appended(self._host.now_ms()))

    def flushed(self) -> None:
        """More of the log, or of its history, is durable."""
        role = self.role
        if isinstance(role, LeaderPartition):
            self._perform(role, role.flushed(self._host.now_ms()))
        elif role is not None:
            self._perform(role, role.flushed())

    def start_moved(self) -> None:
        """The log start offset moved, durably."""
        role = self.role
        if isinstance(role, LeaderPartition):
            self._perform(role, role.start_moved(self._host.now_ms()))
        elif role is not None:
            self._perform(role, role.start_saved())

    def tick(self) -> bool:
        """Time passed; False: that makes no difference any more."""
        role = self.role
        if not isinstance(role, LeaderPartition) or not role.needs_ticks:
            return False
        self._do(role, role.tick(self._host.now_ms()))
        self.weigh()
        return self.role is role and role.needs_ticks

    # --- events from others

    def asked(self, broker: int, incarnation: bytes, message: FromFollower) -> None:
        """A follower says something."""
        role = self.role
        if isinstance(role, LeaderPartition):
            now_ms = self._host.now_ms()
            if isinstance(message, Position):
                self._perform(role, role.position(broker, incarnation, message, now_ms))
            else:
                self._perform(role, role.durable(broker, incarnation, message, now_ms))
        elif isinstance(message, Position):
            self._host.answer(self, broker, Refused(Refusal.NOT_LEADER, self.leader_epoch))

    def follower_connected(self, broker: int, incarnation: bytes) -> None:
        role = self.role
        if isinstance(role, LeaderPartition) and broker in role.followers:
            self._perform(role, role.connected(broker, incarnation, self._host.now_ms()))
            self.weigh()

    def follower_gone(self, broker: int, *, refused: bool) -> None:
        role = self.role
        if isinstance(role, LeaderPartition) and broker in role.followers:
            self._perform(role, role.disconnected(broker, refused, self._host.now_ms()))
            self.weigh()

    def received(self, message: FromLeader) -> None:
        """The leader says something."""
        if isinstance(self.role, FollowerPartition):
            self._perform(self.role, self.role.received(message))

    def leader_connected(self) -> None:
        if isinstance(self.role, FollowerPartition):
            self._perform(self.role, self.role.begin())

    def leader_gone(self) -> None:
        if isinstance(self.role, FollowerPartition):
            self.role.lost()

    # --- effects

    def _perform(self, role: Role, effects: Sequence[do.LeaderEffect | do.FollowerEffect]) -> None:
        if effects:
            self._do(role, effects)
        if isinstance(role, LeaderPartition) and role.followers and self.role is role:
            self._host.needs_ticks(self)

    def _do(self, role: Role, effects: Sequence[do.LeaderEffect | do.FollowerEffect]) -> None:
        for effect in effects:
            if self.role is not role:
                return
            if isinstance(role, LeaderPartition):
                self._lead_on(effect)
            else:
                self._follow_on(role, effect)

    def _lead_on(self, effect: object) -> None:
        match effect:
            case do.Committed(high_watermark):
                self.committed(high_watermark)
            case do.SendBatches():
                self._host.send_batches(self, effect)
            case do.Answer(broker, message):
                self._host.answer(self, broker, message)
            case do.Propose():
                self._host.propose(self, effect)
            case do.FlushHistory():
                self._host.flush(self)
            case do.AdvanceStart(offset):
                self._host.advance_start(self, offset)
            case _:
                raise AssertionError(f"no effect of a leader: {effect}")

    def _follow_on(self, role: FollowerPartition, effect: object) -> None:
        match effect:
            case do.Ask(position):
                self._host.say(self, role.leader, position)
            case do.Say(durable):
                self._host.say(self, role.leader, durable)
            case do.Append():
                self._append(role, effect)
            case do.Truncate(offset):
                self._cut(role, lambda: self._host.truncate(self, offset), role.truncated)
            case do.Restart(offset):
                self._cut(role, lambda: self._host.restart(self, offset), role.restarted)
            case do.BeginUnclean(epoch):
                self._write(lambda: self.log.begin_unclean_epoch(epoch), self._noted)
            case do.Wait(ms):
                self._host.later(ms, lambda: self._for(role, role.waited))
            case do.AdvanceStart(offset):
                self._host.advance_start(self, offset)
            case do.SwitchLane():
                self._host.switch_lane(self, role.leader)
            case do.Quarantine(reason):
                self._host.quarantine(self, reason)
            case _:
                raise AssertionError(f"no effect of a follower: {effect}")

    def _for(self, role: FollowerPartition, event: Callable[[], list[do.FollowerEffect]]) -> None:
        """An event of a role, if it is still the one."""
        if self.role is role:
            self._perform(role, event())

    def _append(self, role: FollowerPartition, effect: do.Append) -> None:
        def work() -> object:
            self.warm = True
            return self._host.receive(self, effect, role.leader_epoch)

        def done(error: Exception | None) -> None:
            if error is not None:
                log.warning("a follower did not take batches", partition=repr(self), error=str(error))
            self._for(role, role.appended if error is None else role.not_appended)

        # An empty log may have to begin anew, with syncs of its own.
        empty = self.log.end_offset == self.log.start_offset
        self._write(work, done, None if empty else len(effect.data))

    def _cut(
        self,
        role: FollowerPartition,
        work: Callable[[], None],
        then: Callable[[], list[do.FollowerEffect]],
    ) -> None:
        before = self.log.end_offset

        def done(error: Exception | None) -> None:
            if error is not None:
                # Nothing happened, for want of room.
                log.warning("a log could not be cut", partition=repr(self), error=str(error))
                self._for(role, role.not_appended)
                return
            log.info("a follower cut its log", partition=repr(self), end_before=before)
            self._for(role, then)

        self._write(work, done)

    def _noted(self, error: Exception | None) -> None:
        if error is not None:
            # Asked for again with the next word of the leader.
            log.warning("an epoch could not be noted", partition=repr(self), error=str(error))

    def _write(self, work: Callable[[], object], done: Done, size: int | None = None) -> None:
        """Something that may take a while in the lane of all writes; `size` None: it takes long."""
        self._operations += 1

        def ended(error: Exception | None) -> None:
            self._operations -= 1
            if not self.removed:
                done(error)
            self._begin_when_idle()

        self._host.write(self, work, ended, LARGE if size is None or not self.warm else size)


def _placement(image: ClusterImage, stream: StreamImage, placed: PartitionImage) -> Placement:
    brokers = {}
    for broker in placed.replicas:
        known = image.brokers.get(broker)
        brokers[broker] = (
            PlacedBroker(b"", False) if known is None else PlacedBroker(known.incarnation, known.may_join)
        )
    return Placement(
        placed.replicas, placed.isr, placed.partition_epoch, stream.config.min_insync_effective, brokers
    )
