"""What a node wants kept before it speaks is kept, in order; and a leader's image replaces the log."""

from __future__ import annotations

import errno
import random
import threading
from typing import NamedTuple

import pytest

from raft.samples import ME, OTHER, RAFT, VOTERS, append, content, entry, names, new_disk, open_log
from simulator.disk import CrashPoint, FakeDisk, Operation
from tidelog.records.checksum import crc32c
from tidelog_broker.core.raft.log import RaftStorage
from tidelog_broker.core.raft.node import RaftNode
from tidelog_broker.core.raft.times import RaftTimes
from tidelog_broker.errors import DataDirectoryError, StorageFailure
from tidelog_broker.model import Configuration, Entry, EntryType, HardState, Snapshot, Voter
from tidelog_broker.offline.verify_log import Findings
from tidelog_broker.offline.verify_metadata import verify_metadata
from tidelog_broker.storage.raft.format import pack_hard_state, unpack_hard_state
from tidelog_broker.storage.raft.install import finish_install
from tidelog_broker.storage.raft.log import RaftLog, create_raft_log

THREE = Configuration((ME, OTHER, Voter(5, b"f" * 16)))


def image(index: int, term: int = 2) -> Snapshot:
    return Snapshot(index, term, THREE, b"image %d" % index)


def filled(disk: FakeDisk, last: int, term: int = 1) -> RaftLog:
    log = open_log(disk)
    for index in range(2, last + 1):
        append(log, index, term=term)
    return log


# --- entries and hard state


def test_entries_and_hard_state_are_durable_when_save_returns() -> None:
    disk = new_disk()
    log = open_log(disk)

    log.save(None, [entry(2, 2), entry(3, 2)], HardState(2, OTHER, 2))

    again = open_log(disk.crash())
    assert content(again) == [entry(1), entry(2, 2), entry(3, 2)]
    assert again.hard_state == HardState(2, OTHER, 2)


def test_entries_replace_what_differs_and_all_behind_it() -> None:
    disk = new_disk()
    log = filled(disk, 60)

    log.save(None, [entry(30, 1), entry(31, 3)], None)

    expected = [*(entry(index) for index in range(1, 31)), entry(31, 3)]
    assert content(log) == expected
    assert content(open_log(disk.crash())) == expected


def test_entries_that_are_here_already_are_never_taken_off_the_disk() -> None:
    disk = new_disk()
    log = filled(disk, 10)
    disk.log = []

    log.save(None, [entry(index) for index in range(5, 12)], None)

    assert [operation.name for operation in disk.log] == ["pwrite", "datasync"]
    assert content(open_log(disk.crash())) == [entry(index) for index in range(1, 12)]


def test_saving_what_is_here_already_touches_nothing() -> None:
    disk = new_disk()
    log = filled(disk, 5)
    disk.log = []

    log.save(None, [entry(4), entry(5)], log.hard_state)

    assert disk.log == []


def test_a_save_that_met_a_full_disk_can_be_repeated() -> None:
    disk = new_disk()
    log = filled(disk, 5)
    everything = (image(9), [entry(10, 2), entry(11, 3)], HardState(3, ME, 10))
    for failing in ("pwrite", "create", "pwrite"):
        disk.fail(failing, errno.ENOSPC)
        with pytest.raises(OSError):
            log.save(*everything)

    log.save(*everything)

    for found in (log, open_log(disk.crash())):
        assert content(found) == [entry(10, 2), entry(11, 3)]
        assert (found.snapshot, found.hard_state) == (image(9), HardState(3, ME, 10))


# --- a leader's image


@pytest.mark.parametrize("index", [3, 40, 41, 90])
def test_an_image_of_a_leader_takes_the_place_of_the_whole_log(index: int) -> None:
    disk = new_disk()
    log = filled(disk, 40)

    log.save(image(index), [entry(index + 1, 2)], None)

    for found in (log, open_log(disk.crash())):
        assert found.snapshot == image(index)
        assert (found.first_index, found.last_index) == (index + 1, index + 1)
        assert content(found) == [entry(index + 1, 2)]
        assert (found.term(index), found.term(index - 1), found.term(1)) == (2, None, None)
    assert sorted(names(disk)) == sorted(
        [f"{index + 1:020d}.log", "hard-state", f"snapshot-{index:020d}-{2:020d}"]
    )


