"""Bounds how many gRPC calls run at a time: of all clients together, and of each client.

A client is an address. Without a bound for each client, a single client that opens calls and never ends them
keeps all others out. Pure; neighbour: `grpc_door` asks before it serves a call.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from tidelog.errors import ResourceExhausted

RETRY_MS: Final = 1000

CLIENT: ContextVar[str] = ContextVar("client", default="")
"""Whose call is served, in all that is done for it. Set by `calls`."""


class Admission:
    """Counts the running gRPC calls, of all clients and of each."""

    def __init__(self, *, calls_max: int, client_calls_max: int) -> None:
        self._calls_max = calls_max
        self._client_calls_max = client_calls_max
        self._calls = 0
        self._of_client: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<Admission calls={self._calls}/{self._calls_max} clients={len(self._of_client)}>"

    def enter(self, client: str) -> None:
        """Counts a call of `client` until `leave`. Raises `ResourceExhausted`, and then counts nothing."""
        if self._calls >= self._calls_max:
            raise _exhausted(
                f"this broker serves {self._calls} calls already, the most at a time (connections_max); "
                f"try again",
                "connections_max",
            )
        own = self._of_client.get(client, 0)
        if own >= self._client_calls_max:
            raise _exhausted(
                f"this broker serves {own} calls of client {client} already, the most of one client at a "
                "time (client_calls_max); end some of them",
                "client_calls_max",
            )
        self._calls += 1
        self._of_client[client] = own + 1

    def leave(self, client: str) -> None:
        """A call of `client` that had entered has ended."""
        self._calls -= 1
        own = self._of_client.pop(client) - 1
        if own:
            self._of_client[client] = own


def client_of(peer: str) -> str:
    """The client's address in what gRPC says of the other end, such as ``ipv4:10.0.0.7:51234``."""
    kind, _, rest = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return peer
    return rest.rpartition(":")[0]


def _exhausted(message: str, limit: str) -> ResourceExhausted:
    return ResourceExhausted(message, retry_after_ms=RETRY_MS, limit=limit)
