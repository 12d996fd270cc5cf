"""A TCP proxy in front of each broker's peer listener, which is what the other brokers know.

Who dials is known from the first frame (`tidelog_broker.peers.hello`), so that each direction of each pair
can be cut. A cut connection stays open and silent, in that direction; a dial over a cut link hangs. A
broker that is down has its proxy refuse connections, as its machine would.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Final

from chaos.links import Links
from tidelog_broker.peers.errors import ProtocolBroken, WrongPeer
from tidelog_broker.peers.framing import GREETING_BYTES_MAX, PREFIX_BYTES
from tidelog_broker.peers.hello import decode

_AT_ONCE: Final = struct.pack("ii", 1, 0)
"""Of SO_LINGER: on, for no time."""

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
        """What was read of it already."""
        self.onward: asyncio.StreamWriter | None = None

    def reset(self) -> None:
        """Breaks it at once, for both ends."""
        for writer in (self.writer, self.onward):
            if writer is not None and not writer.transport.is_closing():
                # Else the other end would see an orderly close.
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
                writer.transport.abort()


class Proxy:
    """What stands in front of one broker."""

    def __init__(self, broker: int, port: int, behind: int, links: Links) -> None:
        """`port`: where it listens; `behind`: the broker's own port."""
        self.broker = broker
        self.port = port
        self._behind = behind
        self._links = links
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections: set[_Connection] = set()

    async def open(self) -> None:
        """Connections are taken from now on."""
        if self._server is None:
            self._server = await asyncio.start_server(self._accepted, HOST, self.port)

    async def refuse(self) -> None:
        """Connections are refused, and those there are break: the broker behind is gone."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        self.reset()

    def reset(self, dialer: int | None = None) -> int:
        """Breaks the connections that were dialed to this broker, or those of one dialer; how many."""
        found = [one for one in self._connections if dialer in (None, one.dialer)]
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
            dialer, first = await _greeting(reader)
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
    """Who dials, and the bytes that said so."""
    prefix = await reader.readexactly(PREFIX_BYTES)
    length, header_bytes = struct.unpack("<II", prefix)
    if length > GREETING_BYTES_MAX:
        raise ProtocolBroken(f"a greeting of {length} bytes")
    rest = await reader.readexactly(length - 4)
    return decode(rest[:header_bytes]).sender.broker_id, prefix + rest
