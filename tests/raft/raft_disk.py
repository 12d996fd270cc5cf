"""What a node has durably: it forgets what was not saved, and a crash saves in part.

`MemoryDisk` is the simplest thing that does so, for thousands of storms; `FileDisk` is the
metadata log itself on a disk that forgets what was not synced.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from typing import Protocol

from raft.samples import RAFT, open_log
from simulator.disk import CrashPoint, FakeDisk
from tidelog_broker.core.raft.log import RaftStorage
from tidelog_broker.core.raft.ready import Persist
from tidelog_broker.model import Configuration, Entry, EntryType, HardState, Snapshot
from tidelog_broker.storage.raft.log import RaftLog, create_raft_log


class Disk(RaftStorage, Protocol):
    """Of one machine."""

    @property
    def hard_state(self) -> HardState: ...

    @property
    def configurations(self) -> Sequence[tuple[int, Configuration]]:
        """As a node needs them that starts now."""
        ...

    def format(self, entry: Entry, state: HardState) -> None:
        """The log of a new cluster."""

    def save(self, persist: Persist) -> None: ...

    def compact(self, index: int, configuration: Configuration) -> None:
        """An image as of `index` takes the place of the entries up to there."""

    def crash(self, saving: Persist | None, rng: random.Random) -> None:
        """The process ends, in the middle of a save if there is one."""


class MemoryDisk:
    """Each step of a save is atomic and durable; between two of them it may end."""

    def __init__(self) -> None:
        self.hard_state = HardState()
        self.log: list[Entry] = []
        self.before = 0
        """Index in front of the first entry."""
        self.snapshot: Snapshot | None = None

    @property
    def first_index(self) -> int:
        return self.before + 1

    @property
    def last_index(self) -> int:
        return self.before + len(self.log)

    @property
    def configurations(self) -> list[tuple[int, Configuration]]:
        found = [] if self.snapshot is None else [(self.snapshot.index, self.snapshot.configuration)]
        changes = [entry for entry in self.log if entry.type is EntryType.CONFIGURATION]
        return found + [(entry.index, Configuration.decode(entry.payload)) for entry in changes]

    def term(self, index: int) -> int | None:
        if index == 0:
            return 0
        if self.snapshot is not None and index == self.snapshot.index:
            return self.snapshot.term
        at = index - self.first_index
        return self.log[at].term if 0 <= at < len(self.log) else None

    def entries(self, first: int, end: int, bytes_max: int) -> list[Entry]:
        assert bytes_max > 0
        return self.log[first - self.first_index : end - self.first_index] if first > self.before else []

    def save(self, persist: Persist, steps: int | None = None) -> None:
        """Everything, or only the first so many steps of it."""
        left = 1 << 30 if steps is None else steps
        if persist.snapshot is not None and left > 0:
            self.snapshot, self.log, self.before = persist.snapshot, [], persist.snapshot.index
            left -= 1
        new = [entry for entry in persist.entries if self.term(entry.index) != entry.term]
        if new and new[0].index <= self.last_index and left > 0:
            assert new[0].index > self.hard_state.commit, "what is committed stays"
            del self.log[new[0].index - self.first_index :]
            left -= 1
        for entry in new:
            if left > 0:
                assert entry.index == self.last_index + 1, "a gap"
                self.log.append(entry)
                left -= 1
        if persist.hard_state is not None and left > 0:
            assert persist.hard_state.term >= self.hard_state.term, "a term goes back"
            assert persist.hard_state.commit <= self.last_index, "it calls committed what it lacks"
            self.hard_state = persist.hard_state

    def format(self, entry: Entry, state: HardState) -> None:
        self.log, self.hard_state = [entry], state

    def crash(self, saving: Persist | None, rng: random.Random) -> None:
        if saving is not None:
            self.save(saving, rng.randint(0, len(saving.entries) + 2))

    def compact(self, index: int, configuration: Configuration) -> None:
        term = self.term(index)
        assert term is not None
        del self.log[: index - self.before]
        self.before = index
        self.snapshot = Snapshot(index, term, configuration, b"image %d" % index)


class FileDisk:
    """Files, syncs, and power failures at any operation of a save."""

    def __init__(self) -> None:
        self._disk = FakeDisk()
        self._disk.make_dir("/data")
        self._disk.sync_dir("/")
        create_raft_log(self._disk, RAFT, HardState(), [])
        self.files: RaftLog = open_log(self._disk)

    def format(self, entry: Entry, state: HardState) -> None:
        self.files.save(None, [entry], state)
        self._reopen(self._disk)

    @property
    def hard_state(self) -> HardState:
        return self.files.hard_state

    @property
    def first_index(self) -> int:
        return self.files.first_index

    @property
    def last_index(self) -> int:
        return self.files.last_index

    @property
    def snapshot(self) -> Snapshot | None:
        return self.files.snapshot

    @property
    def configurations(self) -> Sequence[tuple[int, Configuration]]:
        return self.files.configurations

    def term(self, index: int) -> int | None:
        return self.files.term(index)

    def entries(self, first: int, end: int, bytes_max: int) -> list[Entry]:
        return self.files.entries(first, end, bytes_max)

    def save(self, persist: Persist) -> None:
        self.files.save(*persist)

    def compact(self, index: int, configuration: Configuration) -> None:
        self.files.save_snapshot(configuration, index, b"image %d" % index)

    def crash(self, saving: Persist | None, rng: random.Random) -> None:
        if saving is not None:
            self._disk.crash_at = self._disk.operations + rng.randint(0, 20)
            with contextlib.suppress(CrashPoint):
                self.files.save(*saving)
        self._reopen(self._disk.crash(rng))

    def _reopen(self, disk: FakeDisk) -> None:
        self._disk = disk
        self.files = open_log(disk)
