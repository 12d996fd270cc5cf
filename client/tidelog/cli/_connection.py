"""From a command to the broker: the address, and one connection for the command's length."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import typer

import tidelog

T = TypeVar("T")

SERVER_DEFAULT = "localhost:9210"

SERVER: Any = typer.Option(
    SERVER_DEFAULT, "--server", "-s", envvar="TIDELOG_SERVER", help="Any broker of the cluster, as host:port."
)


def connected(server: str, work: Callable[[tidelog.Client], Awaitable[T]]) -> T:
    """Runs `work` with a client of that broker."""

    async def main() -> T:
        async with tidelog.connect(server) as client:
            return await work(client)

    return asyncio.run(main())
