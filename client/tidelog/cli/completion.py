"""Names of streams and brokers for the shell's completion.

Completion must not disturb: it asks the cluster for a second at most, and offers nothing if that fails.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Final

import typer

import tidelog
from tidelog.cli.connection import SERVER_DEFAULT, client_of, use_tls_of_environment

SECONDS_MAX: Final = 1.0
"""The shell waits for the answer, and so does its user."""


def stream_names(context: typer.Context, incomplete: str) -> list[str]:
    """The streams of the cluster whose names begin with `incomplete`."""

    async def ask(client: tidelog.Client) -> list[str]:
        return [stream.name for stream in await client.list_streams()]

    return [name for name in _asked(context, ask) if name.startswith(incomplete)]


def broker_ids(context: typer.Context, incomplete: str) -> list[str]:
    """The brokers of the cluster whose numbers begin with `incomplete`."""

    async def ask(client: tidelog.Client) -> list[str]:
        return [str(broker.broker_id) for broker in (await client.describe_cluster()).brokers]

    return [number for number in _asked(context, ask) if number.startswith(incomplete)]


def _asked(context: typer.Context, ask: Callable[[tidelog.Client], Awaitable[list[str]]]) -> list[str]:
    server = context.params.get("server") or os.environ.get("TIDELOG_SERVER") or SERVER_DEFAULT

    async def main() -> list[str]:
        async with asyncio.timeout(SECONDS_MAX), client_of(server, SECONDS_MAX) as client:
            return await ask(client)

    try:
        use_tls_of_environment()
        return sorted(asyncio.run(main()))
    except Exception:
        # A completion has nowhere to report an error.
        return []
