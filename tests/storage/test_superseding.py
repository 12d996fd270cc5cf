"""M2a: a metadata log that was given up is set aside for an empty one, whatever crash comes between."""

from __future__ import annotations

import random

import pytest

from simulator.disk import CrashPoint, FakeDisk, Operation
from tidelog_broker.errors import DataDirectoryError
from tidelog_broker.model import Configuration, Entry, EntryType, HardState, Voter
from tidelog_broker.offline.formatting import format_joiner, format_solo, make_empty_log
from tidelog_broker.offline.quorum_losses import sentences
from tidelog_broker.offline.quorum_recovery import recover_quorum, start_over
from tidelog_broker.offline.rewrite import recover_data_directory
from tidelog_broker.offline.verify import verify_data_directory
from tidelog_broker.storage.directory import superseding
from tidelog_broker.storage.directory.data_directory import DataDirectory
from tidelog_broker.storage.files.reserve import Reserve
from tidelog_broker.storage.raft.recovery import open_raft_log

DATA = "/data"


def formatted() -> FakeDisk:
    disk = FakeDisk()
    format_solo(disk, DATA, cluster_id=b"c" * 16, broker_id=0, directory_id=b"d" * 16)
    return disk


def kept(disk: FakeDisk, folder: str) -> dict[str, bytes]:
    return {
        path.removeprefix(f"{folder}/"): content
        for path, content in disk.tree().items()
        if path.startswith(f"{folder}/")
    }


def start(disk: FakeDisk) -> str:
    """What a start does; the folder that holds the old log, empty if there was no mark."""
    if not superseding.is_marked(disk, DATA):
        return ""
    return superseding.set_aside(disk, DATA, lambda folder: make_empty_log(disk, folder))


def entries(disk: FakeDisk) -> int:
    raft_log = open_raft_log(disk, f"{DATA}/raft", same_boot=False, reserve=Reserve(disk, DATA, 0))
    raft_log.close()
    assert raft_log.last_index > 0 or raft_log.hard_state == HardState()
    return raft_log.last_index


def test_the_old_log_is_kept_and_an_empty_one_takes_its_place() -> None:
    disk = formatted()
    old = kept(disk, f"{DATA}/raft")
    superseding.mark(disk, DATA)

    aside = start(disk)

    assert aside == f"{DATA}/raft.superseded-1"
    assert kept(disk, aside) == old
    assert entries(disk) == 0
    assert start(disk) == "", "once"
    superseding.mark(disk, DATA)
    assert start(disk) == f"{DATA}/raft.superseded-2", "the first one is never overwritten"


def test_a_mark_that_cannot_be_read_says_all_the_same_that_the_log_was_given_up() -> None:
    disk = formatted()
    superseding.mark(disk, DATA)
    disk.flip(f"{DATA}/{superseding.FILE_NAME}", 3)

    assert start(disk) == f"{DATA}/raft.superseded-1"
    assert entries(disk) == 0


def test_on_a_full_disk_the_old_log_stays_where_it_is_until_there_is_room() -> None:
    disk = formatted()
    old = kept(disk, f"{DATA}/raft")
    superseding.mark(disk, DATA)
    disk.fill(0)
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            start(disk)
        assert kept(disk, f"{DATA}/raft") == old

    disk.fill(None)
    assert kept(disk, start(disk)) == old
    assert entries(disk) == 0


def test_between_the_logs_whoever_asks_for_one_is_told_to_start_the_broker() -> None:
    disk = formatted()
    superseding.mark(disk, DATA)

    def ended(operation: Operation) -> None:
        if operation.name == "rename" and operation.path == f"{DATA}/raft.new":
            raise CrashPoint

    disk.before = ended
    with pytest.raises(CrashPoint):
        start(disk)
    disk = disk.copy()

    directory = DataDirectory.open_to_recover(disk, DATA, lock=lambda path: lambda: None)
    with pytest.raises(DataDirectoryError, match=r"was being set aside .* start the broker"):
        recover_quorum(directory, force=False)
    with pytest.raises(DataDirectoryError, match=r"was being set aside .* start the broker"):
        verify_data_directory(DATA, disk)
    said = list(recover_data_directory(disk, DATA, lock=lambda path: lambda: None))
    assert "the metadata log is being set aside; the next start finishes that" in said
    start(disk)
    assert entries(disk) == 0


