"""The metadata log on disk: entries, hard state and snapshots below ``<data>/raft/`` (M6).

- ``%020d.log``  entries, in segments named by the index of their first entry
- ``hard-state`` term, vote and commit, replaced atomically
- ``snapshot-<index>-<term>``  images; the newest two are kept, and the entries behind the
  older of them, so that the broker can recover from one damaged snapshot
- ``install-<index>-<term>``  an image that is replacing the log: `install`

Neighbours: `format` defines the bytes, `recovery` opens a log and repairs a torn end. The
files are synced through their own descriptors and never wait for records. All calls block. One
thread at a time changes the log. Other threads may read it meanwhile, so that a node can answer
a peer without waiting for its disk.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence

from tidelog_broker.errors import StorageFailure
from tidelog_broker.model import PAYLOAD_BYTES_MAX, Configuration, Entry, HardState, Snapshot
from tidelog_broker.storage.files.protocol import File, Files
from tidelog_broker.storage.files.reserve import Reserve
from tidelog_broker.storage.files.whole_files import replace_file, write_all
from tidelog_broker.storage.raft.format import pack_entry, pack_hard_state, pack_snapshot, unpack_entry
from tidelog_broker.storage.raft.install import abandon_install, finish_install
from tidelog_broker.storage.raft.segment import RaftSegment, install_path, segment_path, snapshot_path

SEGMENT_BYTES = 4 << 20
"""A segment is closed when it has grown past this."""

SNAPSHOTS_KEPT = 2


class RaftLog:
    """An open metadata log; made by `recovery.open_raft_log`."""

    def __init__(
        self,
        files: Files,
        folder: str,
        *,
        hard_state: HardState,
        segments: list[RaftSegment],
        snapshots: list[tuple[int, int]],
        snapshot: Snapshot | None,
        configurations: Sequence[tuple[int, Configuration]],
        reserve: Reserve,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self._files = files
        self._folder = folder
        self._segments = segments
        self._snapshots = snapshots
        """Index and term of the whole snapshots, oldest first."""
        self._reserve = reserve
        self._segment_bytes = segment_bytes
        self._active: File = files.open(segments[-1].path)
        self._folder_dirty = False
        self._failed = False
        self._lock = threading.Lock()
        """Guards the places of the entries; never held during a flush of the disk."""
        self.hard_state = hard_state
        self.snapshot = snapshot
        """The newest whole snapshot; None: no snapshot was taken yet."""
        self.configurations = tuple(configurations)
        """The configurations found when the log was opened, with their indexes: the snapshot's, and each
        in the entries behind it."""
        self.last_index = segments[-1].next_index - 1
        self.durable_index = self.last_index
        """All entries up to this index are on disk."""

    def __repr__(self) -> str:
        return (
            f"<RaftLog term={self.hard_state.term} first={self.first_index} last={self.last_index} "
            f"durable={self.durable_index} snapshot={self.snapshot_index}>"
        )

    @property
    def first_index(self) -> int:
        """Index of the oldest entry that can still be read; `last_index` + 1 if there is none."""
        return self._segments[0].base

    @property
    def snapshot_index(self) -> int:
        """Index of the newest snapshot; 0: no snapshot was taken yet."""
        return 0 if self.snapshot is None else self.snapshot.index

    def term(self, index: int) -> int | None:
        """The term of the entry at `index`; None: the entry does not exist or was compacted away."""
        if index == 0:
            return 0
        with self._lock:
            if self.first_index <= index <= self.last_index:
                segment = self._segment_of(index)
                return segment.terms[index - segment.base]
            return next((term for at, term in self._snapshots if at == index), None)

    def entries(self, first: int, end: int, bytes_max: int = PAYLOAD_BYTES_MAX) -> list[Entry]:
        """The entries from `first` up to but not including `end`.

        Fewer entries, but at least one, if all exceed `bytes_max`. An empty list if `first`
        was compacted away. Raises `StorageFailure` if an entry is damaged.
        """
        with self._lock:
            assert end <= self.last_index + 1, (end, self)
            return self._entries(first, end, bytes_max) if first >= self.first_index else []

    def _entries(self, first: int, end: int, bytes_max: int) -> list[Entry]:
        found: list[Entry] = []
        room = bytes_max
        while first < end:
            segment = self._segment_of(first)
            stop = min(end, segment.next_index)
            start = segment.position(first)
            if found and segment.position(first + 1) - start > room:
                break
            while stop > first + 1 and segment.position(stop) - start > room:
                stop -= 1
            room -= segment.position(stop) - start
            found.extend(self._read(segment, first, stop))
            first = stop
            if room <= 0:
                break
        return found

    def save(self, snapshot: Snapshot | None, entries: Sequence[Entry], hard_state: HardState | None) -> None:
        """Saves, in this order, all that a node must persist before it sends messages; durable on return.

        `snapshot` replaces the whole log. `entries` replace the first entry that differs from them
        and all entries behind it; equal entries stay untouched, because they may have been
        acknowledged. Raises OSError; then only entries that had to be replaced may be lost,
        and the same call may be repeated. Raises `StorageFailure`.
        """
        self._alive()
        if snapshot is not None:
            self._install(snapshot)
        known = 0
        while known < len(entries) and self.term(entries[known].index) == entries[known].term:
            known += 1
        if known < len(entries):
            self.truncate_suffix(entries[known].index)
            self.append(entries[known:])
        self.sync()
        if hard_state is not None:
            self.save_hard_state(hard_state)

    def append(self, entries: Sequence[Entry]) -> None:
        """Writes entries behind the last entry; they are durable when `sync` returns.

        Writes all of them or raises OSError and keeps none: the partial write is cut off again,
        also on disk. Raises `StorageFailure` if that fails.
        """
        self._alive()
        if not entries:
            return
        assert entries[0].index == self.last_index + 1, (entries[0].index, self)
        buffers = [pack_entry(entry, self.durable_index) for entry in entries]
        assert max(len(entry.payload) for entry in entries) <= PAYLOAD_BYTES_MAX
        if self._segments[-1].size >= self._segment_bytes:
            self._reserve.run(self._roll)
        self._reserve.run(lambda: self._write(buffers))
        segment = self._segments[-1]
        with self._lock:
            for entry, buffer in zip(entries, buffers, strict=True):
                segment.add(entry, segment.size, segment.size + len(buffer))
            self.last_index = entries[-1].index

    def sync(self) -> None:
        """Makes all appended entries durable; raises `StorageFailure` and is never retried after that."""
        self._alive()
        if self.durable_index == self.last_index:
            return
        self._durably(self._active.datasync)
        if self._folder_dirty:
            self._durably(lambda: self._files.sync_dir(self._folder))
            self._folder_dirty = False
        self.durable_index = self.last_index

    def save_hard_state(self, state: HardState) -> None:
        """Replaces the hard state, durable on return; raises OSError, and then the old state stays valid."""
        self._alive()
        if state != self.hard_state:
            path, data = f"{self._folder}/hard-state", pack_hard_state(state)
            self._reserve.run(lambda: replace_file(self._files, path, data))
            self.hard_state = state

    def truncate_suffix(self, first: int) -> None:
        """Removes the entries from `first` on, durably: they were never committed."""
        self._alive()
        assert first > max(self.hard_state.commit, self.snapshot_index), (first, self)
        if first > self.last_index:
            return
        self._durably(lambda: self._truncate(first))
        self.durable_index = first - 1

    def save_snapshot(self, configuration: Configuration, index: int, data: bytes) -> None:
        """Saves the image at `index`, then removes the entries that no kept snapshot needs.

        Durable on return. Raises OSError, and then nothing is lost.
        """
        self._alive()
        term = self.term(index)
        assert term is not None, (index, self)
        assert self.snapshot_index < index <= self.durable_index, (index, self)
        snapshot = Snapshot(index, term, configuration, data)
        path, packed = snapshot_path(self._folder, index, term), pack_snapshot(snapshot)
        self._reserve.run(lambda: replace_file(self._files, path, packed))
        with self._lock:
            self._snapshots.append((index, term))
            self.snapshot = snapshot
        self._compact()

    def close(self) -> None:
        self._active.close()

    def _compact(self) -> None:
        if len(self._snapshots) < SNAPSHOTS_KEPT:
            return
        oldest = self._snapshots[-SNAPSHOTS_KEPT][0]
        # Oldest first, and each removal is on disk before the next, so that a crash leaves no hole.
        while len(self._segments) > 1 and self._segments[1].base <= oldest + 1:
            with self._lock:
                self._files.remove(self._segments[0].path)
                del self._segments[0]
            self._files.sync_dir(self._folder)
        while len(self._snapshots) > SNAPSHOTS_KEPT:
            self._files.remove(snapshot_path(self._folder, *self._snapshots[0]))
            with self._lock:
                del self._snapshots[0]

    def _install(self, snapshot: Snapshot) -> None:
        """Replaces the log by a leader's image, with the steps of `install`."""
        if snapshot.index == self.snapshot_index:
            # The call is a repetition.
            return
        assert snapshot.index > max(self.snapshot_index, self.hard_state.commit), (snapshot.index, self)
        place = (self._folder, snapshot.index, snapshot.term)
        path, packed = install_path(*place), pack_snapshot(snapshot)
        try:
            self._reserve.run(lambda: replace_file(self._files, path, packed))
        except OSError:
            self._durably(lambda: abandon_install(self._files, *place))
            raise
        self._active.close()
        self._durably(lambda: finish_install(self._files, *place))
        segment = RaftSegment(self._folder, snapshot.index + 1)
        self._active = self._files.open(segment.path)
        with self._lock:
            self._segments = [segment]
            self._snapshots = [(snapshot.index, snapshot.term)]
            self.snapshot = snapshot
            self.last_index = snapshot.index
        self.durable_index = snapshot.index
        self._folder_dirty = False

    def _roll(self) -> None:
        """Closes the active segment, which is never synced again, and begins the next segment."""
        if self.durable_index < self.last_index:
            self.sync()
        segment = RaftSegment(self._folder, self.last_index + 1)
        file = self._files.open(segment.path, create=True)
        self._active.close()
        self._active = file
        with self._lock:
            self._segments.append(segment)
        self._folder_dirty = True

    def _write(self, buffers: Sequence[bytes]) -> None:
        size = self._segments[-1].size
        try:
            write_all(self._active, buffers, size)
        except OSError:
            # Also on disk: the refusal is definite, so the entries must not reappear after a crash.
            self._durably(lambda: self._cut_back(size))
            raise

    def _cut_back(self, size: int) -> None:
        self._active.truncate(size)
        self._active.datasync()

    def _truncate(self, first: int) -> None:
        # Newest first, and each removal is on disk before the next, so that a crash leaves no hole.
        while len(self._segments) > 1 and self._segments[-1].base >= first:
            self._active.close()
            with self._lock:
                self.last_index = self._segments[-1].base - 1
                self._files.remove(self._segments[-1].path)
                del self._segments[-1]
            self._files.sync_dir(self._folder)
            self._active = self._files.open(self._segments[-1].path)
        with self._lock:
            self._segments[-1].cut(first)
            self.last_index = first - 1
        self._cut_back(self._segments[-1].size)
        self._folder_dirty = False

    def _segment_of(self, index: int) -> RaftSegment:
        return self._segments[bisect_right(self._segments, index, key=lambda segment: segment.base) - 1]

    def _read(self, segment: RaftSegment, first: int, stop: int) -> list[Entry]:
        start = segment.position(first)
        file = self._files.open(segment.path)
        try:
            data = file.pread(segment.position(stop) - start, start)
        finally:
            file.close()
        found = []
        for index in range(first, stop):
            frame = unpack_entry(data, segment.position(index) - start)
            if frame is None or frame.entry.index != index:
                raise StorageFailure(f"entry {index} of the metadata log is damaged in {segment.path}")
            found.append(frame.entry)
        return found

    def _alive(self) -> None:
        if self._failed:
            raise StorageFailure("the metadata log failed earlier, and its content on disk is unknown")

    def _durably(self, step: Callable[[], None]) -> None:
        """Runs a step; if it fails, the disk's state is unknown and the log refuses further changes."""
        try:
            step()
        except OSError as error:
            self._failed = True
            raise StorageFailure(
                f"the metadata log in {self._folder} could not be made durable: {error}"
            ) from error


def create_raft_log(files: Files, folder: str, hard_state: HardState, entries: Sequence[Entry]) -> None:
    """Makes the log of a new cluster or, without entries, of a broker that will join a cluster."""
    files.make_dir(folder)
    file = files.open(segment_path(folder, 1), create=True)
    try:
        write_all(file, [pack_entry(entry, 0) for entry in entries] or [b""], 0)
        file.datasync()
    finally:
        file.close()
    replace_file(files, f"{folder}/hard-state", pack_hard_state(hard_state))
    files.sync_dir(folder)
    files.sync_dir(folder.rsplit("/", 1)[0])
