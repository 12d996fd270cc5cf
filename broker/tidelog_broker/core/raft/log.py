"""The log as the node sees it: the entries on disk, and after them the entries on their way to it.

Neighbours: the driver writes the entries that `unsaved` returns and calls `saved`; the roles decide what is
appended, truncated and committed. Entries on disk are read through `RaftStorage`; the
newest of them are also kept in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidelog_broker.model import Configuration, Entry, EntryType, Snapshot

KEPT_ENTRIES_MAX = 4096
"""Entries on disk that are also kept in memory, for peers that are a little behind …"""
KEPT_BYTES_MAX = 8 << 20
"""… and their payloads, about. Memory may hold up to twice as much of both, so that dropping is rare."""


class RaftStorage(Protocol):
    """The part of the disk that the node reads. Calls block, and are rare.

    They may come while another thread writes, compacts, or replaces the log by a snapshot.
    """

    @property
    def first_index(self) -> int:
        """The index of the oldest entry that can be read."""
        ...

    @property
    def last_index(self) -> int: ...

    @property
    def snapshot(self) -> Snapshot | None:
        """The newest snapshot."""
        ...

    def term(self, index: int) -> int | None:
        """The term of the entry at `index`; None: the log has no such entry, or it is compacted away."""
        ...

    def entries(self, first: int, end: int, bytes_max: int) -> list[Entry]:
        """The entries from `first` up to, without, `end`; fewer if they exceed `bytes_max`, but at least one.

        An empty list if they are compacted away.
        """
        ...


class Log:
    """Entries, snapshot, configurations, and how far they are saved and committed. Indexes begin at 1."""

    __slots__ = (
        "_configurations",
        "_kept",
        "_kept_bytes",
        "_kept_from",
        "_restored",
        "_storage",
        "commit",
        "saved_index",
    )

    def __init__(
        self,
        storage: RaftStorage,
        commit: int,
        configurations: Sequence[tuple[int, Configuration]],
    ) -> None:
        """`configurations`: that of the snapshot, if there is one, and those in the later entries."""
        self._storage = storage
        self._kept: list[Entry] = []
        """The newest entries, on disk or not, without a gap up to the last entry."""
        self._kept_from = storage.last_index + 1
        """Index of the first kept entry."""
        self._kept_bytes = 0
        self._restored: Snapshot | None = None
        """A snapshot that a leader sent and that is not on disk yet."""
        self._configurations = list(configurations)
        self.saved_index = storage.last_index
        """Everything up to here is on disk."""
        self.commit = commit
        """Everything up to here is committed; it only grows."""
        assert commit <= self.last_index, self

    def __repr__(self) -> str:
        ends = f"saved={self.saved_index} last={self.last_index} commit={self.commit}"
        return f"<Log first={self.first_index} {ends}>"

    # --- first and last entry

    @property
    def first_index(self) -> int:
        if self._restored is not None:
            return self._restored.index + 1
        return self._storage.first_index

    @property
    def last_index(self) -> int:
        return self._kept_from + len(self._kept) - 1

    @property
    def last_term(self) -> int:
        term = self.term(self.last_index)
        assert term is not None, self
        return term

    @property
    def snapshot(self) -> Snapshot | None:
        return self._restored or self._storage.snapshot

    # --- the configuration

    @property
    def configuration(self) -> Configuration:
        """The voters and learners, by the newest configuration entry, committed or not."""
        return self._configurations[-1][1] if self._configurations else Configuration(voters=())

    @property
    def configuration_index(self) -> int:
        """The index of the newest configuration entry."""
        return self._configurations[-1][0] if self._configurations else 0

    def configuration_at(self, index: int) -> Configuration:
        """The voters and learners as of `index`."""
        found = Configuration(voters=())
        for at, configuration in self._configurations:
            if at > index:
                break
            found = configuration
        return found

    def configurations_from(self, index: int) -> list[Configuration]:
        """The configuration as of `index`, and that of each later configuration entry."""
        later = [configuration for at, configuration in self._configurations if at > index]
        return [self.configuration_at(index), *later]

    # --- reading

    def term(self, index: int) -> int | None:
        """The term of the entry at `index`; 0 at 0; None: no such entry, or it is compacted away."""
        if index == 0:
            return 0
        if index >= self._kept_from:
            at = index - self._kept_from
            return self._kept[at].term if at < len(self._kept) else None
        if self._restored is not None:
            return self._restored.term if index == self._restored.index else None
        return self._storage.term(index)

    def entries(self, first: int, end: int, bytes_max: int) -> list[Entry]:
        """The entries from `first` up to, without, `end`; fewer if they exceed `bytes_max`, but at least one.

        An empty list if they are compacted away.
        """
        if first >= end:
            return []
        if first < self._kept_from:
            if self._restored is not None:
                # The snapshot is about to replace the entries on disk.
                return []
            return self._storage.entries(first, min(end, self._kept_from), bytes_max)
        found: list[Entry] = []
        room = bytes_max
        for entry in self._kept[first - self._kept_from : end - self._kept_from]:
            room -= len(entry.payload)
            if found and room < 0:
                break
            found.append(entry)
        return found

    def agrees(self, index: int, term: int) -> bool:
        """Whether the term of the entry at `index` is `term`."""
        return self.term(index) == term

    def last_possible_agreement(self, index: int, term: int) -> tuple[int, int]:
        """The largest index up to `index` whose entry is of `term` or an earlier term, and that entry's term.

        Where a leader and a follower disagree, no entry after it can be the same in both logs.
        """
        while True:
            found = self.term(index)
            if found is None:
                return index, 0
            if found <= term:
                return index, found
            index -= 1

    # --- changing

    def append(self, entries: Sequence[Entry]) -> None:
        """Appends entries after the last one."""
        assert entries[0].index == self.last_index + 1, (entries[0], self)
        self._kept.extend(entries)
        self._kept_bytes += sum(len(entry.payload) for entry in entries)
        for entry in entries:
            if entry.type is EntryType.CONFIGURATION:
                self._configurations.append((entry.index, Configuration.decode(entry.payload)))

    def merge(self, previous_index: int, entries: Sequence[Entry]) -> int:
        """Takes a leader's entries after one that agrees; returns the index up to which the logs now agree.

        Entries that are here already stay. The first entry that differs, and all after it, are truncated.
        """
        for at, entry in enumerate(entries):
            if self.term(entry.index) == entry.term:
                continue
            if entry.index <= self.last_index:
                assert entry.index > self.commit, (entry, self)
                self._cut(entry.index)
            self.append(entries[at:])
            break
        return previous_index + len(entries)

    def restore(self, snapshot: Snapshot) -> None:
        """A snapshot from the leader replaces the whole log."""
        assert snapshot.index > self.commit, (snapshot.index, self)
        self._restored = snapshot
        self._kept, self._kept_bytes, self._kept_from = [], 0, snapshot.index + 1
        self._configurations = [(snapshot.index, snapshot.configuration)]
        self.saved_index = 0
        self.commit = snapshot.index

    def _cut(self, index: int) -> None:
        if index < self._kept_from:
            self._kept, self._kept_from = [], index
        else:
            del self._kept[index - self._kept_from :]
        self._kept_bytes = sum(len(entry.payload) for entry in self._kept)
        self.saved_index = min(self.saved_index, index - 1)
        while self._configurations and self._configurations[-1][0] >= index:
            self._configurations.pop()

    # --- on the way to the disk

    @property
    def unsaved(self) -> tuple[Entry, ...]:
        first = max(self.saved_index + 1, self._kept_from)
        return tuple(self._kept[first - self._kept_from :])

    @property
    def unsaved_snapshot(self) -> Snapshot | None:
        return self._restored

    def saved(self, entries: Sequence[Entry]) -> None:
        """`entries` are on disk, and all before them; a later leader may have replaced some meanwhile."""
        for entry in reversed(entries):
            if self.agrees(entry.index, entry.term):
                self.saved_index = max(self.saved_index, entry.index)
                break
        self._forget()

    def snapshot_saved(self, snapshot: Snapshot) -> None:
        """A snapshot from the leader is on disk."""
        if self._restored is snapshot:
            self._restored = None
        self.saved_index = max(self.saved_index, snapshot.index)

    def compacted(self, index: int) -> None:
        """A snapshot as of `index` is on disk: it replaces the configuration entries up to `index`."""
        if self._configurations and self._configurations[0][0] >= index:
            # A snapshot from the leader replaced the log meanwhile.
            return
        kept = [(at, one) for at, one in self._configurations if at > index]
        self._configurations = [(index, self.configuration_at(index)), *kept]

    def _forget(self) -> None:
        """Drops the oldest entries that are on disk from memory, if they are many or large."""
        if len(self._kept) <= 2 * KEPT_ENTRIES_MAX and self._kept_bytes <= 2 * KEPT_BYTES_MAX:
            return
        spare = 0
        while spare < len(self._kept) and self._kept_from + spare <= self.saved_index:
            if len(self._kept) - spare <= KEPT_ENTRIES_MAX and self._kept_bytes <= KEPT_BYTES_MAX:
                break
            self._kept_bytes -= len(self._kept[spare].payload)
            spare += 1
        del self._kept[:spare]
        self._kept_from += spare
