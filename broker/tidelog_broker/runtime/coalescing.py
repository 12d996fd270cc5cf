"""Single records become record batches, once per write round and partition.

NATS messages and `Publish` requests come one by one; a batch of one record would cost
500 bytes and a write each. Whatever waits when a round begins is put together, in
order, between the batches that clients made themselves. Message ids are looked up here,
so that a duplicate never reaches the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from tidelog.errors import BatchTooLarge, InvalidRequest, TidelogError
from tidelog.records import BatchHeader, BatchLimits, Columns, encode_batch, schema_of
from tidelog.records.layout import HAS_MESSAGE_IDS
from tidelog_broker.runtime.appends import (
    Append,
    BatchAppend,
    Outcome,
    Single,
    SinglesAppend,
    SinglesAppended,
)
from tidelog_broker.storage.append_guard import AppendGuard
from tidelog_broker.storage.log import Appended, AppendItem

BATCH_OVERHEAD_BYTES = 2048
"""Header, Arrow metadata and padding of a batch, at most."""


@dataclass(slots=True, eq=False)
class _Batch:
    """A batch that single records are put into, and what became of it."""

    records: list[Single] = field(default_factory=list)
    ids: dict[str, int] = field(default_factory=dict)
    """Message id → index of the record."""
    bytes: int = BATCH_OVERHEAD_BYTES
    item: int | None = None
    """Its index among the round's items, once encoded."""
    error: TidelogError | None = None


class _Copy(NamedTuple):
    """Where a record stands, or the first copy of it: in a batch of this round or in the log."""

    batch: _Batch | None
    at: int
    """Its index in the batch; without a batch the offset itself."""
    duplicate: bool


@dataclass(slots=True)
class RoundPlan:
    """The batches of one round, and how their fate answers the appends."""

    limits: BatchLimits
    items: list[AppendItem] = field(default_factory=list)
    _appends: list[tuple[BatchAppend, int] | tuple[SinglesAppend, list[_Copy]]] = field(default_factory=list)
    _open: _Batch = field(default_factory=_Batch)
    _ids: dict[str, _Copy] = field(default_factory=dict)

    def add_batch(self, append: BatchAppend) -> None:
        self.close()
        self._appends.append((append, len(self.items)))
        self.items.append(append.item)

    def add_singles(self, append: SinglesAppend, guard: AppendGuard, now_us: int) -> None:
        if self._open.records and self._open.bytes + append.bytes > self.limits.batch_bytes_max:
            self.close()
        self._open.bytes += append.bytes
        self._appends.append((append, [self._place(record, guard, now_us) for record in append.records]))

    def _place(self, record: Single, guard: AppendGuard, now_us: int) -> _Copy:
        batch = self._open
        copy = _Copy(batch, len(batch.records), duplicate=False)
        if record.message_id is not None:
            known = guard.find_message(record.message_id, now_us)
            if known is not None:
                return _Copy(None, known, duplicate=True)
            first = self._ids.get(record.message_id)
            if first is not None:
                return first._replace(duplicate=True)
            self._ids[record.message_id] = copy
            batch.ids[record.message_id] = copy.at
        batch.records.append(record)
        return copy

    def close(self) -> None:
        """Encodes what is collected as one batch."""
        batch = self._open
        if not batch.records:
            return
        self._open = _Batch()
        try:
            data = encode_singles(batch.records)
        except TidelogError as error:
            batch.error = error
            return
        except (pa.ArrowException, ValueError, OverflowError, UnicodeError) as error:
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
        for entry in self._appends:
            if isinstance(entry[1], int):
                result.append((entry[0], written[entry[1]]))
            else:
                result.append((entry[0], self._singles_outcome(entry[1], written, leader_epoch)))
        return result

    @staticmethod
    def _singles_outcome(
        copies: list[_Copy], written: Sequence[Appended | TidelogError], leader_epoch: int
    ) -> SinglesAppended | TidelogError:
        offsets: list[int] = []
        for batch, at, _ in copies:
            if batch is None:
                offsets.append(at)
                continue
            outcome = batch.error if batch.item is None else written[batch.item]
            if outcome is None or isinstance(outcome, TidelogError):
                assert outcome is not None, "every batch of the round was closed"
                return outcome
            offsets.append(outcome.base_offset + at)
        duplicates = frozenset(i for i, copy in enumerate(copies) if copy.duplicate)
        return SinglesAppended(offsets, duplicates, leader_epoch)


def coalesce(appends: Sequence[Append], guard: AppendGuard, limits: BatchLimits, now_us: int) -> RoundPlan:
    """The batches to append, in the order of the appends."""
    plan = RoundPlan(limits)
    for append in appends:
        if isinstance(append, BatchAppend):
            plan.add_batch(append)
        else:
            plan.add_singles(append, guard, now_us)
    plan.close()
    return plan


def encode_singles(records: Sequence[Single]) -> bytes:
    """One record batch, with only the columns that some record uses."""
    columns = Columns.NONE
    arrays: dict[str, list[object]] = {"value": [r.value for r in records]}
    if any(r.key is not None for r in records):
        columns |= Columns.KEY
        arrays["key"] = [r.key for r in records]
    if any(r.headers for r in records):
        columns |= Columns.HEADERS
        arrays["headers"] = [[{"key": k, "value": v} for k, v in r.headers] for r in records]
    if any(r.subject is not None for r in records):
        columns |= Columns.SUBJECT
        arrays["subject"] = [r.subject for r in records]
    arrays["timestamp"] = [r.timestamp_us for r in records]
    schema = schema_of(columns)
    batch = pa.record_batch([pa.array(arrays[f.name], f.type) for f in schema], schema=schema)
    flags = HAS_MESSAGE_IDS if any(r.message_id is not None for r in records) else 0
    return encode_batch(batch, flags=flags)
