"""The log as the node sees it: what is on disk, and behind that what is on its way there.

Neighbours: the driver writes what `unsaved` gives and says `saved`; `node` decides what is
appended, cut off and committed. Entries on disk are read back through `RaftStorage`, the
newest of them are kept in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidelog_broker.model import Configuration, Entry, EntryType, Snapshot

KEPT_ENTRIES_MAX = 4096
"""Entries on disk that are kept in memory as well, for peers that are a little behind …"""
KEPT_BYTES_MAX = 8 << 20
"""… and their payloads, about. Up to twice as much of both, so that letting go is rare."""


class RaftStorage(Protocol):
    """The part of the disk that the node reads; blocking, and rarely asked.

    Asked while another thread writes, compacts, or puts a snapshot in the log's place.
    """

    @property
    def first_index(self) -> int:
        """The oldest entry that can still be read."""
        ...

    @property
    def last_index(self) -> int: ...

    @property
    def snapshot(self) -> Snapshot | None:
        """The newest one."""
        ...

    def term(self, index: int) -> int | None:
        """The term of the entry at `index`; None: it is not there, or compacted away."""
        ...

    def entries(self, first: int, end: int, bytes_max: int) -> list[Entry]:
        """Those from `first` up to, without, `end`; fewer if they exceed `bytes_max`, at least one.

        None if they are compacted away.
        """
        ...


class Log:
    """See the module. Indexes as in Raft: from 1."""

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
        """`configurations`: that of the snapshot, if any, and each one in the entries behind it."""
        self._storage = storage
        self._kept: list[Entry] = []
        """The newest entries, on disk or not, without a gap up to the last one."""
        self._kept_from = storage.last_index + 1
        """Index of the first of them."""
        self._kept_bytes = 0
        self._restored: Snapshot | None = None
        """One that a leader sent and that is not on disk yet."""
        self._configurations = list(configurations)
        self.saved_index = storage.last_index
        """Everything up to here is on disk."""
        self.commit = commit
        """Everything up to here is committed; grows."""
        assert commit <= self.last_index, self

    def __repr__(self) -> str:
        ends = f"saved={self.saved_index} last={self.last_index} commit={self.commit}"
        return f"<Log first={self.first_index} {ends}>"

    # --- where it begins and ends

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

    # --- who votes, by the newest entry that says so, committed or not

    @property
    def configuration(self) -> Configuration:
        return self._configurations[-1][1] if self._configurations else Configuration(voters=())

    @property
    def configuration_index(self) -> int:
        """Of the entry that says who votes."""
        return self._configurations[-1][0] if self._configurations else 0

    def configuration_at(self, index: int) -> Configuration:
        """Who votes as of `index`."""
        found = Configuration(voters=())
        for at, configuration in self._configurations:
            if at > index:
                break
            found = configuration
        return found

    def configurations_from(self, index: int) -> list[Configuration]:
        """Who votes as of `index`, and by each entry behind it."""
        later = [configuration for at, configuration in self._configurations if at > index]
        return [self.configuration_at(index), *later]

    # --- reading

    def term(self, index: int) -> int | None:
        """Of the entry at `index`; 0 at 0; None: it is not there, or compacted away."""
        if index == 0:
            return 0
        if index >= self._kept_from:
            at = index - self._kept_from
            return self._kept[at].term if at < len(self._kept) else None
        if self._restored is not None:
            return self._restored.term if index == self._restored.index else None
        return self._storage.term(index)

    def entries(self, first: int, end: int, bytes_max: int) -> list[Entry]:
        """Those from `first` up to, without, `end`; fewer if they exceed `bytes_max`, at least one.

        None if they are compacted away.
        """
        if first >= end:
            return []
        if first < self._kept_from:
            if self._restored is not None:
                # What is on disk is about to go.
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
        """Whether the entry at `index` is of `term`."""
        return self.term(index) == term

    def last_possible_agreement(self, index: int, term: int) -> tuple[int, int]:
        """The largest index up to `index` whose entry is of `term` or an earlier one, and its term.

        Where a leader and a follower disagree, no entry behind it can be the same in both.
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
        """Behind the last one."""
        assert entries[0].index == self.last_index + 1, (entries[0], self)
        self._kept.extend(entries)
        self._kept_bytes += sum(len(entry.payload) for entry in entries)
        for entry in entries:
            if entry.type is EntryType.CONFIGURATION:
                self._configurations.append((entry.index, Configuration.decode(entry.payload)))

    def merge(self, previous_index: int, entries: Sequence[Entry]) -> int:
        """What a leader sent, behind an entry that agrees; the index up to which the logs are now the same.

        Entries that are here already stay; one that differs and all behind it are cut off.
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
        """The image takes the place of the whole log."""
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
        """They are on disk, and all before them; a later leader may have replaced some by now."""
        for entry in reversed(entries):
            if self.agrees(entry.index, entry.term):
                self.saved_index = max(self.saved_index, entry.index)
                break
        self._forget()

    def snapshot_saved(self, snapshot: Snapshot) -> None:
        """An image that a leader sent is on disk."""
        if self._restored is snapshot:
            self._restored = None
        self.saved_index = max(self.saved_index, snapshot.index)

    def compacted(self, index: int) -> None:
        """An image as of `index` is on disk: what only its entries said of voters is said by it."""
        if self._configurations and self._configurations[0][0] >= index:
            # A leader's image took its place meanwhile.
            return
        kept = [(at, one) for at, one in self._configurations if at > index]
        self._configurations = [(index, self.configuration_at(index)), *kept]

    def _forget(self) -> None:
        """Lets go of the oldest entries that are on disk, if they are many or large."""
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
