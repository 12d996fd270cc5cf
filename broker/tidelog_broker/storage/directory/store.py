"""The logs of one data directory: created, opened after any kind of stop, saved, deleted.

Neighbours: `data_directory` (identity and lock of the directory), `recovery` (one log
after a crash), `checkpoint` (what a start may believe), `partition_log` (one log), `volume_flush`
(when one flush of the file system stands for those of many files). Blocking.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, wait
from typing import NamedTuple

import structlog

from tidelog_broker.errors import StorageFailure
from tidelog_broker.storage.directory.checkpoint import WITHOUT, Checkpoints
from tidelog_broker.storage.directory.retention import Waited
from tidelog_broker.storage.files.open_files import OpenFiles
from tidelog_broker.storage.files.protocol import Files, Volume
from tidelog_broker.storage.files.volume_flush import VOLUME_FLUSH_LOGS_MIN
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

QUARANTINE_PREFIX = ".quarantine-"
STRAY_PREFIX = ".stray-"
"""Of a folder that lay where a log had to be made (2d)."""


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


class LogStore:
    """See the module."""

    def __init__(
        self,
        files: Files,
        root: str,
        *,
        open_files_max: int = 512,
        tail_cache_bytes_max: int = 64 << 20,
        volume: Volume | None = None,
    ) -> None:
        """`volume`: where the logs are, opened before anything was written to them, if one flush of
        it may stand for those of many files; None: each file is flushed by itself."""
        self.root = root
        self.volume = volume
        self.files = OpenFiles(files, open_files_max)
        self.cache = TailCache(tail_cache_bytes_max)
        self._streams = f"{root}/streams"
        self._checkpoint_folder = f"{root}/checkpoints"
        self._save_lock = threading.Lock()
        files.make_dir(self._streams)
        files.make_dir(self._checkpoint_folder)
        sync_found(files, root)
        # What is read now stays so: a process that was killed may not have come to this.
        sync_found(files, self._checkpoint_folder)
        self.checkpoints = Checkpoints.load(files, self._checkpoint_folder)

    def folder(self, name: str, stream_id: bytes, partition: int) -> str:
        return f"{self._streams}/{stream_folder(name, stream_id)}/{partition}"

    # --- starting

    def open_all(
        self, wanted: Iterable[Wanted], *, same_boot: bool, threads: Executor | None = None
    ) -> Opened:
        """Opens the log of every wanted partition, after a clean stop by the mark alone.

        A log whose end or history is unknown is set aside and reported as lost, never
        replaced by an empty one. With `threads` several logs are recovered at a time.
        The next start may call this boot the same only once this has returned: what an
        earlier boot left is judged here for the last time.
        """
        ends = self.checkpoints.take_clean_mark()
        for path in self.checkpoints.unreadable:
            log.error("a checkpoint is damaged", path=path, effect=WITHOUT[path.rpartition("/")[2]])
        for path in self.checkpoints.mended:
            log.warning("a checkpoint was missing or damaged; it is written again from its copy", path=path)
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
        self._save_recovered(logs)
        foreign = {self._folder_of(one.wanted) for one in lost if one.stray}
        claimed = {self._folder_of(want) for want in entries} - foreign
        return Opened(logs, lost, sorted(self._strays(claimed)), left)

    def _sync_names(self, entries: Sequence[Wanted]) -> None:
        """A folder that was made right before the process ended may have its name in the page cache only: a
        log that went on in it would vanish with the power, whatever was flushed there (2a)."""
        files = self.files.files
        streams = {self._folder_of(want).rpartition("/")[0]: None for want in entries}
        for folder in (*streams, self._streams, self._streams.rpartition("/")[0]):
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
        log.warning("a replica left and another came in its place meanwhile", folder=folder)
        return self._forget_replica(key, folder)

    def _folder_of(self, want: Wanted) -> str:
        return self.folder(want.name, want.stream_id, want.partition)

    def _open_or_set_aside(
        self, want: Wanted, ends: dict[PartitionKey, CleanEnd] | None, same_boot: bool
    ) -> PartitionLog | Lost:
        folder = self._folder_of(want)
        try:
            return self._open(want, folder, ends, same_boot)
        except (Quarantine, IdentityLost) as reason:
            self._quarantine(folder, str(reason))
            return Lost(want, f"quarantined: {reason}")
        except Stray as reason:
            return Lost(want, f"the folder belongs to another partition: {reason}", stray=True)

    def _forget_deleted(self, wanted: set[bytes]) -> None:
        """Drops what is saved of streams that are gone: a crash may have come before it was saved so.

        A stray keeps its recovery point, for whoever puts it back (2b, 2d).
        """
        present = {name.rpartition("~")[2] for name in self.files.files.list(self._streams)}
        for stream_id in self.checkpoints.streams() - wanted:
            if id_digits(stream_id) not in present:
                self.checkpoints.remove_stream(stream_id)

    def _save_recovered(self, logs: dict[PartitionKey, PartitionLog]) -> None:
        """What recovery made durable stays so for the next one, whatever boot that is of."""
        checkpoints = self.checkpoints
        for key, one in logs.items():
            if checkpoints.recovery_point(key) not in (None, one.recovery_point) or one.end_offset:
                checkpoints.put_recovery_point(key, one.recovery_point, checkpoints.high_watermark(key))
            if checkpoints.log_start_offset(key) != one.start_offset:
                checkpoints.put_log_start_offset(key, one.start_offset)
        try:
            checkpoints.save()
        except OSError as error:
            log.warning("checkpoints could not be saved after recovery", error=str(error))

    def _open(
        self, want: Wanted, folder: str, ends: dict[PartitionKey, CleanEnd] | None, same_boot: bool
    ) -> PartitionLog:
        key = (want.stream_id, want.partition)
        point, lso = self.checkpoints.recovery_point(key), self.checkpoints.log_start_offset(key)
        if not self.files.files.exists(folder):
            if point is not None:
                raise Quarantine("the partition's folder is gone")
            if self._is_quarantined(folder, want.assignment):
                raise Quarantine("the partition's folder was quarantined by an earlier start")
            return self.create(want)
        place = Place(self.files, self.cache, folder, key, want.config, want.assignment)
        end = ends.get(key) if ends is not None else None
        try:
            opened = None if end is None else open_clean(place, end, lso)
            if opened is not None:
                return opened
            if end is not None:
                log.warning("a log is not as the clean stop left it and is recovered", folder=folder)
            recovered = recover(place, LastRun(point, lso, same_boot))
            recovered.recovered = True
            if starting_over.is_marked(self.files.files, folder):
                self.save_restart(recovered, recovered.start_offset)
                starting_over.unmark(self.files.files, folder)
        except IdentityLost:
            if point is None and not any(n.endswith(SEGMENT_SUFFIX) for n in self.files.files.list(folder)):
                # A creation that a crash cut short: the identity is written last.
                return self.create(want)
            raise
        if recovered.cut_bytes:
            log.warning(
                "recovery cut an unfinished tail; its bytes are kept beside the log",
                folder=folder,
                bytes=recovered.cut_bytes,
                suspect=recovered.suspect,
            )
        return recovered

    def _is_quarantined(self, folder: str, assignment: int) -> bool:
        """Whether this replica was set aside; one of an earlier assignment does not stand in for it (R16)."""
        files = self.files.files
        parent, _, name = folder.rpartition("/")
        prefix = f"{QUARANTINE_PREFIX}{name}"
        if not files.exists(parent):
            return False
        found = [other for other in files.list(parent) if other == prefix or other.startswith(f"{prefix}.")]
        held = [read_assignment(files, f"{parent}/{other}") for other in found]
        return any(one is None or one >= assignment for one in held)

    def _quarantine(self, folder: str, reason: str) -> None:
        """Sets a folder aside under a name that recovery never opens and nothing deletes (2c)."""
        if self.files.files.exists(folder):
            target = self._rename_aside(folder, QUARANTINE_PREFIX)
            log.error("a log is quarantined: its end or history is unknown", folder=target, reason=reason)

    def _rename_aside(self, folder: str, prefix: str) -> str:
        """A name that does not exist yet, and that nothing opens or deletes; durable when it returns."""
        files = self.files.files
        parent, _, name = folder.rpartition("/")
        target, number = f"{parent}/{prefix}{name}", 0
        while files.exists(target):
            number += 1
            target = f"{parent}/{prefix}{name}.{number}"
        self.files.forget_below(folder)
        files.rename(folder, target)
        files.sync_dir(parent)
        return target

    def _set_stray_aside(self, folder: str) -> None:
        """Renames what lies where a log is to be made, if it holds records (2d).

        A replica left while this broker was away, and comes back: what it held before is not
        the beginning of what it will hold.
        """
        files = self.files.files
        if files.exists(folder) and any(name.endswith(SEGMENT_SUFFIX) for name in files.list(folder)):
            self._rename_aside(folder, STRAY_PREFIX)

    def _strays(self, claimed: set[str]) -> Iterator[str]:
        for stream in self.files.files.list(self._streams):
            if stream.startswith("."):
                continue
            try:
                partitions = self.files.files.list(f"{self._streams}/{stream}")
            except NotADirectoryError:
                yield f"{self._streams}/{stream}"
                continue
            for partition in partitions:
                path = f"{self._streams}/{stream}/{partition}"
                if not partition.startswith(".") and path not in claimed:
                    yield path

    # --- creating and deleting

    def create(self, want: Wanted) -> PartitionLog:
        """An empty log, durable with every folder entry on its path; after a loss it begins at the LSO.

        A quarantined folder of the partition stays beside it (2c), and so does a stray in its place.
        """
        folder = self.folder(want.name, want.stream_id, want.partition)
        self._set_stray_aside(folder)
        key = (want.stream_id, want.partition)
        base = self.checkpoints.log_start_offset(key)
        if self.checkpoints.recovery_point(key) is not None:
            # What an earlier log of this partition held is no longer expected here.
            self.save_recovery_point_of(key, RecoveryPoint(base, base, 0))
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
        files.sync_dir(self._streams)
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

    def delete_stream(self, name: str, stream_id: bytes, logs: Iterable[PartitionLog]) -> str | None:
        """Sets a stream's folder aside as `.deleted-…`; the path to remove later, None if none was there."""
        for one in logs:
            one.close()
        with self._save_lock:
            # Those of its partitions, too, that were lost and have no log.
            self.checkpoints.remove_stream(stream_id)
        folder = f"{self._streams}/{stream_folder(name, stream_id)}"
        if not self.files.files.exists(folder):
            return None
        return self._set_deleted(folder, stream_id.hex())

    def remove_replica(self, one: PartitionLog) -> str:
        """Sets the folder of a replica that left aside as `.deleted-…`; the path to remove later.

        What was saved of it is forgotten first, the LSO too: if it ever comes back, it
        begins with nothing. Raises OSError; the folder is a stray then.
        """
        one.close()
        return self._forget_replica(one.key, one.folder)

    def _forget_replica(self, key: PartitionKey, folder: str) -> str:
        with self._save_lock:
            self.checkpoints.remove_partition(key)
            self.checkpoints.save()
        return self._set_deleted(folder, f"{key[0].hex()}-{key[1]}")

    def _set_deleted(self, folder: str, name: str) -> str:
        files = self.files.files
        target, number = f"{self._streams}/.deleted-{name}", 0
        while files.exists(target):
            number += 1
            target = f"{self._streams}/.deleted-{name}.{number}"
        files.rename(folder, target)
        # The new name first: a crash in between leaves both, or the old one.
        files.sync_dir(self._streams)
        parent = folder.rpartition("/")[0]
        if parent != self._streams:
            files.sync_dir(parent)
        return target

    def quarantine(self, one: PartitionLog, reason: str) -> None:
        """Sets the log of a running replica aside, never to be opened or deleted by itself (R1, 2c)."""
        one.close()
        if read_assignment(self.files.files, one.folder) in (None, one.assignment):
            # Else its place was given to another one meanwhile (R16), and it lies beside that as a stray.
            self._quarantine(one.folder, reason)

    def deleted_folders(self) -> list[str]:
        """What `delete_stream` left to be removed, from this run and earlier ones."""
        names = self.files.files.list(self._streams)
        return [f"{self._streams}/{name}" for name in names if name.startswith(".deleted-")]

    def remove_deleted(self, path: str) -> None:
        assert path.startswith(f"{self._streams}/.deleted-")
        with contextlib.suppress(FileNotFoundError):
            self.files.files.remove_tree(path)

    # --- saving

    def sync(
        self, logs: Iterable[PartitionLog], threads: Executor | None = None, *, whole: bool = False
    ) -> None:
        """Makes logs durable, several files at a time if `threads` are given.

        `whole`: by one flush of the volume, which must be there. Raises `StorageFailure`
        after any failed flush: nothing may be acknowledged any more, and the broker must
        stop (DESIGN 4.3).
        """
        logs = list(dict.fromkeys(logs))
        try:
            if whole:
                assert self.volume is not None, "see volume_flush"
                with contextlib.ExitStack() as flushing:
                    for one in logs:
                        flushing.enter_context(one.flusher.flushing())
                    self.volume.syncfs()
            elif threads is None or len(logs) == 1:
                for one in logs:
                    one.flusher.sync()
            else:
                futures = [threads.submit(one.flusher.sync) for one in logs]
                wait(futures)
                for future in futures:
                    future.result()
        except OSError as error:
            raise StorageFailure(
                f"a flush failed: {error.strerror or error} ({error.filename or self.root})"
            ) from error

    def save_checkpoints(self, logs: Iterable[tuple[PartitionLog, int]]) -> None:
        """Saves recovery points, high watermarks (given with each log) and log start offsets."""
        with self._save_lock:
            for one, high_watermark in logs:
                self._put(one, high_watermark, one.start_offset)
            self.checkpoints.save()

    def advance_starts(self, logs: Iterable[tuple[PartitionLog, int, int]]) -> None:
        """Moves logs' starts forward, each given with the high watermark and the offset, on the disk first.

        A log's own start moves only once it is saved, so that nobody takes for done what a crash
        would undo, or for under way what nobody tries again. Raises OSError; no log has moved then.
        """
        entries = list(logs)
        with self._save_lock:
            for one, high_watermark, offset in entries:
                self._put(one, high_watermark, max(one.start_offset, min(offset, one.end_offset)))
            try:
                self.checkpoints.save()
            except OSError:
                for one, _, _ in entries:
                    self.checkpoints.put_log_start_offset(one.key, one.start_offset)
                raise
            for one, _, offset in entries:
                one.start.advance(offset)

    def _put(self, one: PartitionLog, high_watermark: int, start_offset: int) -> None:
        key = one.key
        one.active.save_index()
        self.checkpoints.put_recovery_point(key, one.recovery_point, high_watermark)
        self.checkpoints.put_log_start_offset(key, start_offset)

    def save_waited(self, changed: Mapping[PartitionKey, Waited | None]) -> None:
        """Saves how long closed segments that are dated ahead were there (R18); None: there are none."""
        with self._save_lock:
            for key, waited in changed.items():
                self.checkpoints.put_waited(key, waited)
            self.checkpoints.save()

    def save_recovery_point(self, one: PartitionLog, point: RecoveryPoint) -> None:
        """Saves a lower recovery point at once, before a truncation cuts below the saved one."""
        self.save_recovery_point_of(one.key, point)

    def save_recovery_point_of(self, key: PartitionKey, point: RecoveryPoint) -> None:
        with self._save_lock:
            self.checkpoints.lower_recovery_point(key, point)
            self.checkpoints.save()

    def save_restart(self, one: PartitionLog, offset: int) -> None:
        """Saves at once that a log was emptied and begins at `offset`, also if it began later before."""
        key = one.key
        with self._save_lock:
            self.checkpoints.put_recovery_point(key, RecoveryPoint(offset, offset, 0), offset)
            self.checkpoints.put_log_start_offset(key, offset)
            self.checkpoints.put_waited(key, None)
            self.checkpoints.save()

    def close_clean(self, logs: Iterable[tuple[PartitionLog, int]]) -> None:
        """Flushes everything and leaves the clean-stop mark, so that the next start reads no log."""
        entries = list(logs)
        # It is all to be flushed, whatever waits beside.
        whole = self.volume is not None and len(entries) >= VOLUME_FLUSH_LOGS_MIN
        self.sync((one for one, _ in entries), whole=whole)
        for one, _ in entries:
            one.guarding.save()
            one.active.save_index()
        self.save_checkpoints(entries)
        ends = {
            one.key: CleanEnd(one.end_offset, one.active.base_offset, one.active.size) for one, _ in entries
        }
        self.checkpoints.write_clean_mark(ends)
        self.files.close()


def stream_folder(name: str, stream_id: bytes) -> str:
    """The folder of a stream: its name for people, eight hex digits of its id for uniqueness."""
    return f"{name}~{id_digits(stream_id)}"


def id_digits(stream_id: bytes) -> str:
    return stream_id.hex()[:8]


def deleted_stream(path: str) -> bytes | None:
    """The id of the stream whose folder was set aside at `path`; None: it is a single replica's."""
    name, _, _ = path.rpartition("/")[2].removeprefix(".deleted-").partition(".")
    return bytes.fromhex(name) if len(name) == 32 and all(c in "0123456789abcdef" for c in name) else None
