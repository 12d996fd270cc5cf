"""The names on a simulated disk: its folders, which names are durable, and which ones a crash leaves.

Rule 2 of `disk`. Neighbours: `content` has the files, `disk` the calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from simulator.disk.content import Inode, Luck


class Link(NamedTuple):
    number: int
    """The operation that made the change; changes of one crash apply in this order."""
    name: str
    node: Node


class Unlink(NamedTuple):
    number: int
    name: str
    node: Node


class Rename(NamedTuple):
    number: int
    source: Folder
    source_name: str
    name: str
    node: Node


class Folder:
    __slots__ = ("durable", "entries", "pending")

    def __init__(self) -> None:
        self.entries: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.pending: list[Change] = []

    def sync(self) -> None:
        for change in self.pending:
            if isinstance(change, Rename) and change.source is not self:
                source = change.source
                _apply_change(change, self.durable, {id(source): source.durable})
                # The old name is gone for good, synced or not.
                source.pending = [
                    other
                    for other in source.pending
                    if not (other.number < change.number and other.node is change.node)
                ]
            else:
                _apply_change(change, self.durable, {id(self): self.durable})
        self.pending.clear()

    def after_crash(self, luck: Luck | None) -> Folder:
        """The root folder that the next process finds, with all files and folders below it."""
        folders = _collect(self)
        durable = {id(folder): dict(folder.durable) for folder in folders}
        if luck is not None:
            changes = [(change, folder) for folder in folders for change in folder.pending]
            changes.sort(key=lambda pair: pair[0].number)
            for (change, folder), kept in zip(changes, luck.names(len(changes)), strict=True):
                if kept:
                    _apply_change(change, durable[id(folder)], durable)
        return _rebuild(self, durable, luck, {}, {})

    def copy(self, seen: dict[int, Node]) -> Folder:
        found = seen.get(id(self))
        if isinstance(found, Folder):
            return found
        after = Folder()
        seen[id(self)] = after
        after.entries = {name: node.copy(seen) for name, node in self.entries.items()}
        after.durable = {name: node.copy(seen) for name, node in self.durable.items()}
        for change in self.pending:
            node = change.node.copy(seen)
            if isinstance(change, Rename):
                change = change._replace(source=change.source.copy(seen))
            after.pending.append(change._replace(node=node))
        return after

    def used(self) -> int:
        return sum(
            len(node.content) if isinstance(node, Inode) else node.used() for node in self.entries.values()
        )

    def files(self, path: str) -> list[tuple[str, bytes]]:
        found: list[tuple[str, bytes]] = []
        for name, node in sorted(self.entries.items()):
            below = f"{path}/{name}"
            if isinstance(node, Inode):
                found.append((below, bytes(node.content)))
            else:
                found.extend(node.files(below))
        return found


class Moment(NamedTuple):
    """The state of a disk when a flush of all of it began."""

    changes: int
    """The flush includes changes of names up to the operation of this number."""
    files: list[tuple[Inode, int]]
    """Each file, and how many steps it had seen."""


def moment(root: Folder, operations: int) -> Moment:
    """The present moment, after so many operations."""
    seen: dict[int, tuple[Inode, int]] = {}
    for folder in _collect(root):
        for node in (*folder.durable.values(), *(change.node for change in folder.pending)):
            if isinstance(node, Inode):
                seen[id(node)] = (node, node.synced + len(node.unsynced))
    return Moment(operations, list(seen.values()))


def sync_all(root: Folder, begun: Moment) -> None:
    """Ends a flush of the whole disk: names and content up to its begin are durable."""
    folders = _collect(root)
    durable = {id(folder): folder.durable for folder in folders}
    changes = [
        (change, folder) for folder in folders for change in folder.pending if change.number <= begun.changes
    ]
    changes.sort(key=lambda pair: pair[0].number)
    for change, folder in changes:
        _apply_change(change, folder.durable, durable)
    for folder in folders:
        folder.pending = [change for change in folder.pending if change.number > begun.changes]
    for node, steps in begun.files:
        node.datasync(steps)


def forsake_all(root: Folder, begun: Moment) -> None:
    """A flush of the whole disk failed: its content is never written; its names may be later."""
    for node, _ in begun.files:
        node.forsake()


def _collect(root: Folder) -> list[Folder]:
    """All folders that are durable or may become durable, each once, in a fixed order."""
    found: dict[int, Folder] = {}
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        if id(folder) in found:
            continue
        found[id(folder)] = folder
        nodes = [*folder.durable.values(), *(change.node for change in folder.pending)]
        waiting.extend(node for node in nodes if isinstance(node, Folder))
    return list(found.values())


def _apply_change(
    change: Change, entries: dict[str, Node], all_entries: Mapping[int, dict[str, Node]]
) -> None:
    """Applies one change of names to the disk. It works on every state that earlier changes may leave."""
    if isinstance(change, Unlink):
        if entries.get(change.name) is change.node:
            del entries[change.name]
        return
    if isinstance(change, Rename):
        source = all_entries.get(id(change.source))
        if source is not None and source.get(change.source_name) is change.node:
            del source[change.source_name]
    entries[change.name] = change.node


def _rebuild(
    folder: Folder,
    durable: dict[int, dict[str, Node]],
    luck: Luck | None,
    seen: dict[int, Folder],
    inodes: dict[int, Inode],
) -> Folder:
    found = seen.get(id(folder))
    if found is not None:
        return found
    after = Folder()
    seen[id(folder)] = after
    for name, node in durable[id(folder)].items():
        if isinstance(node, Folder):
            after.entries[name] = _rebuild(node, durable, luck, seen, inodes)
        else:
            if id(node) not in inodes:
                inodes[id(node)] = node.after_crash(luck)
            after.entries[name] = inodes[id(node)]
    after.durable = dict(after.entries)
    return after


Node: TypeAlias = Folder | Inode
Change: TypeAlias = Link | Unlink | Rename
