"""A segment: one file of record batches, named by the offset of its first record.

A segment finds the batches in its file (`header_walk` goes from batch to batch). It does not know
what is committed or durable (`log`), and it does not repair itself (`recovery`). Its index
(`index`, saved in `index_files`) is loaded on first use, and its missing or wrong part is rebuilt.
The appender and any number of readers may use a segment at the same time.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

from tidelog.errors import DataCorrupt
from tidelog.records import HEADER_BYTES, BatchHeader
from tidelog_broker.storage.files.open_files import Held, OpenFiles
from tidelog_broker.storage.files.protocol import Bytes, File
from tidelog_broker.storage.files.whole_files import write_all
from tidelog_broker.storage.points import PartitionKey
from tidelog_broker.storage.segments.header_walk import header_holds, read_bytes, walk_headers
from tidelog_broker.storage.segments.index import SparseIndex
from tidelog_broker.storage.segments.index_files import (
    close_index_files,
    has_index_files,
    load_index,
    remove_index_files,
    save_index,
)

REBUILD_WALK_BYTES_MAX = 4 << 20
"""If a lookup walks further than this, the index is poor and is rebuilt."""


class Segment:
    """`size` bytes of batches from `base_offset` up to `next_offset`."""

    __slots__ = (
        "_files",
        "_index",
        "_lock",
        "base_offset",
        "closed",
        "first_append_us",
        "key",
        "last_append_us",
        "next_offset",
        "path",
        "size",
        "timestamp_max_us",
    )

    def __init__(self, files: OpenFiles, folder: str, base_offset: int, key: PartitionKey) -> None:
        self._files = files
        self._lock = threading.RLock()
        """Guards the index and the times, which readers load while the appender adds to them."""
        self._index: SparseIndex | None = None
        self.key = key
        """Stream id and partition: header CRCs bind batches to them."""
        self.base_offset = base_offset
        self.path = f"{folder}/{segment_name(base_offset)}"
        self.size = 0
        """Bytes of whole batches in the file."""
        self.next_offset = base_offset
        self.closed = False
        """No more batches will be appended."""
        self.first_append_us: int | None = None
        """Append time of the first batch. The three times are None while the segment is empty or the times
        were not read. µs."""
        self.last_append_us: int | None = None
        self.timestamp_max_us: int | None = None
        """Largest record timestamp. µs."""

    def __repr__(self) -> str:
        return f"<Segment {self.base_offset}–{self.next_offset} {self.size} bytes>"

    def sibling(self, base_offset: int) -> Segment:
        """An empty segment of the same log."""
        return Segment(self._files, os.path.dirname(self.path), base_offset, self.key)

    # --- writing

    def prepare(self) -> None:
        """Loads what `extend` needs; raises OSError."""
        if self._index is None or (self.size and self.timestamp_max_us is None):
            self.load_times()

    def write(self, buffers: Sequence[Bytes]) -> Held:
        """Writes whole batches behind the last one; returns the file, open until `release` or a later sync.

        Raises OSError; the file may then be too long, and `cut_back` removes the excess. The
        batches become part of the segment only with `extend`.
        """
        held = self._files.acquire(self.path, create=True)
        try:
            write_all(held.file, buffers, self.size)
        except BaseException:
            self._files.release(held)
            raise
        return held

    def release(self, held: Held) -> None:
        self._files.release(held)

    def extend(self, headers: Sequence[BatchHeader]) -> None:
        """Adds batches to the segment that are already in the file from `size` on."""
        self.prepare()
        with self._lock:
            index = self._index
            assert index is not None
            base, size, largest = self.base_offset, self.size, self.timestamp_max_us
            if self.first_append_us is None:
                self.first_append_us = headers[0].append_time_us
            for header in headers:
                if largest is None or header.timestamp_max_us > largest:
                    largest = header.timestamp_max_us
                index.note(header.base_offset - base, size, largest)
                size += header.length
            self.timestamp_max_us = largest
            self.last_append_us = headers[-1].append_time_us
            self.next_offset = headers[-1].next_offset
            self.size = size

    def skip_to(self, position: int, offset: int) -> None:
        """Steps over damaged bytes: the next batch lies at `position` and begins with `offset`."""
        with self._lock:
            self.size = position
            self.next_offset = offset

    def cut_back(self) -> None:
        """Durably removes the bytes that a failed write left behind `size`; raises OSError if that fails too.

        Durably, because these batches will be refused with a definite error, and some of them may have
        been written whole.
        """
        with self._files.use(self.path) as file:
            if file.size() > self.size:
                file.truncate(self.size)
                file.datasync()

    def truncate(self, position: int, next_offset: int) -> None:
        """Cuts the file at a batch boundary, durably; the caller syncs the folder."""
        with self._lock:
            self.remove_index()
            with self._files.use(self.path) as file:
                file.truncate(position)
                file.datasync()
            self.size = position
            self.next_offset = next_offset
            self.closed = False
            self.timestamp_max_us = self.last_append_us = self.first_append_us = None

    def replaced(self, size: int) -> None:
        """Switches to the file of `size` bytes that now has this name; running reads keep the old file."""
        with self._lock:
            self._files.forget(self.path)
            self.size = size
            self.timestamp_max_us = self.last_append_us = self.first_append_us = None

    # --- reading

    def opened(self) -> AbstractContextManager[File]:
        """The file, for the length of a `with` block."""
        return self._files.use(self.path)

    def pread(self, length: int, position: int) -> bytes:
        """Reads up to `length` bytes from `position`, never past the last whole batch.

        Raises `DataCorrupt` if the disk cannot read them.
        """
        with self._files.use(self.path) as file:
            return read_bytes(file, self.path, min(length, self.size - position), position)

    def extent(self) -> tuple[int, int]:
        """Size and next offset, both from the same moment."""
        with self._lock:
            return self.size, self.next_offset

    def header_at(self, position: int) -> BatchHeader | None:
        """The header at a batch boundary; None if there is no header or its CRC does not hold."""
        raw = self.pread(HEADER_BYTES, position) if 0 <= position < self.size else b""
        if len(raw) < HEADER_BYTES:
            return None
        header = BatchHeader.unpack(raw)
        return header if header_holds(raw, header, self.key) else None

    def walk(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """Yields position and header of each batch from a batch boundary on.

        Raises `DataCorrupt` if a header does not hold or does not follow the previous header.
        Bodies are not read.
        """
        end = self.size
        with self._files.use(self.path) as file:
            yield from walk_headers(file, self.path, self.key, position, end)

    def walk_past_damage(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """As `walk`, but continues behind damage at the next batch that the index has."""
        while True:
            at = position
            try:
                for at, header in self.walk(position):
                    yield at, header
                return
            except DataCorrupt:
                following = self.index.position_after(at)
                if following is None:
                    return
                position = following

    def locate(self, offset: int) -> int:
        """The position of the batch that holds `offset` or, where compaction left a gap, of the next one.

        Raises `DataCorrupt` if a header on the way cannot be read.
        """
        relative = offset - self.base_offset
        start = self.index.position_at_or_before(relative)
        if start:
            header = self.header_at(start)
            if header is None or header.base_offset > offset:
                self.rebuild_index()
                start = self.index.position_at_or_before(relative)
        for position, header in self.walk(start):
            if header.next_offset > offset:
                if position - start > REBUILD_WALK_BYTES_MAX + header.length:
                    self.rebuild_index()
                return position
        return self.size

    def reaching(self, timestamp_us: int, at_least: int) -> Iterator[tuple[int, BatchHeader]]:
        """Yields the batches not wholly below `at_least` whose largest timestamp reaches a time (F7)."""
        for position, header in self.walk_past_damage(self.index.position_before_time(timestamp_us)):
            if header.timestamp_max_us >= timestamp_us and header.next_offset > at_least:
                yield position, header

    def load_times(self) -> None:
        """Loads the times of a segment that was not scanned. Damaged batches are left out."""
        if self.size == 0:
            self.index  # noqa: B018 - loads it
            return
        with self._lock:
            if self.timestamp_max_us is not None and self._index is not None:
                return
            index, largest, last = self.index, None, None
            if self.timestamp_max_us is not None:
                return
            for start in (max(index.last_position, 0), 0):
                largest = index.last_maximum
                for _, header in self.walk_past_damage(start):
                    largest = _larger(largest, header.timestamp_max_us)
                    last = header.append_time_us
                if last is not None:
                    break
                # The end is damaged: the last sound batch lies before the last index entry.
            first = next(self.walk_past_damage(0), None)
            self.first_append_us = None if first is None else first[1].append_time_us
            self.last_append_us, self.timestamp_max_us = last, largest

    # --- the index

    @property
    def index(self) -> SparseIndex:
        index = self._index
        if index is None:
            with self._lock:
                index = self._index
                if index is None:
                    index = self._index = self._load_index()
            if self.closed:
                self._files.indexes.loaded(self, index.memory_bytes)
        return index

    def unload_index(self) -> None:
        """Frees the index's memory; only for closed segments, whose index files are complete."""
        if self.closed:
            self._index = None

    def _load_index(self) -> SparseIndex:
        index = SparseIndex(self.base_offset)
        if self.size:
            # Unreadable index files count as missing.
            with contextlib.suppress(OSError):
                index = load_index(self._files, self._stem, self.base_offset, self.size)
            if self.size - max(index.last_position, 0) > REBUILD_WALK_BYTES_MAX:
                self._scan_into(index)
        elif has_index_files(self._files, self._stem):
            index.stale = True
        return index

    def _scan_into(self, index: SparseIndex) -> None:
        """Walks the headers behind the last entry; stops at damage, which `log` finds and steps over."""
        largest = index.last_maximum
        with contextlib.suppress(DataCorrupt):
            for position, header in self.walk(max(index.last_position, 0)):
                largest = _larger(largest, header.timestamp_max_us)
                index.note(header.base_offset - self.base_offset, position, largest)

    def adopt_index(self, index: SparseIndex, scanned_bytes: int) -> None:
        """Replaces the index by another that was made from the first `scanned_bytes` bytes."""
        with self._lock:
            old = self._index
            if old is not None and self.size > scanned_bytes:
                index.extend_from(old, scanned_bytes)
            index.stale = True
            self._index = index
            self.save_index()
        if self.closed:
            self._files.indexes.loaded(self, index.memory_bytes)

    def rebuild_index(self) -> None:
        """Rebuilds the index from the headers."""
        scanned_bytes, index = self.size, SparseIndex(self.base_offset)
        self._scan_into(index)
        self.adopt_index(index, scanned_bytes)

    def save_index(self) -> None:
        """Writes the index files and ignores errors of the disk: they are caches. Nothing is synced."""
        with self._lock, contextlib.suppress(OSError):
            index = self._index
            # If retention removed the segment, index files must not appear again.
            if index is None or (index.saved == len(index) and not index.stale) or not self._is_there():
                return
            save_index(self._files, self._stem, index)

    def _is_there(self) -> bool:
        return self._files.files.exists(self.path)

    def drop_stale_index(self) -> bool:
        """Removes index files with wrong entries after a crash, as for batches behind the segment's end.

        Returns whether it removed any. The caller then syncs the folder, so that the files cannot
        reappear when those positions hold other batches.
        """
        index = self.index
        if not index.stale:
            return False
        with self._lock:
            self.remove_index()
            fresh = SparseIndex(self.base_offset)
            fresh.extend_from(index, 0)
            self._index = fresh
        return True

    def close(self) -> None:
        """Closes the segment for appends: the last batch gets an index entry, and the index leaves memory."""
        with self._lock:
            index = self.index
            behind = deque(self.walk_past_damage(max(index.last_position, 0)), maxlen=1)
            if behind and self.timestamp_max_us is not None:
                position, header = behind[0]
                relative = header.base_offset - self.base_offset
                index.note(relative, position, self.timestamp_max_us, always=True)
            self.save_index()
            self.closed = True
            self._index = None

    def remove_index(self) -> None:
        with self._lock:
            self._index = None
            self._files.indexes.forget(self)
            remove_index_files(self._files, self._stem)

    def remove(self) -> None:
        """Removes the segment's files, the batches first."""
        with self._lock:
            self._files.forget(self.path)
            if self._is_there():
                self._files.files.remove(self.path)
            self.remove_index()

    def forget_files(self) -> None:
        """Closes the descriptors and drops the index from memory; the files stay."""
        self._files.indexes.forget(self)
        self._files.forget(self.path)
        close_index_files(self._files, self._stem)

    @property
    def _stem(self) -> str:
        return self.path.removesuffix(SEGMENT_SUFFIX)


def _larger(one: int | None, other: int) -> int:
    return other if one is None else max(one, other)


SEGMENT_SUFFIX = ".log"


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}{SEGMENT_SUFFIX}"


def segment_base(name: str, suffixes: Sequence[str] = (SEGMENT_SUFFIX,)) -> int | None:
    """The base offset in the name of a segment or of an index file; None for any other file."""
    stem, dot, suffix = name.partition(".")
    return int(stem) if dot + suffix in suffixes and len(stem) == 20 and stem.isdigit() else None
