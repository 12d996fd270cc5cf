"""Whatever is asked for in whatever order: the image keeps its invariants, and is the same for everybody."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import pytest
from msgspec.structs import replace

from metadata.samples import CLUSTER, LISTENERS, applied, identifier
from tidelog.errors import TidelogError
from tidelog.model import AclRule, Operation, Resource, StreamSettings
from tidelog_broker.core.metadata.apply import apply, share_of
from tidelog_broker.core.metadata.commands import (
    FEATURE_LEVEL,
    ChangeBroker,
    ChangePartitions,
    Command,
    FormatCluster,
    ReplicaName,
    Suspect,
    decode_command,
    encode_command,
)
from tidelog_broker.core.metadata.controller import registration, upkeep
from tidelog_broker.core.metadata.controller.deprioritized import DeprioritizedLeaders
from tidelog_broker.core.metadata.controller.handovers import Handovers
from tidelog_broker.core.metadata.controller.liveness import Sessions
from tidelog_broker.core.metadata.controller.registration import Registration
from tidelog_broker.core.metadata.controller.reports import Evidence, FailureReports
from tidelog_broker.core.metadata.controller.upkeep import Upkeep
from tidelog_broker.core.metadata.decisions import access, elections, isr_changes, reassignment
from tidelog_broker.core.metadata.decisions import streams as decide
from tidelog_broker.core.metadata.decisions.isr_changes import IsrProposal, Member
from tidelog_broker.core.metadata.image import ClusterImage, PartitionImage, StreamImage
from tidelog_broker.core.metadata.snapshot import decode_image, encode_image

BROKERS = 5
STEPS = 250


class Requests:
    """Random requests to a controller, most of them sensible, made on the image of now."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.image = applied(ClusterImage(), [FormatCluster(CLUSTER, FEATURE_LEVEL)])
        self.now = 0
        self.upkeep = Upkeep(Sessions(), FailureReports(), DeprioritizedLeaders(), Handovers())
        self.runs = dict.fromkeys(range(BROKERS), 1)
        self.disks = {broker: 100 * (broker + 1) for broker in range(BROKERS)}
        self.streams = 0

    def next(self) -> Command | None:
        choices: Mapping[Callable[[], Command | None], float] = {
            self.register: 3, self.create: 2, self.alter: 2, self.delete: 0.3, self.propose: 12, self.lose: 1,
            self.fence: 1, self.stop: 1, self.cordon: 1, self.move: 2, self.cancel: 1, self.drain: 0.3,
            self.unregister: 0.3, self.unclean: 0.5, self.preferred: 1, self.keep_up: 12, self.change_acl: 1,
            self.token: 1,
        }  # fmt: skip
        request = self.rng.choices(list(choices), list(choices.values()))[0]
        try:
            return request()
        except TidelogError:
            return None

    def broker(self) -> int:
        return self.rng.randrange(BROKERS)

    def stream(self) -> StreamImage | None:
        streams = sorted(self.image.streams.values(), key=lambda stream: stream.id)
        return self.rng.choice(streams) if streams else None

    def partition(self) -> tuple[StreamImage, int, PartitionImage] | None:
        stream = self.stream()
        if stream is None:
            return None
        number = self.rng.randrange(len(stream.partitions))
        return stream, number, stream.partitions[number]

    def register(self) -> Command | None:
        broker = self.broker()
        self.runs[broker] += self.rng.randint(0, 1)
        if self.rng.random() < 0.2:
            self.disks[broker] += 1
        suspects, lost = [], []
        for stream in self.image.streams.values():
            for number, partition in enumerate(stream.partitions):
                kind = self.rng.random()
                if broker in partition.replicas and kind < 0.1:
                    end = self.rng.randrange(100)
                    which = partition.assignment_of(broker)
                    suspects.append(Suspect(stream.id, number, self.rng.randrange(4), end, which))
                elif broker in partition.replicas and kind < 0.15:
                    lost.append(ReplicaName(stream.id, number, partition.assignment_of(broker)))
        said = Registration(
            CLUSTER, broker, identifier(1000 * broker + self.runs[broker]), identifier(self.disks[broker]),
            LISTENERS, rack="ab"[broker % 2], starts=self.runs[broker], suspects=tuple(suspects),
            lost=tuple(lost),
        )  # fmt: skip
        return registration.register(self.image, said, self.upkeep.sessions, self.now)

    def create(self) -> Command | None:
        self.streams += 1
        asked = StreamSettings(
            partitions=self.rng.randint(1, 3),
            replication_factor=self.rng.choice([None, 1, 2, 3]),
            min_insync_replicas=self.rng.choice([None, 1, 2, 3]),
        )
        name, stream_id = f"stream-{self.streams % 6}", identifier(self.streams)
        return decide.create_stream(self.image, name, asked, stream_id=stream_id, created_us=self.now)

    def alter(self) -> Command | None:
        stream = self.stream()
        if stream is None:
            return None
        grown = min(len(stream.partitions) + self.rng.randint(0, 1), 4)
        asked = StreamSettings(partitions=grown, min_insync_replicas=self.rng.randint(1, 3))
        return decide.alter_stream(self.image, stream.name, asked)

    def delete(self) -> Command | None:
        stream = self.stream()
        return decide.delete_stream(self.image, stream.name) if stream is not None else None

    def propose(self) -> Command | None:
        """Several at once, some of them for the same partition, some out of date."""
        proposals = []
        for _ in range(self.rng.randint(1, 3)):
            found = self.partition()
            if found is None or found[2].leader is None:
                continue
            stream, number, partition = found
            members = [
                Member(broker, identifier(1000 * broker + self.runs[broker]), partition.assignment_of(broker))
                for broker in partition.replicas
                if broker == partition.leader or self.rng.random() < 0.8
            ]
            leader = next(member for member in members if member.broker == partition.leader)
            epoch = partition.partition_epoch - (self.rng.random() < 0.1)
            proposals.append(
                IsrProposal(leader, stream.id, number, partition.leader_epoch, epoch, tuple(members))
            )
        return isr_changes.change_isr(self.image, proposals)[0]

    def lose(self) -> Command | None:
        found, broker = self.partition(), self.broker()
        if found is None:
            return None
        name = ReplicaName(found[0].id, found[1], found[2].assignment_of(broker))
        return registration.lose(self.image, broker, identifier(1000 * broker + self.runs[broker]), (name,))

    def fence(self) -> Command | None:
        broker = self.broker()
        return upkeep.fence(self.image, broker) if broker in self.image.brokers else None

    def change_acl(self) -> Command | None:
        rules = [
            AclRule(
                principal=f"user:{self.rng.choice('abc')}",
                operation=self.rng.choice([Operation.PRODUCE, Operation.CONSUME]),
                resource=Resource.STREAM,
                name=f"stream-{self.rng.randrange(3)}",
                deny=self.rng.random() < 0.2,
            )
            for _ in range(self.rng.randint(1, 3))
        ]
        at = self.rng.randint(0, len(rules))
        return access.change_acl(self.image, rules[:at], rules[at:])

    def token(self) -> Command | None:
        tokens = sorted(token.id for token in self.image.tokens.values())
        if tokens and self.rng.random() < 0.4:
            return access.remove_token(self.image, self.rng.choice(tokens))
        return access.add_token(
            self.image, self.rng.randbytes(32), principal=f"user:{self.rng.choice('abc')}", now_us=self.now
        )

    def stop(self) -> Command | None:
        broker = self.broker()
        return upkeep.stop(self.image, broker, identifier(1000 * broker + self.runs[broker]))

    def cordon(self) -> ChangeBroker | None:
        return reassignment.cordon(self.image, self.broker(), self.rng.random() < 0.5)

    def move(self) -> Command | None:
        found = self.partition()
        if found is None:
            return None
        same = self.rng.random() < 0.8
        copies = len(found[0].partitions[found[1]].target) if same else self.rng.randint(1, BROKERS)
        target = self.rng.sample(range(BROKERS), copies)
        return reassignment.reassign(self.image, found[0].id, {found[1]: target})

    def cancel(self) -> Command | None:
        found = self.partition()
        return reassignment.cancel(self.image, found[0].id, [found[1]]) if found else None

    def drain(self) -> Command | None:
        return reassignment.drain(self.image, self.broker(), moves_max=3)

    def unregister(self) -> Command | None:
        return registration.unregister(self.image, self.broker(), self.upkeep.sessions, self.now)

    def unclean(self) -> Command | None:
        found = self.partition()
        if found is None:
            return None
        return elections.elect_unclean(self.image, found[0].id, found[1], self.broker())

    def preferred(self) -> Command | None:
        changes = elections.preferred(self.image, changes_max=5)
        return ChangePartitions(changes) if changes else None

    def keep_up(self) -> Command | None:
        self.now += self.rng.choice([20, 100, 400])
        for broker, run in self.runs.items():
            if self.rng.random() < 0.7:
                self.upkeep.sessions.heard(self.image, broker, identifier(1000 * broker + run), self.now)
        reporter, reported = self.broker(), self.broker()
        self.upkeep.reports.report(
            self.image,
            reporter=reporter,
            reporter_run=identifier(1000 * reporter + self.runs[reporter]),
            reported=reported,
            reported_run=identifier(1000 * reported + self.runs[reported]),
            evidence=self.rng.choice(list(Evidence)),
            now_ms=self.now,
        )
        return self.upkeep.next_command(self.image, self.now)


