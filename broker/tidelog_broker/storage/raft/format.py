"""The bytes of the metadata log: entries, hard state, snapshots. Little-endian throughout.

Entry: magic ``TLE1``, payload length (u32), CRC-32C of all but itself (u32), type (u8),
3 zeros, index (u64), term (u64), durable (u64), payload, zeros up to a multiple of 8.
*Durable* is the last index that was known to be on disk when the entry was written. It
tells a torn tail from rot: if a later entry says that an invalid entry was durable, that entry
was whole once.

Hard state: magic ``TLH1``, flags (u32; bit 0: there is a vote; bit 1: a directory id
follows), term (u64), commit (u64), the vote's broker (u32), its directory id (16 bytes, if
bit 1 is set), CRC-32C of all before (u32). The first version wrote no directory id.

Snapshot: magic ``TLS1``, length of the configuration (u32), index (u64), term (u64),
length of the image (u64), configuration, image, CRC-32C of all before (u32).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from tidelog.records.checksum import crc32c
from tidelog_broker.model import (
    DIRECTORY_ID_BYTES,
    PAYLOAD_BYTES_MAX,
    Configuration,
    Entry,
    EntryType,
    HardState,
    Snapshot,
    Voter,
)
from tidelog_broker.storage.files.torn import lacks_a_sector

ENTRY_MAGIC = b"TLE1"
ENTRY_ALIGNMENT = 8
UNKNOWN_DIRECTORY = b""
"""The directory id of a vote that was written without a directory id."""

_ENTRY = struct.Struct("<4sIIB3xQQQ")
_HARD_STATE = struct.Struct("<4sIQQI")
_SNAPSHOT = struct.Struct("<4sIQQQ")
_CRC = struct.Struct("<I")
_HAS_VOTE = 1
_HAS_DIRECTORY = 2
_TYPES = {int(kind): kind for kind in EntryType}


class Frame(NamedTuple):
    """An entry and its place in the file."""

    entry: Entry
    durable: int
    position: int
    end: int


def pack_entry(entry: Entry, durable: int) -> bytes:
    body = entry.payload + bytes(-len(entry.payload) % ENTRY_ALIGNMENT)
    fields = (entry.type, entry.index, entry.term, durable)
    head = _ENTRY.pack(ENTRY_MAGIC, len(entry.payload), 0, *fields)
    crc = crc32c(body, crc32c(head[12:], crc32c(head[:8])))
    return b"".join((head[:8], _CRC.pack(crc), head[12:], body))


def unpack_entry(data: bytes, position: int) -> Frame | None:
    """The entry at `position`; None: there is no valid entry."""
    if position + _ENTRY.size > len(data):
        return None
    magic, length, crc, kind, index, term, durable = _ENTRY.unpack_from(data, position)
    end = _end(position, length)
    if magic != ENTRY_MAGIC or length > PAYLOAD_BYTES_MAX or end > len(data) or kind not in _TYPES:
        return None
    start = position + _ENTRY.size
    found = crc32c(data[position : position + 8])
    found = crc32c(data[position + 12 : end], found)
    if found != crc:
        return None
    return Frame(Entry(index, term, _TYPES[kind], data[start : start + length]), durable, position, end)


def cut_short(data: bytes, position: int) -> bool:
    """Whether the data seems to end inside an entry that begins at `position`."""
    rest = data[position : position + 8]
    if rest[:4] != ENTRY_MAGIC[: len(rest)]:
        return False
    if len(data) - position < _ENTRY.size:
        return True
    (length,) = _CRC.unpack_from(rest, 4)
    return length <= PAYLOAD_BYTES_MAX and _end(position, length) > len(data)


def may_be_torn(data: bytes, position: int) -> bool:
    """Whether an invalid entry at `position` looks like a write that a power loss cut short (`torn`).

    It looks at the whole entry if the head is plausible, and otherwise only at the head.
    """
    if cut_short(data, position) or position + _ENTRY.size > len(data):
        return True
    magic, length = struct.unpack_from("<4sI", data, position)
    whole = magic == ENTRY_MAGIC and length <= PAYLOAD_BYTES_MAX
    end = _end(position, length) if whole else position + _ENTRY.size
    return lacks_a_sector(data[position:end], position)


def find_entries(data: bytes, position: int) -> list[Frame]:
    """Every valid entry that begins after `position`, at a multiple of the alignment."""
    found: list[Frame] = []
    at = data.find(ENTRY_MAGIC, position + 1)
    while at >= 0:
        frame = unpack_entry(data, at) if at % ENTRY_ALIGNMENT == 0 else None
        if frame is not None:
            found.append(frame)
        at = data.find(ENTRY_MAGIC, frame.end if frame is not None else at + 1)
    return found


def pack_hard_state(state: HardState) -> bytes:
    flags, broker_id, directory_id = 0, 0, UNKNOWN_DIRECTORY
    if state.vote is not None:
        flags, broker_id, directory_id = _HAS_VOTE, state.vote.broker_id, state.vote.directory_id
    if directory_id != UNKNOWN_DIRECTORY:
        assert len(directory_id) == DIRECTORY_ID_BYTES, state
        flags |= _HAS_DIRECTORY
    head = _HARD_STATE.pack(b"TLH1", flags, state.term, state.commit, broker_id) + directory_id
    return head + _CRC.pack(crc32c(head))


def unpack_hard_state(data: bytes) -> HardState | None:
    """Parses a hard state; None: neither `pack_hard_state` nor the first version made these bytes."""
    if len(data) < _HARD_STATE.size + _CRC.size or not _checked(data):
        return None
    magic, flags, term, commit, broker_id = _HARD_STATE.unpack_from(data)
    directory_id = data[_HARD_STATE.size : -_CRC.size]
    if magic != b"TLH1" or len(directory_id) != (DIRECTORY_ID_BYTES if flags & _HAS_DIRECTORY else 0):
        return None
    return HardState(term, Voter(broker_id, directory_id) if flags & _HAS_VOTE else None, commit)


def pack_snapshot(snapshot: Snapshot) -> bytes:
    configuration = snapshot.configuration.encode()
    head = _SNAPSHOT.pack(b"TLS1", len(configuration), snapshot.index, snapshot.term, len(snapshot.data))
    crc = crc32c(snapshot.data, crc32c(configuration, crc32c(head)))
    return b"".join((head, configuration, snapshot.data, _CRC.pack(crc)))


def unpack_snapshot(data: bytes) -> Snapshot | None:
    """Parses a snapshot; None: `pack_snapshot` did not make these bytes."""
    if len(data) < _SNAPSHOT.size + _CRC.size or not _checked(data):
        return None
    magic, length, index, term, size = _SNAPSHOT.unpack_from(data)
    start = _SNAPSHOT.size + length
    if magic != b"TLS1" or start + size + _CRC.size != len(data):
        return None
    configuration = Configuration.decode(data[_SNAPSHOT.size : start])
    return Snapshot(index, term, configuration, data[start : start + size])


def _checked(data: bytes) -> bool:
    (crc,) = _CRC.unpack_from(data, len(data) - _CRC.size)
    return bool(crc32c(data[: -_CRC.size]) == crc)


def _end(position: int, length: int) -> int:
    return position + _ENTRY.size + length + -length % ENTRY_ALIGNMENT
