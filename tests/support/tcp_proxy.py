"""A TCP proxy in the test's own loop, to do to a connection what machines and networks do to it."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class TcpProxy:
    """Forwards what comes to `address` to a target, until it is frozen or cut; an async context manager."""

    def __init__(self, target: str, listen: str = "127.0.0.1:0") -> None:
        """`listen`: where; port 0 takes a free one."""
        self._target = _host_port(target)
        self._listen = _host_port(listen)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.address = ""
        self.connections = 0
        """So far."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, *self._listen)
        self.address = f"{self._listen[0]}:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.cut()

    def freeze(self) -> None:
        """Connections stay open and new ones are accepted; no byte passes: a stopped process."""
        self._flowing.clear()

    async def cut(self) -> None:
        """Connections break, new ones are refused: a killed process."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in list(self._writers):
            writer.transport.abort()
        # A turn for the transports to be gone.
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            await self._flowing.wait()
            target_reader, target_writer = await asyncio.open_connection(*self._target)
            self._writers.add(target_writer)
            await asyncio.gather(self._pass(reader, target_writer), self._pass(target_reader, writer))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()


def _host_port(address: str) -> tuple[str, int]:
    host, port = address.rsplit(":", 1)
    return host, int(port)
