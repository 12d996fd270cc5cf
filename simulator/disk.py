"""A disk in memory that forgets what was not synced: `Files` for tests and simulator.

What the model promises, and no more:

1. *Content.* A write or truncation is seen at once by every reader (the page cache), and
   survives a crash for certain only after `datasync` of the file. Until then each 4 KiB
   page, and the size, independently shows its state at *some* moment since the last
   datasync: pages are written back whole, in any order, so a later write to a page never
   survives without the earlier ones to the same page, while pages of one write may
   survive in part. A size may survive without its pages (they read as zeros). Pages that
   a surviving truncation cut away do not come back.
2. *Names.* Creating, renaming and removing are seen at once, and survive for certain only
   after `sync_dir` of the folder (of the target's folder, for a rename). Until then each
   of them survives or not on its own; a rename is atomic. `datasync` of a file does not
   keep its name: a file whose name did not survive is gone. A crash keeps, at random,
   either any subset of the unsynced changes of names or the first so many of them.
3. *Failed flush.* A `datasync` that fails leaves the pages in the cache and never brings
   them to the disk: a later datasync that succeeds does not include them, and a crash
   loses them (as on Linux).
4. *Room.* With a `capacity`, a write puts down the bytes that fit and says how many, and
   raises ENOSPC when none does. `truncate` is never refused, and gives room back.
5. *Rot.* `flip` changes what the disk holds; with `cached=True` readers keep seeing the
   good page until `drop_cache` sends them to the disk.

`crash` gives the disk that the next process finds and leaves this one as it is, so that
a test can crash at every operation of a single run. `copy` gives the disk after a death
of the process alone: the page cache lives. `crash_at` ends the "process" instead: the
operation with that number and all later ones raise `CrashPoint`.

Only what changes the disk counts as an operation (`OPERATIONS`). Safe for threads; the
same calls with the same `random.Random` give the same disk.
"""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import pyarrow as pa

Bytes: TypeAlias = bytes | memoryview | pa.Buffer

PAGE_BYTES = 4096
OPERATIONS = ("create", "pwrite", "truncate", "datasync", "make_dir", "rename", "remove", "sync_dir")
UNLIMITED = 1 << 50


class CrashPoint(BaseException):
    """The process ended here: no `except Exception` may stop it."""


class Operation(NamedTuple):
    """Something that changes the disk, about to happen."""

    number: int
    """From 0."""
    name: str
    """One of `OPERATIONS`."""
    path: str
    position: int = 0
    length: int = 0


@dataclass(slots=True)
class Fault:
    """An OSError for some of the operations to come."""

    operation: str
    """One of `OPERATIONS`, or `pread`."""
    errno: int = errno.EIO
    path: str = ""
    """Only paths that hold this text."""
    skip: int = 0
    """So many matching operations pass first."""
    times: int = 1
    """Then so many fail."""


