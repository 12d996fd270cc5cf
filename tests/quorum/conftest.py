"""Metadata quorums in one event loop: real controllers, real sockets, disks in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import uvloop

from simulator.disk import FakeDisk
from support.hosts import HOST
from support.quorum_host import RecordingHost
from support.waiting import seconds_until
from tidelog.model import Listener, StreamSettings
from tidelog_broker.core.metadata.commands import Command
from tidelog_broker.core.metadata.controller.registration import Registration
from tidelog_broker.core.metadata.decisions import streams as decide
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.offline.formatting import format_joiner, format_solo
from tidelog_broker.quorum.controller import Decision
from tidelog_broker.quorum.opening import open_quorum_controller
from tidelog_broker.quorum.options import QuorumOptions
from tidelog_broker.quorum.quorum_controller import QuorumController
from tidelog_broker.quorum.transport import PEER_LISTENER
from tidelog_broker.storage.directory.data_directory import DataDirectory

CLUSTER = b"c" * 16
WAIT_SECONDS = 15.0


def identifier(number: int) -> bytes:
    return number.to_bytes(16, "big")


class Broker:
    """The metadata part of a broker on a disk in memory; it can be killed and started again."""

    def __init__(self, cluster: Cluster, broker_id: int, *, disk_number: int = 1) -> None:
        self.cluster = cluster
        self.id = broker_id
        self.directory_id = identifier(100 * (broker_id + 1) + disk_number)
        self.disk = FakeDisk()
        self.port = 0
        self.host = RecordingHost()
        self.running = False

    def format(self) -> None:
        format_solo(self.disk, "/data", cluster_id=CLUSTER, broker_id=self.id, directory_id=self.directory_id)

    def format_to_join(self) -> None:
        format_joiner(
            self.disk, "/data", cluster_id=CLUSTER, broker_id=self.id, directory_id=self.directory_id
        )

    def become(self, broker_id: int, cluster_id: bytes) -> None:
        """On another disk, which is formatted to join."""
        self.id, self.disk, self.directory_id = broker_id, FakeDisk(), b"d" * 16
        format_joiner(
            self.disk, "/data", cluster_id=cluster_id, broker_id=broker_id, directory_id=self.directory_id
        )

    async def launch(self, *, snapshot_entries: int = 10_000) -> QuorumController:
        """Takes part, and does not wait for anybody."""
        self.threads = ThreadPoolExecutor(1)
        self.directory = DataDirectory.open(
            self.disk, "/data", reserve_bytes=0, read_boot_id=lambda: "", lock=lambda path: lambda: None
        )
        self.controller = open_quorum_controller(
            self.directory,
            self.threads,
            self.host,
            options=QuorumOptions(
                voters_wanted=self.cluster.voters_wanted,
                seeds=self.cluster.addresses(),
                snapshot_entries=snapshot_entries,
                formed=self.cluster.formed,
            ),
        )
        _, self.port = await self.controller.listen(HOST, self.port, {}, (HOST, None))
        self.running = True
        return self.controller

    async def join(self) -> None:
        """Waits for the image, and registers this run."""
        async with asyncio.timeout(WAIT_SECONDS):
            await self.controller.start()
            await self.controller.register(
                Registration(
                    CLUSTER,
                    self.id,
                    self.controller.incarnation,
                    self.directory_id,
                    (Listener(PEER_LISTENER, HOST, self.port),),
                    starts=self.directory.record_start(),
                )
            )

    async def start(self, *, snapshot_entries: int = 10_000) -> QuorumController:
        await self.launch(snapshot_entries=snapshot_entries)
        await self.join()
        return self.controller

    async def stop(self) -> None:
        if self.running:
            self.running = False
            await self.controller.close()
            self.threads.shutdown()

    async def kill(self) -> None:
        """Ends as a process does that is killed: nothing is handed over, and its port refuses."""
        self.running = False
        self.disk, old = self.disk.crash(), self.disk
        assert old is not self.disk, "what this run still writes is not seen by the next"
        await self.controller.connections.stop("killed")
        await self.controller.close()
        self.threads.shutdown()


class Cluster:
    """Brokers that know each other's addresses."""

    def __init__(self, *, voters_wanted: int = 3, formed: bool = True) -> None:
        self.voters_wanted = voters_wanted
        self.formed = formed
        """As those are told that begin."""
        self.brokers: list[Broker] = []

    def addresses(self) -> tuple[tuple[str, int], ...]:
        return tuple((HOST, broker.port) for broker in self.brokers if broker.port)

    def add(self, *, disk_number: int = 1) -> Broker:
        broker = Broker(self, len(self.brokers), disk_number=disk_number)
        if self.brokers:
            broker.format_to_join()
        else:
            broker.format()
        self.brokers.append(broker)
        return broker

    async def grow(self, count: int) -> None:
        """Starts so many new brokers, one after the other."""
        for _ in range(count):
            await self.add().start()

    async def quorum(self, count: int = 3) -> None:
        """Brokers that all vote."""
        await self.grow(count)
        await self.eventually(lambda: all(len(one.controller.voters) == count for one in self.running))

    @property
    def running(self) -> list[Broker]:
        return [broker for broker in self.brokers if broker.running]

    @property
    def controller(self) -> Broker | None:
        return next((one for one in self.running if one.controller.active is not None), None)

    async def elected(self) -> Broker:
        await self.eventually(lambda: self.controller is not None)
        assert self.controller is not None
        return self.controller

    async def eventually(self, condition: Callable[[], bool], seconds: float = WAIT_SECONDS) -> float:
        """Waits for a condition; how long it took."""
        return await seconds_until(condition, lambda: str([one.controller for one in self.running]), seconds)

    async def stop(self) -> None:
        for broker in self.brokers:
            await broker.stop()


def create(name: str, settings: StreamSettings | None = None) -> Decision:
    stream_id = name.encode().rjust(16, b"\0")

    def decision(image: ClusterImage) -> Command | None:
        wish = settings or StreamSettings(replication_factor=1)
        return decide.create_stream(image, name, wish, stream_id=stream_id, created_us=1)

    return decision


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """As brokers run."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    one = Cluster()
    yield one
    await one.stop()
