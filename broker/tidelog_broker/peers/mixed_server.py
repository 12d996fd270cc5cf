"""Accepts connections with and without TLS at one port, while a cluster changes from one to the other.

The first bytes say which: a TLS handshake begins with a record of type 22 and version 3.1 to 3.3 (RFC 8446,
5.1). In a greeting these bytes would be a length beyond `GREETING_BYTES_MAX` (`framing`). The bytes stay in
the socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Final

import structlog

log = structlog.get_logger(__name__)

LOOK_BYTES: Final = 3
PAUSE_SECONDS: Final = 1.0
"""After an accept that failed, for example because the process has too many open files."""

UNDECIDED_MAX: Final = 128
"""Connections that have not sent their first bytes. More wait in the kernel."""


class MixedServer:
    """Listening sockets; the peer listener owns it."""

    def __init__(
        self, make: Callable[[], asyncio.BaseProtocol], context: ssl.SSLContext, first_seconds_max: float
    ) -> None:
        """`first_seconds_max`: how long a connection may take for its first bytes, and for its handshake."""
        self._make = make
        self._context = context
        self._seconds_max = first_seconds_max
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._undecided: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(UNDECIDED_MAX)

    def __repr__(self) -> str:
        return f"<MixedServer port={self.port if self._sockets else 0}>"

    @property
    def port(self) -> int:
        port: int = self._sockets[0].getsockname()[1]
        return port

    async def start(self, host: str, port: int, backlog: int) -> None:
        """Port 0 takes a free one. Raises OSError."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
                self._sockets.append(socket.create_server(address, family=family, backlog=backlog))
        except BaseException:
            self.close()
            raise
        for one in self._sockets:
            one.setblocking(False)
            self._accepting.append(asyncio.create_task(self._accept(one), name="mixed peer listener"))

    def close(self) -> None:
        """Accepts no more, and drops connections that have not sent their first bytes."""
        for task in (*self._accepting, *self._undecided):
            task.cancel()
        for one in self._sockets:
            one.close()

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._accepting, *self._undecided, return_exceptions=True)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._room.acquire()
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError as error:
                self._room.release()
                log.warning("cannot accept a connection of another broker; trying again", reason=str(error))
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            task = asyncio.create_task(self._take(accepted), name="first bytes of a peer connection")
            self._undecided.add(task)
            task.add_done_callback(self._decided)

    def _decided(self, task: asyncio.Task[None]) -> None:
        self._undecided.discard(task)
        self._room.release()

    async def _take(self, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError, TimeoutError):
            try:
                async with asyncio.timeout(self._seconds_max):
                    secured = await _begins_tls(accepted)
            except BaseException:
                accepted.close()
                raise
            await loop.connect_accepted_socket(
                self._make,
                accepted,
                ssl=self._context if secured else None,
                ssl_handshake_timeout=self._seconds_max if secured else None,
            )


async def _begins_tls(accepted: socket.socket) -> bool:
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    # The socket counts as readable only when it has so many bytes, or has ended.
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, LOOK_BYTES)
    loop.add_reader(accepted, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(accepted)
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    first = accepted.recv(LOOK_BYTES, socket.MSG_PEEK)
    return len(first) == LOOK_BYTES and first[:2] == b"\x16\x03" and 1 <= first[2] <= 3
