"""Turns bytes into frames and back: a length, a header, and a payload that is not copied on its way.

A frame is ``<u32 length of all that follows the length> <u32 header length> header payload``,
little-endian. The header is small, and the receiver parses it; the payload is record batches
or an image. A frame without a header shows that its sender is alive.

Small frames share one buffer and are copied out of it; a large frame gets its own buffer, in which
it is received and stays.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from tidelog_broker.peers.errors import ProtocolBroken

_PREFIX = struct.Struct("<II")
PREFIX_BYTES = _PREFIX.size

HEADER_BYTES_MAX = 4 << 20
"""A position of each of 50,000 partitions fits."""

FRAME_BYTES_MAX = 256 << 20
"""An image of the metadata, or a few batches of the largest size (64 MiB)."""

GREETING_BYTES_MAX = 64 << 10
"""The limit before both ends are identified: the claim of a stranger must not cost memory."""

BUFFER_BYTES = 128 << 10
"""The size of the shared buffer."""

LARGE_BYTES_MIN = 32 << 10
"""A frame of this size gets its own buffer, unless it is in the shared buffer already."""


class Frame(NamedTuple):
    header: bytes
    payload: memoryview


def pack(header: bytes, payload_bytes: int = 0) -> bytes:
    """The bytes in front of a payload of that size."""
    assert len(header) <= HEADER_BYTES_MAX, len(header)
    assert payload_bytes <= FRAME_BYTES_MAX - len(header) - PREFIX_BYTES, payload_bytes
    return _PREFIX.pack(4 + len(header) + payload_bytes, len(header)) + header


ALIVE = pack(b"")


class FrameBuffer:
    """Takes received bytes and returns frames."""

    __slots__ = ("_end", "_filled", "_large", "_small", "_start", "_view", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        """May be raised between two frames of `took`."""
        self._small = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._small)
        self._start = 0
        """Where the unread bytes in the shared buffer begin."""
        self._end = 0
        self._large: memoryview | None = None
        """The frame that is being received into its own buffer, with its prefix."""
        self._filled = 0

    def room(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._large is not None:
            return self._large[self._filled :]
        return self._view[self._end :]

    def took(self, count: int) -> Iterator[Frame]:
        """So many bytes were put into `room`; yields the frames that are whole now. The caller must take all.

        Raises `ProtocolBroken`.
        """
        if self._large is not None:
            self._filled += count
            if self._filled < len(self._large):
                return
            large, self._large = self._large, None
            header_bytes = _PREFIX.unpack_from(large)[1]
            at = PREFIX_BYTES + header_bytes
            yield Frame(bytes(large[PREFIX_BYTES:at]), large[at:])
            return
        self._end += count
        yield from self._take_apart()

    def _take_apart(self) -> Iterator[Frame]:
        view, start, end = self._view, self._start, self._end
        size = 0
        while end - start >= PREFIX_BYTES:
            length, header_bytes = _PREFIX.unpack_from(view, start)
            if not 4 + header_bytes <= length <= self.frame_bytes_max or header_bytes > HEADER_BYTES_MAX:
                raise ProtocolBroken(
                    f"a frame claims {length} bytes with a header of {header_bytes}; the limits are "
                    f"{self.frame_bytes_max} and {HEADER_BYTES_MAX}"
                )
            size = 4 + length
            if end - start < size:
                break
            at = start + PREFIX_BYTES + header_bytes
            payload = memoryview(bytes(view[at : start + size]))
            header = bytes(view[start + PREFIX_BYTES : at])
            start, size = start + size, 0
            yield Frame(header, payload)
        self._keep(start, end, size)

    def _keep(self, start: int, end: int, size: int) -> None:
        """What is left is the beginning of a frame of `size` bytes, or of one of unknown size (0)."""
        left = end - start
        if size >= LARGE_BYTES_MIN:
            self._large = memoryview(bytearray(size))
            self._large[:left] = self._view[start:end]
            self._filled = left
            self._start = self._end = 0
        elif not left:
            self._start = self._end = 0
        elif BUFFER_BYTES - start < LARGE_BYTES_MIN:
            self._view[:left] = bytes(self._view[start:end])
            self._start, self._end = 0, left
        else:
            self._start = start
