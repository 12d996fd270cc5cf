"""A Tidelog broker, formatted and run as users do it. `bench.ours.cluster` runs three as a cluster."""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import tidelog
from bench.harness.processes import Failed, Server, python, run
from tidelog.cli.local.waiting import holds_within_async
from tidelog.model import StreamDescription

T = TypeVar("T")

DURABILITIES = {True: "fsync", False: "page-cache"}
IN_SYNC_SECONDS_MAX = 60.0


class Endpoint(ABC):
    """Makes streams: one broker, or several as one cluster."""

    replicas = 1
    """Copies of each stream that is made here."""

    @property
    @abstractmethod
    def address(self) -> str:
        """host:port of all brokers, comma-separated."""

    @property
    @abstractmethod
    def pids(self) -> list[int]:
        """The process ids of the brokers."""

    def create(self, stream: str, *, fsync: bool, subject: str | None = None, partitions: int = 1) -> None:
        """Makes a stream and waits until all its copies are in sync; with a subject, until it is recorded."""

        async def create(client: tidelog.Client) -> None:
            await client.create_stream(
                stream,
                partitions=partitions,
                durability=DURABILITIES[fsync],
                subject=subject,
                replication_factor=self.replicas,
            )
            await in_sync(client, stream, self.replicas)

        self.ask(create)

    def delete(self, stream: str) -> None:
        async def delete(client: tidelog.Client) -> None:
            await client.delete_stream(stream)

        self.ask(delete)

    def ask(self, work: Callable[[tidelog.Client], Awaitable[T]]) -> T:
        """The result of `work`, which gets a client of its own."""

        async def connected() -> T:
            async with tidelog.connect(self.address.split(",")) as client:
                return await work(client)

        return asyncio.run(connected())


class Broker(Server, Endpoint):
    """`tidelog-broker run` on a new data directory."""

    def __init__(self, folder: Path, *, nats: str = "", more: Sequence[str] = (), first: bool = True) -> None:
        """`more`: further flags; `first`: this broker is the one that formats its cluster."""
        super().__init__("tidelog", folder)
        self._nats = nats
        self._more = more
        self._first = first
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pids(self) -> list[int]:
        return [self.pid]

    @property
    def http_address(self) -> str:
        """host:port that serves /metrics."""
        found = re.search(r"serving HTTP\s+address=127\.0\.0\.1:(\d+)", self.log())
        assert found is not None, "the broker logs it before it listens"
        return f"127.0.0.1:{found[1]}"

    def start(self) -> None:
        """Starts it, on the port of the last start if there was one, and waits until it is ready."""
        self.begin()
        self.wait_ready()

    def begin(self) -> None:
        """Starts it and does not wait; `wait_ready` does."""
        data = self.folder / "data"
        if self._first and not data.exists():
            run(python("tidelog_broker", "format", "--data-dir", data))
        nats = ("--nats", self._nats) if self._nats else ()
        # The system chooses ports; a deleted stream frees its space at once.
        self.spawn(
            python(
                "tidelog_broker", "run", "--data-dir", data, "--listener", f"internal={self.address}",
                "--http", "127.0.0.1:0", "--deleted-delay-ms", 0, *nats, *self._more,
            ),
            self._listening,
        )  # fmt: skip

    def _listening(self) -> bool:
        found = re.search(r"listening\s+address=127\.0\.0\.1:(\d+)", self.log())
        if found:
            self.port = int(found[1])
        return found is not None


async def in_sync(client: tidelog.Client, stream: str, replicas: int) -> StreamDescription:
    """Waits until each partition has a leader and `replicas` in-sync replicas; raises `Failed`."""
    found: StreamDescription | None = None

    async def is_in_sync() -> bool:
        nonlocal found
        found = await client.describe_stream(stream)
        return all(one.leader is not None and len(one.isr) == replicas for one in found.partitions)

    in_time = await holds_within_async(is_in_sync, IN_SYNC_SECONDS_MAX)
    assert found is not None, "it was described at least once"
    if not in_time:
        raise Failed(f"{stream} is not in sync within {IN_SYNC_SECONDS_MAX:g} s: {found.partitions}")
    return found
