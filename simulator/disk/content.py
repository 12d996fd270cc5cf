"""The content of a file on a simulated disk: in the page cache, on the disk, and the steps between the two.

Rules 1, 3 and 5 of `disk`. Neighbours: `names` has the folders that files lie in, `disk` the calls.
"""

from __future__ import annotations

import random
from collections.abc import MutableMapping
from typing import Any, NamedTuple

PAGE_BYTES = 4096


class Luck:
    """How much of the unsynced changes survives a crash; drawn once for each crash, so that all or none
    happen."""

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
        """How many of `count` steps, counted from the first, reached the disk."""
        match self._data:
            case "none":
                return 0
            case "all":
                return count
            case "most":
                return count if self.rng.random() < 0.8 else self.rng.randint(0, count)
            case _:
                return self.rng.randint(0, count)


class _Write(NamedTuple):
    position: int
    data: bytes


class _Truncate(NamedTuple):
    size: int


class Inode:
    """One file: `content` is what readers see, `durable` what the disk has, `unsynced` the steps between."""

    __slots__ = ("content", "durable", "handles", "linked", "owned", "stale", "synced", "unsynced")

    def __init__(self, content: bytearray | None = None) -> None:
        self.durable = bytearray() if content is None else content
        self.content = bytearray() if content is None else content
        self.unsynced: list[_Write | _Truncate] = []
        self.synced = 0
        """How many steps are flushed, or lost by a failed flush."""
        self.owned = content is None
        """False: other disks may share the two byte arrays, which are then copied before a change."""
        self.stale = False
        """The cache may differ from the disk in clean pages."""
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
        """Flushes all steps, or those before the file had seen `until` steps."""
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

    @property
    def synced_bytes(self) -> int:
        """All bytes below this position would survive a crash."""
        reached = (one.position if isinstance(one, _Write) else one.size for one in self.unsynced)
        return min(reached, default=len(self.content))

    def forsake(self) -> None:
        """A flush failed: the cache keeps the pages and marks them clean."""
        if self.unsynced:
            self.synced += len(self.unsynced)
            self.unsynced.clear()
            self.stale = True

    def drop_cache(self, position: int, length: int) -> None:
        """Reads the clean pages of the range from the disk again. Dirty pages stay."""
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

    def after_crash(self, luck: Luck | None) -> Inode:
        if luck is None or not self.unsynced:
            self.owned = False
            return Inode(self.durable)
        return Inode(_survivors(self.durable, self.unsynced, luck))

    def copy(self, seen: MutableMapping[int, Any]) -> Inode:
        found = seen.get(id(self))
        if isinstance(found, Inode):
            return found
        self.owned = False
        after = Inode(self.durable)
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


def _survivors(durable: bytearray, steps: list[_Write | _Truncate], luck: Luck) -> bytearray:
    """Rule 1: draws a moment for the size, and for each page a moment of its own that fits the size."""
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
    """Splits a write at page boundaries: page, first byte, byte after the last."""
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
