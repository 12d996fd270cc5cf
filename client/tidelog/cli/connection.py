"""The address of the cluster, and one connection to it for the length of a command."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import typer

import tidelog
from tidelog.cli.errors import CommandError, Exit
from tidelog.errors import Unavailable

T = TypeVar("T")

SERVER_DEFAULT = "localhost:9210"

CONNECT_SECONDS_MAX = 3.0

SERVER: Any = typer.Option(
    SERVER_DEFAULT,
    "--server",
    "-s",
    envvar="TIDELOG_SERVER",
    help="Any broker of the cluster, as host:port.",
)


def connected(server: str, work: Callable[[tidelog.Client], Awaitable[T]]) -> T:
    """Runs `work` with a client that is connected to the cluster of that broker."""
    listener = os.environ.get("TIDELOG_LISTENER", "")

    async def main() -> T:
        client = tidelog.connect(server, connect_timeout_s=CONNECT_SECONDS_MAX, listener=listener)
        try:
            await client.open()
        except Unavailable as error:
            raise CommandError(
                f"no broker answers at {server}; start one with `tidelog dev`, or name another with --server",
                Exit.UNAVAILABLE,
            ) from error
        async with client:
            return await work(client)

    return asyncio.run(main())
