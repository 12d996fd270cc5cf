"""Opens the logs of a data directory after any kind of stop, and creates new ones.

Neighbours: `log.recovery` opens one log after a crash, `saving` says what a start may believe, `folders`
sets aside what cannot be opened.
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
    """Of the replica that is meant: a folder of another one is not its (R16)."""
    page_cache: bool = False
    """What is written counts before it is flushed."""


class Lost(NamedTuple):
    """A partition whose log could not be opened, and why."""

    wanted: Wanted
    reason: str
    stray: bool = False
    """Its folder is another partition's."""


class Opened(NamedTuple):
    """What a start found."""

    logs: dict[PartitionKey, PartitionLog]
    lost: list[Lost]
    strays: list[str]
    """Folders that no partition of the image claims; kept (2d)."""
    left: dict[PartitionKey, str]
    """Replicas that left while this broker was away, and came again: where the folders of before were set
    aside (R16). They go one day."""


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
        """Opens the log of every wanted partition, after a clean stop by the mark alone.

        A log whose end or history is unknown is set aside and reported as lost, never
        replaced by an empty one. With `threads` several logs are recovered at a time.
        The next start may call this boot the same only once this has returned: what an
        earlier boot left is judged here for the last time.
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
        """A folder that was made right before the process ended may have its name in the page cache only: a
        log that went on in it would vanish with the power, whatever was flushed there (2a)."""
        files = self.files.files
        streams = {self._folder_of(want).rpartition("/")[0]: None for want in entries}
        for folder in (*streams, self.folders.streams, self.folders.streams.rpartition("/")[0]):
            if files.exists(folder):
                sync_found(files, folder)

    def _set_earlier_aside(self, want: Wanted) -> str:
        """Where the folder of an earlier assignment is now (R16); empty: there is none in this place.

        That replica left, and another one came, while this broker was away. What was saved of it is
        forgotten first, so a crash in between leaves what the next start does this with again.
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
        """Drops what is saved of streams that are gone: a crash may have come before it was saved so.

        A stray keeps its recovery point, for whoever puts it back (2b, 2d).
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
                # A creation that a crash cut short: the identity is written last.
                return self.create(want)
            raise
        if recovered.cut_bytes:
            log.warning(
                "recovery cut an unfinished tail off a log; the bytes are kept beside it",
                folder=folder,
                bytes=recovered.cut_bytes,
                suspect=recovered.suspect,
            )
        return recovered

    def create(self, want: Wanted) -> PartitionLog:
        """An empty log, durable with every folder entry on its path; after a loss it begins at the LSO.

        A quarantined folder of the partition stays beside it (2c), and so does a stray in its place.
        """
        folder = self.folders.of(want.name, want.stream_id, want.partition)
        self.folders.set_stray_aside(folder)
        key = (want.stream_id, want.partition)
        base = self.saved.checkpoints.log_start_offset(key)
        if self.saved.checkpoints.recovery_point(key) is not None:
            # What an earlier log of this partition held is no longer expected here.
            self.saved.save_recovery_point_of(key, RecoveryPoint(base, base, 0))
        files = self.files.files
        parent = folder.rpartition("/")[0]
        files.make_dir(folder)
        epochs = LeaderEpochs()
        save_epochs(self.files, folder, want.stream_id, want.partition, epochs)
        if want.page_cache:
            mark_page_cache(files, folder, durably=False)
        # Makes the mark's entry in the folder durable, too.
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
        """Forgets a replica, and sets its folder aside as `.deleted-…`; the path to remove later."""
        self.saved.forget_partition(key)
        return self.folders.set_deleted(folder, f"{key[0].hex()}-{key[1]}")
