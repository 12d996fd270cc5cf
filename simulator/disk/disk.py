"""A disk in memory that loses bytes that were not synced: `Files` for tests and simulator.

The promises of the model are these, and no others:

1. *Content.* Every reader sees a write or truncation at once (the page cache). It certainly
   survives a crash only after `datasync` of the file. Until then each 4 KiB page, and the
   size, independently has its state of *some* moment since the last datasync. Pages are
   written back whole, in any order: a later write to a page never survives without the
   earlier writes to the same page, while some pages of one write may survive without the
   others. A size may survive without its pages (they read as zeros). Pages that a surviving
   truncation removed do not come back.
2. *Names.* A created, renamed or removed name is visible at once. The change certainly
   survives only after `sync_dir` of the folder (of the target's folder, for a rename). Until
   then each change survives or not independently; a rename is atomic. `datasync` of a file
   does not keep its name: a file whose name did not survive is gone. A crash keeps, at
   random, either any subset of the unsynced changes of names, or the first few of them.
   `syncfs` makes all content and all names durable that existed when it began.
3. *Failed flush.* A `datasync` or `syncfs` that fails leaves the pages in the cache and never
   writes them to the disk: a later datasync that succeeds does not include them, and a crash
   loses them (as on Linux).
4. *Room.* With a `capacity`, a write writes the bytes that fit and returns how many. It raises
   ENOSPC when none fits. `truncate` is never refused, and frees room.
5. *Rot.* `flip` changes the bytes on the disk. With `cached=True` readers still see the good
   page until `drop_cache`.

`crash` returns the disk that the next process finds, and does not change this one, so that a
test can crash at every operation of a single run. `copy` returns the disk after the end of the
process alone: the page cache survives. `crash_at` ends the "process" instead: the operation
with that number and all later ones raise `CrashPoint`.

Only calls that change the disk count as operations (`OPERATIONS`). Thread-safe. The same calls
with the same `random.Random` give the same disk.
"""

from __future__ import annotations

import errno
import random

from simulator.disk.content import PAGE_BYTES, Inode, Luck
from simulator.disk.device import Device
from simulator.disk.files import Bytes, FakeFile
from simulator.disk.names import Folder, Link, Moment, Node, Rename, Unlink, forsake_all, moment, sync_all
from simulator.disk.operations import OPERATIONS, CrashPoint, Fault, Operation, os_error

__all__ = ["OPERATIONS", "PAGE_BYTES", "Bytes", "CrashPoint", "FakeDisk", "FakeFile", "Fault", "Operation"]

UNLIMITED = 1 << 50


