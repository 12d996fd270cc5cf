"""What a log holds, batch by batch, as a chain: the same link in two logs means the same log up to there."""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Callable
from typing import Final, NamedTuple

from tidelog.records import HEADER_BYTES, BatchHeader
from tidelog_broker.storage.log import PartitionLog

READ_BYTES: Final = 256 << 10


class Link(NamedTuple):
    """One batch."""

    base: int
    next: int
    epoch: int
    chain: int
    """Of this batch and everything before it."""


def chain_of(before: int, header: BatchHeader) -> int:
    return zlib.crc32(
        b"%d %d %d %d" % (before, header.base_offset, header.leader_epoch, header.body_crc), before
    )


class Mirror:
    """The batches of one log, kept up to its end by whoever changes it."""

    __slots__ = ("links", "start_chain", "start_offset")

    def __init__(self, start_offset: int = 0, start_chain: int = 0) -> None:
        self.start_offset = start_offset
        self.start_chain = start_chain
        """Of everything before the first batch."""
        self.links: list[Link] = []

    @classmethod
    def begin(cls, log: PartitionLog, chain_before: Callable[[int], int]) -> Mirror:
        """Of all that can be read of `log`; `chain_before` knows the chain of what cannot be, by its end."""
        start = log.start_offset
        if start < log.end_offset:
            chunk = log.read(start, 1, log.end_offset)
            assert chunk is not None, f"offset {start} of {log!r} cannot be read"
            start = headers_of(bytes(b"".join(bytes(part) for part in chunk.parts)))[0].base_offset
        return cls(start, chain_before(start))

    @property
    def end(self) -> int:
        return self.links[-1].next if self.links else self.start_offset

    def chain_at(self, offset: int) -> int | None:
        """Of everything below `offset`; None: no batch ends there."""
        if offset == self.start_offset:
            return self.start_chain
        at = bisect_right(self.links, offset, key=lambda link: link.next) - 1
        return self.links[at].chain if at >= 0 and self.links[at].next == offset else None

    def between(self, start: int, end: int) -> list[Link]:
        """Batches that begin in this range."""
        first = bisect_right(self.links, start - 1, key=lambda link: link.base)
        last = bisect_right(self.links, end - 1, key=lambda link: link.base)
        return self.links[first:last]

    def cut(self, offset: int) -> None:
        while self.links and self.links[-1].next > offset:
            self.links.pop()

    def extend(self, log: PartitionLog) -> list[Link]:
        """Takes in what is new at the end of `log`; the new links."""
        new: list[Link] = []
        chain = self.links[-1].chain if self.links else self.start_chain
        while self.end < log.end_offset:
            chunk = log.read(max(self.end, log.start_offset), READ_BYTES, log.end_offset)
            assert chunk is not None, f"offset {self.end} of {log!r} cannot be read"
            for header in headers_of(b"".join(bytes(part) for part in chunk.parts)):
                assert header.base_offset == self.end, f"a gap at {self.end} in {log!r}: {header}"
                chain = chain_of(chain, header)
                link = Link(header.base_offset, header.next_offset, header.leader_epoch, chain)
                self.links.append(link)
                new.append(link)
        return new


def headers_of(data: bytes) -> list[BatchHeader]:
    headers, at = [], 0
    while at + HEADER_BYTES <= len(data):
        header = BatchHeader.unpack(data, at)
        headers.append(header)
        at += header.length
    return headers
