"""A Tidelog broker, formatted and run as users do it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import tidelog
from bench.processes import Server, python, run

T = TypeVar("T")

DURABILITIES = {True: "fsync", False: "page-cache"}


class Broker(Server):
    """`tidelog-broker run` on a new data directory."""

    def __init__(self, folder: Path, *, nats: str = "") -> None:
        super().__init__("tidelog", folder)
        self._nats = nats
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def http_address(self) -> str:
        """Where /metrics is."""
        found = re.search(r"serving HTTP\s+address=127\.0\.0\.1:(\d+)", self.log())
        assert found is not None, "it is said before the broker listens"
        return f"127.0.0.1:{found[1]}"

    def start(self) -> None:
        data = str(self.folder / "data")
        run(python("tidelog_broker", "format", "--data-dir", data))
        nats = ("--nats", self._nats) if self._nats else ()
        # Ports are the system's choice; a deleted stream gives its space back at once.
        self.launch(
            python(
                "tidelog_broker", "run", "--data-dir", data, "--listener", "internal=127.0.0.1:0",
                "--http", "127.0.0.1:0", "--deleted-delay-ms", 0, *nats,
            ),
            self._listening,
        )  # fmt: skip

    def _listening(self) -> bool:
        found = re.search(r"listening\s+address=127\.0\.0\.1:(\d+)", self.log())
        if found:
            self.port = int(found[1])
        return found is not None

    def create(self, stream: str, *, fsync: bool, subject: str | None = None, partitions: int = 1) -> None:
        """Makes a stream; with a subject, waits until it is recorded."""

        async def create(client: tidelog.Client) -> None:
            await client.create_stream(
                stream, partitions=partitions, durability=DURABILITIES[fsync], subject=subject
            )

        self._admin(create)

    def delete(self, stream: str) -> None:
        async def delete(client: tidelog.Client) -> None:
            await client.delete_stream(stream)

        self._admin(delete)

    def _admin(self, work: Callable[[tidelog.Client], Awaitable[T]]) -> T:
        async def connected() -> T:
            async with tidelog.connect(self.address) as client:
                return await work(client)

        return asyncio.run(connected())
