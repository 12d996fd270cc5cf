"""A TCP proxy in front of each broker's peer listener. The other brokers know only the proxy's address.

The first frame of a connection names the broker that dials (`tidelog_broker.peers.hello`), so that each
direction of each pair can be cut. With TLS the frame cannot be read, and the port of the connection tells
which process dials. A cut connection stays open and silent in that direction; a dial over a cut link hangs.
While a broker is down its proxy refuses connections, as the machine of the broker would.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from typing import Final

from chaos.links import Links
from tidelog_broker.peers.errors import ProtocolBroken, WrongPeer
from tidelog_broker.peers.framing import GREETING_BYTES_MAX, PREFIX_BYTES
from tidelog_broker.peers.hello import decode

_AT_ONCE: Final = struct.pack("ii", 1, 0)
"""The value of SO_LINGER for a reset: linger for 0 s."""

CHUNK_BYTES: Final = 256 << 10
HOST: Final = "127.0.0.1"


class _Connection:
    """A connection from one broker to another, over two sockets."""

    def __init__(
        self, dialer: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, first: bytes
    ) -> None:
        self.dialer = dialer
        self.reader = reader
        self.writer = writer
        self.first = first
        """The bytes that were read already."""
        self.onward: asyncio.StreamWriter | None = None

    def reset(self) -> None:
        """Breaks the connection at once, for both brokers."""
        for writer in (self.writer, self.onward):
            if writer is not None and not writer.transport.is_closing():
                # Without this the other broker would see an orderly close.
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
                writer.transport.abort()


class Proxy:
    """The proxy of one broker."""

    def __init__(
        self,
        broker: int,
        port: int,
        behind: int,
        links: Links,
        *,
        dialer_at: Callable[[int], int | None] | None = None,
    ) -> None:
        """`port`: where the proxy listens; `behind`: the broker's own port.

        `dialer_at`: the broker that dials from a port, for connections with TLS; None: their first frame
        names it.
        """
        self.broker = broker
        self.port = port
        self._behind = behind
        self._links = links
        self._dialer_at = dialer_at
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections: set[_Connection] = set()

    async def open(self) -> None:
        """Accepts connections from now on."""
        if self._server is None:
            self._server = await asyncio.start_server(self._accepted, HOST, self.port)

    async def refuse(self) -> None:
        """Breaks all connections and refuses new ones: the broker behind is down."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        self.reset()

    def reset(self) -> int:
        """Breaks all connections to this broker. Returns how many."""
        found = list(self._connections)
        for connection in found:
            connection.reset()
        return len(found)

    async def close(self) -> None:
        await self.refuse()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection: _Connection | None = None
        try:
            dialer, first = await self._begin_of(reader, writer)
            connection = _Connection(dialer, reader, writer, first)
            self._connections.add(connection)
            await self._forward(connection)
        except (OSError, asyncio.IncompleteReadError, ProtocolBroken, WrongPeer):
            pass
        finally:
            if connection is not None:
                connection.reset()
                self._connections.discard(connection)
            writer.transport.abort()

    async def _begin_of(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[int, bytes]:
        """The broker that dials, and what was read to learn it."""
        if self._dialer_at is None:
            return await _greeting(reader)
        dialer = self._dialer_at(writer.get_extra_info("peername")[1])
        if dialer is None:
            raise ProtocolBroken("the process that dialed is gone")
        return dialer, b""

    async def _forward(self, connection: _Connection) -> None:
        there, back = (connection.dialer, self.broker), (self.broker, connection.dialer)
        await self._links.passable(there)
        onward_reader, onward = await asyncio.open_connection(HOST, self._behind)
        connection.onward = onward
        onward.write(connection.first)
        pumps = [
            asyncio.ensure_future(self._pump(connection.reader, onward, there)),
            asyncio.ensure_future(self._pump(onward_reader, connection.writer, back)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: tuple[int, int]
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                await self._links.passable(link)
                writer.write(data)
                await writer.drain()


async def _greeting(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Reads the greeting: the id of the broker that dials, and the bytes of the frame."""
    prefix = await reader.readexactly(PREFIX_BYTES)
    length, header_bytes = struct.unpack("<II", prefix)
    if length > GREETING_BYTES_MAX:
        raise ProtocolBroken(f"the greeting has {length} bytes; the limit is {GREETING_BYTES_MAX}")
    rest = await reader.readexactly(length - 4)
    return decode(rest[:header_bytes]).sender.broker_id, prefix + rest