class FakeDisk:
    """See the module's rules. Implements `tidelog_broker.storage.files.Files`."""

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = capacity
        """Bytes that all files may hold together; None: no bound."""
        self.operations = 0
        """How many have happened."""
        self.log: list[Operation] | None = None
        """Set it to a list to keep what happens."""
        self.before: Callable[[Operation], None] | None = None
        """Called before each operation; may look, `crash()`, or raise."""
        self.crash_at: int | None = None
        self.faults: list[Fault] = []
        self.dead = False
        self._lock = threading.RLock()
        self._root = _Folder()
        self._used = 0

    def __repr__(self) -> str:
        state = "dead" if self.dead else "alive"
        return f"<FakeDisk {state} operations={self.operations} bytes={self._used}>"

    # --- Files

    def open(self, path: str, *, create: bool = False) -> FakeFile:
        with self._lock:
            self._alive()
            folder, name = self._parent(path)
            node = folder.entries.get(name)
            if isinstance(node, _Folder):
                raise _os_error(errno.EISDIR, path)
            if node is None:
                if not create:
                    raise _os_error(errno.ENOENT, path)
                self._count("create", path)
                node = _Inode()
                folder.entries[name] = node
                folder.pending.append(_Link(self.operations, name, node))
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
                raise _os_error(errno.ENOENT, path)
            return len(node.content) if isinstance(node, _Inode) else 0

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
                    child = _Folder()
                    folder.entries[name] = child
                    folder.pending.append(_Link(self.operations, name, child))
                elif isinstance(child, _Inode):
                    raise _os_error(errno.ENOTDIR, path)
                folder = child

    def rename(self, source: str, target: str) -> None:
        with self._lock:
            self._alive()
            from_folder, from_name = self._parent(source)
            to_folder, to_name = self._parent(target)
            node = from_folder.entries.get(from_name)
            if node is None:
                raise _os_error(errno.ENOENT, source)
            there = to_folder.entries.get(to_name)
            if there is node:
                return
            if isinstance(there, _Folder):
                if isinstance(node, _Inode):
                    raise _os_error(errno.EISDIR, target)
                if there.entries:
                    raise _os_error(errno.ENOTEMPTY, target)
            elif there is not None and isinstance(node, _Folder):
                raise _os_error(errno.ENOTDIR, target)
            self._count("rename", source)
            del from_folder.entries[from_name]
            to_folder.entries[to_name] = node
            if isinstance(there, _Inode):
                self._forget(there)
            to_folder.pending.append(_Rename(self.operations, from_folder, from_name, to_name, node))

    def remove(self, path: str) -> None:
        with self._lock:
            self._alive()
            folder, name = self._parent(path)
            node = folder.entries.get(name)
            if node is None:
                raise _os_error(errno.ENOENT, path)
            if isinstance(node, _Folder):
                raise _os_error(errno.EISDIR, path)
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

    def free_bytes(self, path: str) -> int:
        with self._lock:
            self._alive()
            return UNLIMITED if self.capacity is None else max(0, self.capacity - self._used)

    # --- What tests do to it

    def crash(self, rng: random.Random | None = None) -> FakeDisk:
        """The disk after a loss of power: what was synced and, with `rng`, some of the rest."""
        with self._lock:
            after = FakeDisk(self.capacity)
            after._root = self._root.after_crash(_Luck(rng) if rng is not None else None)
            after._used = after._root.used()
            return after

    def copy(self) -> FakeDisk:
        """This disk, page cache and all, for the next process."""
        with self._lock:
            after = FakeDisk(self.capacity)
            after._root = self._root.copy({})
            after._used = after._root.used()
            return after

    def flip(self, path: str, position: int, bit: int = 0, *, cached: bool = False) -> None:
        """Turns one bit of a file over; `cached`: readers do not see it before `drop_cache`."""
        with self._lock:
            node = self._find(path)
            assert isinstance(node, _Inode), path
            node.flip(position, bit, cached)

    def fail(
        self, operation: str, code: int = errno.EIO, *, path: str = "", skip: int = 0, times: int = 1
    ) -> None:
        """Makes `operation` on paths that hold `path` raise, `times` times after `skip` that pass."""
        self.faults.append(Fault(operation, code, path, skip, times))

    def tree(self) -> dict[str, bytes]:
        """Every file with its content, as readers see it."""
        with self._lock:
            return dict(self._root.files(""))

    # --- Inside

    def _alive(self) -> None:
        if self.dead:
            raise CrashPoint

    def _count(self, name: str, path: str, position: int = 0, length: int = 0) -> None:
        operation = Operation(self.operations, name, path, position, length)
        if self.crash_at is not None and operation.number >= self.crash_at:
            self.dead = True
            raise CrashPoint(f"before {operation}")
        if self.before is not None:
            try:
                self.before(operation)
            except CrashPoint:
                self.dead = True
                raise
        if self.faults:
            self._maybe_fail(name, path)
        self.operations += 1
        if self.log is not None:
            self.log.append(operation)

    def _maybe_fail(self, name: str, path: str) -> None:
        for fault in self.faults:
            if fault.operation != name or fault.path not in path or not fault.times:
                continue
            if fault.skip:
                fault.skip -= 1
                continue
            fault.times -= 1
            raise _os_error(fault.errno, path)

    def _parent(self, path: str) -> tuple[_Folder, str]:
        *folders, name = _parts(path) or [""]
        if not name:
            raise _os_error(errno.EINVAL, path)
        return self._folder("/" + "/".join(folders)), name

    def _find(self, path: str) -> _Node | None:
        node: _Node | None = self._root
        for name in _parts(path):
            if not isinstance(node, _Folder):
                return None
            node = node.entries.get(name)
        return node

    def _folder(self, path: str) -> _Folder:
        node = self._find(path)
        if node is None:
            raise _os_error(errno.ENOENT, path)
        if isinstance(node, _Inode):
            raise _os_error(errno.ENOTDIR, path)
        return node

    def _remove_tree(self, folder: _Folder, path: str) -> None:
        for name, node in list(folder.entries.items()):
            below = f"{path}/{name}"
            if isinstance(node, _Folder):
                self._remove_tree(node, below)
            self._count("remove", below)
            self._unlink(folder, name, node)

    def _unlink(self, folder: _Folder, name: str, node: _Node) -> None:
        del folder.entries[name]
        folder.pending.append(_Unlink(self.operations, name, node))
        if isinstance(node, _Inode):
            self._forget(node)

    def _forget(self, node: _Inode) -> None:
        """Its last name is gone: its room is free once nobody has it open."""
        node.linked = False
        if not node.handles:
            self._used -= len(node.content)

    def _close(self, node: _Inode) -> None:
        with self._lock:
            node.handles -= 1
            if not node.handles and not node.linked:
                self._used -= len(node.content)


