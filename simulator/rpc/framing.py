"""The frames of calls over a simulated connection, in the place of gRPC's.

A frame is its length (4 bytes, little-endian) and a MessagePack array. The client numbers the calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

_ENCODER: Final = msgspec.msgpack.Encoder()


class Frame(NamedTuple):
    call: int
    """The number of the call; 0: the frame is about the connection."""
    kind: str
    """From the client: begin, message, end, cancel; from the broker: message, end; from both: ping, pong."""
    what: str = ""
    """For begin: the rpc; for end: the name of a status code."""
    data: bytes = b""
    """For begin and message: a serialized message; for end: the text of the status."""
    details: bytes = b""
    """For end: the rich status."""


_DECODER: Final = msgspec.msgpack.Decoder(Frame)


class FrameProtocol(asyncio.Protocol):
    """Splits the bytes that arrive into frames, and says when more may be written."""

    def __init__(self, received: Callable[[Frame], None], lost: Callable[[], None]) -> None:
        self._received = received
        self._lost = lost
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self.peer = ""
        """The name of the machine at the other end."""
        self._room: asyncio.Event = asyncio.Event()
        self._room.set()

    @property
    def open(self) -> bool:
        return self._transport is not None

    def send(self, frame: Frame) -> None:
        """Sends a frame. Drops it if the connection is lost; `lost` was then called."""
        if self._transport is not None:
            data = _ENCODER.encode(frame)
            self._transport.write(len(data).to_bytes(4, "little") + data)

    async def room(self) -> None:
        """Waits until more may be written, or the connection is lost."""
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
