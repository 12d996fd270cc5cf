"""A record as a reader gets it, the receipt that a producer gets for it, and where to read on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Headers = tuple[tuple[str, bytes | None], ...]
"""In order; names may repeat; None: a header without a value."""


class Record(NamedTuple):
    """A record as a reader gets it.

    A named tuple and not a dataclass, because readers make millions: `Record._make`
    costs a fifth of a frozen dataclass's constructor.
    """

    offset: int
    key: bytes | None
    value: bytes | None
    """None: a tombstone."""
    headers: Headers
    subject: str | None
    timestamp_us: int
    """Microseconds since the Unix epoch, the producer's clock; of NATS messages, the broker's."""
    leader_epoch: int
    append_time_us: int
    """The leader's clock; never goes back within a partition."""
    stream: str
    partition: int

    @property
    def timestamp(self) -> datetime:
        """`timestamp_us` as a datetime in UTC."""
        return _EPOCH + timedelta(microseconds=self.timestamp_us)

    def header(self, name: str) -> bytes | None:
        """The value of the first header of that name; None if there is none or it has no value."""
        return next((value for key, value in self.headers if key == name), None)

    def __repr__(self) -> str:
        value = "tombstone" if self.value is None else f"{len(self.value)} bytes"
        key = "" if self.key is None else f" key={self.key[:32]!r}"
        return f"<Record {self.stream}/{self.partition} offset={self.offset}{key} {value}>"


class Receipt(NamedTuple):
    """The promise that records are committed, and where: offsets `offset` to `last_offset`."""

    partition: int
    offset: int
    """Of the first record."""
    last_offset: int
    leader_epoch: int
    append_time_us: int
    duplicate: bool = False
    """They were in the log already: the offsets are those of the first copy."""

    def __repr__(self) -> str:
        offsets = f"{self.offset}" if self.offset == self.last_offset else f"{self.offset}–{self.last_offset}"
        again = " duplicate" if self.duplicate else ""
        return f"<Receipt partition={self.partition} offset={offsets} epoch={self.leader_epoch}{again}>"


OFFSET_MAX = (1 << 63) - 1
"""Offsets travel in 64 bits with a sign."""


class Position(NamedTuple):
    """Where a reader stands (R13)."""

    offset: int
    """The next record to read."""
    leader_epoch: int | None = None
    """Of the last record read; None: none was, only the offset is checked."""
