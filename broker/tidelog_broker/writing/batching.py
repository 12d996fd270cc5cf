"""Single records become record batches, once per write round and partition.

NATS messages and `Publish` requests arrive one by one; a batch for each record would cost
500 bytes and a write. All records that wait when a round begins are put together, in
order, between the batches that clients encoded. Message ids are looked up here,
so that a duplicate never reaches the log.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

import pyarrow as pa

from tidelog.errors import BatchTooLarge, InvalidRequest, TidelogError
from tidelog.records import BatchHeader, BatchLimits, Columns, encode_batch, schema_of
from tidelog.records.layout import HAS_MESSAGE_IDS
from tidelog.records.limits import BATCH_OVERHEAD_BYTES
from tidelog.records.plain import encode_plain, is_plain
from tidelog_broker.storage.guard.append_guard import AppendGuard
from tidelog_broker.storage.log.write_batch import Appended, AppendItem
from tidelog_broker.writing.append_requests import (
    Append,
    BatchAppend,
    Outcome,
    RecordsAppend,
    RecordsAppended,
)
from tidelog_broker.writing.record_columns import RecordColumns


@dataclass(slots=True, eq=False)
class _Batch:
    """A batch made of single records, and its outcome."""

    records: RecordColumns = field(default_factory=RecordColumns)
    ids: dict[str, int] = field(default_factory=dict)
    """Message id → index of the record."""
    item: int | None = None
    """Its index among the round's items, once encoded."""
    error: TidelogError | None = None

    def outcome(self, written: Sequence[Appended | TidelogError]) -> Appended | TidelogError:
        found = self.error if self.item is None else written[self.item]
        assert found is not None, "every batch of the round was closed"
        return found


class _Run(NamedTuple):
    """Records of one append that are consecutive in a batch of this round."""

    batch: _Batch
    at: int
    """Index of the first record."""
    length: int

    def outcome(
        self, written: Sequence[Appended | TidelogError], leader_epoch: int
    ) -> RecordsAppended | TidelogError:
        found = self.batch.outcome(written)
        if isinstance(found, TidelogError):
            return found
        first = found.base_offset + self.at
        return RecordsAppended(range(first, first + self.length), frozenset(), leader_epoch)


class _Copy(NamedTuple):
    """The place of a record or of its first copy: in a batch of this round or in the log."""

    batch: _Batch | None
    at: int
    """Its index in the batch; without a batch the offset itself."""
    duplicate: bool


class _Copies(NamedTuple):
    """Records of one append, some of which may be duplicates."""

    copies: list[_Copy]

    def outcome(
        self, written: Sequence[Appended | TidelogError], leader_epoch: int
    ) -> RecordsAppended | TidelogError:
        offsets: list[int] = []
        for batch, at, _ in self.copies:
            if batch is None:
                offsets.append(at)
                continue
            found = batch.outcome(written)
            if isinstance(found, TidelogError):
                return found
            offsets.append(found.base_offset + at)
        duplicates = frozenset(i for i, copy in enumerate(self.copies) if copy.duplicate)
        return RecordsAppended(offsets, duplicates, leader_epoch)


