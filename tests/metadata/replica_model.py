"""A small model of brokers that replicate one partition, around the real decisions and `apply`.

It is slow, holds whole logs as lists, and knows nothing of eligibility: leaders move high
watermarks by R3 on whatever old image they have seen, followers reconcile by R1,
proposals and acknowledgements are delivered late, twice or never. What it checks is the
one promise of R6: whoever stands in ISR ∪ eligible has everything that anybody committed.
"""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass, field

from metadata.samples import CLUSTER, LISTENERS, applied, created, identifier, registered
from tidelog.errors import TidelogError
from tidelog_broker.core.metadata.apply import apply
from tidelog_broker.core.metadata.commands import (
    AlterStream,
    ChangePartitions,
    Command,
    FormatCluster,
    PartitionChange,
    ReplicaName,
    Suspect,
)
from tidelog_broker.core.metadata.controller import registration, upkeep
from tidelog_broker.core.metadata.controller.liveness import Sessions
from tidelog_broker.core.metadata.decisions import elections, isr_changes, reassignment
from tidelog_broker.core.metadata.decisions.isr_changes import IsrProposal, Member
from tidelog_broker.core.metadata.image import ClusterImage, PartitionImage, StreamImage

STREAM = identifier(1)
Record = tuple[int, int]
"""Leader epoch, and a number that no other record has."""


@dataclass
class Ack:
    leader: int
    epoch: int
    follower: Member
    end: int


@dataclass
class Broker:
    """One broker's replica, and what it believes."""

    id: int
    run: int = 1
    disk: int = 1
    starts: int = 1
    view: int = 0
    """Index into the model's images: the newest that it has seen."""
    log: list[Record] = field(default_factory=list)
    quarantined: bool = False
    leading: int = 0
    """The epoch in which it leads, as it believes; 0: none."""
    epoch_start: int = 0
    high_watermark: int = 0
    """Of this leadership; a new one begins with what is sure: nothing."""
    acknowledged: dict[Member, int] = field(default_factory=dict)
    proposed: list[IsrProposal] = field(default_factory=list)
    """Undecided (R4)."""

    @property
    def member(self) -> Member:
        return Member(self.id, identifier(1000 * self.id + self.run))