def test_older_images_and_segments_are_gone_and_the_log_goes_on_behind_the_image() -> None:
    disk = new_disk()
    log = filled(disk, 40)
    log.save_snapshot(VOTERS, 20, b"own")

    log.save(image(60), [], None)
    for index in range(61, 100):
        append(log, index, term=2)
    log.save_snapshot(THREE, 90, b"own again")

    again = open_log(disk.crash())
    assert content(again)[-1] == entry(99, 2)
    assert again.first_index <= 61
    found = [name for name in names(disk) if name.startswith(("snapshot", "install"))]
    assert found == [f"snapshot-{60:020d}-{2:020d}", f"snapshot-{90:020d}-{2:020d}"]


def test_an_image_that_cannot_be_written_leaves_the_log_as_it_was() -> None:
    disk = new_disk()
    log = filled(disk, 5)
    disk.fail("sync_dir", errno.EIO)

    with pytest.raises(OSError):
        log.save(image(9), [], None)

    append(log, 6)
    again = open_log(disk.crash())
    assert again.snapshot is None
    assert content(again) == [entry(index) for index in range(1, 7)]


def test_an_image_that_can_neither_be_written_nor_taken_back_ends_the_log() -> None:
    disk = new_disk()
    log = filled(disk, 5)
    disk.fail("sync_dir", errno.EIO, times=2)

    with pytest.raises(StorageFailure):
        log.save(image(9), [], None)
    with pytest.raises(StorageFailure):
        log.save(None, [entry(6)], None)


def in_the_middle() -> tuple[FakeDisk, str]:
    """A disk on which an image is taking the place of the log, and the file that says so."""
    disk = new_disk()
    log = filled(disk, 5)
    install = f"{RAFT}/install-{9:020d}-{2:020d}"
    found: list[FakeDisk] = []

    def crash(operation: Operation) -> None:
        if operation.name == "remove" and disk.exists(install):
            found.append(disk.crash())

    disk.before = crash
    log.save(image(9), [], None)
    return found[0], install


def test_an_image_that_rots_while_it_takes_the_logs_place_is_damage() -> None:
    disk, install = in_the_middle()
    disk.flip(install, 50)

    with pytest.raises(DataDirectoryError, match="taking the place of the log"):
        open_log(disk)


def test_verifying_an_installed_image_says_what_the_next_start_does() -> None:
    disk, install = in_the_middle()
    sound, damaged = Findings(), Findings()

    verify_metadata(disk, RAFT, sound)
    disk.flip(install, 50)
    verify_metadata(disk, RAFT, damaged)

    assert (sound.problems, [note.path for note in sound.notes]) == ([], [install])
    assert [problem.path for problem in damaged.problems] == [install]


# --- crashes


class Truth(NamedTuple):
    """What stands, or will."""

    snapshot: Snapshot | None
    entries: list[Entry]
    """All behind the snapshot."""
    state: HardState


def life(log: RaftLog, rng: random.Random, truth: list[Truth]) -> None:
    """Saves of all kinds; `truth` is what stands and, while a save runs, what will."""
    term = 1
    for _ in range(40):
        now = truth[0]
        begun = 0 if now.snapshot is None else now.snapshot.index
        last = begun + len(now.entries)
        snapshot, kept, overlap = None, now.entries, 0
        match rng.choice(("append", "append", "repeat", "replace", "install")):
            case "repeat":
                # A node says again what it said, if it does not know yet that it is saved.
                overlap = rng.randint(0, min(3, len(kept)))
            case "replace":
                term += 1
                kept = kept[: rng.randint(0, len(kept))]
            case "install":
                term += 1
                snapshot, kept = image(rng.randint(begun + 1, last + 5), term), []
                begun = snapshot.index
        first = begun + len(kept) + 1
        new = [entry(first + at, term, rng.choice((0, 20, 300))) for at in range(rng.randint(1, 5))]
        state = None
        if rng.random() < 0.5:
            term += 1
            state = HardState(term, rng.choice((None, ME, OTHER)), begun)
        truth.append(Truth(snapshot or now.snapshot, kept + new, state or now.state))
        log.save(snapshot, kept[len(kept) - overlap :] + new, state)
        del truth[0]


