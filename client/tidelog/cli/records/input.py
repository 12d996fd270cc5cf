"""The input of `produce`: a file or standard input, read in chunks without blocking the event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator

CHUNK_BYTES = 256 << 10
CHUNKS_AHEAD_MAX = 8


async def chunks(fd: int) -> AsyncIterator[bytes]:
    """The bytes of a descriptor, as they arrive. It may be any kind of file.

    A daemon thread reads them, so that the process can end although the input never does.
    """
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(CHUNKS_AHEAD_MAX)

    def read() -> None:
        while True:
            room.acquire()
            try:
                data: bytes | OSError = os.read(fd, CHUNK_BYTES)
            except OSError as error:
                data = error
            try:
                loop.call_soon_threadsafe(arrived.put_nowait, data)
            except RuntimeError:
                return  # the event loop has ended
            if not data or isinstance(data, OSError):
                return

    threading.Thread(target=read, name="input", daemon=True).start()
    while True:
        data = await arrived.get()
        if isinstance(data, OSError):
            raise data
        if not data:
            return
        room.release()
        yield data


async def lines(fd: int, *, crlf: bool = False) -> AsyncIterator[list[bytes]]:
    """The lines of a descriptor without their ends, as many at a time as have arrived.

    A line ends with LF. With `crlf`, a CR before the LF belongs to the end as well.
    """
    begun: list[bytes] = []
    """The parts of a line whose end has not arrived yet."""
    async for chunk in chunks(fd):
        first, *others = chunk.split(b"\n")
        begun.append(first)
        if others:
            whole = [b"".join(begun), *others[:-1]]
            begun = [others[-1]]
            yield [line.removesuffix(b"\r") for line in whole] if crlf else whole
    rest = b"".join(begun)
    if rest:
        yield [rest.removesuffix(b"\r") if crlf else rest]