class FakeFile:
    """An open file of a `FakeDisk`; goes on working after its name is gone."""

    __slots__ = ("_closed", "_disk", "_node", "path")

    def __init__(self, disk: FakeDisk, node: _Inode, path: str) -> None:
        self._disk = disk
        self._node = node
        self._closed = False
        self.path = path

    def pread(self, length: int, position: int) -> bytes:
        with self._disk._lock:
            self._check()
            if self._disk.faults:
                self._disk._maybe_fail("pread", self.path)
            return bytes(memoryview(self._node.content)[position : position + length])

    def pwrite(self, buffers: Sequence[Bytes], position: int) -> int:
        data = b"".join([bytes(buffer) for buffer in buffers])
        disk, node = self._disk, self._node
        with disk._lock:
            self._check()
            disk._count("pwrite", self.path, position, len(data))
            if not data:
                return 0
            growth = position + len(data) - len(node.content)
            if disk.capacity is not None and growth > 0:
                missing = growth - (disk.capacity - disk._used)
                if missing > 0:
                    data = data[: max(0, len(data) - missing)]
                    if not data:
                        raise _os_error(errno.ENOSPC, self.path)
                    growth = position + len(data) - len(node.content)
            node.write(data, position)
            disk._used += max(0, growth)
            return len(data)

    def size(self) -> int:
        with self._disk._lock:
            self._check()
            return len(self._node.content)

    def truncate(self, size: int) -> None:
        with self._disk._lock:
            self._check()
            self._disk._count("truncate", self.path, size)
            self._disk._used += size - len(self._node.content)
            self._node.truncate(size)

    def datasync(self) -> None:
        with self._disk._lock:
            self._check()
            try:
                self._disk._count("datasync", self.path)
            except OSError:
                self._node.forsake()
                raise
            self._node.datasync()

    @property
    def steps(self) -> int:
        """Writes and truncations of the file so far."""
        with self._disk._lock:
            return self._node.synced + len(self._node.unsynced)

    def datasync_until(self, steps: int) -> None:
        """The end of a flush that began when the file had seen so many `steps`: later ones are not in it."""
        with self._disk._lock:
            self._check()
            self._disk._count("datasync", self.path)
            self._node.datasync(steps)

    def drop_cache(self, position: int, length: int) -> None:
        with self._disk._lock:
            self._check()
            self._node.drop_cache(position, length)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._disk._close(self._node)

    def _check(self) -> None:
        self._disk._alive()
        if self._closed:
            raise _os_error(errno.EBADF, self.path)


class _Luck:
    """How much of what was not synced survives, drawn once a crash, so that extremes are met too."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.names_in_order = rng.random() < 0.5
        self._data = rng.choice(("none", "all", "some", "some", "most"))
        self._names = rng.choice(("none", "all", "some", "some"))

    def names(self, count: int) -> list[bool]:
        """Which of a folder's unsynced operations survive."""
        if self._names != "some":
            return [self._names == "all"] * count
        if self.names_in_order:
            kept = self.rng.randint(0, count)
            return [number < kept for number in range(count)]
        return [self.rng.random() < 0.5 for _ in range(count)]

    def prefix(self, count: int) -> int:
        """How many of `count` steps, from the first on, reached the disk."""
        match self._data:
            case "none":
                return 0
            case "all":
                return count
            case "most":
                return count if self.rng.random() < 0.8 else self.rng.randint(0, count)
            case _:
                return self.rng.randint(0, count)


class _Link(NamedTuple):
    number: int
    """The operation that made the change; changes of one crash apply in this order."""
    name: str
    node: _Node


class _Unlink(NamedTuple):
    number: int
    name: str
    node: _Node


class _Rename(NamedTuple):
    number: int
    source: _Folder
    source_name: str
    name: str
    node: _Node


