"""The log of one partition: a reader, a writer, a flusher, a cutter and a healer over one state.

Neighbours: `state` has the shared state and its locks; `recovery` opens a log after a crash,
`directory.store` has all logs of a data directory. Blocking.

A log knows its end (LEO), its start (LSO) and its durable part. The replica knows the committed part (HW),
and passes it as a limit to reads.
"""

from __future__ import annotations

from tidelog_broker.storage.files.open_files import OpenFiles
from tidelog_broker.storage.folder.leader_epochs import LeaderEpochs
from tidelog_broker.storage.folder.page_cache_mark import clear_page_cache, mark_page_cache
from tidelog_broker.storage.folder.suspicion import clear_suspicion, write_suspicion
from tidelog_broker.storage.guard.append_guard import AppendGuard
from tidelog_broker.storage.log.cutter import LogCutter
from tidelog_broker.storage.log.damage import LogDamage
from tidelog_broker.storage.log.flusher import LogFlusher
from tidelog_broker.storage.log.guarding import LogGuard
from tidelog_broker.storage.log.healer import LogHealer
from tidelog_broker.storage.log.reader import LogReader
from tidelog_broker.storage.log.start import LogStart
from tidelog_broker.storage.log.state import LogState
from tidelog_broker.storage.log.tail_cache import TailCache
from tidelog_broker.storage.log.write_batch import LogConfig
from tidelog_broker.storage.log.writer import LogWriter
from tidelog_broker.storage.points import PartitionKey, RecoveryPoint
from tidelog_broker.storage.segments.scan import DamagedRange
from tidelog_broker.storage.segments.segment import Segment


class PartitionLog:
    """One partition's log and its parts. Offsets are of records; sizes are bytes."""

    __slots__ = (
        "_state",
        "assignment",
        "cut_bytes",
        "cutter",
        "damage",
        "flusher",
        "guarding",
        "healer",
        "page_cache",
        "reader",
        "recovered",
        "start",
        "writer",
    )

    def __init__(
        self,
        files: OpenFiles,
        cache: TailCache,
        folder: str,
        key: PartitionKey,
        config: LogConfig,
        *,
        epochs: LeaderEpochs,
        segments: list[Segment],
        start_offset: int = 0,
    ) -> None:
        state = self._state = LogState(
            files, cache, folder, key, config, epochs=epochs, segments=segments, start_offset=start_offset
        )
        self.guarding = LogGuard(state)
        self.damage = LogDamage(state)
        self.reader = LogReader(state, self.damage)
        self.writer = LogWriter(state, self.guarding)
        self.flusher = LogFlusher(state, self.guarding)
        self.start = LogStart(state, self.guarding, self.flusher)
        self.cutter = LogCutter(state, self.damage, self.guarding, self.writer)
        self.healer = LogHealer(state, self.damage, self.guarding)
        self.assignment = 0
        """The assignment of this replica, among all replicas that the broker has had of a partition (R16)."""
        self.page_cache = False
        """A mark on the disk says that the log may hold records that counted without a flush (R17)."""
        self.recovered = False
        """When the log was opened, it was not in the state that a clean stop leaves."""
        self.cut_bytes = 0
        """Bytes that the last recovery cut off and kept."""

    def __repr__(self) -> str:
        return (
            f"<PartitionLog {self.folder.rsplit('/', 2)[-2]}/{self.partition} lso={self.start_offset} "
            f"leo={self.end_offset} durable={self.durable_offset} segments={len(self.segments)}>"
        )

    # --- identity and settings

    @property
    def folder(self) -> str:
        return self._state.folder

    @property
    def key(self) -> PartitionKey:
        return self._state.key

    @property
    def stream_id(self) -> bytes:
        return self._state.key[0]

    @property
    def partition(self) -> int:
        return self._state.key[1]

    @property
    def config(self) -> LogConfig:
        return self._state.config

    def configure(self, config: LogConfig) -> None:
        """Applies changed settings, from the next append on."""
        self._state.config = config
        self.guarding.follow_config()

    # --- content

    @property
    def start_offset(self) -> int:
        """LSO: the smallest offset that may be read."""
        return self._state.start_offset

    @property
    def end_offset(self) -> int:
        """LEO: the offset that the next record gets."""
        return self._state.segments[-1].next_offset

    @property
    def durable_offset(self) -> int:
        """Every record below this offset is on disk."""
        return self._state.recovery_point.offset

    @property
    def recovery_point(self) -> RecoveryPoint:
        """The durable offset and its place in the files: every record below it is on disk."""
        return self._state.recovery_point

    @property
    def epochs(self) -> LeaderEpochs:
        """The history: at which offset each leader epoch began (R5)."""
        return self._state.epochs

    @property
    def durable_epoch(self) -> int | None:
        """The newest leader epoch whose entry is on disk (R5)."""
        return self._state.durable_epoch

    @property
    def segments(self) -> list[Segment]:
        """The segments, oldest first; the last is active. Never empty. A change replaces the whole list."""
        return self._state.segments

    @property
    def active(self) -> Segment:
        return self._state.segments[-1]

    @property
    def bytes(self) -> int:
        return sum(segment.size for segment in self._state.segments)

    def bytes_from(self, offset: int) -> int:
        """About how many bytes lie from `offset` to the end; the estimate is rather too high."""
        return self.reader.bytes_from(offset)

    @property
    def guard(self) -> AppendGuard:
        """The append guard; the first use builds it up to the log's end."""
        return self.guarding.current

    @property
    def damaged(self) -> list[DamagedRange]:
        """The ranges that are known to be unreadable. The list is replaced, never changed."""
        return self._state.damaged

    @property
    def abandoned(self) -> bool:
        """A write ended in an unforeseen exception, so only a start may open the log again."""
        return self._state.abandoned

    # --- marks on the disk

    def mark_page_cache(self) -> None:
        """Marks that records may now count before they are flushed (R17). Durable; raises OSError."""
        if not self.page_cache:
            mark_page_cache(self._state.files.files, self.folder)
            self.page_cache = True

    def clear_page_cache(self) -> None:
        """Removes the mark, once all records that counted without a flush are flushed. Raises OSError."""
        if self.page_cache:
            clear_page_cache(self._state.files.files, self.folder)
            self.page_cache = False

    @property
    def suspect(self) -> bool:
        """The log may lack acknowledged records (2b, R6)."""
        return self._state.suspect

    def mark_suspect(self, reason: str) -> None:
        """Marks that the log may lack acknowledged records (R6); durable when it returns. Raises OSError.

        So the broker registers the replica as suspect even if this run ends before the registration.
        """
        if not self._state.suspect:
            write_suspicion(self._state.files.files, self.folder, reason)
            self._state.suspect = True

    def clear_suspect(self) -> None:
        """Removes the mark: the replica was compared with its peers, or an administrator accepts it."""
        clear_suspicion(self._state.files.files, self.folder)
        self._state.suspect = False

    def recall(
        self, *, suspect: bool, page_cache: bool, damaged: list[DamagedRange], assignment: int
    ) -> None:
        """Takes over the marks in the folder, at a start."""
        self._state.suspect = suspect
        self._state.damaged = damaged
        self.page_cache = page_cache
        self.assignment = assignment

    def close(self) -> None:
        """Releases the files without a sync. Appends are refused from now on."""
        state = self._state
        with state.syncing, state.writing:
            with state.lock:
                state.closed = True
                unsynced = state.take_unsynced()
            unsynced.release()
            for segment in state.segments:
                segment.forget_files()
            state.files.forget_below(state.folder)
