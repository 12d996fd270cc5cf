"""Frames survive being cut anywhere, and what is no frame is refused."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_broker.peers.errors import ProtocolBroken
from tidelog_broker.peers.framing import (
    ALIVE,
    BUFFER_BYTES,
    FRAME_BYTES_MAX,
    HEADER_BYTES_MAX,
    LARGE_BYTES_MIN,
    Frame,
    FrameBuffer,
    pack,
)


def feed(buffer: FrameBuffer, data: bytes, pieces: list[int]) -> list[tuple[bytes, bytes]]:
    """Puts `data` in, in pieces of those sizes over and over, as a socket would."""
    found: list[Frame] = []
    at = piece = 0
    while at < len(data):
        room = buffer.room()
        count = min(pieces[piece % len(pieces)], len(room), len(data) - at)
        room[:count] = data[at : at + count]
        found += buffer.took(count)
        at += count
        piece += 1
    # Looked at only now: later frames must not have changed earlier ones.
    return [(header, bytes(payload)) for header, payload in found]


sizes = st.one_of(
    st.integers(0, 40),
    st.integers(LARGE_BYTES_MIN - 40, LARGE_BYTES_MIN + 40),
    st.integers(BUFFER_BYTES - 40, BUFFER_BYTES + 40),
)


@given(
    frames=st.lists(st.tuples(st.integers(0, 300), sizes, st.integers(0, 255)), max_size=8),
    pieces=st.lists(st.one_of(st.integers(1, 20), st.integers(1, 3 * BUFFER_BYTES)), min_size=1, max_size=6),
)
def test_frames_come_out_as_they_went_in_however_they_are_cut(
    frames: list[tuple[int, int, int]], pieces: list[int]
) -> None:
    words = [(bytes([fill]) * header, bytes([255 - fill]) * payload) for header, payload, fill in frames]
    # One byte at a time is slow for large frames.
    pieces = [piece if sum(len(p) for _, p in words) < 10_000 else max(piece, 500) for piece in pieces]
    data = b"".join(pack(header, len(payload)) + payload for header, payload in words)
    assert feed(FrameBuffer(), data, pieces) == words


def test_a_sign_of_life_is_a_frame_without_anything() -> None:
    assert feed(FrameBuffer(), ALIVE + ALIVE, [3]) == [(b"", b""), (b"", b"")]


def test_a_large_payload_stays_where_it_was_received() -> None:
    buffer = FrameBuffer()
    payload = b"x" * (1 << 20)
    data = pack(b"h", len(payload)) + payload
    room = buffer.room()
    room[: len(room)] = data[: len(room)]
    assert list(buffer.took(len(room))) == []
    rest = buffer.room()
    assert len(rest) == len(data) - len(room)
    rest[:] = data[len(room) :]
    (frame,) = buffer.took(len(rest))
    assert frame.payload.obj is rest.obj


@pytest.mark.parametrize(
    ("length", "header"),
    [
        (3, 0),
        (4, 1),
        (FRAME_BYTES_MAX + 1, 0),
        (HEADER_BYTES_MAX + 5, HEADER_BYTES_MAX + 1),
        (0xFFFFFFFF, 0xFFFFFFFF),
        (int.from_bytes(b"GET ", "little"), int.from_bytes(b"/ HT", "little")),
    ],
)
def test_a_length_that_cannot_be_is_refused_before_room_is_made_for_it(length: int, header: int) -> None:
    buffer = FrameBuffer()
    buffer.room()[:8] = struct.pack("<II", length, header)
    with pytest.raises(ProtocolBroken, match="a frame claims"):
        list(buffer.took(8))