def check(found: RaftLog, truth: list[Truth]) -> None:
    """The old or the new of everything, and never entries of one with the snapshot of the other."""
    old, new = truth[0], truth[-1]
    entries = content(found)
    assert found.first_index == (1 if found.snapshot is None else found.snapshot.index + 1)
    if found.hard_state == new.state != old.state:
        # Last of all.
        assert (found.snapshot, entries) == (new.snapshot, new.entries)
        return
    assert found.hard_state in (old.state, new.state)
    if found.snapshot == new.snapshot != old.snapshot:
        assert entries == new.entries[: len(entries)]
        return
    assert found.snapshot == old.snapshot
    if old.snapshot != new.snapshot:
        assert entries == old.entries
        return
    # What both have stays; what differs is cut and written in steps.
    both = [mine for mine, other in zip(old.entries, new.entries, strict=False) if mine == other]
    assert len(entries) >= len(both)
    assert entries in (old.entries[: len(entries)], new.entries[: len(entries)])


@pytest.mark.parametrize("seed", range(6))
def test_a_crash_before_any_operation_leaves_the_old_or_the_new_and_never_a_hole(seed: int) -> None:
    disk = new_disk()
    log = open_log(disk)
    truth = [Truth(None, [entry(1)], HardState(1, ME))]
    luck = random.Random(seed)
    crashes = 0

    def crash(_: Operation) -> None:
        nonlocal crashes
        for after in (disk.crash(), disk.crash(luck), disk.crash(luck)):
            check(open_log(after), truth)
            crashes += 1
        survivor = disk.copy()
        check(open_log(survivor, same_boot=True), truth)
        check(open_log(survivor.crash()), truth)

    disk.before = crash
    life(log, random.Random(seed + 50), truth)

    assert crashes > 300


def test_an_install_that_is_cut_off_again_and_again_ends_at_last() -> None:
    disk = new_disk()
    filled(disk, 40)
    stages = 0
    for number in range(200):
        victim = disk.copy()
        log = open_log(victim)
        victim.crash_at = victim.operations + number
        try:
            log.save(image(20), [], None)
            break
        except CrashPoint:
            after = victim.crash(random.Random(number))
        for again in range(200):
            attempt = after.copy()
            attempt.crash_at = attempt.operations + again
            try:
                found = open_log(attempt)
                break
            except CrashPoint:
                # The next start goes on from wherever this one ended.
                after = attempt.crash(random.Random(again)) if again % 2 else after
        assert (found.snapshot, found.last_index) in ((None, 40), (image(20), 20))
        stages += 1
    assert stages > 10


def test_finishing_an_install_twice_is_the_same_as_once() -> None:
    disk = new_disk()
    log = filled(disk, 10)
    done: list[FakeDisk] = []
    disk.before = lambda operation: done.append(disk.copy()) if operation.name == "rename" else None
    log.save(image(7), [], None)
    disk = done[-1]

    finish_install(disk, RAFT, 7, 2)

    found = open_log(disk.crash())
    assert (found.snapshot, found.first_index, found.last_index) == (image(7), 8, 7)


# --- reading meanwhile


def test_other_threads_may_read_while_the_log_is_compacted_cut_and_replaced() -> None:
    log = filled(new_disk(), 200)
    ended = threading.Event()
    failures: list[BaseException] = []

    def read() -> None:
        rng = random.Random(1)
        try:
            while not ended.is_set():
                first = rng.randint(1, 150)
                found = log.entries(first, first + 20)
                assert found in ([], [entry(index) for index in range(first, first + 20)])
                assert log.term(first) in (1, None)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for index in range(5, 120, 5):
        log.save_snapshot(VOTERS, index, b"image")
        log.save(None, [entry(at, 1) for at in range(171, 201)], None)
        log.truncate_suffix(175)
        log.save(None, [entry(at, 1) for at in range(175, 201)], None)
    ended.set()
    for thread in threads:
        thread.join()

    assert failures == []


