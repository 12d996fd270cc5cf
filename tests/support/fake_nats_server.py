"""A NATS server made of a script, for what a real one cannot be made to do.

Each connection is handed to a coroutine; what it does is up to the test.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

READ_SECONDS_MAX = 10.0


class Peer:
    """A client's connection, seen from the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def line(self) -> bytes:
        """Return the next line without its end. Raises EOFError at the end of the connection."""
        async with asyncio.timeout(READ_SECONDS_MAX):
            line = await self.reader.readline()
        if not line:
            raise EOFError("the client left")
        return line.rstrip(b"\r\n")

    async def lines_until(self, last: bytes) -> list[bytes]:
        """Return the lines up to and including this one."""
        lines: list[bytes] = []
        while not lines or lines[-1] != last:
            lines.append(await self.line())
        return lines

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.writer.write(data)

    def send_info(self, **fields: Any) -> None:
        """Introduce the server."""
        info = {"server_id": "FAKE", "version": "2.0.0", "headers": True, "max_payload": 1048576, **fields}
        self.send(b"INFO " + json.dumps(info).encode() + b"\r\n")

    async def welcome(self, **fields: Any) -> list[bytes]:
        """Do the handshake and return what the client said in it."""
        self.send_info(**fields)
        said = await self.lines_until(b"PING")
        self.send(b"PONG\r\n")
        return said

    async def gone(self) -> None:
        """Read until the client leaves."""
        async with asyncio.timeout(READ_SECONDS_MAX):
            while await self.reader.read(65536):
                pass


Script = Callable[[Peer], Awaitable[None]]


class FakeNatsServer:
    """Listens on a free loopback port and follows the script with everyone who connects."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self.connections = 0
        self.failures: list[BaseException] = []
        """What scripts raised, apart from the client leaving."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await self._server.wait_closed()
        if kind is None:
            assert self.failures == []

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        """Its address."""
        return f"nats://127.0.0.1:{self.port}"

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        try:
            await self._script(Peer(reader, writer))
        except (EOFError, OSError):
            pass
        except BaseException as error:
            self.failures.append(error)
        finally:
            writer.close()
