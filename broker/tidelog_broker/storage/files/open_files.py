"""A bound on the files that are open at once."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Iterator

from tidelog_broker.storage.files.loaded_indexes import LoadedIndexes
from tidelog_broker.storage.files.protocol import File, Files


class Held:
    """An open file and the number of its users; all users of a path share the same object."""

    __slots__ = ("file", "forgotten", "path", "users")

    def __init__(self, path: str, file: File) -> None:
        self.path = path
        self.file = file
        self.users = 0
        self.forgotten = False
        """The path now names another file: this file is closed when its last user releases it."""


class OpenFiles:
    """The open files, up to a bound: opened on use, closed when unused and the bound is exceeded.

    A file in use is never closed. A file with unsynced bytes stays in use until its sync, because an
    fsync must go through the same descriptor as the writes. If the files in use alone exceed the
    bound, the bound is exceeded and no call fails. Safe for many threads.
    """

    def __init__(self, files: Files, open_files_max: int = 512) -> None:
        self.files = files
        self._open_files_max = open_files_max
        self._lock = threading.Lock()
        self._entries: dict[str, Held] = {}
        self.damaged_folders: dict[str, None] = {}
        """Folders of logs with an unreadable range, perhaps also of removed logs. A search for damage
        among thousands of logs begins here."""
        self.indexes = LoadedIndexes()
        """The indexes of closed segments that are in memory."""
        self._idle: OrderedDict[str, Held] = OrderedDict()
        """Open files without users, the longest unused first."""

    def __len__(self) -> int:
        return len(self._entries)

    @contextlib.contextmanager
    def use(self, path: str, *, create: bool = False) -> Iterator[File]:
        """The open file, for the length of a `with` block."""
        held = self.acquire(path, create=create)
        try:
            yield held.file
        finally:
            self.release(held)

    def acquire(self, path: str, *, create: bool = False) -> Held:
        """The open file, which stays open until `release`."""
        with self._lock:
            held = self._entries.get(path)
            if held is None:
                held = self._entries[path] = Held(path, self.files.open(path, create=create))
            elif held.users == 0:
                del self._idle[path]
            held.users += 1
            if len(self._entries) > self._open_files_max:
                self._evict()
            return held

    def release(self, held: Held) -> None:
        with self._lock:
            held.users -= 1
            if held.users:
                return
            if held.forgotten:
                _close(held)
                return
            self._idle[held.path] = held
            if len(self._entries) > self._open_files_max:
                self._evict()

    def forget(self, path: str) -> None:
        """Closes the file as soon as it has no users; the next use opens the file that then has this name."""
        with self._lock:
            self._forget(path)

    def forget_below(self, folder: str) -> None:
        """Forgets every file in a folder. To be called before the folder is renamed."""
        with self._lock:
            for path in [path for path in self._entries if path.startswith(f"{folder}/")]:
                self._forget(path)

    def close(self) -> None:
        """Closes all files without users now, and each other file when its last user releases it."""
        with self._lock:
            for path in list(self._entries):
                self._forget(path)

    def _forget(self, path: str) -> None:
        held = self._entries.pop(path, None)
        if held is not None:
            held.forgotten = True
            if self._idle.pop(path, None) is not None:
                _close(held)

    def _evict(self) -> None:
        while self._idle and len(self._entries) > self._open_files_max:
            path, held = self._idle.popitem(last=False)
            del self._entries[path]
            _close(held)


def _close(held: Held) -> None:
    # The file has no unsynced bytes, so an error here cannot lose data.
    with contextlib.suppress(OSError):
        held.file.close()