# --- what a node is made of


def change(index: int, configuration: Configuration) -> Entry:
    return Entry(index, 1, EntryType.CONFIGURATION, configuration.encode())


def test_who_votes_is_found_at_open_with_the_index_from_which_on() -> None:
    disk = new_disk()
    log = open_log(disk)
    log.save(None, [change(2, VOTERS), entry(3), change(4, THREE), entry(5), change(6, VOTERS)], None)

    assert open_log(disk.crash()).configurations == ((2, VOTERS), (4, THREE), (6, VOTERS))
    log.save_snapshot(THREE, 5, b"image")
    assert open_log(disk.crash()).configurations == ((5, THREE), (6, VOTERS))
    log.save(image(9), [change(10, VOTERS)], None)
    assert open_log(disk.crash()).configurations == ((9, THREE), (10, VOTERS))


def test_a_node_is_made_of_an_open_log() -> None:
    disk = FakeDisk()
    disk.make_dir("/data")
    disk.sync_dir("/")
    create_raft_log(disk, RAFT, HardState(1, ME, 1), [change(1, VOTERS)])
    log = open_log(disk)
    storage: RaftStorage = log

    node = RaftNode(ME, storage, log.hard_state, log.configurations, times=RaftTimes(), rng=random.Random(1))
    node.campaign()
    while (ready := node.ready()) is not None:
        if ready.persist is not None:
            log.save(*ready.persist)
        node.advance(ready)

    assert node.leads
    again = open_log(disk.crash())
    assert again.hard_state == HardState(2, ME, 1)
    assert content(again)[-1] == Entry(2, 2, EntryType.NOOP, b"")


# --- the hard state's bytes


def test_the_hard_state_with_a_vote_has_these_bytes() -> None:
    state = HardState(7, OTHER, 300)
    data = pack_hard_state(state)

    assert data.hex(" ", 4) == (
        "544c4831 03000000 07000000 00000000 2c010000 00000000 03000000 "
        "65656565 65656565 65656565 65656565 " + data[-4:].hex()
    )
    assert unpack_hard_state(data) == state


def test_the_hard_state_without_a_vote_is_as_the_first_version_wrote_it() -> None:
    data = pack_hard_state(HardState(7, None, 300))

    assert len(data) == 32
    assert unpack_hard_state(data) == HardState(7, None, 300)


FIRST_VERSION = bytes.fromhex("544c4831 01000000 01000000 00000000 02000000 00000000 03000000")


def first_version(broker_id: int) -> bytes:
    """A vote as the first version wrote it: term 1, commit 2, without a directory."""
    head = FIRST_VERSION[:-4] + broker_id.to_bytes(4, "little")
    return head + crc32c(head).to_bytes(4, "little")


def overwrite(disk: FakeDisk, data: bytes) -> None:
    file = disk.open(f"{RAFT}/hard-state")
    file.truncate(0)
    file.pwrite([data], 0)
    file.datasync()


def test_a_vote_of_the_first_version_gets_its_directory_from_the_newest_voters() -> None:
    disk = new_disk()
    open_log(disk).save(None, [change(2, VOTERS), change(3, THREE)], None)
    overwrite(disk, first_version(OTHER.broker_id))

    assert open_log(disk).hard_state == HardState(1, OTHER, 2)


def test_a_vote_of_the_first_version_for_one_that_votes_no_more_stays_a_vote() -> None:
    disk = new_disk()
    open_log(disk).save(None, [change(2, VOTERS)], None)
    overwrite(disk, first_version(9))

    log = open_log(disk)

    assert log.hard_state == HardState(1, Voter(9, b""), 2)
    log.save_hard_state(log.hard_state._replace(commit=1))
    assert open_log(disk.crash()).hard_state == HardState(1, Voter(9, b""), 1)


@pytest.mark.parametrize("length", [0, 27, 31, 33, 47, 49])
def test_a_hard_state_of_another_length_is_refused(length: int) -> None:
    head = pack_hard_state(HardState(7, OTHER, 300))[: max(0, length - 4)].ljust(max(0, length - 4), b"x")

    assert unpack_hard_state(head + crc32c(head).to_bytes(4, "little")) is None
