"""Whole brokers in one event loop: real files and sockets, asked through their own doors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import tidelog
from support.hosts import HOST
from tidelog.cli.local.waiting import holds_within_async
from tidelog_broker.assembly import Assembly
from tidelog_broker.clock import system_clock
from tidelog_broker.config.settings import Settings
from tidelog_broker.offline.formatting import format_solo
from tidelog_broker.platform import this_machine
from tidelog_broker.quorum.quorum_controller import QuorumController
from tidelog_broker.service import Service
from tidelog_broker.storage.files.os_files import OsFiles

CLUSTER = bytes(range(16))
WAIT_SECONDS = 15.0
LOOK_SECONDS = 0.01


class Node:
    """A broker, over its runs."""

    def __init__(self, brokers: Brokers, broker_id: int) -> None:
        self.id = broker_id
        self.data = brokers.folder / str(broker_id)
        self._brokers = brokers
        self._ports = (0, 0)
        """Of clients and of peers; kept over runs."""
        self.service: Service | None = None
        self.clock_off_us = 0
        """How wrong its machine's clock is."""

    async def start(self) -> None:
        client_port, peer_port = self._ports
        self.service = Service(
            Settings(
                data_dir=self.data,
                broker_id=self.id,
                listeners=[f"internal={HOST}:{client_port}"],
                http="",
                peer_listener=f"{HOST}:{peer_port}",
                seeds=self._brokers.seeds(),
                voters=self._brokers.voters,
                catch_up_bytes_per_second=self._brokers.catch_up_bytes_per_second,
                disk_reserve_bytes=0,
                deleted_delay_ms=0,
                sweep_interval_ms=100,
            ),
            this_machine(clock=lambda: system_clock() + self.clock_off_us),
        )
        await self.service.start()
        internal, peer = self.service.listeners
        self._ports = (internal.port, peer.port)

    def forget_ports(self) -> None:
        """A start that failed may hold its ports for a while yet; the next one takes others."""
        self._ports = (0, 0)

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def stop(self) -> None:
        service, self.service = self.service, None
        if service is not None:
            await service.stop()

    @property
    def address(self) -> str:
        return f"{HOST}:{self._ports[0]}"

    @property
    def peer_address(self) -> str | None:
        return f"{HOST}:{self._ports[1]}" if self._ports[1] else None

    @property
    def quorum(self) -> QuorumController:
        return self.assembly.controller

    @property
    def assembly(self) -> Assembly:
        assert self.service is not None
        return self.service.assembly


class Brokers:
    """A cluster of them."""

    def __init__(self, folder: Path, *, voters: int = 3, catch_up_bytes_per_second: int = 64 << 20) -> None:
        self.folder = folder
        self.voters = voters
        self.catch_up_bytes_per_second = catch_up_bytes_per_second
        self.nodes: list[Node] = []

    def __getitem__(self, number: int) -> Node:
        return self.nodes[number]

    def seeds(self) -> str:
        return ",".join(node.peer_address for node in self.nodes if node.peer_address)

    async def start(self, count: int) -> None:
        """So many more, one after the other."""
        for _ in range(count):
            node = Node(self, len(self.nodes))
            if not self.nodes:
                format_solo(
                    OsFiles(), str(node.data), cluster_id=CLUSTER, broker_id=node.id, directory_id=b"d" * 16
                )
            self.nodes.append(node)
            await node.start()
        wanted = min(self.voters, len(self.nodes) - (len(self.nodes) + 1) % 2)
        await self.eventually(lambda: {len(node.quorum.voters) for node in self.running} == {wanted})

    @property
    def running(self) -> list[Node]:
        return [node for node in self.nodes if node.service is not None]

    def client(self, *nodes: int) -> tidelog.Client:
        """Of the named brokers, or of all."""
        chosen = [self.nodes[node] for node in nodes] or self.running
        return tidelog.connect([node.address for node in chosen])

    async def stop(self) -> None:
        """All, the controller last, so that each has one to step aside to."""
        for node in sorted(self.running, key=lambda one: one.quorum.active is not None):
            await node.stop()

    async def eventually(self, condition: Callable[[], bool | Awaitable[bool]]) -> None:
        in_time = await holds_within_async(condition, WAIT_SECONDS, pause=LOOK_SECONDS)
        assert in_time, f"not within {WAIT_SECONDS:g} s: {[n.quorum for n in self.running]}"


@asynccontextmanager
async def started(
    folder: Path, count: int, *, catch_up_bytes_per_second: int = 64 << 20
) -> AsyncIterator[Brokers]:
    """So many brokers, for as long as somebody needs them."""
    made = Brokers(folder, catch_up_bytes_per_second=catch_up_bytes_per_second)
    try:
        await made.start(count)
        yield made
    finally:
        await made.stop()
