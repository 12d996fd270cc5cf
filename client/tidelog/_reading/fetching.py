"""Fetch answers, checked and cut to the requested offsets, in order. No I/O.

`FetchState` follows one partition. It refuses a batch whose checksums fail, a gap in the offsets that
compaction does not explain, and a leader epoch that decreases (F2, R12, R13).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, repeat

import pyarrow as pa
import pyarrow.compute as pc

from tidelog._connecting.framing import FetchAnswer
from tidelog._connecting.status import error_from_message
from tidelog.errors import DataCorrupt
from tidelog.model import Headers, Position, Record
from tidelog.records import BatchHeader, decode_batch, split_batches, verify_batch
from tidelog.records.projected import ProjectedHeader, decode_projected, split_projected
from tidelog_proto import log_pb2

_NOTHING = pa.record_batch({})


class FetchedBatch:
    """Records of one partition as they were fetched: Arrow columns and their offsets in the log."""

    __slots__ = (
        "_deltas",
        "append_time_us",
        "base_offset",
        "columns",
        "leader_epoch",
        "next_offset",
        "partition",
        "stream",
    )

    def __init__(
        self,
        stream: str,
        partition: int,
        header: BatchHeader | ProjectedHeader,
        columns: pa.RecordBatch,
        base_offset: int,
        next_offset: int,
        deltas: pa.Array | None,
    ) -> None:
        self.stream = stream
        self.partition = partition
        self.columns = columns
        """value and timestamp, and key, headers and subject if the batch has them; of these, the columns that
        the reader was asked for. They are views of the received bytes unless the batch was compressed."""
        self.base_offset = base_offset
        """The offset of the first row."""
        self.next_offset = next_offset
        """The next offset to read: behind the last row, and behind records that the reader left out."""
        self.leader_epoch = header.leader_epoch
        self.append_time_us = header.append_time_us
        self._deltas = deltas

    def __repr__(self) -> str:
        place = f"{self.stream}/{self.partition} offset={self.base_offset} epoch={self.leader_epoch}"
        return f"<FetchedBatch {place} records={self.columns.num_rows}>"

    @property
    def position(self) -> Position:
        """The position of a reader behind this batch."""
        return Position(self.next_offset, self.leader_epoch)

    @property
    def offsets(self) -> pa.Array:
        """The offset of each row (int64). Only a compacted batch and a filtered batch have gaps."""
        if self._deltas is not None:
            return pc.add(self._deltas.cast(pa.int64()), self.base_offset - self._deltas[0].as_py())
        return pa.arange(self.base_offset, self.base_offset + self.columns.num_rows)

    def after(self, offset: int) -> FetchedBatch:
        """The rows behind the one at `offset`."""
        rest = FetchedBatch.__new__(FetchedBatch)
        for name in ("stream", "partition", "next_offset", "leader_epoch", "append_time_us"):
            setattr(rest, name, getattr(self, name))
        at = offset + 1 - self.base_offset
        rest._deltas = None
        if self._deltas is not None:
            offsets = self.offsets
            at = int(pc.sum(pc.less_equal(offsets, offset)).as_py() or 0)
            rest._deltas = self._deltas.slice(at)
            rest.base_offset = offsets[at].as_py()
        else:
            rest.base_offset = offset + 1
        rest.columns = self.columns.slice(at)
        return rest

    def with_offsets(self) -> pa.RecordBatch:
        """The columns, and the column ``offset`` (int64) behind them."""
        return self.columns.append_column("offset", self.offsets)

    def records(self) -> Iterator[Record]:
        """The rows as `Record` values."""
        columns, count = self.columns, self.columns.num_rows
        names = columns.schema.names
        base = self.base_offset
        offsets = range(base, base + count) if self._deltas is None else self.offsets.to_pylist()
        nothing = repeat(None)
        rows = zip(
            offsets,
            columns.column("key").to_pylist() if "key" in names else nothing,
            columns.column("value").to_pylist(),
            _headers(columns.column("headers")) if "headers" in names else repeat(()),
            columns.column("subject").to_pylist() if "subject" in names else nothing,
            columns.column("timestamp").view(pa.int64()).to_pylist(),
            repeat(self.leader_epoch),
            repeat(self.append_time_us),
            repeat(self.stream),
            repeat(self.partition),
            strict=False,
        )
        return map(Record._make, rows)


def _headers(column: pa.ListArray) -> list[Headers]:
    flat = column.flatten()
    pairs = list(zip(flat.field("key").to_pylist(), flat.field("value").to_pylist(), strict=True))
    offsets = column.offsets.to_pylist()
    first = offsets[0] if offsets else 0
    return [tuple(pairs[start - first : end - first]) for start, end in pairwise(offsets)]


class FetchState:
    """The state of reading one partition."""

    __slots__ = (
        "_inside",
        "end",
        "epoch",
        "high_watermark",
        "log_end_offset",
        "log_start_offset",
        "next_offset",
        "partition",
        "stream",
        "stream_id",
    )

    def __init__(
        self, stream: str, stream_id: bytes, partition: int, start: Position, end: int | None
    ) -> None:
        self.stream = stream
        self.stream_id = stream_id
        self.partition = partition
        self.next_offset = start.offset
        self.epoch = start.leader_epoch
        """The leader epoch of the last record read; None: no record was read."""
        self.end = end
        """The first offset not to read; None: there is no end."""
        self.log_start_offset = 0
        self.high_watermark = 0
        self.log_end_offset = 0
        self._inside = True
        """The next batch may begin before `next_offset`, because the call has just begun."""

    def __repr__(self) -> str:
        end = "" if self.end is None else f" end={self.end}"
        return f"<FetchState {self.stream}/{self.partition} next={self.next_offset}{end}>"

    @property
    def ended(self) -> bool:
        return self.end is not None and self.next_offset >= self.end

    @property
    def position(self) -> Position:
        return Position(self.next_offset, self.epoch)

    def jump(self, position: Position) -> None:
        """Continues at another position, after the log was truncated."""
        self.next_offset, self.epoch = position
        self._inside = True

    def request(self) -> log_pb2.FetchPartition:
        """The request that continues at this position."""
        self._inside = True
        return log_pb2.FetchPartition(
            stream_id=self.stream_id,
            partition=self.partition,
            position=log_pb2.Position(offset=self.next_offset, leader_epoch=self.epoch),
            end_offset=self.end,
        )

    def accept(self, answer: FetchAnswer) -> Iterator[FetchedBatch]:
        """The batches of one answer; each counts as read when the caller takes it.

        A batch without rows says that no record up to its end matched.

        Raises the error in the answer, or `DataCorrupt` for batches that break the order.
        """
        facts = answer.facts
        self.log_start_offset = facts.log_start_offset
        self.high_watermark = facts.high_watermark
        self.log_end_offset = facts.log_end_offset
        if facts.HasField("error"):
            raise error_from_message(facts.error)
        for header, data in split_batches(answer.batches) if len(answer.batches) else ():
            verify_batch(data, header, self.stream_id, self.partition)
            self._check_place(header)
            batch = self._cut(header, data)
            if batch is not None:
                yield batch
            if self.ended:
                return
        for projected, body in split_projected(answer.projected, self.stream_id, self.partition):
            yield self._take_projected(projected, body)
        if facts.HasField("end") and self.end is not None:
            # Compaction took the records before the end.
            self.next_offset = max(self.next_offset, min(self.end, facts.next.offset))

    def _check_place(self, header: BatchHeader) -> None:
        base, expected = header.base_offset, self.next_offset
        if self._inside:
            fits = base <= expected < header.next_offset or (header.compacted and base > expected)
        else:
            fits = base == expected or (header.compacted and base > expected)
        if not fits:
            raise DataCorrupt(
                f"{self.stream}/{self.partition}: the next offset is {expected}, but the fetched batch has "
                f"offsets {base}–{header.last_offset}",
                offset=expected,
            )
        self._check_epoch(header.leader_epoch, base)
        self._inside = False

    def _check_epoch(self, leader_epoch: int, base: int) -> None:
        if self.epoch is not None and leader_epoch < self.epoch:
            raise DataCorrupt(
                f"{self.stream}/{self.partition}: the batch at offset {base} has leader epoch "
                f"{leader_epoch}, but the batch before it has epoch {self.epoch}",
                offset=base,
            )

    def _take_projected(self, header: ProjectedHeader, body: pa.Buffer) -> FetchedBatch:
        """The records of a projected batch; the broker has cut it to the offsets that were requested."""
        start, after = header.start_offset, header.next_offset
        if start != self.next_offset or (self.end is not None and after > self.end):
            raise DataCorrupt(
                f"{self.stream}/{self.partition}: the next offset is {self.next_offset}, but the projected "
                f"batch is about the offsets from {start} to {after}",
                offset=self.next_offset,
            )
        self._check_epoch(header.leader_epoch, start)
        self.next_offset, self.epoch = after, header.leader_epoch
        if not header.record_count:
            return FetchedBatch(self.stream, self.partition, header, _NOTHING, start, after, None)
        columns = decode_projected(header, body)
        offsets = columns.column("offset")
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        if not start <= first <= last < after:
            raise DataCorrupt(
                f"{self.stream}/{self.partition}: the projected batch has offsets {first}–{last}, but is "
                f"about those from {start} to {after}",
                offset=start,
            )
        gaps = last - first + 1 != columns.num_rows
        columns = columns.drop_columns(["offset"])
        return FetchedBatch(
            self.stream, self.partition, header, columns, first, after, offsets if gaps else None
        )

    def _cut(self, header: BatchHeader, data: pa.Buffer) -> FetchedBatch | None:
        """The rows from `next_offset` to `end`; None if compaction left none."""
        columns = decode_batch(data, header)
        base, start, after = header.base_offset, self.next_offset, header.next_offset
        if self.end is not None and self.end < after:
            after = self.end
        self.next_offset, self.epoch = after, header.leader_epoch
        deltas = None
        if header.compacted:
            deltas = columns.column("offset_delta")
            columns = columns.drop_columns(["offset_delta"])
            first = _count_below(deltas, start - base)
            last = _count_below(deltas, after - base)
            columns, deltas = columns.slice(first, last - first), deltas.slice(first, last - first)
            if columns.num_rows == 0:
                return None
            base += deltas[0].as_py()
        elif start > base or after < header.next_offset:
            base = max(base, start)
            columns = columns.slice(base - header.base_offset, after - base)
        return FetchedBatch(self.stream, self.partition, header, columns, base, after, deltas)


def _count_below(deltas: pa.Array, bound: int) -> int:
    if bound <= 0:
        return 0
    return int(pc.sum(pc.less(deltas.cast(pa.int64()), bound)).as_py() or 0)