class ReplicaModel:
    def __init__(
        self, rng: random.Random, *, unclean: bool = False, brokers: int = 4, copies: int = 3
    ) -> None:
        self.rng = rng
        replicas = tuple(range(copies))
        everybody = [registered(broker, disk=100 * broker + 1) for broker in range(brokers)]
        start = applied(ClusterImage(), [FormatCluster(CLUSTER), *everybody, created(1, replicas=replicas)])
        self.images = [start]
        self.brokers = [Broker(broker) for broker in range(brokers)]
        self.committed: list[Record] = []
        self.records = 0
        self.acks: list[Ack] = []
        self.proposals: list[IsrProposal] = []
        self.answers: list[tuple[IsrProposal, isr_changes.Result]] = []
        self.story: list[str] = []
        self.roughness = rng.choice([0.1, 0.3, 1.0])
        """How often something breaks or is changed, against how often something is done."""
        self.flicker = rng.choice([4 * self.roughness, 3.0])
        """How often a broker loses its session."""
        self.unclean = unclean
        """Also lose whole ISRs, and elect whoever is left."""

    # --- the cluster

    @property
    def image(self) -> ClusterImage:
        return self.images[-1]

    @property
    def partition(self) -> PartitionImage:
        return self.image.streams[STREAM].partitions[0]

    def seen(self, broker: Broker) -> tuple[ClusterImage, StreamImage, PartitionImage]:
        image = self.images[broker.view]
        stream = image.streams[STREAM]
        return image, stream, stream.partitions[0]

    def commit(self, command: Command | None) -> None:
        if command is None:
            return
        before = self.partition
        self.images.append(apply(self.image, command, self.image.version + 1))
        after = self.partition
        self.story.append(f"  {type(command).__name__} → {after}")
        assert after.partition_epoch >= before.partition_epoch
        if after.leader_epoch > before.leader_epoch and after.unclean and after.leader is not None:
            # What is lost is lost: from here on its log is the truth.
            self.committed = self.committed[: _common(self.committed, self.brokers[after.leader].log)]

    # --- what may happen

    def step(self) -> None:
        rough = self.roughness
        actions = [
            (self.look, 12), (self.append, 6), (self.replicate, 16), (self.deliver_ack, 12),
            (self.advance, 8), (self.propose, 3), (self.deliver_proposal, 4), (self.deliver_answer, 2),
            (self.unfence, 3), (self.elect, 4), (self.fence, self.flicker), (self.restart, rough),
            (self.lose_log, rough), (self.suspect, rough), (self.new_disk, rough), (self.report, rough),
            (self.hand_over, rough), (self.set_minimum, 2 * rough), (self.move, rough),
            (self.unregister, rough / 5),
        ]  # fmt: skip
        action = self.rng.choices([action for action, _ in actions], [weight for _, weight in actions])[0]
        leading = [one for one in self.brokers if one.leading]
        if leading and action in (self.append, self.advance, self.propose):
            broker = self.rng.choice(leading)
        else:
            broker = self.rng.choice(self.brokers)
        self.story.append(f"{action.__name__} {broker.id}")
        action(broker)
        self.check_promise()
        self.check_shape()

    def look(self, broker: Broker) -> None:
        """Sees the next image, or all there are."""
        newest = len(self.images) - 1
        self._see(broker, self.rng.choice([min(broker.view + 1, newest), newest]))

    def _see(self, broker: Broker, view: int) -> None:
        broker.view = view
        image, _, partition = self.seen(broker)
        known = image.brokers.get(broker.id)
        own = known is not None and known.incarnation == broker.member.incarnation
        leads = own and partition.leader == broker.id and not broker.quarantined
        if broker.leading and (not leads or partition.leader_epoch != broker.leading):
            broker.leading = 0
        if leads and not broker.leading:
            broker.leading, broker.epoch_start = partition.leader_epoch, len(broker.log)
            broker.high_watermark, broker.acknowledged, broker.proposed = 0, {}, []
        # A proposal of an older partition epoch can never be accepted any more.
        broker.proposed = [one for one in broker.proposed if one.partition_epoch >= partition.partition_epoch]

    def append(self, broker: Broker) -> None:
        if broker.leading:
            self.records += 1
            broker.log.append((broker.leading, self.records))

    def replicate(self, broker: Broker) -> None:
        """R1 and R2: a follower agrees with its leader, takes some records, acknowledges."""
        image, _, partition = self.seen(broker)
        if broker.leading or partition.leader is None or broker.id not in partition.replicas:
            return
        leader = self.brokers[partition.leader]
        theirs = self.images[leader.view].brokers.get(broker.id)
        ours = image.brokers.get(leader.id)
        if leader.leading != partition.leader_epoch or theirs is None or ours is None:
            return
        if theirs.incarnation != broker.member.incarnation or ours.incarnation != leader.member.incarnation:
            return
        del broker.log[_common(broker.log, leader.log) :]
        taken = self.rng.randint(0, 3)
        broker.log += leader.log[len(broker.log) : len(broker.log) + taken]
        broker.quarantined = False
        self.acks.append(Ack(leader.id, leader.leading, broker.member, len(broker.log)))

    def deliver_ack(self, _: Broker) -> None:
        """In any order, perhaps twice, perhaps long after it was sent."""
        if not self.acks:
            return
        ack = self.rng.choice(self.acks[-12:])
        leader = self.brokers[ack.leader]
        known = self.images[leader.view].brokers.get(ack.follower.broker)
        if (
            leader.leading == ack.epoch
            and known is not None
            and known.incarnation == ack.follower.incarnation
        ):
            leader.acknowledged[ack.follower] = max(ack.end, leader.acknowledged.get(ack.follower, 0))

    def advance(self, broker: Broker) -> None:
        """R3, on the image that the leader has seen."""
        if not broker.leading:
            return
        image, stream, partition = self.seen(broker)
        maximal = set(partition.isr)
        staying = set(partition.isr)
        for proposal in broker.proposed:
            named = {member.broker for member in proposal.isr}
            maximal |= named
            staying &= named
        if len(staying) < stream.config.min_insync_effective:
            return
        ends = [len(broker.log)]
        for other in sorted(maximal - {broker.id}):
            known = image.brokers.get(other)
            ends.append(broker.acknowledged.get(Member(other, known.incarnation), 0) if known else 0)
        broker.high_watermark = max(broker.high_watermark, min(ends))
        lost = broker.leading < self.partition.unclean_epoch  # by an election since: nobody promises it
        if broker.high_watermark > len(self.committed) and not lost:
            self.committed = broker.log[: broker.high_watermark]

    def propose(self, broker: Broker) -> None:
        """R4: whoever has caught up may join, anybody may leave."""
        if not broker.leading:
            return
        image, _, partition = self.seen(broker)
        isr = []
        for replica in partition.replicas:
            known = image.brokers.get(replica)
            if known is None:
                continue
            member = Member(replica, known.incarnation)
            end = broker.acknowledged.get(member, -1)
            complete = end >= max(broker.high_watermark, broker.epoch_start) and known.may_join
            if replica == broker.id or (self.rng.random() < 0.8 and (replica in partition.isr or complete)):
                isr.append(member)
        proposal = IsrProposal(
            broker.member, STREAM, 0, broker.leading, partition.partition_epoch, tuple(isr)
        )
        broker.proposed.append(proposal)
        self.proposals.append(proposal)

    def deliver_proposal(self, _: Broker) -> None:
        if self.proposals:
            proposal = self.rng.choice(self.proposals[-4:])
            command, results = isr_changes.change_isr(self.image, [proposal])
            self.commit(command)
            self.answers.append((proposal, results[0]))

    def deliver_answer(self, _: Broker) -> None:
        """What the controller answers decides nothing: only the image does."""
        if self.answers:
            proposal, result = self.rng.choice(self.answers[-4:])
            self.answered(self.brokers[proposal.proposer.broker], proposal, result)

    def answered(self, leader: Broker, proposal: IsrProposal, result: isr_changes.Result) -> None:
        """A place for planted bugs."""

    def fence(self, broker: Broker) -> None:
        known = self.image.brokers.get(broker.id)
        if known is not None and not known.fenced:
            self.commit(upkeep.fence(self.image, broker.id))

    def unfence(self, broker: Broker) -> None:
        known = self.image.brokers.get(broker.id)
        if known is None or known.incarnation != broker.member.incarnation:
            self._register(broker)
        elif known.fenced:
            self.commit(upkeep.unfence(self.image, broker.id))

    def restart(self, broker: Broker) -> None:
        self._register(broker, new_run=True)

    def lose_log(self, broker: Broker) -> None:
        """Set aside while running; the controller hears of it, or the run ends before it does."""
        known = self.image.brokers.get(broker.id)
        if known is None or known.incarnation != broker.member.incarnation or not self._may_lose(broker):
            return
        broker.log, broker.leading, broker.quarantined = [], 0, True
        name = ReplicaName(STREAM, 0)
        if self.rng.random() < 0.7:
            self.commit(registration.lose(self.image, broker.id, broker.member.incarnation, (name,)))
        else:
            self._register(broker, new_run=True, lost=(name,))

    def suspect(self, broker: Broker) -> None:
        if not self._may_lose(broker):
            return
        kept = self.rng.randint(0, len(broker.log))
        broker.log = broker.log[:kept]
        epoch = broker.log[-1][0] if broker.log else 0
        self._register(broker, new_run=True, suspects=(Suspect(STREAM, 0, epoch, kept),))

    def new_disk(self, broker: Broker) -> None:
        if self._may_lose(broker):
            broker.log, broker.disk, broker.starts = [], broker.disk + 1, 0
            self._register(broker, new_run=True)

    def _may_lose(self, broker: Broker) -> bool:
        """Without `unclean`, the last one who has everything keeps it: else there is no promise."""
        clean = {*self.partition.isr, *self.partition.eligible} - {broker.id}
        return self.unclean or bool(clean)

    def _register(
        self,
        broker: Broker,
        *,
        new_run: bool = False,
        suspects: tuple[Suspect, ...] = (),
        lost: tuple[ReplicaName, ...] = (),
    ) -> None:
        """What a new run knows of the metadata may be older than what the last one knew."""
        if new_run:
            broker.run, broker.starts, broker.leading = broker.run + 1, broker.starts + 1, 0
            broker.view = self.rng.randint(0, broker.view)
        if broker.quarantined and not lost:
            lost = (ReplicaName(STREAM, 0),)
        directory = identifier(100 * broker.id + broker.disk)
        said = registration.Registration(
            CLUSTER, broker.id, broker.member.incarnation, directory, LISTENERS, starts=broker.starts,
            suspects=suspects, lost=lost,
        )  # fmt: skip
        self.commit(registration.register(self.image, said, Sessions(), 0))

    def elect(self, _: Broker) -> None:
        changes = elections.elect(self.image)
        self.commit(ChangePartitions(changes) if changes else None)

    def report(self, _: Broker) -> None:
        """R14: the leader is replaced although nobody knows whether it is gone."""
        partition, stream = self.partition, self.image.streams[STREAM]
        next_leader = elections.successor(self.image, partition) if partition.leader is not None else None
        if next_leader is None:
            return
        rest = tuple(member for member in partition.isr if member != partition.leader)
        change = PartitionChange(STREAM, 0, leader=next_leader)
        if len(rest) >= stream.config.min_insync_effective:
            change = PartitionChange(STREAM, 0, leader=next_leader, isr=rest)
        self.commit(ChangePartitions((change,)))

    def set_minimum(self, _: Broker) -> None:
        config = self.image.streams[STREAM].config
        self.commit(
            AlterStream(STREAM, dataclasses.replace(config, min_insync_replicas=self.rng.randint(1, 3)))
        )

    def hand_over(self, broker: Broker) -> None:
        self.commit(upkeep.stop(self.image, broker.id, broker.member.incarnation))

    def move(self, _: Broker) -> None:
        copies = self.rng.choice((1, 2, 3, 3, 3, min(4, len(self.brokers))))
        target = self.rng.sample(range(len(self.brokers)), copies)
        try:
            if self.rng.random() < 0.3:
                self.commit(reassignment.cancel(self.image, STREAM, [0]))
            else:
                self.commit(reassignment.reassign(self.image, STREAM, {0: target}))
        except TidelogError:
            pass

    def unregister(self, broker: Broker) -> None:
        known = self.image.brokers.get(broker.id)
        if known is not None and known.fenced and self._may_lose(broker):
            self.commit(registration.unregister(self.image, broker.id, Sessions(), 0))

    # --- what must hold

    def check_promise(self) -> None:
        partition = self.partition
        for member in (*partition.isr, *partition.eligible):
            broker = self.brokers[member]
            known = self.image.brokers[member]
            if known.incarnation != broker.member.incarnation or broker.quarantined:
                continue  # it is gone, and will say at its registration what it has
            assert broker.log[: len(self.committed)] == self.committed, self.tell(member)

    def check_shape(self) -> None:
        partition = self.partition
        stream = self.image.streams[STREAM]
        assert partition.leader is None or partition.leader in partition.isr
        assert set(partition.isr) | set(partition.eligible) <= set(partition.replicas)
        assert not set(partition.isr) & set(partition.eligible)
        assert not partition.eligible or len(partition.isr) < stream.config.min_insync_effective

    def tell(self, member: int) -> str:
        logs = "\n".join(f"{broker.id}: {broker.log}" for broker in self.brokers)
        return "\n".join([*self.story[-40:], f"broker {member} lacks of {self.committed}:", logs])


def _common(one: list[Record], other: list[Record]) -> int:
    """Up to where two logs are the same."""
    for offset, (ours, theirs) in enumerate(zip(one, other, strict=False)):
        if ours != theirs:
            return offset
    return min(len(one), len(other))
