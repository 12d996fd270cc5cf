"""The metadata log on a disk that forgets: a crash before every single operation.

A scripted life (groups of entries, rolls, snapshots, votes, cut suffixes) runs once; before
each of its operations the power fails in several ways, and the log is opened again on
what is left, twice over: recovery itself is cut off at each of its operations, too.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from raft.samples import ME, OTHER, VOTERS, content, entry, new_disk, open_log
from simulator.disk import CrashPoint, FakeDisk, Operation
from tidelog_broker.errors import DataDirectoryError
from tidelog_broker.model import Entry, HardState
from tidelog_broker.storage.raft.log import RaftLog, create_raft_log

pytestmark = pytest.mark.slow


@dataclass
class Truth:
    """What must, and what may be found after a crash."""

    written: list[Entry] = field(default_factory=list)
    """Every entry that was handed over and not cut off again, from index 1."""
    replaced: list[Entry] = field(default_factory=list)
    """What a cut that is under way takes away: it may be there or not."""
    durable: int = 1
    hard_states: list[HardState] = field(default_factory=list)
    """The one that stands, and the one on its way."""
    snapshot: int = 0
    snapshot_next: int = 0

    def check(self, log: RaftLog) -> None:
        assert log.hard_state in self.hard_states
        assert log.snapshot_index in (self.snapshot, self.snapshot_next)
        assert log.last_index >= self.durable
        found = content(log)
        expected = self.written + self.replaced
        assert found == expected[log.first_index - 1 : log.last_index]
        if log.snapshot is not None:
            assert log.snapshot.data == b"image %d" % log.snapshot_index
        assert log.first_index <= log.snapshot_index + 1


def live(log: RaftLog, truth: Truth, rng: random.Random, steps: int) -> None:
    term = 1
    for _ in range(steps):
        match rng.choice(("append", "append", "append", "vote", "snapshot", "cut")):
            case "append":
                for _ in range(rng.randint(1, 2)):
                    first, count = log.last_index + 1, rng.randint(1, 6)
                    group = [entry(at, term, rng.choice((0, 20, 300))) for at in range(first, first + count)]
                    truth.written.extend(group)
                    log.append(group)
                log.sync()
                truth.durable = log.last_index
            case "vote":
                term += 1
                state = HardState(term, rng.choice((None, ME, OTHER)), log.hard_state.commit)
                truth.hard_states.append(state)
                log.save_hard_state(state)
                truth.hard_states = [state]
            case "snapshot" if log.durable_index > log.snapshot_index:
                truth.snapshot_next = rng.randint(log.snapshot_index + 1, log.durable_index)
                log.save_snapshot(VOTERS, truth.snapshot_next, b"image %d" % truth.snapshot_next)
                truth.snapshot = truth.snapshot_next
            case "cut" if log.last_index > log.snapshot_index:
                first = rng.randint(log.snapshot_index + 1, log.last_index)
                truth.durable = first - 1
                truth.written, truth.replaced = truth.written[: first - 1], truth.written[first - 1 :]
                log.truncate_suffix(first)
                truth.replaced = []


@pytest.mark.parametrize("seed", range(8))
def test_a_crash_before_any_operation_loses_nothing_durable_and_invents_nothing(seed: int) -> None:
    disk = new_disk()
    truth = Truth(written=[entry(1)], hard_states=[HardState(term=1, vote=ME)])
    log = open_log(disk)
    luck = random.Random(seed)
    crashes = 0

    def crash(operation: Operation) -> None:
        nonlocal crashes
        for after in (disk.crash(), disk.crash(luck), disk.crash(luck), disk.crash(luck)):
            truth.check(open_log(after))
            crashes += 1
        # The process alone died: the page cache lives, and nothing in it may be taken for torn.
        # What the next process finds there and calls durable must outlive the power, too.
        survivor = disk.copy()
        found = open_log(survivor, same_boot=True)
        truth.check(found)
        again = open_log(survivor.crash())
        assert again.last_index == found.last_index
        truth.check(again)
        crashes += 2

    disk.before = crash
    live(log, truth, random.Random(seed + 100), steps=100)

    assert crashes > 1000


@pytest.mark.parametrize("seed", range(4))
def test_recovery_that_is_cut_off_can_be_repeated(seed: int) -> None:
    rng = random.Random(seed)
    disk = new_disk()
    truth = Truth(written=[entry(1)], hard_states=[HardState(term=1, vote=ME)])
    log = open_log(disk)
    live(log, truth, rng, steps=30)
    group = [entry(index, 99, 3000) for index in range(log.last_index + 1, log.last_index + 6)]
    truth.written.extend(group)
    log.append(group)
    for _ in range(40):
        torn = disk.crash(rng)
        number = 0
        while True:
            attempt = torn.copy()
            attempt.crash_at = number
            try:
                truth.check(open_log(attempt))
                break
            except CrashPoint:
                truth.check(open_log(attempt.crash(rng)))
                number += 1


def test_a_process_that_dies_in_the_middle_of_a_write_leaves_a_log_that_opens() -> None:
    disk = new_disk()
    open_log(disk)
    path = f"/data/raft/{1:020d}.log"
    base = disk.file_size(path)
    log = open_log(disk)
    log.append([entry(2), entry(3, size=500)])
    whole = disk.tree()[path]
    for cut in range(base, len(whole)):
        partial = disk.copy()
        partial.open(path).truncate(cut)
        assert open_log(partial, same_boot=True).last_index in (1, 2)


def test_after_a_torn_end_was_cut_nothing_of_it_stands_behind_new_entries() -> None:
    disk = new_disk()
    log = open_log(disk)
    log.append([entry(2, size=5000)])
    file = disk.open(f"/data/raft/{1:020d}.log")
    file.truncate(file.size() - 1)

    log = open_log(disk, same_boot=True)
    log.append([entry(2)])
    log.sync()

    assert content(open_log(disk, same_boot=True)) == [entry(1), entry(2)]


def test_a_log_that_was_never_made_whole_is_not_opened() -> None:
    outcomes = set()
    for number in range(20):
        disk = FakeDisk()
        disk.make_dir("/data")
        disk.sync_dir("/")
        disk.crash_at = disk.operations + number
        try:
            create_raft_log(disk, "/data/raft", HardState(1, ME), [entry(1)])
        except CrashPoint:
            after = disk.crash(random.Random(number))
            try:
                assert content(open_log(after)) == [entry(1)]
            except (DataDirectoryError, FileNotFoundError):
                outcomes.add("refused")
        else:
            outcomes.add("made")
            break
    assert outcomes == {"refused", "made"}
