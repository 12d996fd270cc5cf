"""The address of the cluster, and one connection to it for the length of a command."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final, TypeVar

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


TLS_VARIABLES: Final = {
    "tls": "TIDELOG_CLIENT_TLS",
    "authorities": "TIDELOG_CLIENT_TLS_AUTHORITIES",
    "certificate": "TIDELOG_CLIENT_TLS_CERTIFICATE",
    "key": "TIDELOG_CLIENT_TLS_KEY",
}
"""Variables for the common options of TLS. Brokers have settings TIDELOG_TLS_* of their own."""


TOKEN_FILE_VARIABLE: Final = "TIDELOG_CLIENT_TOKEN_FILE"

TOKEN_VARIABLE: Final = "TIDELOG_CLIENT_TOKEN"
"""The token itself. It has no option, because other users of a machine see the options of commands."""

_TOKEN_FILE: ContextVar[str] = ContextVar("token file", default="")
"""The common option of the token in the command line that runs."""

_TLS: ContextVar[tidelog.Tls | None] = ContextVar("tls", default=None)
"""The common options of TLS in the command line that runs."""


def use_tls(wanted: bool, *, authorities: str, certificate: str, key: str) -> None:
    """Connections of this command line use TLS if it is wanted, or any of the files is given."""
    files = {"authorities": authorities, "certificate": certificate, "key": key}
    _TLS.set(tidelog.Tls(**files) if wanted or any(files.values()) else None)


def use_tls_of_environment() -> None:
    """The same for completion, which reads no common options."""
    use_tls(
        bool(os.environ.get(TLS_VARIABLES["tls"])),
        **{name: os.environ.get(TLS_VARIABLES[name], "") for name in ("authorities", "certificate", "key")},
    )
    use_token(os.environ.get(TOKEN_FILE_VARIABLE, ""))


def use_token(path: str) -> None:
    """Connections of this command line send the token in this file. Empty: that of the environment."""
    _TOKEN_FILE.set(path)


def client_of(server: str, connect_timeout_s: float) -> tidelog.Client:
    """The client that the options and the environment ask for."""
    return tidelog.connect(
        server,
        connect_timeout_s=connect_timeout_s,
        listener=os.environ.get("TIDELOG_LISTENER", ""),
        tls=_TLS.get(),
        token="" if _TOKEN_FILE.get() else os.environ.get(TOKEN_VARIABLE, "").strip(),
        token_file=_TOKEN_FILE.get(),
    )


def connected(server: str, work: Callable[[tidelog.Client], Awaitable[T]]) -> T:
    """Runs `work` with a client that is connected to the cluster of that broker."""

    async def main() -> T:
        client = client_of(server, CONNECT_SECONDS_MAX)
        try:
            await client.open()
        except Unavailable as error:
            raise CommandError(_not_connected(server, error), Exit.UNAVAILABLE) from error
        async with client:
            return await work(client)

    return asyncio.run(main())


def _not_connected(server: str, error: Unavailable) -> str:
    _, _, reason = error.message.partition(f"no connection to {server}: ")
    if "TLS" in reason or "certificate" in reason:
        return f"no connection to {server}: {reason}"
    return f"no broker answers at {server}; start one with `tidelog dev`, or name another with --server"