class FakeDisk(Device):
    """Implements `tidelog_broker.storage.files.protocol.Files` by the rules in the docstring of the
    module."""

    def __init__(self, capacity: int | None = None) -> None:
        """`capacity`: bytes that all files may hold together; None: no bound."""
        super().__init__(capacity)
        self._root = Folder()

    def __repr__(self) -> str:
        state = "dead" if self.dead else "alive"
        return f"<FakeDisk {state} operations={self.operations} bytes={self._used}>"

    # --- Files

    def open(self, path: str, *, create: bool = False) -> FakeFile:
        with self._lock:
            self._alive()
            folder, name = self._parent(path)
            node = folder.entries.get(name)
            if isinstance(node, Folder):
                raise os_error(errno.EISDIR, path)
            if node is None:
                if not create:
                    raise os_error(errno.ENOENT, path)
                self._count("create", path)
                node = Inode()
                folder.entries[name] = node
                folder.pending.append(Link(self.operations, name, node))
            node.handles += 1
            return FakeFile(self, node, path)

    def exists(self, path: str) -> bool:
        with self._lock:
            self._alive()
            return self._find(path) is not None

    def file_size(self, path: str) -> int:
        with self._lock:
            self._alive()
            node = self._find(path)
            if node is None:
                raise os_error(errno.ENOENT, path)
            return len(node.content) if isinstance(node, Inode) else 0

    def list(self, path: str) -> list[str]:
        with self._lock:
            self._alive()
            return sorted(self._folder(path).entries)

    def make_dir(self, path: str) -> None:
        with self._lock:
            self._alive()
            folder = self._root
            for name in _parts(path):
                child = folder.entries.get(name)
                if child is None:
                    self._count("make_dir", path)
                    child = Folder()
                    folder.entries[name] = child
                    folder.pending.append(Link(self.operations, name, child))
                elif isinstance(child, Inode):
                    raise os_error(errno.ENOTDIR, path)
                folder = child

    def rename(self, source: str, target: str) -> None:
        with self._lock:
            self._alive()
            from_folder, from_name = self._parent(source)
            to_folder, to_name = self._parent(target)
            node = from_folder.entries.get(from_name)
            if node is None:
                raise os_error(errno.ENOENT, source)
            there = to_folder.entries.get(to_name)
            if there is node:
                return
            if isinstance(there, Folder):
                if isinstance(node, Inode):
                    raise os_error(errno.EISDIR, target)
                if there.entries:
                    raise os_error(errno.ENOTEMPTY, target)
            elif there is not None and isinstance(node, Folder):
                raise os_error(errno.ENOTDIR, target)
            self._count("rename", source)
            del from_folder.entries[from_name]
            to_folder.entries[to_name] = node
            if isinstance(there, Inode):
                self._forget(there)
            to_folder.pending.append(Rename(self.operations, from_folder, from_name, to_name, node))

    def remove(self, path: str) -> None:
        with self._lock:
            self._alive()
            folder, name = self._parent(path)
            node = folder.entries.get(name)
            if node is None:
                raise os_error(errno.ENOENT, path)
            if isinstance(node, Folder):
                raise os_error(errno.EISDIR, path)
            self._count("remove", path)
            self._unlink(folder, name, node)

    def remove_tree(self, path: str) -> None:
        with self._lock:
            self._alive()
            parent, name = self._parent(path)
            folder = self._folder(path)
            self._remove_tree(folder, path)
            self._count("remove", path)
            self._unlink(parent, name, folder)

    def sync_dir(self, path: str) -> None:
        with self._lock:
            self._alive()
            folder = self._folder(path)
            self._count("sync_dir", path)
            folder.sync()

    def open_volume(self, path: str) -> FakeVolume:
        with self._lock:
            self._alive()
            self._folder(path)
            return FakeVolume(self, path)

    def syncfs_begin(self) -> Moment:
        """Begins a flush of the whole disk. Returns what the flush will make durable."""
        with self._lock:
            self._alive()
            return moment(self._root, self.operations)

    def syncfs_end(self, path: str, begun: Moment) -> None:
        with self._lock:
            self._alive()
            try:
                self._count("syncfs", path)
            except OSError:
                forsake_all(self._root, begun)
                raise
            sync_all(self._root, begun)

    def free_bytes(self, path: str) -> int:
        with self._lock:
            self._alive()
            return UNLIMITED if self.capacity is None else max(0, self.capacity - self._used)

    # --- For tests and runs

    def crash(self, rng: random.Random | None = None) -> FakeDisk:
        """The disk after a power loss: all that was synced and, with `rng`, some of the rest."""
        with self._lock:
            after = FakeDisk(self.capacity)
            after._root = self._root.after_crash(Luck(rng) if rng is not None else None)
            after._used = after._root.used()
            return after

    def copy(self) -> FakeDisk:
        """This disk with its page cache, for the next process."""
        with self._lock:
            after = FakeDisk(self.capacity)
            after._root = self._root.copy({})
            after._used = after._root.used()
            return after

    def is_synced(self, path: str) -> bool:
        """Whether the whole content of a file, its name and the names above it would survive a crash."""
        with self._lock:
            node = self._find(path)
            assert isinstance(node, Inode), path
            return not node.unsynced and self._kept(path) is node

    def synced_bytes(self, path: str) -> int:
        """All bytes of a file below this position would survive a crash; 0: its name may not survive."""
        with self._lock:
            node = self._find(path)
            return node.synced_bytes if isinstance(node, Inode) and self._kept(path) is node else 0

    def content_kept(self, path: str) -> bytes | None:
        """The bytes of a file that survive every power loss; None: its name may not survive."""
        with self._lock:
            node = self._kept(path)
            return bytes(node.durable) if isinstance(node, Inode) else None

    def _kept(self, path: str) -> Node | None:
        """The file or folder of a name that survives every power loss."""
        node: Node | None = self._root
        for name in _parts(path):
            node = node.durable.get(name) if isinstance(node, Folder) else None
        return node

    def flip(self, path: str, position: int, bit: int = 0, *, cached: bool = False) -> None:
        """Flips one bit of a file; `cached`: readers do not see it before `drop_cache`."""
        with self._lock:
            node = self._find(path)
            assert isinstance(node, Inode), path
            node.flip(position, bit, cached)

    def tree(self) -> dict[str, bytes]:
        """By path: the content of every file, as readers see it."""
        with self._lock:
            return dict(self._root.files(""))

    # --- Inside

    def _parent(self, path: str) -> tuple[Folder, str]:
        *folders, name = _parts(path) or [""]
        if not name:
            raise os_error(errno.EINVAL, path)
        return self._folder("/" + "/".join(folders)), name

    def _find(self, path: str) -> Node | None:
        node: Node | None = self._root
        for name in _parts(path):
            if not isinstance(node, Folder):
                return None
            node = node.entries.get(name)
        return node

    def _folder(self, path: str) -> Folder:
        node = self._find(path)
        if node is None:
            raise os_error(errno.ENOENT, path)
        if isinstance(node, Inode):
            raise os_error(errno.ENOTDIR, path)
        return node

    def _remove_tree(self, folder: Folder, path: str) -> None:
        for name, node in list(folder.entries.items()):
            below = f"{path}/{name}"
            if isinstance(node, Folder):
                self._remove_tree(node, below)
            self._count("remove", below)
            self._unlink(folder, name, node)

    def _unlink(self, folder: Folder, name: str, node: Node) -> None:
        del folder.entries[name]
        folder.pending.append(Unlink(self.operations, name, node))
        if isinstance(node, Inode):
            self._forget(node)

    def _forget(self, node: Inode) -> None:
        """The last name of a file is removed: its room is free when its last handle is closed."""
        node.linked = False
        if not node.handles:
            self._used -= len(node.content)


class FakeVolume:
    """The volume of a simulated disk, opened by a folder on it."""

    def __init__(self, disk: FakeDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def syncfs(self) -> None:
        self._disk.syncfs_end(self._path, self._disk.syncfs_begin())

    def close(self) -> None: ...


def _parts(path: str) -> list[str]:
    if not path.startswith("/"):
        raise ValueError(f"{path!r} is not absolute")
    return [part for part in path.split("/") if part]
