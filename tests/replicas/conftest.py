"""Several brokers in one event loop: real files, real sockets, and a controller that the test scripts."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop
from structlog.testing import capture_logs

from storage.batches import item
from support.hosts import HOST
from support.waiting import until
from tidelog.errors import TidelogError, Unavailable
from tidelog.model import StreamConfig
from tidelog_broker.core.metadata.commands import FEATURE_LEVEL, ReplicaName, Suspect
from tidelog_broker.core.metadata.decisions.isr_changes import IsrProposal
from tidelog_broker.core.metadata.image import BrokerImage, ClusterImage, PartitionImage, StreamImage
from tidelog_broker.core.replication.leading import LeaderPartition
from tidelog_broker.hosting.broker import Broker
from tidelog_broker.hosting.broker_limits import BrokerLimits
from tidelog_broker.membership.cluster_clock import ClusterClock
from tidelog_broker.peers.hello import Hello, Identity
from tidelog_broker.peers.listener import PeerListener
from tidelog_broker.peers.watch import Evidence
from tidelog_broker.replication.links import ReplicaLinks
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.storage.files.os_files import OsFiles
from tidelog_broker.storage.log.write_batch import Appended
from tidelog_broker.upkeep.maintenance import MaintenanceLimits
from tidelog_broker.writing.append_requests import Acks, BatchAppend
from tidelog_broker.writing.partition import Partition

CLUSTER = bytes(range(16))
STREAM = bytes([7]) * 16
BROKERS = (1, 2, 3)

_runs = count(1)


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Brokers run on uvloop."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with capture_logs():
        yield


class ScriptedController:
    """The metadata as the test says it is; what leaders propose takes effect unless it is held back."""

    leader = 1
    voters = BROKERS

    def __init__(self) -> None:
        self.image = ClusterImage(cluster_id=CLUSTER, version=1, feature_level=FEATURE_LEVEL)
        self._watchers: list[tuple[int, Callable[[ClusterImage, ClusterImage], None]]] = []
        self.starting = 0
        """The broker that begins to watch."""
        self._behind: dict[int, ClusterImage] = {}
        """Brokers that hear nothing, and what they saw last."""
        self.proposals: list[IsrProposal] = []
        self.unreachable = False
        """What is proposed is lost."""
        self.knows_the_time = True
        """It tells a broker that starts the cluster's clock (R18)."""

    def watch(self, watcher: Callable[[ClusterImage, ClusterImage], None]) -> Callable[[], None]:
        watching = (self.starting, watcher)
        self._watchers.append(watching)
        return lambda: self._watchers.remove(watching)

    def publish(self, **changes: Any) -> None:
        before = self.image
        self.image = msgspec.structs.replace(before, version=before.version + 1, **changes)
        for broker, watcher in list(self._watchers):
            if broker not in self._behind:
                watcher(before, self.image)

    def hold(self, broker: int) -> None:
        """From now on a broker hears nothing of the metadata."""
        self._behind[broker] = self.image

    def release(self, broker: int) -> None:
        """It hears of everything since, at once."""
        before = self._behind.pop(broker)
        for watching, watcher in list(self._watchers):
            if watching == broker:
                watcher(before, self.image)

    def register(self, broker: int, incarnation: bytes) -> None:
        """A new run leads nothing that its predecessor led (R10)."""
        brokers = {**self.image.brokers, broker: BrokerImage(broker, incarnation, bytes([broker]) * 16)}
        streams = self.image.streams
        for key, stream in list(streams.items()):
            partitions = tuple(
                msgspec.structs.replace(one, leader=None, partition_epoch=one.partition_epoch + 1)
                if one.leader == broker
                else one
                for one in stream.partitions
            )
            streams = streams.set(key, msgspec.structs.replace(stream, partitions=partitions))
        self.publish(brokers=brokers, streams=streams)

    def create(self, *, partitions: int = 1, replicas: Sequence[int] = BROKERS, **config: Any) -> None:
        settings = StreamConfig(
            partitions=partitions, replication_factor=len(replicas), min_insync_replicas=2, **config
        )
        placed = PartitionImage(
            tuple(replicas), tuple(replicas), leader=replicas[0], leader_epoch=1, partition_epoch=1
        )
        stream = StreamImage("orders", STREAM, settings, self.image.version + 1, 0, (placed,) * partitions)
        self.publish(streams=self.image.streams.set(STREAM, stream))

    def configure(self, **config: Any) -> None:
        """The stream's settings change."""
        stream = self.image.streams[STREAM]
        after = msgspec.structs.replace(stream, config=dataclasses.replace(stream.config, **config))
        self.publish(streams=self.image.streams.set(STREAM, after))

    def change(self, number: int = 0, **changes: Any) -> None:
        """A change of one partition; a leader that is named leads in a new epoch."""
        stream = self.image.streams[STREAM]
        before = stream.partitions[number]
        changes["partition_epoch"] = before.partition_epoch + 1
        if changes.get("leader") is not None:
            changes["leader_epoch"] = before.leader_epoch + 1
        if "replicas" in changes:
            # As `apply` gives them (R16).
            changes["assignments"] = tuple(
                before.assignment_of(one) if one in before.replicas else changes["partition_epoch"]
                for one in changes["replicas"]
            )
        partitions = list(stream.partitions)
        partitions[number] = msgspec.structs.replace(before, **changes)
        after = msgspec.structs.replace(stream, partitions=tuple(partitions))
        self.publish(streams=self.image.streams.set(STREAM, after))

    def placed(self, number: int = 0) -> PartitionImage:
        return self.image.streams[STREAM].partitions[number]

    async def newest(self) -> ClusterImage:
        if self.unreachable:
            raise Unavailable("nobody is the controller")
        return self.image

    def propose(self, proposals: Sequence[IsrProposal]) -> None:
        for proposal in proposals:
            self.proposals.append(proposal)
            placed = self.placed(proposal.partition)
            seen = (proposal.leader_epoch, proposal.partition_epoch)
            if not self.unreachable and seen == (placed.leader_epoch, placed.partition_epoch):
                known = all(placed.assignment_of(one.broker) == one.assignment for one in proposal.isr)
                assert known, "a leader proposes the replicas of its image (R16)"
                isr = tuple(member.broker for member in proposal.isr)
                self.change(proposal.partition, isr=tuple(b for b in placed.replicas if b in isr))


