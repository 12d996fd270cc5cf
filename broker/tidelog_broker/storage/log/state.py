"""The state of a partition's log, which all parts of the log share, and the locks that protect it.

The parts (`reader`, `writer`, `flusher`, `start`, `cutter`, `healer`, `guarding` and `damage`) hold no
separate copy of this state. Neighbour: `partition_log` puts the parts together.

Four locks, always taken in this order:

1. `syncing`: held by one flush at a time, and by work that must not run beside a flush.
2. `writing`: held in turn by appends, rolls and cuts.
3. `damage.saving` (`damage`): held by the writer of the list of damage on disk.
4. `lock`: held only for a moment, to protect the fields that the writer shares with readers and flushes.
"""

from __future__ import annotations

import threading

from tidelog_broker.errors import StorageFailure
from tidelog_broker.storage.files.open_files import OpenFiles
from tidelog_broker.storage.folder.leader_epochs import LeaderEpochs, save_epochs
from tidelog_broker.storage.log.tail_cache import LogTail, TailCache
from tidelog_broker.storage.log.unsynced import Unsynced
from tidelog_broker.storage.log.write_batch import LogConfig
from tidelog_broker.storage.points import PartitionKey, RecoveryPoint
from tidelog_broker.storage.segments.scan import DamagedRange
from tidelog_broker.storage.segments.segment import Segment


class LogState:
    """Segments, offsets, history and failures of one log. Offsets are of records; sizes are bytes."""

    __slots__ = (
        "_damaged",
        "abandoned",
        "closed",
        "config",
        "durable_epoch",
        "epochs",
        "failed",
        "files",
        "folder",
        "key",
        "lock",
        "recovery_point",
        "segments",
        "start_offset",
        "suspect",
        "syncing",
        "tail",
        "unsynced",
        "writing",
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
        start_offset: int,
    ) -> None:
        self.files = files
        self.folder = folder
        self.key = key
        self.config = config
        self.syncing = threading.Lock()
        self.writing = threading.RLock()
        self.lock = threading.Lock()
        self.segments = segments
        """Oldest first; the last is active. Never empty. A change replaces the whole list."""
        self.start_offset = start_offset
        """LSO: the smallest offset that may be read."""
        self.epochs = epochs
        self.durable_epoch = epochs.latest
        """The newest leader epoch whose entry is on disk (R5)."""
        active = segments[-1]
        self.recovery_point = RecoveryPoint(active.next_offset, active.base_offset, active.size)
        """Every record below it is on disk."""
        self.unsynced = Unsynced(files, folder)
        """Replaced by each flush. Changed by a holder of `lock`, or of all locks that come before `lock`."""
        self.tail = LogTail(cache)
        """Recent batches in memory."""
        self.damaged = []
        self.failed: BaseException | None = None
        """A flush failed, or a failed write could not be undone, so the content of the disk is unknown."""
        self.closed = False
        self.suspect = False
        """The log may lack acknowledged records (2b).

        For example, recovery cut a tail in which a valid batch stood behind an invalid batch.
        """
        self.abandoned = False
        """A write ended in an unforeseen exception, so this state may be wrong."""

    @property
    def damaged(self) -> list[DamagedRange]:
        """The ranges that are known to be unreadable. A change replaces the whole list."""
        return self._damaged

    @damaged.setter
    def damaged(self, ranges: list[DamagedRange]) -> None:
        self._damaged = ranges
        if ranges:
            self.files.damaged_folders[self.folder] = None
        else:
            self.files.damaged_folders.pop(self.folder, None)

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def end_offset(self) -> int:
        """LEO: the offset that the next record gets."""
        return self.segments[-1].next_offset

    @property
    def durable_offset(self) -> int:
        """Every record below this offset is on disk."""
        return self.recovery_point.offset

    def refuse_failed(self) -> None:
        """Raises `StorageFailure` after a failure that makes the content of the disk unknown (DESIGN 4.3)."""
        if self.failed is not None:
            raise StorageFailure(f"{self.folder}: the log is unusable after a failure ({self.failed})")

    def take_unsynced(self) -> Unsynced:
        """Takes the files that the next flush must sync, and starts a new set. Called under `lock`."""
        taken, self.unsynced = self.unsynced, Unsynced(self.files, self.folder)
        return taken

    def replace_epochs(self, epochs: LeaderEpochs) -> None:
        """Replaces the history, in memory and durably on disk; raises OSError."""
        save_epochs(self.files, self.folder, *self.key, epochs)
        with self.lock:
            self.unsynced.drop_epochs()
            self.epochs = epochs
            self.durable_epoch = epochs.latest
