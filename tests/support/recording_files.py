"""A recorder under a real broker (DESIGN 16): `Files` over the operating system's, and what was done to them.

Every operation goes through to real files and is kept in the order in which it took
effect, together with when each flush began and ended. `Replay` performs a prefix of that
history on a `FakeDisk` and gives the disk that a loss of power at that moment could leave:
everything synced, and of the rest any subset of 4 KiB pages and names.

A flush that is under way makes durable only what was written before it began, and only
once it has ended. So each file keeps, for every flush, how much of its history lay before it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from typing import NamedTuple

from simulator.disk import Bytes, FakeDisk, FakeFile
from simulator.disk_names import Moment
from tidelog_broker.storage.files import OsFile, OsFiles, Volume


class Event(NamedTuple):
    """Something that was done to the disk."""

    kind: str
    """open, write, truncate, sync_begin, sync_end, make_dir, rename, remove, remove_tree, dir_sync_end, …"""
    path: str
    """As it was given; for operations of an open file, as it was opened."""
    file: int = 0
    """Which opened file; 0: none."""
    position: int = 0
    data: bytes = b""
    target: str = ""
    sync: int = 0
    """Pairs the beginning of a flush with its end."""


class History:
    """The operations so far. Safe for threads."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.events: list[Event] = []
        self._files = 0
        self._syncs = 0

    def __len__(self) -> int:
        return len(self.events)

    def add(self, kind: str, path: str, **fields: object) -> None:
        with self.lock:
            self.events.append(Event(kind, path, **fields))  # type: ignore[arg-type]

    def new_file(self) -> int:
        with self.lock:
            self._files += 1
            return self._files

    def new_sync(self) -> int:
        with self.lock:
            self._syncs += 1
            return self._syncs


class RecordedFile:
    """An open file whose writes and flushes are recorded."""

    def __init__(self, file: OsFile, history: History, path: str, number: int) -> None:
        self._file = file
        self._history = history
        self._path = path
        self._number = number

    def pread(self, length: int, position: int) -> bytes:
        return self._file.pread(length, position)

    def pwrite(self, buffers: Sequence[Bytes], position: int) -> int:
        data = b"".join(bytes(buffer) for buffer in buffers)
        # One at a time, so that the order kept here is the order of the page cache.
        with self._history.lock:
            written = self._file.pwrite(buffers, position)
            self._history.add("write", self._path, file=self._number, position=position, data=data[:written])
        return written

    def size(self) -> int:
        return self._file.size()

    def truncate(self, size: int) -> None:
        with self._history.lock:
            self._file.truncate(size)
            self._history.add("truncate", self._path, file=self._number, position=size)

    def datasync(self) -> None:
        number = self._history.new_sync()
        self._history.add("sync_begin", self._path, file=self._number, sync=number)
        self._file.datasync()
        self._history.add("sync_end", self._path, file=self._number, sync=number)

    def drop_cache(self, position: int, length: int) -> None:
        self._file.drop_cache(position, length)

    def close(self) -> None:
        with self._history.lock:
            self._file.close()
            self._history.add("close", self._path, file=self._number)


class RecordedVolume:
    """A file system whose flushes are recorded."""

    def __init__(self, volume: Volume, history: History, path: str) -> None:
        self._volume = volume
        self._history = history
        self._path = path

    def syncfs(self) -> None:
        number = self._history.new_sync()
        self._history.add("syncfs_begin", self._path, sync=number)
        self._volume.syncfs()
        self._history.add("syncfs_end", self._path, sync=number)

    def close(self) -> None:
        self._volume.close()


class RecordingFiles:
    """See the module. Implements `tidelog_broker.storage.files.Files`."""

    def __init__(self) -> None:
        self.history = History()
        self._files = OsFiles()

    def open(self, path: str, *, create: bool = False) -> RecordedFile:
        history = self.history
        with history.lock:
            file = self._files.open(path, create=create)
            number = history.new_file()
            history.add("open", path, file=number, position=int(create))
        return RecordedFile(file, history, path, number)

    def exists(self, path: str) -> bool:
        return self._files.exists(path)

    def file_size(self, path: str) -> int:
        return self._files.file_size(path)

    def list(self, path: str) -> list[str]:
        return self._files.list(path)

    def make_dir(self, path: str) -> None:
        with self.history.lock:
            self._files.make_dir(path)
            self.history.add("make_dir", path)

    def rename(self, source: str, target: str) -> None:
        with self.history.lock:
            self._files.rename(source, target)
            self.history.add("rename", source, target=target)

    def remove(self, path: str) -> None:
        with self.history.lock:
            self._files.remove(path)
            self.history.add("remove", path)

    def remove_tree(self, path: str) -> None:
        with self.history.lock:
            self._files.remove_tree(path)
            self.history.add("remove_tree", path)

    def sync_dir(self, path: str) -> None:
        # Folders change rarely: a flush of one is recorded as a moment, with nothing in between.
        with self.history.lock:
            self._files.sync_dir(path)
            self.history.add("sync_dir", path)

    def open_volume(self, path: str) -> RecordedVolume:
        return RecordedVolume(self._files.open_volume(path), self.history, path)

    def free_bytes(self, path: str) -> int:
        return self._files.free_bytes(path)


class Replay:
    """Performs a history, forward only, and gives the disks that crashes on the way could leave."""

    def __init__(self, events: Sequence[Event], folder: str) -> None:
        """`folder`: what was there, durably, before the history began."""
        self._events = events
        self._done = 0
        self._disk = FakeDisk()
        self._disk.make_dir(folder)
        parts = [part for part in folder.split("/") if part]
        for count in range(len(parts)):
            self._disk.sync_dir("/" + "/".join(parts[:count]))
        self._open: dict[int, FakeFile] = {}
        self._begun: dict[int, int] = {}
        """Flush under way → how many unsynced steps its file had when it began."""
        self._all_begun: dict[int, Moment] = {}
        """The same of flushes of the whole file system."""

    def advance(self, count: int) -> None:
        """Performs the first `count` operations."""
        while self._done < count:
            self._perform(self._events[self._done])
            self._done += 1

    def crash(self, rng: random.Random) -> FakeDisk:
        return self._disk.crash(rng)

    def _perform(self, event: Event) -> None:
        disk = self._disk
        match event.kind:
            case "open":
                self._open[event.file] = disk.open(event.path, create=bool(event.position))
            case "close":
                self._open.pop(event.file).close()
            case "write":
                self._open[event.file].pwrite([event.data], event.position)
            case "truncate":
                self._open[event.file].truncate(event.position)
            case "sync_begin":
                self._begun[event.sync] = self._open[event.file].steps
            case "sync_end":
                self._open[event.file].datasync_until(self._begun.pop(event.sync))
            case "syncfs_begin":
                self._all_begun[event.sync] = disk.syncfs_begin()
            case "syncfs_end":
                disk.syncfs_end(event.path, self._all_begun.pop(event.sync))
            case "make_dir":
                disk.make_dir(event.path)
            case "rename":
                disk.rename(event.path, event.target)
            case "remove":
                disk.remove(event.path)
            case "remove_tree":
                disk.remove_tree(event.path)
            case "sync_dir":
                disk.sync_dir(event.path)
            case _:
                raise AssertionError(event.kind)