class Node:
    """A broker, over runs of it; what it needs of its peers (`replication.peers`)."""

    tls = None

    def __init__(self, number: int, folder: Path, cluster: Cluster) -> None:
        self.id = number
        self.folder = folder / str(number)
        self.folder.mkdir()
        self._cluster = cluster
        self.known_evidence: dict[int, Evidence | None] = {}
        self.lost: list[tuple[bytes, int, str]] = []
        self.suspects: tuple[Suspect, ...] = ()
        """What its last start told of, and of which replicas it said that they are lost."""
        self.lost_replicas: tuple[ReplicaName, ...] = ()
        self.port = 0
        self.cut: set[int] = set()
        """Brokers that it cannot dial."""
        self.running = False
        self.broker: Broker
        self.links: ReplicaLinks

    def identity(self) -> Identity:
        return Identity(self.id, CLUSTER, bytes([self.id]) * 16, self.incarnation, HOST, self.port)

    def address(self, broker_id: int) -> tuple[str, int] | None:
        other = self._cluster.nodes[broker_id]
        return None if broker_id in self.cut or not other.port else (HOST, other.port)

    def evidence(self, broker_id: int, run: bytes, evidence: Evidence | None) -> None:
        self.known_evidence[broker_id] = evidence

    def refuses(self, broker_id: int) -> bool:
        return self.known_evidence.get(broker_id) is Evidence.REFUSED

    def propose_isr(self, proposals: Sequence[IsrProposal]) -> None:
        self._cluster.controller.propose(proposals)

    def feature_level(self) -> int:
        return self._cluster.controller.image.feature_level

    def replica_lost(self, stream_id: bytes, partition: int, assignment: int, reason: str) -> None:
        self.lost.append((stream_id, partition, reason))

    # --- its life

    async def start(self, *, same_boot: bool = True) -> None:
        self.incarnation = next(_runs).to_bytes(16, "big")
        self._cluster.controller.starting = self.id
        clock = ClusterClock()
        if self._cluster.controller.knows_the_time:
            clock.heard(clock.wall(), clock.elapsed())
        self.broker = Broker(
            self.id,
            LogStore(OsFiles(), str(self.folder)),
            self._cluster.controller,  # type: ignore[arg-type]
            clock,
            BrokerLimits(
                maintenance=MaintenanceLimits(checkpoint_interval=0.1, sweep_interval=0.1, deleted_delay=0.0),
                catch_up_bytes_per_second=self._cluster.catch_up_rate,
                scrub_bytes_per_second=self._cluster.scrub_rate,
                scrub_interval=0.1,
            ),
            random.Random(self.id),
            incarnation=self.incarnation,
            peers=self,
        )
        assert self.broker.links is not None
        self.links = self.broker.links
        self.listener = PeerListener(self.identity, self._accept)
        await self.listener.start(HOST, self.port)
        self.port = self.listener.port
        await self.broker.open_logs(same_boot=same_boot)
        self.suspects, self.lost_replicas = self.broker.suspects(), self.broker.lost_replicas()
        self._cluster.controller.register(self.id, self.incarnation)
        self.broker.start()
        self.running = True

    def _accept(self, hello: Hello) -> Any:
        return self.links.accept(hello)

    async def stop(self) -> None:
        self.running = False
        # Followers fetch what is in flight until the last moment.
        await self.broker.stop()
        await self.listener.stop("the broker stops")

    async def kill(self) -> None:
        """It ends without a flush, a checkpoint or a word; what it had not flushed stays as it is."""
        self.running = False
        broker = self.broker
        for partition in broker.partitions.values():
            partition.replica.end_role()
            partition.replica.removed = True
        await self.listener.stop("killed")
        broker._host.stop()
        await self.links.stop("killed")
        await broker._upkeep.stop_repairs()
        await broker._follower.stop()
        await broker._upkeep.stop_maintenance()
        broker._threads.shutdown(wait=True)
        broker._store.files.close()
        for other in self._cluster.nodes.values():
            if other.running:
                other.links.refused(self.id)

    def partition(self, number: int = 0) -> Partition:
        return self.broker.partitions[STREAM, number]

    def append(
        self, *values: bytes, number: int = 0, acks: Acks = Acks.ALL, **named: Any
    ) -> asyncio.Future[Appended | TidelogError]:
        """Appends a batch as a producer; what it is told."""
        told: asyncio.Future[Appended | TidelogError] = asyncio.get_running_loop().create_future()

        def done(outcome: Appended | TidelogError) -> None:
            if not told.done():
                told.set_result(outcome)

        partition = self.broker.leading(STREAM, number)
        append = BatchAppend(item(values, **named), done, acks, self.broker.deadline(None))
        self.broker.append(partition, append)
        return told

    def data(self, number: int = 0) -> bytes:
        """All of a log, as it lies."""
        log = self.partition(number).log
        offset, parts = log.start_offset, []
        while (chunk := log.reader.read(offset, 1 << 20, log.end_offset)) is not None:
            parts += [bytes(part) for part in chunk.parts]
            offset = chunk.next_offset
        return b"".join(parts)