def test_recover_does_not_refuse_a_damaged_log_that_the_next_start_sets_aside() -> None:
    disk = formatted()
    superseding.mark(disk, DATA)
    disk.remove(f"{DATA}/raft/hard-state")

    said = list(recover_data_directory(disk, DATA, lock=lambda path: lambda: None))

    assert any("it is being set aside, and the next start finishes that" in line for line in said)
    start(disk)
    assert entries(disk) == 0


def opened(disk: FakeDisk) -> DataDirectory:
    return DataDirectory.open(disk, DATA, reserve_bytes=0, lock=lambda path: lambda: None)


def test_a_broker_that_started_over_is_told_so_when_it_is_asked_again() -> None:
    disk = formatted()
    first = start_over(opened(disk))
    before = disk.tree()

    again = start_over(opened(disk))
    looked = recover_quorum(opened(disk), force=False)

    aside = f"{DATA}/raft.superseded-1"
    assert "before" not in sentences(first)[0]
    assert again == looked
    assert (again.set_aside, again.last_index, again.voters) == (aside, 0, ())
    assert sentences(again) == [
        f"The metadata log was set aside before, and is kept as {aside}. Start the broker: it gets the "
        "metadata from the other brokers."
    ]
    assert disk.tree() == before
    with pytest.raises(DataDirectoryError, match=r"it was set aside as .*-1\. Start the broker"):
        recover_quorum(opened(disk), force=True)


def test_a_broker_that_has_learnt_since_can_start_over_once_more() -> None:
    disk = formatted()
    start_over(opened(disk))
    raft_log = open_raft_log(disk, f"{DATA}/raft", same_boot=False, reserve=Reserve(disk, DATA, 0))
    voters = Configuration((Voter(1, b"e" * 16),))
    raft_log.append([Entry(1, 1, EntryType.CONFIGURATION, voters.encode())])
    raft_log.sync()
    raft_log.close()

    assert start_over(opened(disk)).set_aside == f"{DATA}/raft.superseded-2"
    assert start_over(opened(disk)).set_aside == f"{DATA}/raft.superseded-2"


def test_a_joiner_that_has_learnt_nothing_yet_has_nothing_to_give_up() -> None:
    disk = FakeDisk()
    format_joiner(disk, DATA, cluster_id=b"c" * 16, broker_id=0, directory_id=b"d" * 16)

    with pytest.raises(DataDirectoryError, match="has received nothing of its cluster yet"):
        start_over(opened(disk))


@pytest.mark.parametrize("seed", range(5))
def test_wherever_a_crash_comes_the_old_log_is_there_once_and_the_start_is_finished(seed: int) -> None:
    disk, rng = formatted(), random.Random(seed)
    old = kept(disk, f"{DATA}/raft")
    crashes: list[FakeDisk] = []

    def take() -> None:
        crashes.extend((disk.copy(), disk.crash(random.Random(rng.getrandbits(32)))))

    disk.before = lambda operation: take()
    superseding.mark(disk, DATA)
    marked = len(crashes)
    start(disk)
    disk.before = None
    take()

    assert len(crashes) > marked + 10
    for number, crashed in enumerate(crashes):
        start(crashed)
        aside = f"{DATA}/raft.superseded-1"
        if not crashed.exists(aside):
            assert number <= marked, "the mark was durable before anything moved"
            assert entries(crashed) == 2
            continue
        assert kept(crashed, aside) == old
        assert entries(crashed) == 0
        assert not crashed.exists(f"{DATA}/raft.superseded-2")
        assert not superseding.is_marked(crashed, DATA)
