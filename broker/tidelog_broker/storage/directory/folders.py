"""The folders of a data directory's logs: their names, and the folders that are set aside beside them.

This module opens no log. Neighbours: `opening` opens the log in a folder, `store` deletes logs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import structlog

from tidelog_broker.storage.files.open_files import OpenFiles
from tidelog_broker.storage.folder.identity import read_assignment
from tidelog_broker.storage.segments.segment import SEGMENT_SUFFIX

log = structlog.get_logger(__name__)

QUARANTINE_PREFIX = ".quarantine-"
STRAY_PREFIX = ".stray-"
"""The prefix of a folder that lay where a log had to be made (2d)."""


class LogFolders:
    """The folders below ``streams/`` of one data directory."""

    def __init__(self, files: OpenFiles, streams: str) -> None:
        self.files = files
        self.streams = streams

    def of(self, name: str, stream_id: bytes, partition: int) -> str:
        """The folder of a partition."""
        return f"{self.streams}/{stream_folder(name, stream_id)}/{partition}"

    def of_stream(self, name: str, stream_id: bytes) -> str:
        return f"{self.streams}/{stream_folder(name, stream_id)}"

    # --- set aside, never to be opened again

    def quarantine(self, folder: str, reason: str) -> None:
        """Gives a folder a name that recovery never opens and nothing deletes (2c)."""
        if self.files.files.exists(folder):
            target = self._rename_aside(folder, QUARANTINE_PREFIX)
            log.error("a log is quarantined: its end or history is unknown", folder=target, reason=reason)

    def is_quarantined(self, folder: str, assignment: int) -> bool:
        """Whether this replica is quarantined; a replica of an earlier assignment does not count (R16)."""
        files = self.files.files
        parent, _, name = folder.rpartition("/")
        prefix = f"{QUARANTINE_PREFIX}{name}"
        if not files.exists(parent):
            return False
        found = [other for other in files.list(parent) if other == prefix or other.startswith(f"{prefix}.")]
        held = [read_assignment(files, f"{parent}/{other}") for other in found]
        return any(one is None or one >= assignment for one in held)

    def set_stray_aside(self, folder: str) -> None:
        """Renames a folder in whose place a log will be made, if the folder has segments (2d).

        A replica was moved away while this broker was down, and is now assigned here again. Its old
        records are not the beginning of its new log.
        """
        files = self.files.files
        if files.exists(folder) and any(name.endswith(SEGMENT_SUFFIX) for name in files.list(folder)):
            self._rename_aside(folder, STRAY_PREFIX)

    def strays(self, claimed: set[str]) -> Iterator[str]:
        """The folders that are not in `claimed`; they are kept (2d)."""
        for stream in self.files.files.list(self.streams):
            if stream.startswith("."):
                continue
            try:
                partitions = self.files.files.list(f"{self.streams}/{stream}")
            except NotADirectoryError:
                yield f"{self.streams}/{stream}"
                continue
            for partition in partitions:
                path = f"{self.streams}/{stream}/{partition}"
                if not partition.startswith(".") and path not in claimed:
                    yield path

    def _rename_aside(self, folder: str, prefix: str) -> str:
        """Gives a folder a name that nothing opens or deletes; durable when it returns."""
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

    # --- set aside, to be removed later

    def set_deleted(self, folder: str, name: str) -> str:
        """Renames a folder to `.deleted-…`, durably; returns the path to remove later."""
        files = self.files.files
        target, number = f"{self.streams}/.deleted-{name}", 0
        while files.exists(target):
            number += 1
            target = f"{self.streams}/.deleted-{name}.{number}"
        files.rename(folder, target)
        # The new name is synced first: a crash in between leaves both names, or the old name.
        files.sync_dir(self.streams)
        parent = folder.rpartition("/")[0]
        if parent != self.streams:
            files.sync_dir(parent)
        return target

    def deleted(self) -> list[str]:
        """The folders that still must be removed, from this run and earlier runs."""
        names = self.files.files.list(self.streams)
        return [f"{self.streams}/{name}" for name in names if name.startswith(".deleted-")]

    def remove_deleted(self, path: str) -> None:
        assert path.startswith(f"{self.streams}/.deleted-")
        with contextlib.suppress(FileNotFoundError):
            self.files.files.remove_tree(path)


def stream_folder(name: str, stream_id: bytes) -> str:
    """The folder of a stream: its name for readers, and eight hex digits of its id to make it unique."""
    return f"{name}~{id_digits(stream_id)}"


def id_digits(stream_id: bytes) -> str:
    return stream_id.hex()[:8]


def deleted_stream(path: str) -> bytes | None:
    """The id of the stream whose folder was set aside at `path`; None: the folder is of a single replica."""
    name, _, _ = path.rpartition("/")[2].removeprefix(".deleted-").partition(".")
    return bytes.fromhex(name) if len(name) == 32 and all(c in "0123456789abcdef" for c in name) else None
