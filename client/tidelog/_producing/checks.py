"""Checks of what an application gives a producer: typed, definite errors before anything is sent."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidelog._arguments import as_int
from tidelog.errors import BatchTooLarge, InvalidRequest, PartitionNotFound
from tidelog.model import OFFSET_MAX
from tidelog.records.limits import BATCH_OVERHEAD_BYTES


def check_record_size(size: int, batch_bytes_max: int, buffer_bytes_max: int) -> None:
    """Raises `BatchTooLarge` for a record that does not fit into a batch, or into the whole buffer."""
    if size > batch_bytes_max - BATCH_OVERHEAD_BYTES:
        raise BatchTooLarge(
            f"a record of {size} bytes does not fit into a batch of at most "
            f"{batch_bytes_max} bytes (batch_bytes_max)"
        )
    if size > buffer_bytes_max:
        raise BatchTooLarge(
            f"a record of {size} bytes does not fit into the producer's buffer of "
            f"{buffer_bytes_max} bytes (buffer_bytes_max)"
        )


def checked_partition(partition: int, stream: str, count: int) -> int:
    """Raises `InvalidRequest` for another type, and `PartitionNotFound`."""
    if partition.__class__ is not int:
        partition = as_int(partition, "partition")
    if not 0 <= partition < count:
        raise PartitionNotFound.numbered(partition, stream=stream, count=count)
    return partition


def checked_expected_offset(expected_offset: Any, partition: object, stream: str, count: int) -> int:
    """Raises `InvalidRequest` for another type, for a number that is no offset, and without a partition."""
    offset = as_int(expected_offset, "expected_offset")
    if not 0 <= offset <= OFFSET_MAX:
        raise InvalidRequest(
            f"expected_offset is {offset}; it must lie in 0–{OFFSET_MAX}", field="expected_offset"
        )
    if partition is None and count > 1:
        raise InvalidRequest(
            f"expected_offset needs a partition: stream {stream} has {count}", field="partition"
        )
    return offset


def check_arrow(data: object) -> None:
    """Raises `InvalidRequest` for data that is no Arrow data."""
    if not isinstance(data, pa.RecordBatch | pa.Table):
        raise InvalidRequest(
            f"data is of type {type(data).__name__}; it must be a pyarrow.RecordBatch or pyarrow.Table",
            field="data",
        )
