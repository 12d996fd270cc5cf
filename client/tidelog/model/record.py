"""Records, the receipts that a producer gets for them, and the positions of a reader."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Headers = tuple[tuple[str, bytes | None], ...]
"""(name, value) pairs in order. Names may repeat; the value None: a header without a value."""


class Record(NamedTuple):
    """A record from a reader.

    It is a named tuple and not a dataclass because a reader makes millions of them: `Record._make`
    costs a fifth of the constructor of a frozen dataclass.
    """

    offset: int
    key: bytes | None
    value: bytes | None
    """None: a tombstone."""
    headers: Headers
    subject: str | None
    timestamp_us: int
    """Microseconds since the Unix epoch, by the producer's clock; for NATS messages by the broker's."""
    leader_epoch: int
    append_time_us: int
    """Microseconds since the Unix epoch, by the leader's clock; never decreases within a partition."""
    stream: str
    partition: int

    @property
    def timestamp(self) -> datetime:
        """`timestamp_us` as a datetime in UTC."""
        return _EPOCH + timedelta(microseconds=self.timestamp_us)

    def header(self, name: str) -> bytes | None:
        """The value of the first header with this name; None if there is none, or it has no value."""
        return next((value for key, value in self.headers if key == name), None)

    def __repr__(self) -> str:
        value = "tombstone" if self.value is None else f"{len(self.value)} bytes"
        key = "" if self.key is None else f" key={self.key[:32]!r}"
        return f"<Record {self.stream}/{self.partition} offset={self.offset}{key} {value}>"


class Receipt(NamedTuple):
    """The promise that records are committed at the offsets `offset` to `last_offset`."""

    partition: int
    offset: int
    """The offset of the first record."""
    last_offset: int
    leader_epoch: int
    append_time_us: int
    duplicate: bool = False
    """The records were in the log already: the offsets are those of the first copy."""

    def __repr__(self) -> str:
        offsets = f"{self.offset}" if self.offset == self.last_offset else f"{self.offset}–{self.last_offset}"
        again = " duplicate" if self.duplicate else ""
        return f"<Receipt partition={self.partition} offset={offsets} epoch={self.leader_epoch}{again}>"


OFFSET_MAX = (1 << 63) - 1
"""Offsets are signed 64-bit integers."""


class Position(NamedTuple):
    """The position of a reader in a partition (R13)."""

    offset: int
    """The next record to read."""
    leader_epoch: int | None = None
    """The epoch of the last record read; None: no record was read, and only the offset is checked."""


class AfterBytes(NamedTuple):
    """The edge between two batches behind about `bytes` bytes of a partition's log.

    As many whole batches as fit into `bytes` lie between `start` and the edge, but at least one batch. If
    fewer bytes are there, it is the high watermark. A broker finds it by the sizes of batches.
    """

    start: Position
    """The bytes are counted from the beginning of the batch that holds this offset."""
    bytes: int
    """Bytes of batches as they are stored, compressed if their producer compressed them; at least 1."""
