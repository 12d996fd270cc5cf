"""What belongs to an earlier role of a replica is passed over; a role begins when the last one is done."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from storage.batches import item, records
from tidelog.model import StreamConfig
from tidelog_broker.core.metadata.image import BrokerImage, ClusterImage, PartitionImage, StreamImage
from tidelog_broker.core.replication.effects import SendBatches
from tidelog_broker.core.replication.following import FollowerPartition
from tidelog_broker.core.replication.leading import LeaderPartition
from tidelog_broker.core.replication.messages import Batches, FromLeader, LeaderOffsets, Position
from tidelog_broker.peers.connection import PeerConnection
from tidelog_broker.peers.hello import ConnectionKind, Identity
from tidelog_broker.replication.feed import ReplicaFeed
from tidelog_broker.replication.links import ReplicaLinks
from tidelog_broker.replication.owner import Done
from tidelog_broker.replication.peers import Peers
from tidelog_broker.replication.replica import Replica
from tidelog_broker.replication.uplink import Uplink
from tidelog_broker.replication.wire import Address, encode
from tidelog_broker.storage.directory.opening import Wanted
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.storage.files.os_files import OsFiles
from tidelog_broker.storage.log.partition_log import PartitionLog
from tidelog_broker.storage.log.write_batch import LogConfig

STREAM = bytes([7]) * 16
KEY = (STREAM, 0)
ME, OTHER = 1, 2
NOTHING = memoryview(b"")


class HandHost:
    """The host and the owner of a replica: does a write when the test says so, and keeps what is said."""

    broker_id = ME
    unsure = False

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.writes: list[tuple[Callable[[], object], Done]] = []
        self.said: list[object] = []

    def is_this_run(self, incarnation: bytes) -> bool:
        return True

    def now_ms(self) -> int:
        return 1000

    def write(self, work: Callable[[], object], done: Done, size: int) -> None:
        self.writes.append((work, done))

    def finish_write(self) -> None:
        work, done = self.writes.pop(0)
        work()
        done(None)

    def receive(self, replica: Replica, batches: Any, leader_epoch: int) -> int:
        return self.log.writer.replicate(batches.data, leader_epoch=leader_epoch)

    def say(self, replica: Replica, leader: int, message: object) -> None:
        self.said.append(message)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments, **named: None


def make_log(folder: Path) -> PartitionLog:
    return LogStore(OsFiles(), str(folder)).opener.create(Wanted("orders", STREAM, 0, LogConfig()))


def image_of(leader: int, epoch: int) -> tuple[ClusterImage, StreamImage]:
    config = StreamConfig(replication_factor=2, min_insync_replicas=1)
    placed = PartitionImage((1, 2), (1, 2), leader=leader, leader_epoch=epoch, partition_epoch=epoch)
    stream = StreamImage("orders", STREAM, config, 1, 0, (placed,))
    brokers = {one: BrokerImage(one, b"run %d" % one, bytes(16)) for one in (1, 2)}
    return ClusterImage(brokers=brokers), stream


def a_replica(folder: Path, leader: int, epoch: int = 3) -> tuple[Replica, HandHost]:
    log = make_log(folder)
    host = HandHost(log)
    made = Replica("orders", KEY, log, cast(Any, host), cast(Any, host), fsync=True, high_watermark=0)
    made.imaged(*image_of(leader, epoch))
    return made, host


def a_batch(folder: Path, epoch: int = 3) -> bytes:
    """As a leader of the partition stores it."""
    log = make_log(folder)
    log.writer.append([item(records(2))], leader_epoch=epoch, now_us=1)
    chunk = log.reader.read(0, 1 << 20, log.end_offset)
    assert chunk is not None
    return b"".join(bytes(part) for part in chunk.parts)


def test_a_replica_does_not_lead_before_what_it_wrote_as_a_follower_is_written(tmp_path: Path) -> None:
    one, host = a_replica(tmp_path / "a", leader=OTHER)
    assert isinstance(one.role, FollowerPartition)
    one.leader_connected()
    one.received(Batches(3, 0, 0, 0, a_batch(tmp_path / "b")))
    assert len(host.writes) == 1, "they are on their way to the disk"

    one.imaged(*image_of(ME, 4))
    assert one.role is None, "its end is not known yet"
    host.finish_write()

    assert isinstance(one.role, LeaderPartition)
    assert one.role.epoch_start == 2, "what came from the leader before is below its own"


def test_a_replica_follows_another_leader_only_from_where_its_last_write_ended(tmp_path: Path) -> None:
    one, host = a_replica(tmp_path / "a", leader=OTHER)
    one.leader_connected()
    one.received(Batches(3, 0, 0, 0, a_batch(tmp_path / "b")))
    host.said.clear()

    one.imaged(*image_of(OTHER, 4))
    one.leader_connected()
    assert host.said == []
    host.finish_write()
    one.leader_connected()

    (position,) = host.said
    assert isinstance(position, Position)
    assert (position.leader_epoch, position.end_offset) == (4, 2)


# --- the two ends of a connection


class HandPeers:
    tls = None

    def identity(self) -> Identity:
        return Identity(ME, bytes(16), bytes(16), bytes(16), "", 0)

    def address(self, broker_id: int) -> None:
        return None

    def evidence(self, *arguments: object) -> None:
        pass


class Hearing:
    """A replica, as far as an uplink knows it."""

    key = KEY

    def __init__(self, role_number: int) -> None:
        self.role_number = role_number
        self.heard: list[FromLeader] = []

    def received(self, message: FromLeader) -> None:
        self.heard.append(message)

    def leader_connected(self) -> None:
        pass

    def leader_gone(self) -> None:
        pass


async def test_an_answer_for_an_earlier_role_is_passed_over() -> None:
    up = Uplink(OTHER, ConnectionKind.REPLICA, cast(Peers, HandPeers()), random.Random(1), lambda *said: None)
    replica = Hearing(role_number=8)
    up.add(cast(Replica, replica))
    message = LeaderOffsets(3, 5, 0)
    try:
        for number in (7, 9):
            up.received(cast(PeerConnection, None), encode(Address(*KEY, number), message), NOTHING)
        assert replica.heard == []

        up.received(cast(PeerConnection, None), encode(Address(*KEY, 8), message), NOTHING)
        assert replica.heard == [message]
    finally:
        await up.stop("the test ends")


class HandConnection:
    """Takes nothing until it is `writable`."""

    lane = ConnectionKind.REPLICA
    peer = Identity(OTHER, bytes(16), bytes(16), b"run 2", "", 0)

    def __init__(self) -> None:
        self.writable = False
        self.sent: list[bytes] = []

    def send(self, header: bytes, *payload: object) -> None:
        self.sent.append(header)


class HandLinks:
    """Has the leader answer every position with batches."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica

    def feed_opened(self, feed: ReplicaFeed, connection: object) -> None:
        pass

    def asked(self, feed: ReplicaFeed, key: object, peer: Identity, message: Position) -> None:
        feed.send_batches(self.replica, SendBatches(OTHER, message.end_offset, 2))


@pytest.mark.parametrize("what", ["nothing changes", "another leader", "another question"])
async def test_batches_go_to_the_question_and_from_the_leader_that_they_were_read_for(
    tmp_path: Path, what: str
) -> None:
    one, _ = a_replica(tmp_path, leader=ME)
    one.log.writer.append([item(records(2))], leader_epoch=3, now_us=1)
    links, connection = HandLinks(one), HandConnection()
    with ThreadPoolExecutor(1) as threads:
        feed = ReplicaFeed(cast(ReplicaLinks, links), threads)
        feed.opened(cast(PeerConnection, connection))
        position = encode(Address(*KEY, 8), Position(3, 0, None, 0, 0))
        feed.received(cast(PeerConnection, connection), position, NOTHING)
        if what == "another leader":
            one.imaged(*image_of(ME, 4))
        if what == "another question":
            feed._numbers[KEY] = 9

        connection.writable = True
        feed.go_on()
        await asyncio.sleep(0)

    assert len(connection.sent) == (what == "nothing changes")