class Cluster:
    """Three brokers and a controller."""

    def __init__(self, folder: Path) -> None:
        self.controller = ScriptedController()
        self.catch_up_rate = 64 << 20
        self.scrub_rate = 0
        """0: nobody looks for rot."""
        self.nodes = {number: Node(number, folder, self) for number in BROKERS}

    def __getitem__(self, number: int) -> Node:
        return self.nodes[number]

    async def start(self, *numbers: int) -> None:
        for number in numbers or BROKERS:
            await self.nodes[number].start()

    async def create(self, **wanted: Any) -> None:
        """A stream whose replicas are all there and whose leaders lead."""
        self.controller.create(**wanted)
        for number, placed in enumerate(self.controller.image.streams[STREAM].partitions):
            for broker in placed.replicas:
                there = self.nodes[broker].broker.partitions
                await until(lambda there=there, number=number: (STREAM, number) in there, "a replica")  # type: ignore[misc]
            assert placed.leader is not None
            leading = self.nodes[placed.leader].partition(number)
            await until(lambda leading=leading: self._all_follow(leading), "a leader that all follow")  # type: ignore[misc]

    @staticmethod
    def _all_follow(partition: Partition) -> bool:
        role, placed = partition.replica.role, partition.replica.placed
        return (
            isinstance(role, LeaderPartition)
            and set(placed.isr) == set(placed.replicas)
            and all(one.matching for one in role.followers.values())
        )

    async def become_equal(self, number: int = 0, seconds: float = 10) -> None:
        """Until the logs are equal, and everybody knows that all of them is committed."""

        def equal() -> bool:
            found = [node.partition(number) for node in self.nodes.values()]
            return len({end for one in found for end in (one.log.end_offset, one.high_watermark)}) == 1

        await until(equal, f"equal logs of partition {number}", seconds)
        assert len({node.data(number) for node in self.nodes.values()}) == 1


async def appended(told: asyncio.Future[Appended | TidelogError]) -> Appended:
    """Where a batch stands that must not be refused."""
    outcome = await asyncio.wait_for(told, 10)
    assert isinstance(outcome, Appended), outcome
    return outcome


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    for node in made.nodes.values():
        if node.running:
            await node.stop()
