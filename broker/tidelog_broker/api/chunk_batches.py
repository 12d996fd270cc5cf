"""The batches in a chunk of a log, as a decoding thread needs them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from tidelog.records import HEADER_BYTES, BatchHeader, split_batches


def batch_bodies(parts: Sequence[bytes | memoryview]) -> Iterator[tuple[BatchHeader, pa.Buffer]]:
    """The headers of batches and what stands behind them, without a copy.

    From a disk batches come in one part, from memory each comes in two, its header and the rest.
    """
    if len(parts) == 1:
        for header, batch in split_batches(parts[0]):
            yield header, batch.slice(HEADER_BYTES)
        return
    for head, body in zip(parts[::2], parts[1::2], strict=True):
        assert len(head) == HEADER_BYTES, "as the tail cache keeps them"
        yield BatchHeader.unpack(head), pa.py_buffer(body)


def cut_behind(data: bytes, end: int) -> tuple[list[bytes], int]:
    """The whole batches that begin before offset `end`, and the epoch of the last of them."""
    size, epoch = 0, 0
    for header, _ in split_batches(data):
        if header.base_offset >= end:
            break
        size += header.length
        epoch = header.leader_epoch
    return [data[:size]], epoch
