"""Record values with their producer and number, and batches of them as runs."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa

_STAMP = struct.Struct("<4sIQ")
MAGIC = b"TLHV"
STAMP_BYTES = _STAMP.size


def stamp(producer: int, number: int, size: int = STAMP_BYTES) -> bytes:
    """A value of `size` bytes, at least `STAMP_BYTES`, with its producer and number."""
    return _STAMP.pack(MAGIC, producer, number).ljust(size, b".")


def runs_of(values: pa.Array) -> Iterator[tuple[int, int, int, int]]:
    """Runs of consecutive numbers of one producer: (index, producer, first, count).

    Raises ValueError for a value without a stamp: the stream has other records.
    """
    run: list[int] | None = None
    for at, value in enumerate(values.to_pylist()):
        if value is None or len(value) < STAMP_BYTES or value[:4] != MAGIC:
            raise ValueError(f"the value at index {at} was not written by a test load: {value!r:.80}")
        _, producer, number = _STAMP.unpack_from(value)
        if run is not None and producer == run[1] and number == run[2] + run[3]:
            run[3] += 1
            continue
        if run is not None:
            yield run[0], run[1], run[2], run[3]
        run = [at, producer, number, 1]
    if run is not None:
        yield run[0], run[1], run[2], run[3]
