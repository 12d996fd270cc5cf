"""The logs of one data directory: deletes them, sets them aside, makes them durable together, closes them.

Neighbours: `opening` opens and creates logs, `saving` saves the state that a start may trust, `folders` has
their folders. `files.volume_flush` says when one flush of the file system replaces the flushes of many
files. Blocking.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from concurrent.futures import Executor, wait

from tidelog_broker.errors import StorageFailure
from tidelog_broker.storage.directory.checkpoint import Checkpoints
from tidelog_broker.storage.directory.folders import LogFolders
from tidelog_broker.storage.directory.opening import LogOpener
from tidelog_broker.storage.directory.saving import SavedPoints
from tidelog_broker.storage.files.open_files import OpenFiles
from tidelog_broker.storage.files.protocol import Files, Volume
from tidelog_broker.storage.files.volume_flush import VOLUME_FLUSH_LOGS_MIN
from tidelog_broker.storage.files.whole_files import sync_found
from tidelog_broker.storage.folder.identity import read_assignment
from tidelog_broker.storage.log.partition_log import PartitionLog
from tidelog_broker.storage.log.tail_cache import TailCache
from tidelog_broker.storage.points import CleanEnd


class LogStore:
    """The logs of one data directory, and the parts that open, save and set them aside."""

    def __init__(
        self,
        files: Files,
        root: str,
        *,
        open_files_max: int = 512,
        tail_cache_bytes_max: int = 64 << 20,
        volume: Volume | None = None,
    ) -> None:
        """`volume`: the volume of the logs, if one flush of it may replace the flushes of many files.

        It must be opened before anything is written to the logs. None: each file is flushed alone.
        """
        self.root = root
        self.volume = volume
        self.files = OpenFiles(files, open_files_max)
        self.cache = TailCache(tail_cache_bytes_max)
        streams, saved = f"{root}/streams", f"{root}/checkpoints"
        files.make_dir(streams)
        files.make_dir(saved)
        sync_found(files, root)
        # Makes the checkpoints durable before they are read: a killed process may not have synced them.
        sync_found(files, saved)
        self.checkpoints = Checkpoints.load(files, saved)
        self.folders = LogFolders(self.files, streams)
        self.saved = SavedPoints(self.checkpoints)
        self.opener = LogOpener(self.files, self.cache, self.folders, self.saved)

    # --- deleting

    def delete_stream(self, name: str, stream_id: bytes, logs: Iterable[PartitionLog]) -> str | None:
        """Renames a stream's folder to `.deleted-…`; the path to remove later, None if there is no folder."""
        for one in logs:
            one.close()
        self.saved.forget_stream(stream_id)
        folder = self.folders.of_stream(name, stream_id)
        if not self.files.files.exists(folder):
            return None
        return self.folders.set_deleted(folder, stream_id.hex())

    def remove_replica(self, one: PartitionLog) -> str:
        """Renames the folder of a replica that left this broker to `.deleted-…`; the path to remove later.

        The saved state of the replica is removed first, and the LSO with it: if the replica is assigned
        here again, it begins with nothing. Raises OSError; then the folder is a stray.
        """
        one.close()
        return self.opener.forget_replica(one.key, one.folder)

    def quarantine(self, one: PartitionLog, reason: str) -> None:
        """Sets aside the log of a running replica; after that only a command opens or deletes it (R1, 2c)."""
        one.close()
        if read_assignment(self.files.files, one.folder) in (None, one.assignment):
            # Otherwise another replica already has its place (R16), and this folder is beside it as a stray.
            self.folders.quarantine(one.folder, reason)

    # --- making durable

    def sync(
        self, logs: Iterable[PartitionLog], threads: Executor | None = None, *, whole: bool = False
    ) -> None:
        """Makes logs durable, several files at a time if `threads` are given.

        `whole`: by one flush of the volume, which must then be given. Raises `StorageFailure`
        after any failed flush: then no record may be acknowledged, and the broker must
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

    def close_clean(self, logs: Iterable[tuple[PartitionLog, int]]) -> None:
        """Flushes everything and leaves the clean-stop mark, so that the next start reads no log."""
        entries = list(logs)
        # Everything must be flushed, so it does not matter which other data waits on the volume.
        whole = self.volume is not None and len(entries) >= VOLUME_FLUSH_LOGS_MIN
        self.sync((one for one, _ in entries), whole=whole)
        for one, _ in entries:
            one.guarding.save()
            one.active.save_index()
        self.saved.save(entries)
        ends = {
            one.key: CleanEnd(one.end_offset, one.active.base_offset, one.active.size) for one, _ in entries
        }
        self.checkpoints.write_clean_mark(ends)
        self.files.close()