class _Folder:
    __slots__ = ("durable", "entries", "pending")

    def __init__(self) -> None:
        self.entries: dict[str, _Node] = {}
        self.durable: dict[str, _Node] = {}
        self.pending: list[_Change] = []

    def sync(self) -> None:
        for change in self.pending:
            if isinstance(change, _Rename) and change.source is not self:
                source = change.source
                _apply_change(change, self.durable, {id(source): source.durable})
                # The name it had there is gone for good, synced or not.
                source.pending = [
                    other
                    for other in source.pending
                    if not (other.number < change.number and other.node is change.node)
                ]
            else:
                _apply_change(change, self.durable, {id(self): self.durable})
        self.pending.clear()

    def after_crash(self, luck: _Luck | None) -> _Folder:
        """The root folder that the next process finds, with everything below."""
        folders = _collect(self)
        durable = {id(folder): dict(folder.durable) for folder in folders}
        if luck is not None:
            changes = [(change, folder) for folder in folders for change in folder.pending]
            changes.sort(key=lambda pair: pair[0].number)
            for (change, folder), kept in zip(changes, luck.names(len(changes)), strict=True):
                if kept:
                    _apply_change(change, durable[id(folder)], durable)
        return _rebuild(self, durable, luck, {}, {})

    def copy(self, seen: dict[int, _Node]) -> _Folder:
        found = seen.get(id(self))
        if isinstance(found, _Folder):
            return found
        after = _Folder()
        seen[id(self)] = after
        after.entries = {name: node.copy(seen) for name, node in self.entries.items()}
        after.durable = {name: node.copy(seen) for name, node in self.durable.items()}
        for change in self.pending:
            node = change.node.copy(seen)
            if isinstance(change, _Rename):
                change = change._replace(source=change.source.copy(seen))
            after.pending.append(change._replace(node=node))
        return after

    def used(self) -> int:
        return sum(
            len(node.content) if isinstance(node, _Inode) else node.used() for node in self.entries.values()
        )

    def files(self, path: str) -> list[tuple[str, bytes]]:
        found: list[tuple[str, bytes]] = []
        for name, node in sorted(self.entries.items()):
            below = f"{path}/{name}"
            if isinstance(node, _Inode):
                found.append((below, bytes(node.content)))
            else:
                found.extend(node.files(below))
        return found


def _collect(root: _Folder) -> list[_Folder]:
    """Every folder that is on the disk or may come there, each once, in a fixed order."""
    found: dict[int, _Folder] = {}
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        if id(folder) in found:
            continue
        found[id(folder)] = folder
        nodes = [*folder.durable.values(), *(change.node for change in folder.pending)]
        waiting.extend(node for node in nodes if isinstance(node, _Folder))
    return list(found.values())


def _apply_change(
    change: _Change, entries: dict[str, _Node], all_entries: Mapping[int, dict[str, _Node]]
) -> None:
    """One change of names on the disk; it fits whatever came there before it."""
    if isinstance(change, _Unlink):
        if entries.get(change.name) is change.node:
            del entries[change.name]
        return
    if isinstance(change, _Rename):
        source = all_entries.get(id(change.source))
        if source is not None and source.get(change.source_name) is change.node:
            del source[change.source_name]
    entries[change.name] = change.node


def _rebuild(
    folder: _Folder,
    durable: dict[int, dict[str, _Node]],
    luck: _Luck | None,
    seen: dict[int, _Folder],
    inodes: dict[int, _Inode],
) -> _Folder:
    found = seen.get(id(folder))
    if found is not None:
        return found
    after = _Folder()
    seen[id(folder)] = after
    for name, node in durable[id(folder)].items():
        if isinstance(node, _Folder):
            after.entries[name] = _rebuild(node, durable, luck, seen, inodes)
        else:
            if id(node) not in inodes:
                inodes[id(node)] = node.after_crash(luck)
            after.entries[name] = inodes[id(node)]
    after.durable = dict(after.entries)
    return after


class _Write(NamedTuple):
    position: int
    data: bytes


class _Truncate(NamedTuple):
    size: int


