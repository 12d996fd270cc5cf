"""Reads one range of a partition as Arrow batches for Spark: the work of a task.

The columns of a fetched batch are passed on unchanged; the others (stream, partition, offset, leader epoch)
are made per batch, never per record. Small batches are joined, because each batch costs the JVM as much as
a thousand rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from tidelog import FetchedBatch
from tidelog.errors import LogTruncated, OffsetOutOfRange, StreamNotFound, TidelogError
from tidelog.model import Position, id_text
from tidelog_spark import cluster, planning
from tidelog_spark.byte_limits import cut
from tidelog_spark.cluster import Cluster
from tidelog_spark.offsets import Range
from tidelog_spark.options import Options
from tidelog_spark.payload import stored_schema, with_payload
from tidelog_spark.positions import REMEDY

ROWS_WANTED: Final = 8192
"""Batches are joined up to about this many rows …"""

BYTES_WANTED: Final = 4 << 20
"""… or this many bytes."""

log = logging.getLogger(__name__)


class Split(InputPartition):
    """The range of one task; the driver sends it to the task."""

    def __init__(self, piece: Range) -> None:
        super().__init__(None)
        self.piece = piece

    def __repr__(self) -> str:
        return f"<Split {self.piece}>"


def splits(ranges: Sequence[Range], options: Options) -> list[InputPartition]:
    """The tasks that read the ranges, within the limits of the options."""
    limits = options.task
    if limits.bytes_max is not None:
        brokers = cluster.of(options.servers)
        ranges = cut(ranges, limits.bytes_max, lambda starts: brokers.find(starts, options.retries))
    pieces = planning.split(ranges, records_max=limits.records_max, partitions_min=limits.partitions_min)
    return [Split(piece) for piece in pieces]


def read_rows(
    brokers: Cluster, piece: Range, schema: pa.Schema, options: Options
) -> Iterator[pa.RecordBatch]:
    """The rows of `piece`: the records of `read_range`, their values decoded as the options say.

    Raises `BadRecord` if a value cannot be decoded and bad records must fail.
    """
    if options.payload is None:
        yield from read_range(brokers, piece, schema, options)
        return
    for batch in read_range(brokers, piece, stored_schema(schema), options):
        yield with_payload(batch, schema, options.payload, str(piece.key))


def read_range(
    brokers: Cluster, piece: Range, schema: pa.Schema, options: Options
) -> Iterator[pa.RecordBatch]:
    """The records of `piece`, in order, in batches of exactly `schema`.

    Raises `OffsetOutOfRange`, `LogTruncated` or `StreamNotFound` if some of them have been lost or replaced
    since the range was planned; without `failOnDataLoss` it warns and reads the records that are left.
    """
    pruning = options.pruning.reader_settings(tuple(schema.names))
    position: Position | None = piece.start
    waiting = _Waiting()
    while position is not None and position.offset < piece.end.offset:
        try:
            with brokers.reader(piece, position, options.retries, **pruning) as reader:
                for batch in reader.fetched_batches():
                    waiting.add(batch)
                    position = batch.position
                    if waiting.enough:
                        yield assemble(waiting.take(), schema)
                # Behind the last batch there may be records that a filter leaves out.
                position = reader.positions[piece.key.partition]
            _check_end(piece, position)
            break
        except (OffsetOutOfRange, LogTruncated, StreamNotFound) as error:
            sentence = f"{piece} cannot be read in full: {_reason(error, piece)}"
            if options.fail_on_data_loss:
                raise type(error)(f"{sentence}; {REMEDY}") from None
            log.warning("%s", sentence)
            position = _past(error, position)
    if waiting.rows:
        yield assemble(waiting.take(), schema)


def _check_end(piece: Range, reached: Position) -> None:
    """Checks that the last record is the same as when the range was planned (R13)."""
    if reached.offset < piece.end.offset:
        raise LogTruncated(
            f"the log ends at offset {reached.offset}; it was longer when the range was planned"
        )
    if piece.end.leader_epoch is not None and reached.leader_epoch != piece.end.leader_epoch:
        raise LogTruncated(
            f"the record at offset {piece.end.offset - 1} has leader epoch {reached.leader_epoch}; "
            f"it had {piece.end.leader_epoch} when the range was planned"
        )


def _reason(error: TidelogError, piece: Range) -> str:
    """Why records are lost. The range was planned, so a stream that is not there now was deleted."""
    if isinstance(error, StreamNotFound):
        return f"the stream {piece.key.stream} with id {id_text(piece.stream_id)} was deleted"
    return str(error)


def _past(error: TidelogError, position: Position) -> Position | None:
    """The position behind the lost records; None: there is none."""
    log_start = error.details.get("log_start_offset")
    if isinstance(error, OffsetOutOfRange) and log_start is not None and int(log_start) > position.offset:
        return Position(int(log_start))
    if isinstance(error, LogTruncated) and position.leader_epoch is not None and error.details:
        # The log was written again: read the records at these offsets now, without checking the epoch.
        return Position(position.offset)
    return None


class _Waiting:
    """Batches that wait to be joined."""

    def __init__(self) -> None:
        self._batches: list[FetchedBatch] = []
        self.rows = 0
        self._bytes = 0

    def __repr__(self) -> str:
        return f"<_Waiting rows={self.rows} bytes={self._bytes}>"

    @property
    def enough(self) -> bool:
        return self.rows >= ROWS_WANTED or self._bytes >= BYTES_WANTED

    def add(self, batch: FetchedBatch) -> None:
        self._batches.append(batch)
        self.rows += batch.columns.num_rows
        self._bytes += batch.columns.nbytes

    def take(self) -> list[FetchedBatch]:
        taken, self._batches, self.rows, self._bytes = self._batches, [], 0, 0
        return taken


def assemble(batches: Sequence[FetchedBatch], schema: pa.Schema) -> pa.RecordBatch:
    """One batch of `schema` from consecutive batches of one partition; copies only to join them."""
    columns = [_column(batches, field) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(batches: Sequence[FetchedBatch], field: pa.Field) -> pa.Array:
    first = batches[0]
    rows = sum(batch.columns.num_rows for batch in batches)
    match field.name:
        case "stream":
            return pa.repeat(pa.scalar(first.stream, field.type), rows)
        case "partition":
            return pa.repeat(pa.scalar(first.partition, field.type), rows)
        case "offset":
            if batches[-1].next_offset - first.base_offset == rows:
                return pa.arange(first.base_offset, first.base_offset + rows)
            return _joined([batch.offsets for batch in batches])
        case "leader_epoch":
            if batches[-1].leader_epoch == first.leader_epoch:
                return pa.repeat(pa.scalar(first.leader_epoch, field.type), rows)
            return _joined(
                [pa.repeat(pa.scalar(b.leader_epoch, field.type), b.columns.num_rows) for b in batches]
            )
    return _joined([_stored(batch.columns, field) for batch in batches])


def _stored(columns: pa.RecordBatch, field: pa.Field) -> pa.Array:
    """A column of the batch; nulls or empty lists for a column that the batch does not have."""
    place = columns.schema.get_field_index(field.name)
    if place >= 0:
        column = columns.column(place)
        return column if column.type.equals(field.type) else column.cast(field.type)
    if pa.types.is_list(field.type):
        starts = pa.repeat(pa.scalar(0, pa.int32()), columns.num_rows + 1)
        return pa.ListArray.from_arrays(starts, pa.array([], field.type.value_type), type=field.type)
    return pa.nulls(columns.num_rows, field.type)


def _joined(arrays: list[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