def check(before: ClusterImage, image: ClusterImage) -> None:
    assert dict(image.names) == {stream.name: stream.id for stream in image.streams.values()}
    assert image.shares == share_of(image.streams.values())
    assert image.partition_count == sum(len(stream.partitions) for stream in image.streams.values())
    assert list(image.brokers) == sorted(image.brokers)
    for stream in image.streams.values():
        for number, partition in enumerate(stream.partitions):
            check_partition(image, stream, partition)
            old = before.partition(stream.id, number)
            # A minimum that is lowered ends eligibility, and changes nothing that a leader proposes on.
            if old is not None and replace(old, eligible=partition.eligible) != partition:
                assert partition.partition_epoch > old.partition_epoch
                assert partition.leader_epoch >= old.leader_epoch
                if partition.leader not in (None, old.leader):
                    assert partition.leader_epoch > old.leader_epoch


def check_partition(image: ClusterImage, stream: StreamImage, partition: PartitionImage) -> None:
    replicas = set(partition.replicas)
    assert len(replicas) == len(partition.replicas)
    factor = stream.config.replication_factor
    assert factor == min(min(len(one.target), len(one.origin)) for one in stream.partitions)
    assert partition.leader is None or partition.leader in partition.isr
    assert set(partition.isr) <= replicas
    assert set(partition.eligible) <= replicas - set(partition.isr)
    assert not partition.eligible or len(partition.isr) < stream.config.min_insync_effective
    assert {known.broker for known in partition.last_known} <= replicas - {partition.leader}
    for member in partition.isr:
        assert member in image.brokers, "unregistered, and in the ISR"
        assert not image.brokers[member].fenced, "fenced, and in the ISR"
    assert {*partition.adding, *partition.removing} <= replicas


