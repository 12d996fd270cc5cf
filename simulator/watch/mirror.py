"""The batches of a log as a chain of checksums: two logs with the same link are the same up to that link."""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Callable
from typing import Final, NamedTuple

from tidelog.errors import DataCorrupt
from tidelog.records import HEADER_BYTES, BatchHeader
from tidelog_broker.storage.log.partition_log import PartitionLog

READ_BYTES: Final = 256 << 10


class Link(NamedTuple):
    """One batch."""

    base: int
    next: int
    epoch: int
    before: int
    chain: int
    """The checksum of this batch and all batches before it; `before` is that without this batch."""
    append_time_us: int


def chain_of(before: int, header: BatchHeader) -> int:
    return zlib.crc32(
        b"%d %d %d %d" % (before, header.base_offset, header.leader_epoch, header.body_crc), before
    )


class Mirror:
    """The batches of one log. `simulator.checks` extends and cuts it as the log changes."""

    __slots__ = ("_chain_before", "links", "start_chain", "start_offset")

    def __init__(self, start_offset: int = 0, start_chain: int = 0) -> None:
        self.start_offset = start_offset
        self.start_chain = start_chain
        """The chain of all batches before the first one."""
        self._chain_before: Callable[[int, bool], int] | None = None
        """Set while the log is empty: its first batch may begin below the log start offset (R11)."""
        self.links: list[Link] = []

    @classmethod
    def begin(cls, log: PartitionLog, chain_before: Callable[[int, bool], int], before: Mirror) -> Mirror:
        """The mirror of the start of a log.

        `chain_before` returns the chain of the batches that are deleted, by the offset of their end; its
        second argument says whether a batch must have ended there. `before` is the mirror of the log when all
        of it could be read.
        """
        start = log.start_offset
        if start == log.end_offset:
            empty = cls(start, chain_before(start, False))
            empty._chain_before = chain_before
            return empty
        data = _read(log, start, 1)
        if isinstance(data, bytes):
            start = headers_of(data)[0].base_offset
        else:
            start = next((link.base for link in before.links if link.base <= start < link.next), start)
        return cls(start, chain_before(start, True))

    @property
    def end(self) -> int:
        return self.links[-1].next if self.links else self.start_offset

    def chain_at(self, offset: int) -> int | None:
        """The chain of all batches below `offset`; None: no batch ends there."""
        if offset == self.start_offset:
            return self.start_chain
        at = bisect_right(self.links, offset, key=lambda link: link.next) - 1
        return self.links[at].chain if at >= 0 and self.links[at].next == offset else None

    def between(self, start: int, end: int) -> list[Link]:
        """The batches that begin in this range."""
        first = bisect_right(self.links, start - 1, key=lambda link: link.base)
        last = bisect_right(self.links, end - 1, key=lambda link: link.base)
        return self.links[first:last]

    def copy(self) -> Mirror:
        copied = Mirror(self.start_offset, self.start_chain)
        copied.links = list(self.links)
        return copied

    def cut(self, offset: int) -> None:
        while self.links and self.links[-1].next > offset:
            self.links.pop()

    def extend(self, log: PartitionLog, before: Mirror | None = None) -> list[Link]:
        """Adds the new batches at the end of `log`, and returns their links.

        A batch that has rotted is taken from `before` (2c).
        """
        new: list[Link] = []
        while self.end < log.end_offset:
            data = _read(log, max(self.end, log.start_offset), READ_BYTES)
            if isinstance(data, bytes):
                links = self._chained(headers_of(data), log)
            else:
                links = [] if before is None else before.between(self.end, data)
                assert links, f"offset {self.end} of {log!r} is damaged, and its batch is unknown"
            self.links += links
            new += links
        return new

    def _chained(self, headers: list[BatchHeader], log: PartitionLog) -> list[Link]:
        links: list[Link] = []
        if self._chain_before is not None and headers:
            if headers[0].base_offset != self.start_offset:
                self.start_offset = headers[0].base_offset
                self.start_chain = self._chain_before(self.start_offset, True)
            self._chain_before = None
        end, chain = self.end, self.links[-1].chain if self.links else self.start_chain
        for header in headers:
            assert header.base_offset == end, f"a gap at {end} in {log!r}: {header}"
            before, chain, end = chain, chain_of(chain, header), header.next_offset
            links.append(
                Link(header.base_offset, end, header.leader_epoch, before, chain, header.append_time_us)
            )
        return links


def _read(log: PartitionLog, offset: int, length: int) -> bytes | int:
    """The batches from `offset` on as bytes; if they are damaged, the end of the damaged range."""
    try:
        chunk = log.reader.read(offset, length, log.end_offset)
    except DataCorrupt as error:
        return int(error.details["damaged_end"])
    assert chunk is not None, f"offset {offset} of {log!r} cannot be read"
    return b"".join(bytes(part) for part in chunk.parts)


def headers_of(data: bytes) -> list[BatchHeader]:
    headers, at = [], 0
    while at + HEADER_BYTES <= len(data):
        header = BatchHeader.unpack(data, at)
        headers.append(header)
        at += header.length
    return headers