class _Inode:
    """One file: what readers see, what the disk holds, and the steps between the two."""

    __slots__ = ("content", "durable", "handles", "linked", "owned", "stale", "synced", "unsynced")

    def __init__(self, content: bytearray | None = None) -> None:
        self.durable = bytearray() if content is None else content
        self.content = bytearray() if content is None else content
        self.unsynced: list[_Write | _Truncate] = []
        self.synced = 0
        """Steps that wait no more."""
        self.owned = content is None
        """False: both byte arrays may be shared with other disks, and are copied before a change."""
        self.stale = False
        """The cache may differ from the disk in pages that are not waiting to be written."""
        self.handles = 0
        self.linked = True

    def write(self, data: bytes, position: int) -> None:
        self._own()
        _put(self.content, data, position)
        self.unsynced.append(_Write(position, data))

    def truncate(self, size: int) -> None:
        self._own()
        _resize(self.content, size)
        self.unsynced.append(_Truncate(size))

    def datasync(self, until: int | None = None) -> None:
        """`until`: only what came before the file had seen so many steps."""
        steps = self.unsynced if until is None else self.unsynced[: max(0, until - self.synced)]
        if steps:
            self._own()
        for step in steps:
            if isinstance(step, _Write):
                _put(self.durable, step.data, step.position)
            else:
                _resize(self.durable, step.size)
        self.synced += len(steps)
        self.unsynced = self.unsynced[len(steps) :]

    def forsake(self) -> None:
        """A flush failed: the cache keeps the pages and calls them clean."""
        if self.unsynced:
            self.synced += len(self.unsynced)
            self.unsynced.clear()
            self.stale = True

    def drop_cache(self, position: int, length: int) -> None:
        """Clean pages of the range are read from the disk again; dirty ones stay."""
        if not self.stale:
            return
        self._own()
        dirty = {
            page
            for step in self.unsynced
            if isinstance(step, _Write)
            for page in range(
                step.position // PAGE_BYTES, (step.position + len(step.data) - 1) // PAGE_BYTES + 1
            )
        }
        end = min(position + length if length else len(self.content), len(self.content))
        for page in range(position // PAGE_BYTES, -(-end // PAGE_BYTES)):
            if page in dirty:
                continue
            start = page * PAGE_BYTES
            stop = min(start + PAGE_BYTES, len(self.content))
            on_disk = self.durable[start:stop]
            self.content[start:stop] = on_disk.ljust(stop - start, b"\0")

    def flip(self, position: int, bit: int, cached: bool) -> None:
        self._own()
        if position < len(self.durable):
            self.durable[position] ^= 1 << bit
        if cached:
            self.stale = True
        else:
            self.content[position] ^= 1 << bit

    def after_crash(self, luck: _Luck | None) -> _Inode:
        if luck is None or not self.unsynced:
            self.owned = False
            return _Inode(self.durable)
        return _Inode(_survivors(self.durable, self.unsynced, luck))

    def copy(self, seen: dict[int, _Node]) -> _Inode:
        found = seen.get(id(self))
        if isinstance(found, _Inode):
            return found
        self.owned = False
        after = _Inode(self.durable)
        after.content = self.content
        after.unsynced = list(self.unsynced)
        after.synced = self.synced
        after.stale = self.stale
        after.linked = self.linked
        seen[id(self)] = after
        return after

    def _own(self) -> None:
        if not self.owned:
            self.durable = bytearray(self.durable)
            self.content = bytearray(self.content)
            self.owned = True


_Node: TypeAlias = _Folder | _Inode
_Change: TypeAlias = _Link | _Unlink | _Rename


def _survivors(durable: bytearray, steps: list[_Write | _Truncate], luck: _Luck) -> bytearray:
    """Rule 1: a moment for the size, and for each page a moment of its own that fits it."""
    size_steps = luck.prefix(len(steps))
    end = next(
        (number for number in range(size_steps, len(steps)) if isinstance(steps[number], _Truncate)),
        len(steps),
    )
    touched: dict[int, int] = {}
    for step in steps[:end]:
        if isinstance(step, _Write):
            for page, _, _ in _pieces(step):
                touched[page] = touched.get(page, 0) + 1
    kept = {page: luck.prefix(count) for page, count in touched.items()}
    content, size = bytearray(durable), len(durable)
    for number, step in enumerate(steps[:end]):
        if isinstance(step, _Truncate):
            _resize(content, step.size)
            size = step.size
            continue
        if number < size_steps:
            size = max(size, step.position + len(step.data))
        for page, start, stop in _pieces(step):
            if kept[page]:
                kept[page] -= 1
                _put(content, step.data[start - step.position : stop - step.position], start)
    _resize(content, size)
    return content


def _pieces(step: _Write) -> list[tuple[int, int, int]]:
    """A write cut at page boundaries: page, first byte, byte after the last."""
    pieces, start, end = [], step.position, step.position + len(step.data)
    while start < end:
        page = start // PAGE_BYTES
        stop = min(end, (page + 1) * PAGE_BYTES)
        pieces.append((page, start, stop))
        start = stop
    return pieces


def _put(content: bytearray, data: bytes, position: int) -> None:
    if position > len(content):
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


def _resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


def _parts(path: str) -> list[str]:
    if not path.startswith("/"):
        raise ValueError(f"{path!r} is not absolute")
    return [part for part in path.split("/") if part]


def _os_error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
