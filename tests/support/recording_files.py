"""A recorder under a real broker (DESIGN 16): `Files` over the operating system's, and what was done to them.

Every operation goes through to real files and is kept in the order in which it took
effect, together with when each flush began and ended. `Replay` performs a prefix of that
history on a `FakeDisk` and gives the disk that a loss of power at that moment could leave:
everything synced, and of the rest any subset of 4 KiB pages and names.

A flush that is under way makes durable only what was written before it began, and only
once it has ended. So each file keeps, for every flush, how much of its history lay before it.

The disks of several brokers may share one history, so that a moment is the same number on
all of them; a `Replay` performs what was done to one of them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import threading
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from simulator.disk import Bytes, FakeDisk, FakeFile
from simulator.disk.names import Moment
from tidelog_broker.storage.files.os_files import OsFile, OsFiles
from tidelog_broker.storage.files.protocol import Volume


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

    def __init__(self, file: OsFile, files: RecordingFiles, path: str, number: int) -> None:
        self._file = file
        self._files = files
        self._history = files.history
        self._path = path
        self._number = number

    def pread(self, length: int, position: int) -> bytes:
        return self._file.pread(length, position)

    def pwrite(self, buffers: Sequence[Bytes], position: int) -> int:
        data = b"".join(bytes(buffer) for buffer in buffers)
        # One at a time, so that the order kept here is the order of the page cache.
        with self._files.change(self._path):
            written = self._file.pwrite(buffers, position)
            self._history.add("write", self._path, file=self._number, position=position, data=data[:written])
        return written

    def size(self) -> int:
        return self._file.size()

    def truncate(self, size: int) -> None:
        with self._files.change(self._path):
            self._file.truncate(size)
            self._history.add("truncate", self._path, file=self._number, position=size)

    def datasync(self) -> None:
        number = self._history.new_sync()
        with self._files.change(self._path):
            self._history.add("sync_begin", self._path, file=self._number, sync=number)
        self._file.datasync()
        time.sleep(self._files.flush_seconds)
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
    """Files that record every write and sync. Implements `tidelog_broker.storage.files.protocol.Files`."""

    def __init__(self, history: History | None = None, *, flush_seconds: float = 0.0) -> None:
        """`history`: goes on from others; None: begins one.

        `flush_seconds`: so much longer takes a flush, as on a slower disk, so that more waits for it.
        """
        self.history = History() if history is None else history
        self.flush_seconds = flush_seconds
        self._files = OsFiles()
        self._killed = False

    def kill(self) -> None:
        """Whoever uses them is a process that was killed: it changes nothing from now on.

        What it wrote stays in the page cache, and a flush that is under way ends.
        """
        with self.history.lock:
            self._killed = True

    @contextlib.contextmanager
    def change(self, path: str) -> Iterator[None]:
        """Around each operation, so that what is done and what is recorded have one order."""
        with self.history.lock:
            if self._killed:
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            yield

    def open(self, path: str, *, create: bool = False) -> RecordedFile:
        history = self.history
        with self.change(path):
            file = self._files.open(path, create=create)
            number = history.new_file()
            history.add("open", path, file=number, position=int(create))
        return RecordedFile(file, self, path, number)

    def exists(self, path: str) -> bool:
        return self._files.exists(path)

    def file_size(self, path: str) -> int:
        return self._files.file_size(path)

    def list(self, path: str) -> list[str]:
        return self._files.list(path)

    def make_dir(self, path: str) -> None:
        with self.change(path):
            self._files.make_dir(path)
            self.history.add("make_dir", path)

    def rename(self, source: str, target: str) -> None:
        with self.change(source):
            self._files.rename(source, target)
            self.history.add("rename", source, target=target)

    def remove(self, path: str) -> None:
        with self.change(path):
            self._files.remove(path)
            self.history.add("remove", path)

    def remove_tree(self, path: str) -> None:
        with self.change(path):
            self._files.remove_tree(path)
            self.history.add("remove_tree", path)

    def sync_dir(self, path: str) -> None:
        # Folders change rarely: a flush of one is recorded as a moment, with nothing in between.
        with self.change(path):
            self._files.sync_dir(path)
            self.history.add("sync_dir", path)

    def open_volume(self, path: str) -> RecordedVolume:
        return RecordedVolume(self._files.open_volume(path), self.history, path)

    def free_bytes(self, path: str) -> int:
        return self._files.free_bytes(path)


class Replay:
    """Performs a history, forward only, and gives the disks that crashes on the way could leave."""

    def __init__(self, events: Sequence[Event], folder: str) -> None:
        """`folder`: was there, durably, before the history began; what was done elsewhere is passed over."""
        self._events = events
        self._below = f"{folder}/"
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
            event = self._events[self._done]
            if f"{event.path}/".startswith(self._below):
                self._perform(event)
            self._done += 1

    def crash(self, rng: random.Random | None) -> FakeDisk:
        """`rng` draws what of the unsynced is kept; None: nothing."""
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
