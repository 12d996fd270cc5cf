"""Calls over a simulated connection: what stands in gRPC's place between a client and a broker's door.

A frame is its length (4 bytes, little-endian) and a MessagePack array. Calls are numbered by the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

_ENCODER: Final = msgspec.msgpack.Encoder()


class Frame(NamedTuple):
    call: int
    """0: of the connection itself."""
    kind: str
    """begin, message, end and cancel of the client; message and end of the broker; ping and pong of both."""
    what: str = ""
    """begin: the rpc; end: the name of a status code."""
    data: bytes = b""
    """begin and message: a serialized message; end: why."""
    details: bytes = b""
    """end: the rich status."""


_DECODER: Final = msgspec.msgpack.Decoder(Frame)


class FrameProtocol(asyncio.Protocol):
    """Cuts what comes into frames, and says when more may be written."""

    def __init__(self, received: Callable[[Frame], None], lost: Callable[[], None]) -> None:
        self._received = received
        self._lost = lost
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self.peer = ""
        """The machine at the other end."""
        self._room: asyncio.Event = asyncio.Event()
        self._room.set()

    @property
    def open(self) -> bool:
        return self._transport is not None

    def send(self, frame: Frame) -> None:
        """Drops it if the connection is gone, which `lost` was told of."""
        if self._transport is not None:
            data = _ENCODER.encode(frame)
            self._transport.write(len(data).to_bytes(4, "little") + data)

    async def room(self) -> None:
        """Until more may be written, or there is nobody to write to."""
        await self._room.wait()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.peer = str(transport.get_extra_info("peername", ("", 0))[0])

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4:
            end = 4 + int.from_bytes(self._buffer[:4], "little")
            if len(self._buffer) < end:
                return
            frame = _DECODER.decode(bytes(self._buffer[4:end]))
            del self._buffer[:end]
            self._received(frame)

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._room.set()
        self._lost()