@dataclass(slots=True)
class RoundPlan:
    """The batches of one round, and how their outcomes become the outcomes of the appends."""

    limits: BatchLimits
    items: list[AppendItem] = field(default_factory=list)
    _appends: list[tuple[BatchAppend, int] | tuple[RecordsAppend, _Run | _Copies]] = field(
        default_factory=list
    )
    _open: _Batch = field(default_factory=_Batch)
    _ids: dict[str, _Copy] = field(default_factory=dict)

    def add_batch(self, append: BatchAppend) -> None:
        self.close()
        self._appends.append((append, len(self.items)))
        self.items.append(append.item)

    def add_records(self, append: RecordsAppend, guard: AppendGuard, now_us: int) -> None:
        records = append.records
        taken = self._open.records.bytes + BATCH_OVERHEAD_BYTES
        if self._open.records.values and taken + records.bytes > self.limits.batch_bytes_max:
            self.close()
        if records.message_ids is None:
            batch = self._open
            self._appends.append((append, _Run(batch, len(batch.records), len(records))))
            batch.records.extend(records)
        else:
            copies = [self._place(records, index, guard, now_us) for index in range(len(records))]
            self._appends.append((append, _Copies(copies)))

    def _place(self, records: RecordColumns, index: int, guard: AppendGuard, now_us: int) -> _Copy:
        batch = self._open
        copy = _Copy(batch, len(batch.records), duplicate=False)
        message_id = records.message_ids[index] if records.message_ids is not None else None
        if message_id is not None:
            known = guard.find_message(message_id, now_us)
            if known is not None:
                return _Copy(None, known, duplicate=True)
            first = self._ids.get(message_id)
            if first is not None:
                return first._replace(duplicate=True)
            self._ids[message_id] = copy
            batch.ids[message_id] = copy.at
        batch.records.add_from(records, index)
        return copy

    def close(self) -> None:
        """Encodes the collected records as one batch."""
        batch = self._open
        if not batch.records.values:
            return
        self._open = _Batch()
        try:
            data = encode_records(batch.records)
        except TidelogError as error:
            batch.error = error
            return
        except (pa.ArrowException, struct.error, ValueError, OverflowError, UnicodeError) as error:
            batch.error = InvalidRequest(f"a record cannot be encoded: {error}")
            return
        if len(data) > self.limits.batch_bytes_max:
            batch.error = BatchTooLarge(
                f"{len(batch.records)} records make a batch of {len(data)} bytes; this stream takes "
                f"{self.limits.batch_bytes_max} (batch_bytes_max)",
                batch_bytes_max=self.limits.batch_bytes_max,
            )
            return
        batch.item = len(self.items)
        ids = tuple((index, message_id) for message_id, index in batch.ids.items())
        self.items.append(AppendItem(data, BatchHeader.unpack(data), message_ids=ids))

    def outcomes(self, written: Sequence[Appended | TidelogError], leader_epoch: int) -> list[Outcome]:
        """An outcome for each append of the round, in order."""
        result: list[Outcome] = []
        for append, place in self._appends:
            outcome = written[place] if isinstance(place, int) else place.outcome(written, leader_epoch)
            result.append((append, outcome))
        return result


def batches_of(appends: Sequence[Append], guard: AppendGuard, limits: BatchLimits, now_us: int) -> RoundPlan:
    """The batches to append, in the order of the appends."""
    plan = RoundPlan(limits)
    for append in appends:
        if isinstance(append, BatchAppend):
            plan.add_batch(append)
        else:
            plan.add_records(append, guard, now_us)
    plan.close()
    return plan


def encode_records(records: RecordColumns) -> bytes:
    """One record batch, with only the columns that some record uses."""
    bare = records.headers is None and records.message_ids is None
    if bare and is_plain(records.values, records.keys, records.subjects):
        return _encode_plain(records)
    columns = Columns.NONE
    lists: dict[str, Sequence[object]] = {"value": records.values, "timestamp": records.timestamps_us}
    for flag, name, column in (
        (Columns.KEY, "key", records.keys),
        (Columns.HEADERS, "headers", records.headers),
        (Columns.SUBJECT, "subject", records.subjects),
    ):
        if column is not None:
            columns |= flag
            lists[name] = column
    schema = schema_of(columns)
    arrays = [pa.array(lists[entry.name], entry.type) for entry in schema]
    flags = HAS_MESSAGE_IDS if records.message_ids is not None else 0
    return encode_batch(pa.record_batch(arrays, schema=schema), flags=flags)


def _encode_plain(records: RecordColumns) -> bytes:
    subjects = cast(list[str | bytes] | None, records.subjects)
    return encode_plain(
        cast(list[bytes], records.values),
        records.timestamps_us,
        keys=cast(list[bytes] | None, records.keys),
        subjects=None if subjects is None else [s.encode() if isinstance(s, str) else s for s in subjects],
    )