@pytest.mark.parametrize("seed", range(25))
def test_whatever_is_asked_for_the_image_keeps_its_invariants(seed: int) -> None:
    requests = Requests(seed)
    replica = requests.image
    for _ in range(STEPS):
        command = requests.next()
        if command is None:
            continue
        payload = encode_command(command)
        assert decode_command(payload) == command
        before = requests.image
        requests.image = apply(before, command, before.version + 1)
        replica = apply(replica, decode_command(payload), replica.version + 1)
        check(before, requests.image)

    assert replica == requests.image
    assert encode_image(replica) == encode_image(requests.image)
    assert decode_image(encode_image(replica)) == replica


def test_random_requests_reach_what_is_rare() -> None:
    seen = dict.fromkeys(["eligible", "last known", "unclean", "moving", "fenced", "nobody"], 0)
    for seed in range(10):
        requests = Requests(seed)
        for _ in range(STEPS):
            command = requests.next()
            if command is None:
                continue
            requests.image = applied(requests.image, [command])
            seen["fenced"] += any(broker.fenced for broker in requests.image.brokers.values())
            for stream in requests.image.streams.values():
                for partition in stream.partitions:
                    seen["eligible"] += bool(partition.eligible)
                    seen["last known"] += bool(partition.last_known)
                    seen["unclean"] += partition.unclean
                    seen["moving"] += partition.reassigning
                    seen["nobody"] += partition.leader is None

    assert all(count > 20 for count in seen.values()), seen
