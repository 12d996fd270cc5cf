"""Records that arrived one by one, kept as columns: `Publish` requests and NATS messages.

Columns are used because each step works on all records at once. Neighbour: `batching` puts the
records of a round together and encodes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import TypeVar

T = TypeVar("T")

RECORD_OVERHEAD_BYTES = 40
"""Upper limit of the bytes for offsets, bitmaps and timestamp of a record in a batch."""

HEADER_OVERHEAD_BYTES = 10
"""Upper limit of the bytes for offsets and bitmap bits of one header of a record."""

MESSAGE_ID_BYTES_MAX = 1024
"""Maximum length of a message id; ids are kept in memory for the dedupe window."""

Headers = Sequence[tuple[str, bytes | None]]


class RecordColumns:
    """Some records, in order. A column is None if no record has a value for it."""

    __slots__ = ("bytes", "headers", "keys", "message_ids", "subjects", "timestamps_us", "values")

    def __init__(self) -> None:
        self.values: list[bytes | None] = []
        self.timestamps_us: list[int] = []
        self.keys: list[bytes | None] | None = None
        self.headers: list[Headers] | None = None
        self.subjects: list[str | bytes | None] | None = None
        """Bytes are UTF-8."""
        self.message_ids: list[str | None] | None = None
        """Used for deduplication; the ids are in `headers` too."""
        self.bytes = 0
        """An upper limit of the bytes of the records in a batch, without the batch's own overhead."""

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"<RecordColumns records={len(self)} bytes={self.bytes}>"

    @classmethod
    def of_subjects(
        cls, values: Sequence[bytes], subjects: Sequence[bytes], size: int, timestamp_us: int
    ) -> RecordColumns:
        """Records with a value and a subject only, all with one timestamp; `size`: bytes of both columns."""
        one = cls()
        one.values = list(values)
        one.subjects = list(subjects)
        one.timestamps_us = [timestamp_us] * len(values)
        one.bytes = size + RECORD_OVERHEAD_BYTES * len(values)
        return one

    def add(
        self,
        value: bytes | None,
        timestamp_us: int,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        subject: str | bytes | None = None,
        message_id: str | None = None,
    ) -> None:
        """Appends a record."""
        count = len(self.values)
        self.values.append(value)
        self.timestamps_us.append(timestamp_us)
        self.keys = _added(self.keys, key, count)
        self.subjects = _added(self.subjects, subject, count)
        self.message_ids = _added(self.message_ids, message_id, count)
        if self.headers is not None or headers:
            self.headers = _added(self.headers, headers, count, missing=())
        self.bytes += record_bytes_max(value, key, headers, subject)

    def extend(self, more: RecordColumns) -> None:
        """Appends the records of `more`."""
        before, after = len(self.values), len(more.values)
        self.values += more.values
        self.timestamps_us += more.timestamps_us
        self.keys = _extended(self.keys, more.keys, before, after)
        self.subjects = _extended(self.subjects, more.subjects, before, after)
        self.message_ids = _extended(self.message_ids, more.message_ids, before, after)
        if self.headers is not None or more.headers is not None:
            self.headers = _extended(self.headers, more.headers, before, after, missing=())
        self.bytes += more.bytes

    def add_from(self, other: RecordColumns, index: int) -> None:
        """Appends one record of `other`."""
        self.add(
            other.values[index],
            other.timestamps_us[index],
            key=other.keys[index] if other.keys is not None else None,
            headers=other.headers[index] if other.headers is not None else (),
            subject=other.subjects[index] if other.subjects is not None else None,
            message_id=other.message_ids[index] if other.message_ids is not None else None,
        )


def record_bytes_max(
    value: bytes | None, key: bytes | None, headers: Headers, subject: str | bytes | None
) -> int:
    """An upper limit of the bytes of a record in a batch."""
    size = RECORD_OVERHEAD_BYTES + len(value or b"") + len(key or b"")
    if subject is not None:
        size += len(subject) * (4 if isinstance(subject, str) and not subject.isascii() else 1)
    for name, content in headers:
        size += HEADER_OVERHEAD_BYTES + 4 * len(name) + len(content or b"")
    return size


def _added(column: list[T] | None, entry: T, count: int, missing: T | None = None) -> list[T] | None:
    """The column of `count` records with one more entry; created for the first entry that is not None."""
    if column is None:
        if entry is None:
            return None
        column = [missing] * count  # type: ignore[list-item]
    column.append(entry)
    return column


def _extended(
    column: list[T] | None, more: list[T] | None, before: int, after: int, missing: T | None = None
) -> list[T] | None:
    if column is None and more is None:
        return None
    if column is None:
        column = [missing] * before  # type: ignore[list-item]
    column.extend(more if more is not None else repeat(missing, after))  # type: ignore[arg-type]
    return column
