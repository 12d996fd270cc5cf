"""One partition on a simulated broker: performs what its leader or follower state machine wants.

The rules are `core.replication`, the log is the real one over a simulated disk. What takes time in a broker
takes time here: writes, truncations and flushes happen a moment after they were asked for, and by then the
image may have moved on; a role ends only when nothing of it is on its way to the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from simulator.world import MS
from tidelog.errors import DataCorrupt, TidelogError
from tidelog.model import Durability
from tidelog_broker.core.metadata.image import ClusterImage, PartitionImage, StreamImage
from tidelog_broker.core.metadata.isr_changes import IsrProposal
from tidelog_broker.core.metadata.isr_changes import Member as ProposedMember
from tidelog_broker.core.replication import effects as do
from tidelog_broker.core.replication.commit_queue import CommitQueue
from tidelog_broker.core.replication.following import FollowerPartition
from tidelog_broker.core.replication.leading import LeaderPartition
from tidelog_broker.core.replication.membership import Broker as PlacedBroker
from tidelog_broker.core.replication.membership import Placement
from tidelog_broker.core.replication.messages import FromFollower, FromLeader, Position, Refusal, Refused
from tidelog_broker.core.replication.unclean_epochs import epoch_to_mark
from tidelog_broker.storage.log import Appended, AppendItem, PartitionLog

if TYPE_CHECKING:
    from simulator.broker import Broker

READ_BYTES: Final = 16 << 10
"""Of one answer to a follower."""

Key = tuple[bytes, int]


class Produced(NamedTuple):
    """What a producer is told."""

    outcome: Appended | TidelogError
    definite: bool = True


Answer = Callable[[Produced], None]


class _Pending(NamedTuple):
    appended: Appended
    answer: Answer


class Replica:
    """See the module."""

    def __init__(
        self, broker: Broker, stream: StreamImage, number: int, log: PartitionLog, high_watermark: int
    ) -> None:
        self.broker = broker
        self.key: Key = (stream.id, number)
        self.name = f"{stream.name}/{number}"
        self.log = log
        self.stream = stream
        self.high_watermark = max(min(high_watermark, log.end_offset), log.start_offset)
        self.role: LeaderPartition | FollowerPartition | None = None
        self.number = 0
        """Of the role, if it follows: in front of what it says and hears."""
        self.quarantined = False
        self.removed = False
        self._queue: CommitQueue[_Pending] = CommitQueue()
        self._operations = 0
        """On their way to the disk, for the role of now."""
        self._next: Callable[[], None] | None = None
        """The role that begins when they are done."""

    def __repr__(self) -> str:
        return f"<Replica {self.name} on {self.broker.id} {self.role!r}>"

    @property
    def leads(self) -> bool:
        return isinstance(self.role, LeaderPartition)

    @property
    def placed(self) -> PartitionImage:
        return self.stream.partitions[self.key[1]]

    @property
    def fsync(self) -> bool:
        return self.stream.config.durability is Durability.FSYNC

    def tell(self, line: str) -> None:
        self.broker.world.tell(f"{self.name} on {self.broker.id}: {line}")

    # --- the image

    def imaged(self, image: ClusterImage, stream: StreamImage) -> None:
        """The image says something, perhaps something new, of this partition."""
        before, self.stream = self.stream, stream
        placed = self.placed
        role = self.role
        leading = placed.leader == self.broker.id
        same = role is not None and role.leader_epoch == placed.leader_epoch and leading == self.leads
        if role is not None and same:
            now_ms = self.broker.now_ms
            if isinstance(role, LeaderPartition):
                self._do_all(role, role.placed(self._placement(image), now_ms))
                if before.config.durability is not stream.config.durability:
                    self._do_all(role, role.configured(self.fsync, now_ms))
            elif before.config.durability is not stream.config.durability:
                self._do_all(role, role.configured(self.fsync))
            return
        self._end_role()
        self._next = lambda: self._begin(image)
        self._begin_when_idle()

    def _placement(self, image: ClusterImage) -> Placement:
        placed = self.placed
        brokers = {}
        for broker in placed.replicas:
            known = image.brokers.get(broker)
            brokers[broker] = (
                PlacedBroker(b"", False) if known is None else PlacedBroker(known.incarnation, known.may_join)
            )
        return Placement(
            placed.replicas,
            placed.isr,
            placed.partition_epoch,
            self.stream.config.min_insync_effective,
            brokers,
        )

    def _end_role(self) -> None:
        role, self.role = self.role, None
        if role is None:
            return
        self.high_watermark = role.high_watermark
        if isinstance(role, LeaderPartition):
            for pending in self._queue.give_up():
                pending.answer(Produced(self.broker.not_leader(self.key), definite=False))
        self.broker.links.unfollow(self)

    def _begin_when_idle(self) -> None:
        if self._operations == 0 and self._next is not None and not self.removed:
            begin, self._next = self._next, None
            begin()

    def _begin(self, image: ClusterImage) -> None:
        placed = self.placed
        if self.quarantined or placed.leader is None:
            return
        if placed.leader == self.broker.id:
            self._lead(image)
        else:
            self.number += 1
            self.role = FollowerPartition(
                self.broker.id,
                placed.leader,
                placed.leader_epoch,
                self.log,
                fsync=self.fsync,
                high_watermark=self.high_watermark,
            )
            self.broker.links.follow(self, placed.leader)

    def _lead(self, image: ClusterImage) -> None:
        placed = self.placed
        unclean = epoch_to_mark(self.log, placed.leader_epoch, placed.unclean_epoch)
        if unclean is not None:
            self.log.begin_unclean_epoch(unclean)
            self.broker.flush(self)
        role = LeaderPartition(
            self.broker.id,
            placed.leader_epoch,
            self.log,
            fsync=self.fsync,
            high_watermark=self.high_watermark,
            placement=self._placement(image),
            now_ms=self.broker.now_ms,
            times=self.broker.times,
        )
        self.role = role
        self.tell(f"leads in epoch {placed.leader_epoch} from {self.log.end_offset}, isr {list(placed.isr)}")
        self.broker.checks.leader_began(self)
        self._do_all(role, role.begin(self.broker.now_ms))
        self.broker.links.leads(self)

    # --- producing

    def produce(self, item: AppendItem, answer: Answer, *, acks_all: bool = True) -> None:
        """R7: answered when it is committed, or with acks=leader as soon as it is written here."""
        role = self.role
        if not isinstance(role, LeaderPartition):
            answer(Produced(self.broker.not_leader(self.key)))
            return
        too_few = None if role.has_enough_replicas or not acks_all else self.broker.not_enough()
        (outcome,) = self.log.append(
            [item], leader_epoch=role.leader_epoch, now_us=self.broker.clock_us, refuse_new=too_few
        )
        if isinstance(outcome, TidelogError):
            self.broker.checks.refused(self, outcome)
            answer(Produced(outcome))
            return
        self.broker.checks.appended(self, outcome)
        if acks_all:
            self._queue.add(outcome.last_offset + 1, _Pending(outcome, answer))
        else:
            answer(Produced(outcome))
        self.broker.wrote(self)
        self._do_all(role, role.appended(self.broker.now_ms))
        self._answer_committed()

    def _answer_committed(self) -> None:
        role = self.role
        assert isinstance(role, LeaderPartition)
        for pending in self._queue.advance(role.high_watermark):
            self.broker.checks.acknowledged(self, pending.appended)
            pending.answer(Produced(pending.appended))

    # --- reading

    def latest(self, floor: int) -> None:
        """Somebody asks for the end; `floor` was acknowledged by then (R15)."""
        role = self.role
        if isinstance(role, LeaderPartition):
            if role.may_answer_latest:
                self.broker.checks.told_latest(self, role.high_watermark, floor)
            else:
                self.broker.checks.mark("R15 not yet")

    # --- events

    def received(self, message: FromLeader) -> None:
        """The leader says something."""
        if isinstance(self.role, FollowerPartition):
            self._do_all(self.role, self.role.received(message))

    def asked(self, broker: int, incarnation: bytes, message: FromFollower) -> FromLeader | None:
        """A follower says something; what to answer if it is not this role's to answer."""
        role = self.role
        if not isinstance(role, LeaderPartition):
            return Refused(Refusal.NOT_LEADER, self.placed.leader_epoch)
        now_ms = self.broker.now_ms
        if isinstance(message, Position):
            self._do_all(role, role.position(broker, incarnation, message, now_ms))
        else:
            self._do_all(role, role.durable(broker, incarnation, message, now_ms))
        return None

    def linked(self) -> None:
        if isinstance(self.role, FollowerPartition):
            self._do_all(self.role, self.role.begin())

    def unlinked(self) -> None:
        if isinstance(self.role, FollowerPartition):
            self.role.lost()

    def follower_linked(self, broker: int, incarnation: bytes) -> None:
        if isinstance(self.role, LeaderPartition):
            self._do_all(self.role, self.role.connected(broker, incarnation, self.broker.now_ms))

    def follower_unlinked(self, broker: int, *, refused: bool) -> None:
        if isinstance(self.role, LeaderPartition):
            self._do_all(self.role, self.role.disconnected(broker, refused, self.broker.now_ms))

    def flushed(self) -> None:
        role = self.role
        if isinstance(role, LeaderPartition):
            self._do_all(role, role.flushed(self.broker.now_ms))
        elif role is not None:
            self._do_all(role, role.flushed())

    def tick(self) -> None:
        if isinstance(self.role, LeaderPartition) and self.role.needs_ticks:
            self._do_all(self.role, self.role.tick(self.broker.now_ms))

    # --- effects

    def _do_all(
        self,
        role: LeaderPartition | FollowerPartition,
        effects: list[do.LeaderEffect] | list[do.FollowerEffect],
    ) -> None:
        for effect in effects:
            if self.role is not role:
                return
            self.broker.checks.effect(self, effect)
            if isinstance(role, LeaderPartition):
                self._do_leading(role, effect)
            else:
                self._do_following(role, effect)
        if self.role is role:
            self.high_watermark = role.high_watermark
            self.broker.checks.touched(self)

    def _do_leading(self, role: LeaderPartition, effect: object) -> None:
        match effect:
            case do.Answer(broker, message):
                self.broker.links.answer(broker, self.key, message)
            case do.SendBatches(broker, offset, end):
                self._send_batches(role, broker, offset, end)
            case do.Propose():
                self._propose(role, effect)
            case do.Committed(high_watermark):
                self.broker.checks.committed(self, high_watermark)
                self._answer_committed()
            case do.FlushHistory():
                self.broker.flush(self)
            case do.AdvanceStart(offset):
                self._advance_start(role, offset)
            case _:
                raise AssertionError(f"no effect of a leader: {effect}")

    def _do_following(self, role: FollowerPartition, effect: object) -> None:
        match effect:
            case do.Ask(position):
                self.broker.links.say(role.leader, self.key, self.number, position)
            case do.Say(durable):
                self.broker.links.say(role.leader, self.key, self.number, durable)
            case do.Append():
                self._operate(role, lambda: self._append(role, effect))
            case do.Truncate(offset):
                self._operate(role, lambda: self._truncate(role, offset))
            case do.Restart(offset):
                self._operate(role, lambda: self._restart(role, offset))
            case do.BeginUnclean(epoch):
                self.log.begin_unclean_epoch(epoch)
                self.broker.flush(self)
            case do.Quarantine(reason):
                self.broker.quarantine(self, reason)
            case do.Wait(ms):
                self.broker.after(ms * MS, lambda: self._waited(role))
            case do.SwitchLane():
                role.lost()
                self._do_all(role, role.begin())
            case do.AdvanceStart(offset):
                self._advance_start(role, offset)
            case _:
                raise AssertionError(f"no effect of a follower: {effect}")

    def _operate(self, role: LeaderPartition | FollowerPartition, work: Callable[[], None]) -> None:
        """Something that takes time in the write thread."""
        self._operations += 1

        def done() -> None:
            self._operations -= 1
            if not self.removed:
                work()
            self._begin_when_idle()

        self.broker.after(self.broker.write_delay(), done)

    def _append(self, role: FollowerPartition, effect: do.Append) -> None:
        try:
            self.log.receive(
                effect.data,
                leader_epoch=role.leader_epoch,
                unclean=effect.unclean,
                save_recovery_point=lambda point: self.broker.store.save_recovery_point(self.log, point),
            )
        except TidelogError as error:
            self.tell(f"did not take batches: {error}")
            if self.role is role:
                self._do_all(role, role.not_appended())
            return
        self.broker.checks.replicated(self)
        self.broker.wrote(self)
        if self.role is role:
            self._do_all(role, role.appended())

    def _truncate(self, role: FollowerPartition, offset: int) -> None:
        before = self.log.end_offset
        self.log.truncate(offset, lambda point: self.broker.store.save_recovery_point(self.log, point))
        self.tell(f"truncated from {before} to {self.log.end_offset} (hw {self.high_watermark})")
        self.broker.checks.truncated(self, before)
        if self.role is role:
            self._do_all(role, role.truncated())

    def _restart(self, role: FollowerPartition, offset: int) -> None:
        self.log.restart_at(offset, lambda at: self.broker.store.save_restart(self.log, at))
        self.tell(f"starts over at {offset}")
        self.broker.checks.restarted(self)
        if self.role is role:
            self._do_all(role, role.restarted())

    def _advance_start(self, role: LeaderPartition | FollowerPartition, offset: int) -> None:
        self.log.advance_start(offset)
        self.broker.save_checkpoints([self])
        if isinstance(role, LeaderPartition):
            self._do_all(role, role.start_moved(self.broker.now_ms))
        else:
            self._do_all(role, role.start_saved())

    def _waited(self, role: FollowerPartition) -> None:
        if self.role is role:
            self._do_all(role, role.waited())

    def _send_batches(self, role: LeaderPartition, broker: int, offset: int, end: int) -> None:
        try:
            chunk = self.log.read(offset, READ_BYTES, end)
        except DataCorrupt:
            chunk = None
        if chunk is None:
            self.broker.links.answer(broker, self.key, Refused(Refusal.DAMAGED, role.leader_epoch))
            return
        data = b"".join(bytes(part) for part in chunk.parts)
        self.broker.links.answer(broker, self.key, role.batches(offset, data, chunk.next_offset))

    def _propose(self, role: LeaderPartition, effect: do.Propose) -> None:
        proposal = IsrProposal(
            proposer=ProposedMember(self.broker.id, self.broker.incarnation),
            stream_id=self.key[0],
            partition=self.key[1],
            leader_epoch=effect.leader_epoch,
            partition_epoch=effect.partition_epoch,
            isr=tuple(ProposedMember(*member) for member in effect.isr),
        )
        self.broker.propose_isr(proposal)
