"""The partition of a record: CRC-32C(key) mod n; without a key the same partition for a whole batch."""

from __future__ import annotations

import google_crc32c
import pyarrow as pa
import pyarrow.compute as pc

_crc = google_crc32c.value


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a record with this key."""
    return int(_crc(key)) % partitions


def split_by_key(columns: pa.RecordBatch, partitions: int, sticky: int) -> list[tuple[int, pa.RecordBatch]]:
    """The rows of `columns` by partition, each part in the order of its rows.

    `sticky` takes the rows without a key. Every distinct key is hashed once.
    """
    if partitions == 1:
        return [(0, columns)]
    encoded = columns.column("key").dictionary_encode()
    by_code = pa.array([_crc(key) % partitions for key in encoded.dictionary.to_pylist()], pa.int32())
    of_row = pc.fill_null(by_code.take(encoded.indices), pa.scalar(sticky, pa.int32()))
    return [
        (partition, columns.filter(pc.equal(of_row, partition)))
        for partition in sorted(pc.unique(of_row).to_pylist())
    ]


class StickyPartition:
    """Round robin over the partitions, one step for each batch."""

    __slots__ = ("_current", "partitions")

    def __init__(self, partitions: int, first: int) -> None:
        self.partitions = partitions
        """The number of partitions."""
        self._current = first % partitions

    @property
    def current(self) -> int:
        return self._current

    def step(self) -> int:
        self._current = (self._current + 1) % self.partitions
        return self._current
