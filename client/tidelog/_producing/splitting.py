"""Splits Arrow data of any size into batches: one partition each, none too large."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pyarrow as pa

from tidelog._producing.partitioner import StickyPartition, split_by_key
from tidelog.errors import BatchTooLarge
from tidelog.records import to_columns
from tidelog.records.limits import BATCH_BYTES_HARD_MAX, BATCH_OVERHEAD_BYTES, RECORDS_PER_BATCH_MAX


def split(
    data: pa.RecordBatch | pa.Table,
    partition: int | None,
    sticky: StickyPartition,
    size: int,
    size_max: int,
) -> list[tuple[int, pa.RecordBatch]]:
    """Arrow data as batches of about `size` bytes (`slices_near`), each with its partition.

    Without a given `partition`, rows with a key go to the partition of the key, the others to the sticky
    one; for data without keys the sticky partition changes with each batch.
    """
    now_us = time.time_ns() // 1000
    batches = data.to_batches() if isinstance(data, pa.Table) else [data]
    parts: list[tuple[int, pa.RecordBatch]] = []
    for found in batches:
        if not found.num_rows:
            continue
        columns = to_columns(found, now_us=now_us)
        targets: Sequence[tuple[int | None, pa.RecordBatch]]
        if partition is None and sticky.partitions > 1 and "key" in columns.schema.names:
            targets = split_by_key(columns, sticky.partitions, sticky.current)
        else:
            targets = [(partition, columns)]
        for target, part in targets:
            pieces = slices_near(part, size, size_max)
            parts += [(sticky.step() if target is None else target, piece) for piece in pieces]
    return parts


def slices_near(columns: pa.RecordBatch, size: int, size_max: int) -> Iterator[pa.RecordBatch]:
    """`columns` cut into batches of about `size` bytes, none of more than `size_max`.

    Rows of uneven size are cut by halving. A slice is a view; encoding it writes only its
    own rows. Raises `BatchTooLarge` for a single row over the limit.
    """
    rows = columns.num_rows
    if rows == 0:
        return
    per_row = max(1.0, columns.nbytes / rows)
    step = int(min(max(1.0, size / per_row), RECORDS_PER_BATCH_MAX, rows))
    for at in range(0, rows, step):
        yield from _halved(columns.slice(at, step), min(size_max, BATCH_BYTES_HARD_MAX))


def _halved(columns: pa.RecordBatch, size_max: int) -> Iterator[pa.RecordBatch]:
    if columns.nbytes + BATCH_OVERHEAD_BYTES <= size_max:
        yield columns
        return
    if columns.num_rows == 1:
        raise BatchTooLarge(
            f"a record of {columns.nbytes} bytes does not fit into a batch of at most {size_max} bytes "
            "(batch_bytes_max)"
        )
    half = columns.num_rows // 2
    yield from _halved(columns.slice(0, half), size_max)
    yield from _halved(columns.slice(half), size_max)
