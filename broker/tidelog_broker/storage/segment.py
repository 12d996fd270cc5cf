"""A segment: one file of record batches, named by the offset of its first record.

A segment knows where batches lie in its file; it does not know what is committed or
durable (`log`), nor how to mend itself (`recovery`). Its index is loaded when first
needed and rebuilt when it does not fit the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager


from tidelog.errors import CorruptBatch, DataCorrupt
from tidelog.records import HEADER_BYTES, BatchHeader, header_crc
from tidelog.records.layout import check_framing
from tidelog_broker.storage.files import Bytes, File, Files, OpenFiles, write_all
from tidelog_broker.storage.index import SparseIndex

WALK_BYTES = 64 << 10
"""Read at a time while walking over headers."""

REBUILD_WALK_BYTES_MAX = 4 << 20
"""A lookup that had to walk further than this had a poor index, which is then rebuilt."""


class Segment:
    """`size` bytes of batches from `base_offset` up to `next_offset`."""

    __slots__ = (
        "_files",
        "_index",
        "base_offset",
        "first_append_us",
        "last_append_us",
        "next_offset",
        "path",
        "size",
        "timestamp_max_us",
    )

    def __init__(self, files: OpenFiles, folder: str, base_offset: int) -> None:
        self._files = files
        self._index: SparseIndex | None = None
        self.base_offset = base_offset
        self.path = f"{folder}/{segment_name(base_offset)}"
        self.size = 0
        """Bytes of whole batches in the file."""
        self.next_offset = base_offset
        self.first_append_us: int | None = None
        """Append time of the first batch; None: empty or not read yet. µs."""
        self.last_append_us: int | None = None
        self.timestamp_max_us: int | None = None
        """Largest record timestamp; None: empty or not read yet. µs."""

    def __repr__(self) -> str:
        return f"<Segment {self.base_offset}–{self.next_offset} {self.size} bytes>"

    def sibling(self, base_offset: int) -> Segment:
        """An empty segment of the same log."""
        return Segment(self._files, os.path.dirname(self.path), base_offset)

    # --- writing

    def write(self, buffers: Sequence[Bytes], headers: Sequence[BatchHeader]) -> None:
        """Appends whole batches: `buffers` hold them in order, `headers` describe them.

        Raises OSError and leaves `size` as it was; the file may then be longer, and
        `cut_back` puts that right.
        """
        with self._files.use(self.path, create=True) as file:
            write_all(file, buffers, self.size)
        self.extend(headers)

    def extend(self, headers: Sequence[BatchHeader]) -> None:
        """Takes note of batches that stand in the file from `size` on."""
        index = self._index
        if index is None:
            index = self._index = SparseIndex() if self.size == 0 else self._load_index()
        for header in headers:
            largest = header.timestamp_max_us
            if self.timestamp_max_us is None or largest > self.timestamp_max_us:
                self.timestamp_max_us = largest
            index.note(header.base_offset - self.base_offset, self.size, self.timestamp_max_us)
            if self.first_append_us is None and self.size == 0:
                self.first_append_us = header.append_time_us
            self.last_append_us = header.append_time_us
            self.size += header.length
            self.next_offset = header.next_offset

    def skip_to(self, position: int, offset: int) -> None:
        """Steps over damaged bytes: what comes next stands at `position` and begins with `offset`."""
        self.size = position
        self.next_offset = offset

    def cut_back(self) -> None:
        """Removes what a failed write left behind `size`; raises OSError if that fails too."""
        with self._files.use(self.path) as file:
            if file.size() > self.size:
                file.truncate(self.size)

    def truncate(self, position: int, next_offset: int) -> None:
        """Cuts the file at a batch boundary, durably."""
        with self._files.use(self.path) as file:
            file.truncate(position)
            file.datasync()
        self.size = position
        self.next_offset = next_offset
        self.remove_index()
        self.timestamp_max_us = self.last_append_us = None
        if position == 0:
            self.first_append_us = None

    def pin(self) -> None:
        """Keeps the descriptor open: the file has unsynced bytes."""
        self._files.pin(self.path, create=True)

    def sync(self) -> None:
        """Makes the file durable and lets go of one pin."""
        with self._files.use(self.path) as file:
            file.datasync()
        self._files.unpin(self.path)

    # --- reading

    def opened(self) -> AbstractContextManager[File]:
        """The file, for the length of a `with` block."""
        return self._files.use(self.path)

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes from `position`, never past the last whole batch."""
        with self._files.use(self.path) as file:
            return file.pread(min(length, self.size - position), position)

    def header_at(self, position: int) -> BatchHeader | None:
        """The header at a batch boundary, None at the end. Its CRC is not checked here."""
        if position + HEADER_BYTES > self.size:
            return None
        return BatchHeader.unpack(self.pread(HEADER_BYTES, position))

    def walk(self, position: int, *, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch from a boundary on.

        Raises `DataCorrupt` where the bytes cannot be a batch; header CRCs are the
        caller's business.
        """
        end = self.size if end is None else end
        window, window_at = b"", 0
        with self._files.use(self.path) as file:
            while position < end:
                at = position - window_at
                if at + HEADER_BYTES > len(window):
                    window, window_at, at = file.pread(min(WALK_BYTES, end - position), position), position, 0
                if len(window) - at < HEADER_BYTES:
                    raise DataCorrupt(f"{self.path} ends inside a batch header at position {position}")
                header = BatchHeader.unpack(window, at)
                try:
                    check_framing(header, end - position)
                except CorruptBatch as error:
                    raise DataCorrupt(f"{self.path} at position {position}: {error}") from None
                yield position, header
                position += header.length

    def locate(self, offset: int, stream_id: bytes, partition: int) -> int:
        """The position of the batch that holds `offset` or, where compaction left a gap, of the next one.

        Raises `DataCorrupt` when the way there is not readable.
        """
        relative = offset - self.base_offset
        start = self.index.position_at_or_before(relative)
        if start and not self._fits(start, offset, stream_id, partition):
            self.rebuild_index()
            start = self.index.position_at_or_before(relative)
        for position, header in self.walk(start):
            if header.next_offset > offset:
                if position - start > REBUILD_WALK_BYTES_MAX + header.length:
                    self.rebuild_index()
                return position
        return self.size

    def locate_time(self, timestamp_us: int, at_least: int) -> tuple[int, BatchHeader] | None:
        """The first batch that reaches `timestamp_us` (F7) and the offset `at_least`."""
        for position, header in self.walk(self.index.position_before_time(timestamp_us)):
            if header.timestamp_max_us >= timestamp_us and header.next_offset > at_least:
                return position, header
        return None

    def _fits(self, position: int, offset: int, stream_id: bytes, partition: int) -> bool:
        raw = self.pread(HEADER_BYTES, position)
        if len(raw) < HEADER_BYTES:
            return False
        header = BatchHeader.unpack(raw)
        return header.base_offset <= offset and header_crc(stream_id, partition, raw) == header.header_crc

    # --- what a start leaves unread until somebody asks

    def load_times(self) -> None:
        """Fills in the append times and the largest timestamp of a segment that was not scanned."""
        if self.size == 0 or (self.timestamp_max_us is not None and self.first_append_us is not None):
            return
        first = self.header_at(0)
        assert first is not None
        self.first_append_us = first.append_time_us
        start = max(self.index.last_position, 0)
        largest = self.index.last_maximum
        for _, header in self.walk(start):
            largest = header.timestamp_max_us if largest is None else max(largest, header.timestamp_max_us)
            self.last_append_us = header.append_time_us
        self.timestamp_max_us = largest

    # --- the index

    @property
    def index(self) -> SparseIndex:
        if self._index is None:
            self._index = self._load_index()
        return self._index

    def _load_index(self) -> SparseIndex:
        loaded = None
        if self._files.files.exists(self.index_path) and self._files.files.exists(self.timeindex_path):
            with self._files.use(self.index_path) as offsets, self._files.use(self.timeindex_path) as times:
                loaded = SparseIndex.load(
                    offsets.pread(offsets.size(), 0), times.pread(times.size(), 0), self.size
                )
        if loaded is None or not self._reaches_end(loaded):
            return self._scan_index(loaded)
        return loaded

    def _reaches_end(self, index: SparseIndex) -> bool:
        """Whether the last entry lies near enough the end to be useful."""
        return self.size - max(index.last_position, 0) <= REBUILD_WALK_BYTES_MAX

    def _scan_index(self, prefix: SparseIndex | None) -> SparseIndex:
        """Walks the headers behind the last good entry, or all of them."""
        index = prefix if prefix is not None and len(prefix) else SparseIndex()
        start = max(index.last_position, 0)
        largest = index.last_maximum
        try:
            for position, header in self.walk(start):
                largest = header.timestamp_max_us if largest is None else max(largest, header.timestamp_max_us)
                index.note(header.base_offset - self.base_offset, position, largest)
        except DataCorrupt:
            if index is prefix:
                return self._scan_index(None)
            # What lies behind the damage is reached by `log`, which steps over it.
        return index

    def adopt_index(self, index: SparseIndex) -> None:
        """Puts an index made by `scan` in the place of the present one."""
        self.remove_index()
        self._index = index
        self.save_index()

    def rebuild_index(self) -> None:
        """Makes the index anew from the headers."""
        self.remove_index()
        self._index = self._scan_index(None)
        self.save_index()

    def save_index(self) -> None:
        """Brings the index files up to date. They are caches, so nothing is synced."""
        index = self._index
        if index is None or index.saved == len(index):
            return
        offsets_at, times_at = index.saved_bytes
        offsets, times = index.unsaved()
        with self._files.use(self.index_path, create=True) as file:
            file.truncate(offsets_at + write_all(file, [offsets], offsets_at))
        with self._files.use(self.timeindex_path, create=True) as file:
            file.truncate(times_at + write_all(file, [times], times_at))
        index.saved = len(index)

    def close(self) -> None:
        """No more batches come: the last one gets an index entry, and the index leaves memory."""
        index = self.index
        last = max(index.last_position, 0)
        for position, header in self.walk(last):
            last, relative = position, header.base_offset - self.base_offset
        if self.size:
            assert self.timestamp_max_us is not None
            index.note(relative, last, self.timestamp_max_us, always=True)
        self.save_index()
        self._index = None

    def remove_index(self) -> None:
        self._index = None
        for path in (self.index_path, self.timeindex_path):
            self._files.forget(path)
            if self._files.files.exists(path):
                self._files.files.remove(path)

    def remove(self) -> None:
        """Unlinks the segment's files."""
        self.remove_index()
        self._files.forget(self.path)
        self._files.files.remove(self.path)

    @property
    def files(self) -> Files:
        """The file system that the segment lies in."""
        return self._files.files

    @property
    def index_path(self) -> str:
        return f"{os.path.splitext(self.path)[0]}.index"

    @property
    def timeindex_path(self) -> str:
        return f"{os.path.splitext(self.path)[0]}.timeindex"


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}.log"


def segment_base(name: str) -> int | None:
    """The base offset in a segment's file name; None for any other file."""
    stem, dot, suffix = name.partition(".")
    return int(stem) if dot and suffix == "log" and len(stem) == 20 and stem.isdigit() else None


