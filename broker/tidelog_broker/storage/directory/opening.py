"""Opens the logs of a data directory after any kind of stop, and creates new ones.

Neighbours: `log.recovery` opens one log after a crash, `saving` has the saved state that a start may
trust, `folders` sets aside the folders that cannot be opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from typing import NamedTuple

import structlog

from tidelog_broker.storage.directory.checkpoint import WITHOUT
from tidelog_broker.storage.directory.folders import LogFolders, id_digits
from tidelog_broker.storage.directory.saving import SavedPoints
from tidelog_broker.storage.files.open_files import OpenFiles
from tidelog_broker.storage.files.whole_files import sync_found
from tidelog_broker.storage.folder import starting_over
from tidelog_broker.storage.folder.contents import IdentityLost, Stray
from tidelog_broker.storage.folder.identity import read_assignment, read_identity, write_identity
from tidelog_broker.storage.folder.leader_epochs import LeaderEpochs, save_epochs
from tidelog_broker.storage.folder.page_cache_mark import mark_page_cache
from tidelog_broker.storage.log.partition_log import PartitionLog
from tidelog_broker.storage.log.recovery import LastRun, open_clean, recover
from tidelog_broker.storage.log.recovery_scan import Place, Quarantine
from tidelog_broker.storage.log.tail_cache import TailCache
from tidelog_broker.storage.log.write_batch import LogConfig
from tidelog_broker.storage.points import CleanEnd, PartitionKey, RecoveryPoint
from tidelog_broker.storage.segments.segment import SEGMENT_SUFFIX, Segment

log = structlog.get_logger(__name__)


class Wanted(NamedTuple):
    """A partition that the image places on this broker."""

    name: str
    stream_id: bytes
    partition: int
    config: LogConfig
    assignment: int = 0
    """The assignment of the replica; a folder with another assignment is not its folder (R16)."""
    page_cache: bool = False
    """Records count as soon as they are written, before a flush (R17)."""


class Lost(NamedTuple):
    """A partition whose log could not be opened, with the reason."""

    wanted: Wanted
    reason: str
    stray: bool = False
    """Its folder belongs to another partition."""


class Opened(NamedTuple):
    """The result of opening all logs at a start."""

    logs: dict[PartitionKey, PartitionLog]
    lost: list[Lost]
    strays: list[str]
    """Folders that belong to no partition of the image; they are kept (2d)."""
    left: dict[PartitionKey, str]
    """Replicas that were moved away while this broker was down and assigned here again, and the paths to
    which their old folders were renamed (R16). These folders are removed later."""


class LogOpener:
    """Opens and creates the logs of one data directory."""

    def __init__(self, files: OpenFiles, cache: TailCache, folders: LogFolders, saved: SavedPoints) -> None:
        self.files = files
        self.cache = cache
        self.folders = folders
        self.saved = saved

    def open_all(
        self, wanted: Iterable[Wanted], *, same_boot: bool, threads: Executor | None = None
    ) -> Opened:
        """Opens the log of every wanted partition; after a clean stop it uses only the mark and reads no log.

        A log whose end or history is unknown is set aside and reported as lost. It is never
        replaced by an empty log. With `threads`, several logs are recovered at a time. The broker may
        record this boot's id only after this call returns, because this call judges for the last time
        the state that an earlier boot left.
        """
        ends = self.saved.checkpoints.take_clean_mark()
        for path in self.saved.checkpoints.unreadable:
            log.error("a checkpoint is damaged", path=path, effect=WITHOUT[path.rpartition("/")[2]])
        for path in self.saved.checkpoints.mended:
            log.warning("a checkpoint was missing or damaged; it was restored from its copy", path=path)
        entries = list(wanted)
        if ends is None:
            self._sync_names(entries)
        left = {
            (want.stream_id, want.partition): path
            for want in entries
            if (path := self._set_earlier_aside(want))
        }
        opening = threads.map if threads is not None else map
        found = list(opening(lambda want: self._open_or_set_aside(want, ends, same_boot), entries))
        logs = {one.key: one for one in found if isinstance(one, PartitionLog)}
        lost = [one for one in found if isinstance(one, Lost)]
        self._forget_deleted({want.stream_id for want in entries})
        self.saved.save_recovered(logs)
        foreign = {self._folder_of(one.wanted) for one in lost if one.stray}
        claimed = {self._folder_of(want) for want in entries} - foreign
        return Opened(logs, lost, sorted(self.folders.strays(claimed)), left)

    def _sync_names(self, entries: Sequence[Wanted]) -> None:
        """Syncs the folders above the logs (2a).

        If a folder was made right before the process ended, its name may be in the page cache only. A
        power loss would then remove the log in it, even if the files in it were flushed.
        """
        files = self.files.files
        streams = {self._folder_of(want).rpartition("/")[0]: None for want in entries}
        for folder in (*streams, self.folders.streams, self.folders.streams.rpartition("/")[0]):
            if files.exists(folder):
                sync_found(files, folder)

    def _set_earlier_aside(self, want: Wanted) -> str:
        """Sets aside the folder of an earlier assignment (R16); its new path, or empty if there is none.

        While this broker was down, the earlier replica was moved away and a new replica was assigned.
        The saved state of the earlier replica is removed first, so after a crash in between the next start
        does the same again.
        """
        if not want.assignment:
            return ""
        folder, files = self._folder_of(want), self.files.files
        held = read_assignment(files, folder)
        key = (want.stream_id, want.partition)
        if held is None or held >= want.assignment or read_identity(files, folder) != key:
            return ""
        log.warning(
            "while this broker was down, one of its replicas was moved away and assigned again", folder=folder
        )
        return self.forget_replica(key, folder)

    def _folder_of(self, want: Wanted) -> str:
        return self.folders.of(want.name, want.stream_id, want.partition)

    def _open_or_set_aside(
        self, want: Wanted, ends: dict[PartitionKey, CleanEnd] | None, same_boot: bool
    ) -> PartitionLog | Lost:
        folder = self._folder_of(want)
        try:
            return self._open(want, folder, ends, same_boot)
        except (Quarantine, IdentityLost) as reason:
            self.folders.quarantine(folder, str(reason))
            return Lost(want, f"quarantined: {reason}")
        except Stray as reason:
            return Lost(want, f"the folder belongs to another partition: {reason}", stray=True)

    def _forget_deleted(self, wanted: set[bytes]) -> None:
        """Drops the saved state of deleted streams: a crash may have come before that was saved.

        A stray keeps its recovery point, in case an administrator puts its folder back (2b, 2d).
        """
        present = {name.rpartition("~")[2] for name in self.files.files.list(self.folders.streams)}
        for stream_id in self.saved.checkpoints.streams() - wanted:
            if id_digits(stream_id) not in present:
                self.saved.checkpoints.remove_stream(stream_id)

    def _open(
        self, want: Wanted, folder: str, ends: dict[PartitionKey, CleanEnd] | None, same_boot: bool
    ) -> PartitionLog:
        key = (want.stream_id, want.partition)
        point, lso = self.saved.checkpoints.recovery_point(key), self.saved.checkpoints.log_start_offset(key)
        if not self.files.files.exists(folder):
            if point is not None:
                raise Quarantine("the partition's folder is gone")
            if self.folders.is_quarantined(folder, want.assignment):
                raise Quarantine("the partition's folder was quarantined by an earlier start")
            return self.create(want)
        place = Place(self.files, self.cache, folder, key, want.config, want.assignment)
        end = ends.get(key) if ends is not None else None
        try:
            opened = None if end is None else open_clean(place, end, lso)
            if opened is not None:
                return opened
            if end is not None:
                log.warning("a log differs from what the clean stop left; it is recovered", folder=folder)
            recovered = recover(place, LastRun(point, lso, same_boot))
            recovered.recovered = True
            if starting_over.is_marked(self.files.files, folder):
                self.saved.save_restart(recovered, recovered.start_offset)
                starting_over.unmark(self.files.files, folder)
        except IdentityLost:
            if point is None and not any(n.endswith(SEGMENT_SUFFIX) for n in self.files.files.list(folder)):
                # A crash interrupted the creation of this log: the identity is written last.
                return self.create(want)
            raise
        if recovered.cut_bytes:
            if recovered.suspect:
                said = (
                    "recovery cut bytes off a log that may be acknowledged records; they are kept beside it"
                )
            else:
                said = (
                    "recovery cut an unfinished write off a log; it is kept beside it unless the disk is full"
                )
            log.warning(said, folder=folder, bytes=recovered.cut_bytes)
        return recovered

    def create(self, want: Wanted) -> PartitionLog:
        """Creates an empty log, durable with every folder entry on its path.

        After a loss the log begins at the LSO. A quarantined folder of the partition stays beside it (2c).
        A stray folder in its place is set aside and stays beside it too.
        """
        folder = self.folders.of(want.name, want.stream_id, want.partition)
        self.folders.set_stray_aside(folder)
        key = (want.stream_id, want.partition)
        base = self.saved.checkpoints.log_start_offset(key)
        if self.saved.checkpoints.recovery_point(key) is not None:
            # The records of an earlier log of this partition are no longer expected here.
            self.saved.save_recovery_point_of(key, RecoveryPoint(base, base, 0))
        files = self.files.files
        parent = folder.rpartition("/")[0]
        files.make_dir(folder)
        epochs = LeaderEpochs()
        save_epochs(self.files, folder, want.stream_id, want.partition, epochs)
        if want.page_cache:
            mark_page_cache(files, folder, durably=False)
        # This also makes the entry of the page-cache mark in the folder durable.
        write_identity(files, folder, want.stream_id, want.partition, want.assignment)
        files.sync_dir(parent)
        files.sync_dir(self.folders.streams)
        made = PartitionLog(
            self.files,
            self.cache,
            folder,
            key,
            want.config,
            epochs=epochs,
            segments=[Segment(self.files, folder, base, key)],
            start_offset=base,
        )
        made.recall(suspect=False, page_cache=want.page_cache, damaged=[], assignment=want.assignment)
        return made

    def forget_replica(self, key: PartitionKey, folder: str) -> str:
        """Drops a replica's saved state and renames its folder to `.deleted-…`; the path to remove later."""
        self.saved.forget_partition(key)
        return self.folders.set_deleted(folder, f"{key[0].hex()}-{key[1]}")
