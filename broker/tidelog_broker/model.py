"""The nouns that several layers of the broker share: the entries of the metadata log.

`core` decides what is in it and `storage` keeps it; neither imports the other, so
the types that they exchange are here (DESIGN section 6).
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import msgspec

from tidelog_broker.errors import DataDirectoryError

PAYLOAD_BYTES_MAX = 64 << 20
"""Of one entry. A longer payload is refused before it is written, and not believed when it is read."""

DIRECTORY_ID_BYTES = 16
"""A UUID."""


class EntryType(IntEnum):
    """What an entry's payload is; the numbers are a file format."""

    COMMAND = 1
    """A command of `core.metadata.commands`."""
    CONFIGURATION = 2
    """A `Configuration`: the voters from here on."""
    NOOP = 3
    """Empty: with it a new leader commits the entries that it found."""


class Entry(msgspec.Struct, frozen=True):
    """An entry of the metadata log."""

    index: int
    """From 1, without gaps."""
    term: int
    type: EntryType
    payload: bytes


class Voter(msgspec.Struct, frozen=True):
    """A broker together with its disk: with another disk it is another voter (M2)."""

    broker_id: int
    directory_id: bytes
    """`DIRECTORY_ID_BYTES`."""


class HardState(NamedTuple):
    """What a voter must not forget (Raft, figure 2)."""

    term: int = 0
    vote: Voter | None = None
    """The voter that got this voter's vote in `term`; None: no voter."""
    commit: int = 0
    """Everything up to this index is committed; may lag behind the truth."""


class Recovery(msgspec.Struct, frozen=True):
    """One forced recovery (M2): from here on the log is that of one voter, whatever others hold."""

    id: bytes
    """A UUID: two recoveries from the same point are two histories."""
    index: int
    """The last entry from before."""
    term: int
    """Of that entry."""


class Configuration(msgspec.Struct, frozen=True, omit_defaults=True):
    """The voters, and the learners, which only follow until they may vote."""

    voters: tuple[Voter, ...]
    learners: tuple[Voter, ...] = ()
    recoveries: tuple[Recovery, ...] = ()
    """The history of the log, oldest first; each configuration has those of the one before it."""

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @classmethod
    def decode(cls, payload: bytes) -> Configuration:
        """Raises `DataDirectoryError` for what a later version wrote."""
        try:
            return msgspec.msgpack.decode(payload, type=cls)
        except (msgspec.DecodeError, ValueError) as error:
            raise DataDirectoryError(
                f"the metadata log holds a configuration that this version does not understand ({error}); "
                "start the version of tidelog-broker that wrote it, or a later one"
            ) from error


class Snapshot(msgspec.Struct, frozen=True):
    """The image at an index, in place of the entries up to it."""

    index: int
    term: int
    """Of the entry at `index`."""
    configuration: Configuration
    """As of `index`."""
    data: bytes
    """The encoded image."""
