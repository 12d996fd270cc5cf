"""One partition on a simulated broker: performs what its leader or follower state machine wants.

The rules are `core.replication`, the log is the real one over a simulated disk. What takes time in a broker
takes time here: writes, truncations and flushes happen a moment after they were asked for, and by then the
image may have moved on; a role ends only when nothing of it is on its way to the disk. `performing` has what
each effect does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from simulator.performing import Performing
from simulator.world import MS
from tidelog.errors import TidelogError
from tidelog.model import Durability
from tidelog_broker.core.metadata.image import ClusterImage, PartitionImage, StreamImage
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

Key = tuple[bytes, int]
"""Stream id and partition."""

RETRY_US: Final = 500 * MS
"""A disk that is full is tried again so often."""


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
        self.removed = False
        """It is not this broker's any more, or was set aside."""
        self._queue: CommitQueue[_Pending] = CommitQueue()
        self._perform = Performing(self)
        self._operations = 0
        """On their way to the disk, for the role of now."""
        self._next: Callable[[], None] | None = None
        """The role that begins when they are done."""
        self.leaving = False
        """Somebody else is about to lead it: it takes nothing of producers (N5)."""

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
                self.do_all(role, role.placed(self._placement(image), now_ms))
                if before.config.durability is not stream.config.durability:
                    self.do_all(role, role.configured(self.fsync, now_ms))
                    self.broker.flushing.flush(self)
            elif before.config.durability is not stream.config.durability:
                self.do_all(role, role.configured(self.fsync))
                self.broker.flushing.flush(self)
            return
        self._end_role()
        self._next = lambda: self._begin(image)
        self._begin_when_idle()

    def _placement(self, image: ClusterImage) -> Placement:
        placed = self.placed
        brokers = {}
        for broker in placed.replicas:
            known, assignment = image.brokers.get(broker), placed.assignment_of(broker)
            brokers[broker] = (
                PlacedBroker(b"", False, assignment)
                if known is None
                else PlacedBroker(known.incarnation, known.may_join, assignment)
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
            self.leaving = False
            for pending in self._queue.give_up():
                pending.answer(Produced(self.broker.not_leader(self.key), definite=False))
        self.broker.links.unfollow(self)

    def _begin_when_idle(self) -> None:
        if self._operations == 0 and self._next is not None and not self.removed:
            begin, self._next = self._next, None
            begin()

    def _begin(self, image: ClusterImage) -> None:
        placed = self.placed
        if placed.leader is None:
            return
        if placed.leader == self.broker.id:
            self._lead(image)
        else:
            self.number = self.broker.hosted.next_role_number()
            self.role = FollowerPartition(
                self.broker.id,
                placed.leader,
                placed.leader_epoch,
                self.log,
                fsync=self.fsync,
                high_watermark=self.high_watermark,
                assignment=self.log.assignment,
            )
            self.broker.links.follow(self, placed.leader)

    def _lead(self, image: ClusterImage) -> None:
        placed = self.placed
        unclean = epoch_to_mark(self.log, placed.leader_epoch, placed.unclean_epoch)
        if unclean is not None:
            # Also one in which this broker did not lead, or not for long enough to know of it.
            try:
                self.log.begin_unclean_epoch(unclean)
            except TidelogError as error:
                self.tell(f"does not lead yet: {error}")
                self.broker.after(RETRY_US, lambda: self._try_again(image))
                return
            self.broker.flushing.flush(self)
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
        self.do_all(role, role.begin(self.broker.now_ms))
        self.broker.links.leads(self)

    def _try_again(self, image: ClusterImage) -> None:
        if self.role is None and self._next is None and self.stream is image.streams.find(self.key[0]):
            self._begin(image)

    def leave(self) -> None:
        """Nothing is done with its log any more."""
        self.removed = True
        self._end_role()

    # --- producing

    def produce(self, item: AppendItem, answer: Answer, *, acks_all: bool = True) -> None:
        """R7: answered when it is committed, or with acks=leader as soon as it is written here."""
        role = self.role
        if not isinstance(role, LeaderPartition):
            answer(Produced(self.broker.not_leader(self.key)))
            return
        if self.leaving:
            self.broker.checks.mark("N5 refused meanwhile")
            answer(Produced(self.broker.not_leader(self.key)))
            return
        too_few = None if role.has_enough_replicas or not acks_all else self.broker.not_enough()
        (outcome,) = self.log.append(
            [item], leader_epoch=role.leader_epoch, now_us=self.broker.clock_us, refuse_new=too_few
        )
        if isinstance(outcome, TidelogError):
            self.broker.checks.refused(self, item, outcome)
            answer(Produced(outcome))
            return
        self.broker.checks.appended(self, item, outcome)
        if acks_all:
            self._queue.add(outcome.last_offset + 1, _Pending(outcome, answer))
        else:
            answer(Produced(outcome))
        self.broker.flushing.wrote(self)
        self.do_all(role, role.appended(self.broker.now_ms))
        self.answer_committed()

    def answer_committed(self) -> None:
        role = self.role
        assert isinstance(role, LeaderPartition)
        for pending in self._queue.advance(role.high_watermark):
            self.broker.checks.acknowledged(self, pending.appended)
            pending.answer(Produced(pending.appended))

    @property
    def unanswered(self) -> int:
        """Producers that wait for a commit."""
        return len(self._queue)

    def let_go(self) -> None:
        """Retention: the files wholly below the log start offset, which is durable by now."""
        try:
            self.log.remove_below_start()
        except OSError as error:
            self.tell(f"files stay: {error}")

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
            self.do_all(self.role, self.role.received(message))

    def asked(self, broker: int, incarnation: bytes, message: FromFollower) -> FromLeader | None:
        """A follower says something; what to answer if it is not this role's to answer."""
        role = self.role
        if not isinstance(role, LeaderPartition):
            return Refused(Refusal.NOT_LEADER, self.placed.leader_epoch)
        now_ms = self.broker.now_ms
        if isinstance(message, Position):
            self.do_all(role, role.position(broker, incarnation, message, now_ms))
        else:
            self.do_all(role, role.durable(broker, incarnation, message, now_ms))
        return None

    def linked(self) -> None:
        if isinstance(self.role, FollowerPartition):
            self.do_all(self.role, self.role.begin())

    def unlinked(self) -> None:
        if isinstance(self.role, FollowerPartition):
            self.role.lost()

    def follower_linked(self, broker: int, incarnation: bytes) -> None:
        if isinstance(self.role, LeaderPartition):
            self.do_all(self.role, self.role.connected(broker, incarnation, self.broker.now_ms))

    def follower_unlinked(self, broker: int, *, refused: bool) -> None:
        if isinstance(self.role, LeaderPartition):
            self.do_all(self.role, self.role.disconnected(broker, refused, self.broker.now_ms))

    def flushed(self) -> None:
        role = self.role
        if isinstance(role, LeaderPartition):
            self.do_all(role, role.flushed(self.broker.now_ms))
        elif role is not None:
            self.do_all(role, role.flushed())

    def tick(self) -> None:
        if isinstance(self.role, LeaderPartition) and self.role.needs_ticks:
            self.do_all(self.role, self.role.tick(self.broker.now_ms))

    # --- effects

    def do_all(
        self,
        role: LeaderPartition | FollowerPartition,
        effects: list[do.LeaderEffect] | list[do.FollowerEffect],
    ) -> None:
        for effect in effects:
            if self.role is not role:
                return
            self.broker.checks.effect(self, effect)
            self._perform.one(role, effect)
        if self.role is role:
            self.high_watermark = role.high_watermark
            self.broker.checks.touched(self)

    def operate(self, work: Callable[[], None]) -> None:
        """Something that takes time in the write thread."""
        self._operations += 1

        def done() -> None:
            self._operations -= 1
            if not self.removed:
                work()
            self._begin_when_idle()

        self.broker.after(self.broker.write_delay(), done)

    def advance_start(self, offset: int) -> None:
        """R11: the log start offset moves, by command or as the leader says."""
        if self.role is not None:
            self._perform.advance_start(self.role, offset)
